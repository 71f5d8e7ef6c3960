"""The toys' name for :mod:`headwise.runs`."""

from headwise.runs import SCHEMA as SCHEMA
from headwise.runs import RunFolder as RunFolder
