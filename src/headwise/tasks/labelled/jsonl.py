"""Your own contrasts from a JSONL file: one prompt per line, all bad lines reported at once.

    {"prompt": "The [[jam:jam]] is in Box [[right:Z]]. The pen is in Box [[wrong:B]]. The jam is in Box",
     "query": -1, "positive": ["right"], "negative": ["wrong"], "groups": {"entity": "jam"}}

A span is marked in the prompt as ``[[name:text]]`` (the marks are taken out before the model reads it), or
given as character offsets ``[start, end]`` into the prompt. A position is a span's last token. ``query`` is
a span, an offset pair, or a token position; −1 (the last token) if left out. ``feature`` names the contrast
a line belongs to, ``groups`` labels it: the values of the first group named in ``hold_out`` decide who fits
and who tests.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from headwise.errors import HeadwiseError
from headwise.strings import shortened
from headwise.tasks.labelled.formats import last_tokens
from headwise.tasks.labelled.types import Contrast, Example, Task
from headwise.tasks.lines import Labels, PromptText, Title, read_objects
from headwise.tokens import require_tokenizer
from headwise.validation import Row, Shape, quoted, unfit

_OPENING = re.compile(r"\[\[(\w+):")
_PLACE = "neither the name of a marked span nor a pair of characters"

Span = str | tuple[int, int]
"""A marked span by name, or the characters from one to another."""


def unmark(text: str) -> tuple[str, dict[str, list[tuple[int, int]]]]:
    """The text without marks, and the character spans of each name.

    >>> unmark("a [[x:bc]] d [[x:e]]")
    ('a bc d e', {'x': [(2, 4), (7, 8)]})
    """
    plain: list[str] = []
    spans: dict[str, list[tuple[int, int]]] = {}
    end, length, close, line = 0, 0, -1, -1
    for opening in _OPENING.finditer(text):
        start = opening.end()
        if opening.start() < end:
            continue  # inside the mark before
        if close < start:
            close = text.find("]]", start)
            if close < 0:
                break
        if line < start:  # like the closing marks, looked for only once it is passed
            line = text.find("\n", start)
            line = len(text) if line < 0 else line
        if line < close:
            continue
        before, word = text[end : opening.start()], text[start:close]
        plain += [before, word]
        length += len(before) + len(word)
        spans.setdefault(opening[1], []).append((length - len(word), length))
        end = close + 2
    return "".join([*plain, text[end:]]), spans


def check_jsonl(path: str | Path) -> None:
    """Refuse a file whose lines are not labelled prompts; where their labels are, only a tokenizer can tell."""
    read_objects(Path(path), _LabelledLine, lambda line: line)


def read_jsonl(path: str | Path, tokenizer: Any, *, seed: int = 0, hold_out: str | None = None) -> Task:
    """The task of a file: heads are found and features fitted on one part of it, tested on the other."""
    path = Path(path)
    found = read_objects(path, _LabelledLine, lambda line: _example(line, tokenizer))
    if len(found) < 8:
        raise HeadwiseError(
            f"{str(path)!r} has {len(found)} prompts: give at least 8, so that some can be held out"
        )
    return _task(path.stem, found, seed, hold_out)


def _span(value: Any) -> Any:
    if isinstance(value, str):
        return value
    pair = isinstance(value, list) and len(value) == 2 and all(type(one) is int for one in value)
    if not pair:
        raise unfit(f"{quoted(value)} is {_PLACE}")
    return (value[0], value[1])


def _query(value: Any) -> Any:
    return value if type(value) is int else _span(value)


class _LabelledLine(Shape):
    prompt: PromptText
    positive: Row[Annotated[Any, BeforeValidator(_span)]]
    negative: Row[Annotated[Any, BeforeValidator(_span)]]
    query: Annotated[Any, BeforeValidator(_query)] = -1
    groups: Labels = Field(default_factory=dict)
    feature: Title = "feature"


def _example(line: _LabelledLine, tokenizer: Any) -> tuple[str, Example]:
    text, spans = unmark(line.prompt)
    encoded = require_tokenizer(tokenizer, "tasks are text and cannot be read by it")(
        text, return_offsets_mapping=True
    )
    offsets, count = encoded.offset_mapping, len(encoded.input_ids)

    def place(span: Span, what: str) -> list[int]:
        if isinstance(span, str):
            if span not in spans:
                known = ", ".join(sorted(spans)) or "none"
                raise HeadwiseError(
                    f"{what} {quoted(span)} is not a marked span (marked: {shortened(known)})"
                )
            return last_tokens(offsets, spans[span])
        if not 0 <= span[0] < span[1] <= len(text):
            raise HeadwiseError(
                f"{what} {quoted(span)} is outside the prompt, which has {len(text)} characters"
            )
        return last_tokens(offsets, [span])

    positive, negative = (
        tuple(dict.fromkeys(position for span in given for position in place(span, name)))
        for name, given in (("positive", line.positive), ("negative", line.negative))
    )
    if isinstance(line.query, int):
        if not -count <= line.query < count:
            raise HeadwiseError(f"query {quoted(line.query)} is outside the prompt, which has {count} tokens")
        row = line.query % count
    else:
        row = place(line.query, "query")[-1]
    kinds = ("positive",) * len(positive) + ("negative",) * len(negative)
    made = Example(tuple(encoded.input_ids), row, positive, negative, line.groups, {"set": kinds})
    return line.feature, made


def _task(name: str, found: Sequence[tuple[str, Example]], seed: int, hold_out: str | None) -> Task:
    rng = random.Random(f"jsonl {seed}")
    shared = set.intersection(*(set(e.groups) for _, e in found))
    if hold_out is not None and hold_out not in shared:
        raise HeadwiseError(f"the group {hold_out!r} is not given on every line: groups are {sorted(shared)}")
    order = [g for g in ("entity", "item", "template") if g in shared] + sorted(shared)
    # A group of one value cannot be held out.
    group = hold_out or next((g for g in order if len({e.groups[g] for _, e in found}) > 1), None)
    units = [e.groups[group] if group else str(i) for i, (_, e) in enumerate(found)]
    values = sorted(set(units))
    rng.shuffle(values)
    tested = set(values[: max(1, len(values) // 3)])
    fits: dict[str, list[Example]] = {}
    test: list[Example] = []
    several = len({feature for feature, _ in found}) > 1
    for unit, (feature, example) in zip(units, found, strict=True):
        if unit in tested:
            pair = (rng.choice(example.positive), rng.choice(example.negative))
            test.append(replace(example, swap=pair, about=(feature,) if several else ()))
        else:
            fits.setdefault(feature, []).append(example)
    few = [f for f, examples in fits.items() if len(examples) < 4]
    if few or not fits:
        raise HeadwiseError(
            f"feature {few[0] if few else '?'!r} keeps fewer than 4 prompts to fit on: give more"
        )
    return Task(
        name=name,
        rule="accuracy" if all(len(e.positive) == 1 for _, e in found) else "ratio",
        scan=Contrast(name, tuple(e for examples in fits.values() for e in examples)),
        fits=tuple(Contrast(f, tuple(examples)) for f, examples in fits.items()),
        test=Contrast(name, tuple(test)),
        unions={"all features": tuple(fits)} if len(fits) > 1 else {},
        held_out=(group,) if group else (),
        colours=dict.fromkeys((*fits, *(["all features"] if len(fits) > 1 else [])), "set"),
        settings={"file": name, "prompts": len(found), "hold_out": group, "seed": seed},
    )
