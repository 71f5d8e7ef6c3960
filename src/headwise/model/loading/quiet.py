"""Keep the bars and notices of transformers and accelerate off the terminal while headwise works, and restore them."""

from __future__ import annotations

import logging as python_logging
import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Inside, both report errors only and draw no bars; their settings are restored on leaving."""
    from transformers.utils import logging

    # What is spread over devices and disk was asked for, and needs no notice.
    accelerate = python_logging.getLogger("accelerate")
    spread_level = accelerate.level
    accelerate.setLevel(python_logging.ERROR)
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
        accelerate.setLevel(spread_level)
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
        if before is None:
            os.environ.pop(switch, None)
        else:
            os.environ[switch] = before
