"""What a person would say of two prompts, made from the table of differences and the patched passes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headwise.strings import counted, percent
from headwise.why.proof import HALF
from headwise.why.sentence import EVEN, enumerated, signed, spoken

if TYPE_CHECKING:
    from headwise.why.pair.result import Patch, PromptDifference, WriterDifference

NAMED = 3


def sentence(found: PromptDifference) -> str:
    """Two to five sentences; every number and name in them is in the document."""
    here, there = found.here, found.there
    at, read = (_token(here.tokens, position) for position in (here.cell.query, here.cell.key))
    total = found.log_odds.difference
    first = (
        f"At {at}, {found.head} reads {read} with attention {shown(here.attention)}; in the other prompt, at "
        f"{_token(there.tokens, there.cell.query)}, it reads {_token(there.tokens, there.cell.key)} with "
        f"{shown(there.attention)}"
    )
    if abs(total) < EVEN:
        return f"{first}: the log-odds hardly differ ({signed(total, 2)}), and nobody is named."
    said = [f"{first}: {signed(total, 2)} in log-odds.", _sides(found), _who(found)]
    if found.patch is not None and found.back is not None:
        said += [_patched(found, found.patch), _back(found.back)]
    else:
        said.append("No set of whole writers of one side takes half of the difference along.")
    return " ".join(said)


def _sides(found: PromptDifference) -> str:
    receiver = "this prompt" if found.into == "here" else "the other prompt"
    giver = "the other one's" if found.into == "here" else "this one's"
    return (
        f"With {giver} query {receiver} would have attention {shown(found.whole['query'])}, with its keys "
        f"{shown(found.whole['key'])}."
    )


def _who(found: PromptDifference) -> str:
    sign = 1 if found.log_odds.difference > 0 else -1
    said = []
    for side in ("query", "key"):
        rows = [row for row in found.of(side) if row.writer is not None]
        most = sorted(rows, key=lambda row: -sign * row.log_odds.difference)[:NAMED]
        names = [
            f"{name(row, found)} {signed(row.log_odds.difference)}"
            for row in most
            if sign * row.log_odds.difference > 0
        ]
        if names:
            said.append(f"on the {side} side {enumerated(names)}")
    return f"Its largest parts: {'; '.join(said)}." if said else "No single writer makes it."


def _patched(found: PromptDifference, patch: Patch) -> str:
    rows = found.patched
    names = enumerated([name(row, found) for row in rows[:NAMED]])
    more = f" and {counted(len(rows) - NAMED, 'other')}" if len(rows) > NAMED else ""
    wrote = "in the other prompt" if patch.into == "here" else "in this prompt put into the other"
    share = patch.attention.value or 0.0
    p = patch.attention.p
    against = "" if p is None else f" (p {p:.3f} against as much of something else)"
    specific = ", no more than under controls" if patch.attention.said is False else ""
    answer = {
        None: "the answer cannot tell",
        True: f"the answer follows by {percent(patch.answer.value or 0.0)}",
        False: "the answer does not follow",
    }[patch.answer.said]
    return (
        f"With what {names}{more} wrote {wrote} on the {found.side} side, attention goes from "
        f"{shown(patch.before.attention)} to {shown(patch.after.attention)}: {percent(share)} of the difference "
        f"follows{against}{specific}, and {answer}."
    )


def _back(patch: Patch) -> str:
    share = patch.attention.value or 0.0
    doubt = ""
    if patch.attention.said is False:
        doubt = ", less than half" if share < HALF else ", no more than under controls"
    return (
        f"The other way round, attention goes from {shown(patch.before.attention)} to "
        f"{shown(patch.after.attention)}: {percent(share)} of the difference comes{doubt}."
    )


def name(row: WriterDifference, found: PromptDifference) -> str:
    """A writer as one would say it, with the tokens that it read."""
    here, there = row.here, row.there
    one = here if here is not None else there
    assert one is not None
    if one.kind != "head":
        return spoken(one)
    if here is None or there is None:
        tokens = found.here.tokens if there is None else found.there.tokens
        where = "here" if there is None else "there"
        return f"{spoken(one)} reading {_token(tokens, one.source)} (only {where})"
    a, b = found.here.tokens[here.source], found.there.tokens[there.source]
    return f"{spoken(one)} reading {a!r}" + ("" if a == b else f" here and {b!r} there")


def shown(attention: float) -> str:
    """An attention in two digits, and a small one in its own.

    >>> shown(0.714), shown(0.0004)
    ('0.71', '0.0004')
    """
    return f"{attention:.2f}" if attention >= 0.01 else f"{attention:.1g}"


def _token(tokens: Sequence[str], position: int) -> str:
    return f"{tokens[position]!r} ({position})"
