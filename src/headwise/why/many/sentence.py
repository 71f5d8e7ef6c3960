"""What a person would say of one head over many prompts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwise.strings import counted, percent
from headwise.types import Estimate
from headwise.why.sentence import enumerated, signed

if TYPE_CHECKING:
    from headwise.why.many.result import ExplanationsResult, MeanWriter

NAMED = 3


def sentence(found: ExplanationsResult) -> str:
    """Two to four sentences; every number in them is in the document."""
    said = [
        f"In {counted(found.prompts, 'prompt')} of {found.task}, {found.head} reads its key with attention "
        f"{found.attention.mean:.2f} on average ({signed(found.log_odds.mean, 2)} in log-odds), more than an even "
        f"share in {percent(found.attends.mean)} of them."
    ]
    for side in ("query", "key"):
        rows = [one for one in found.writers if one.side == side and one.writer != "others"]
        helps = [one for one in rows if one.log_odds.mean > 0][:NAMED]
        if helps:
            where = "Its query is shaped by" if side == "query" else "The keys are shaped by"
            said.append(f"{where} {enumerated([_one(one) for one in helps])}.")
    if found.paths:
        best = max(found.paths, key=lambda one: one.log_odds.mean)
        said.append(
            f"Through MLPs it is most {best.writer} by way of {best.mlp} on the {best.side} side, "
            f"{signed(best.log_odds.mean, 2)}."
        )
    return " ".join(said)


def _one(row: MeanWriter) -> str:
    return f"{row.writer} in {percent(row.often.mean)} of the prompts ({interval(row.log_odds)})"


def interval(value: Estimate, sign: str = "+") -> str:
    """A mean with its interval, where there is one."""
    mean = f"{value.mean:{sign}.2f}"
    return mean if value.clusters < 2 else f"{mean}, {value.low:{sign}.2f} to {value.high:{sign}.2f}"
