"""An explanation as one HTML file that opens offline: the prompt, what, who, proof, and the head's pattern."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwise import files
from headwise.show import notebook
from headwise.show.kit.page import mounted
from headwise.show.naming.known import linked
from headwise.show.why.long_pattern import LONG, long_pattern
from headwise.why.document import to_json

if TYPE_CHECKING:
    import numpy as np

    from headwise.model.attend import AttentionCall
    from headwise.why.explanation import Explanation

WIDE = 1000
"""Prompts longer than this carry their pattern in one byte a cell instead of two."""


def page(why: Explanation, beside: Path | None = None) -> str:
    """The page of the explanation; ``beside`` is the folder that it will be in, from which evidence is linked."""
    return mounted(_title(why), drawn(why, beside), notebook.explanation(why))


def drawn(why: Explanation, beside: Path | None = None) -> dict[str, Any]:
    """What the bundle draws: the explanation's own document, and the head's pattern: of a long prompt, a part of it."""
    quoted = {*why.tokens, why.answer.text, why.answer.wrong_text}
    data = {
        **linked(to_json(why), why.names, beside),
        "pattern": _pattern(why),
        # The tokens as the sentences quote them, so that the page can keep each in one piece.
        "quoted": sorted(map(repr, quoted), key=len, reverse=True),
    }
    return _compact(data)


def write_page(why: Explanation, path: str | Path) -> Path:
    """Write the page; a reader never sees half of it."""
    return files.write_text(path, page(why, Path(path).parent))


def _title(why: Explanation) -> str:
    """The question as a person would ask it."""
    at, read = (notebook.token(why, position) for position in (why.query, why.key))
    return f"Why does {why.head} at {at} read {read}?"


def _pattern(why: Explanation) -> dict[str, Any]:
    if why.call.query.shape[2] > LONG:
        return long_pattern(why.call, why.query, why.key)
    cells = packed(why.call)
    return {"bytes": cells.itemsize, "cells": base64.b64encode(cells.tobytes()).decode()}


def packed(call: AttentionCall) -> np.ndarray:
    """The visible half of one head's pattern, row by row: whole numbers that stand for attention (two bytes), or its
    root (one byte). Of a long prompt nothing larger than these bytes is made."""
    import numpy as np

    columns = np.arange(call.query.shape[2])
    # In one byte the root keeps small attentions apart.
    wide = len(columns) > WIDE
    parts = []
    for rows, pattern, _ in call.in_rows():
        some = pattern[0, 0].double().clamp(0, 1).nan_to_num(0.0).cpu().numpy()
        half = some[columns <= columns[rows, None]]
        parts.append(
            np.rint(np.sqrt(half) * 255).astype("u1") if wide else np.rint(half * 65535).astype("<u2")
        )
    return np.concatenate(parts)


def _compact(value: Any) -> Any:
    """Seven figures are more than anybody reads.

    >>> _compact({"a": [1.23456789012, 3]})
    {'a': [1.234568, 3]}
    """
    if isinstance(value, float):
        return float(f"{value:.7g}")
    if isinstance(value, dict):
        return {key: _compact(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_compact(one) for one in value]
    return value
