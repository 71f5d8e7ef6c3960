"""The toys' name for :mod:`headwise.randomness`."""

from headwise.randomness import keyed as keyed
