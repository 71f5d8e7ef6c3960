"""An explanation as one HTML file that opens offline: the prompt, what, who, proof, and the head's whole pattern."""

from __future__ import annotations

import base64
import html
import json
import math
import os
import re
from collections.abc import Iterable, Sequence
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwise.errors import HeadwiseError
from headwise.why.document import document
from headwise.why.sentence import spoken

if TYPE_CHECKING:
    from torch import Tensor

    from headwise.why.explain import Explanation
    from headwise.why.proof import Outcome

SCRIPTS = ("why.js", "why_parts.js", "why_pictures.js")
WIDE = 1000
"""Prompts longer than this carry their pattern in one byte a cell instead of two."""


def page(why: Explanation) -> str:
    """The page. Prompts may hold anything: the data cannot close its script element, and the page only sets text."""
    quoted = {*(why.tokens[i] for i in (why.query, why.key)), why.answer.text, why.answer.wrong_text}
    data = {
        **document(why),
        "pattern": _pattern(why.pattern),
        # The tokens as the sentences quote them, so that the page can keep each in one piece.
        "quoted": sorted(map(repr, quoted), key=len, reverse=True),
    }
    # Pure ASCII: neither a lone surrogate nor a line separator can break the file or the script.
    text = json.dumps(_compact(data), ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    for character, escape in (("<", "\\u003c"), (">", "\\u003e"), ("&", "\\u0026")):
        text = text.replace(character, escape)
    holds, words = why.proof.verdict
    parts = {
        "title": _escaped(_title(why)),
        "sentence": _escaped(why.sentence),
        "verdict": _escaped(_verdict(words)),
        "holds": "holds" if holds else "fails",
        "plain": notebook(why),
        "data": text,
        "script": "\n".join(_part(name) for name in SCRIPTS),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], _part("why.html"))


def write_page(why: Explanation, path: str | Path) -> Path:
    """Write the page; a reader never sees half of it, and nothing is left behind if writing is stopped."""
    path = Path(path)
    text = page(why)
    try:
        beside = path.with_name(f".{path.name}.{os.getpid()}.part")
        try:
            beside.write_text(text, encoding="utf-8")
            beside.replace(path)
        except BaseException:
            beside.unlink(missing_ok=True)
            raise
    except (OSError, ValueError) as error:  # ValueError: no file name at all, or a NUL in it
        reason = (error.strerror if isinstance(error, OSError) else None) or "not a file's path"
        raise HeadwiseError(f"{str(path)!r} cannot be written ({reason}): choose another path") from None
    return path


def notebook(why: Explanation) -> str:
    """The sentence and three small tables, as HTML that needs neither script nor style sheet."""
    holds, words = why.proof.verdict
    what, who, proof = why.what, why.who, why.proof
    channels = [(str(p.channel), f"{p.value:+.2f}") for p in what.channels[:8]]
    if len(what.channels) > 8:
        rest = sum(p.value for p in what.channels[8:])
        channels.append((f"{len(what.channels) - 8} more", f"{rest:+.2f}"))
    channels += [(p.name, f"{p.value:+.2f}") for p in what.features]
    if what.features:
        channels.append(("unexplained", f"{what.unexplained:+.2f}"))
    writers = [
        (
            spoken(w.component),
            w.side,
            _token(why, w.position),
            _token(why, w.component.source) if w.component.kind == "head" else "",
            ", ".join(map(str, w.channels)),
            f"{100 * w.share:.0f} %",
        )
        for w in who.writers
    ]
    tests: list[tuple[str, ...]] = [("as it is", "", *_outcome(proof.before))]
    tests += [(f"without {_SIDES[t.name]}", f"{t.predicted:.3f}", *_outcome(t.observed)) for t in proof.tests]
    main = proof.main
    if main is not None and main.spread is not None:
        pairs = (main.spread.attention, main.spread.probability, main.spread.lead)
        tests.append(
            (f"{len(main.controls)} random removals", "", *(f"{mean:.3f} ± {sd:.3f}" for mean, sd in pairs))
        )
    tests += [(f"{t.name}, {t.kind}", f"{t.predicted:.3f}", *_outcome(t.observed)) for t in proof.features]
    colour = "#12805c" if holds else "#c2321e"
    boxes = (
        _table("What", ("channel", "relative logit"), channels)
        + _table("Who", ("component", "side", "at", "read", "channels", "share"), writers)
        + _table("Proof", ("model", "predicted", "attention", "probability", "lead"), tests)
    )
    return (
        '<div style="font-family:system-ui,sans-serif;line-height:1.45">'
        f'<p style="font-size:1.05em;max-width:60em;margin:.3em 0">{_escaped(why.sentence)}</p>'
        f'<p style="margin:.3em 0"><b style="color:{colour}">{"✓" if holds else "✗"}</b> {_escaped(words)}</p>'
        f'<div style="display:flex;flex-wrap:wrap;gap:8px 32px;align-items:flex-start">{boxes}</div></div>'
    )


_SIDES = {"query": "the query side", "key": "the key side", "both": "both sides"}


def _outcome(outcome: Outcome) -> tuple[str, str, str]:
    return f"{outcome.attention:.3f}", f"{outcome.probability:.3f}", f"{outcome.lead:+.2f}"


def _table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    style = 'style="text-align:left;padding:1px 10px 1px 0;white-space:pre"'
    head = "".join(f"<th {style}>{_escaped(c)}</th>" for c in columns)
    body = "".join(
        "<tr>" + "".join(f"<td {style}><bdi>{_escaped(cell)}</bdi></td>" for cell in row) + "</tr>"
        for row in rows
    )
    caption = f'<caption style="text-align:left;font-weight:600">{_escaped(title)}</caption>'
    return f'<table style="border-collapse:collapse">{caption}<tr>{head}</tr>{body}</table>'


def _title(why: Explanation) -> str:
    """The question as a person would ask it."""
    return f"Why does {why.head} at {_token(why, why.query)} read {_token(why, why.key)}?"


def _verdict(words: str) -> str:
    """The verdict's reason alone: the page says before it whether the proof holds.

    >>> _verdict("The proof fails: random signals do as much.")
    'Random signals do as much.'
    """
    reason = words.removeprefix("The proof holds: ").removeprefix("The proof fails: ")
    return reason[:1].upper() + reason[1:]


def _token(why: Explanation, position: int) -> str:
    return f"{why.tokens[position]!r} ({position})"


def _escaped(text: str) -> str:
    """Safe as text and inside quotes; halves of a surrogate pair, which no file can hold, become question marks."""
    return html.escape(text.encode("utf-8", "replace").decode("utf-8"))


def _pattern(pattern: Tensor) -> dict[str, Any]:
    """The visible half, row by row: whole numbers that stand for attention (two bytes), or its root (one byte)."""
    import numpy as np

    whole = pattern.double().clamp(0, 1).nan_to_num(0.0).numpy()
    half = whole[np.tril_indices(len(whole))]
    # In one byte the root keeps small attentions apart.
    wide = len(whole) > WIDE
    cells = np.rint(np.sqrt(half) * 255).astype("u1") if wide else np.rint(half * 65535).astype("<u2")
    return {"bytes": cells.itemsize, "cells": base64.b64encode(cells.tobytes()).decode()}


def _compact(value: Any) -> Any:
    """Seven figures are more than anybody reads; what is not a number is nothing, which JSON can say.

    >>> _compact({"a": [1.23456789012, float("nan"), 3]})
    {'a': [1.234568, None, 3]}
    """
    if isinstance(value, float):
        return float(f"{value:.7g}") if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _compact(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_compact(one) for one in value]
    return value


def _part(name: str) -> str:
    return resources.files("headwise.show").joinpath(name).read_text(encoding="utf-8")
