"""Tests in half precision run on every processor: imported before torch, this sets what that takes here."""

from __future__ import annotations

import os
from contextlib import suppress

from headwise.errors import HeadwiseError
from headwise.model.loading import half

for dtype in half.HALVES:
    with suppress(HeadwiseError):  # where nothing helps, the tests concerned say so, one line each
        os.environ.update(half.needed(dtype))
