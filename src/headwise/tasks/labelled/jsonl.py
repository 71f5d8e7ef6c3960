"""Your own contrasts from a JSONL file: one prompt a line, all bad lines reported at once.

    {"prompt": "The [[jam:jam]] is in Box [[right:Z]]. The pen is in Box [[wrong:B]]. The jam is in Box",
     "query": -1, "positive": ["right"], "negative": ["wrong"], "groups": {"entity": "jam"}}

A span is marked in the prompt as ``[[name:text]]`` (the marks are taken out before the model reads it), or
given as character offsets ``[start, end]`` into the prompt. A position is a span's last token. ``query`` is
a span, an offset pair, or a token position; −1 (the last token) if left out. ``feature`` names the contrast
a line belongs to, ``groups`` labels it: the values of the first group named in ``hold_out`` decide who fits
and who tests.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from headwise.errors import HeadwiseError
from headwise.tasks.labelled.formats import last_tokens
from headwise.tasks.labelled.types import Contrast, Example, Task
from headwise.tokens import require_tokenizer

Parsed = TypeVar("Parsed")

_MARK = re.compile(r"\[\[(\w+):(.*?)\]\]")
_KNOWN = {"prompt", "query", "positive", "negative", "groups", "feature", "answers"}


def unmark(text: str) -> tuple[str, dict[str, list[tuple[int, int]]]]:
    """The text without marks, and the character spans of each name.

    >>> unmark("a [[x:bc]] d [[x:e]]")
    ('a bc d e', {'x': [(2, 4), (7, 8)]})
    """
    plain, spans, end = "", {}, 0
    for match in _MARK.finditer(text):
        plain += text[end : match.start()]
        spans.setdefault(match[1], []).append((len(plain), len(plain) + len(match[2])))
        plain += match[2]
        end = match.end()
    return plain + text[end:], spans


def read_lines(path: Path, parse: Callable[[str], Parsed]) -> list[Parsed]:
    """Every line that is not blank, parsed; what is wrong with any of them is said of all at once."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8 text"
        raise HeadwiseError(f"{str(path)!r} cannot be read ({reason})") from None
    found: list[Parsed] = []
    wrong: list[str] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            found.append(parse(line))
        except HeadwiseError as error:
            wrong.append(f"line {number}: {error}")
    if wrong:
        many = f"{len(wrong)} bad lines" if len(wrong) > 1 else "a bad line"
        raise HeadwiseError(f"{str(path)!r} has {many}: " + "; ".join(wrong))
    return found


def read_object(line: str, known: Collection[str], required: Sequence[str]) -> dict[str, Any]:
    """A line's JSON object, with no field that is not known and none missing; its prompt is text."""
    try:
        record = json.loads(line)
    except ValueError as error:
        raise HeadwiseError(f"not JSON ({error})") from None
    if not isinstance(record, dict):
        raise HeadwiseError("not a JSON object")
    unknown = sorted(set(record) - set(known))
    if unknown:
        raise HeadwiseError(f"unknown field {unknown[0]!r}: write {', '.join(sorted(known))}")
    for name in required:
        if name not in record:
            raise HeadwiseError(f"the field {name!r} is missing")
    if not isinstance(record["prompt"], str) or not record["prompt"]:
        raise HeadwiseError("prompt is not text")
    return record


def read_jsonl(path: str | Path, tokenizer: Any, *, seed: int = 0, hold_out: str | None = None) -> Task:
    """The task of a file: heads are found and features fitted on one part of it, tested on the other."""
    path = Path(path)
    found = read_lines(path, lambda line: _line(line, tokenizer))
    if len(found) < 8:
        raise HeadwiseError(
            f"{str(path)!r} has {len(found)} prompts: give at least 8, so that some can be held out"
        )
    return _task(path.stem, found, seed, hold_out)


def _line(line: str, tokenizer: Any) -> tuple[str, Example]:
    record = read_object(line, _KNOWN, ("prompt", "positive", "negative"))
    text, spans = unmark(record["prompt"])
    encoded = require_tokenizer(tokenizer, "tasks are text and cannot be read by it")(
        text, return_offsets_mapping=True
    )
    offsets = encoded.offset_mapping

    def place(value: Any, what: str) -> list[int]:
        if isinstance(value, str):
            if value not in spans:
                known = ", ".join(sorted(spans)) or "none"
                raise HeadwiseError(f"{what} {value!r} is not a marked span (marked: {known})")
            return last_tokens(offsets, spans[value])
        pair = isinstance(value, list) and len(value) == 2 and all(isinstance(v, int) for v in value)
        if not pair or not 0 <= value[0] < value[1] <= len(text):
            raise HeadwiseError(
                f"{what} {value!r} is no span name and no pair of characters within the prompt"
            )
        return last_tokens(offsets, [(value[0], value[1])])

    sets = []
    for name in ("positive", "negative"):
        if not isinstance(record[name], list):
            raise HeadwiseError(f"{name} is not a list of spans")
        sets.append(tuple(dict.fromkeys(p for value in record[name] for p in place(value, name))))
    query = record.get("query", -1)
    count = len(encoded.input_ids)
    if isinstance(query, int) and not isinstance(query, bool):
        if not -count <= query < count:
            raise HeadwiseError(f"query {query} is outside the prompt, which has {count} tokens")
        row = query % count
    else:
        row = place(query, "query")[-1]
    groups = record.get("groups", {})
    if not isinstance(groups, dict):
        raise HeadwiseError("groups is not an object of labels")
    made = Example(
        tuple(encoded.input_ids), row, sets[0], sets[1], {str(k): str(v) for k, v in groups.items()},
        {"set": ("positive",) * len(sets[0]) + ("negative",) * len(sets[1])},
    )  # fmt: skip
    return str(record.get("feature", "feature")), made


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
    for unit, (feature, example) in zip(units, found, strict=True):
        if unit in tested:
            pair = (rng.choice(example.positive), rng.choice(example.negative))
            test.append(replace(example, swap=pair))
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
