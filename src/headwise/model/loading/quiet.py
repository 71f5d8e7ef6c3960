"""Keep transformers' bars and notices off the terminal while headwise works with it, and restore them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Inside, transformers reports errors only and draws no bars; its settings are restored on leaving."""
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    # A repository with only pickled weights must be refused, not sent to an online service for conversion.
    switch = "DISABLE_SAFETENSORS_CONVERSION"
    before = os.environ.get(switch)
    os.environ[switch] = "1"
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
        if before is None:
            os.environ.pop(switch, None)
        else:
            os.environ[switch] = before
