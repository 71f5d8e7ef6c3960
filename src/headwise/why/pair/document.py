"""The difference between two prompts as one JSON document (docs/guides/not-there.md)."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from headwise.types import Component
from headwise.why.document import OTHERS
from headwise.why.pair.result import Both, OnePrompt, Patch, PromptDifference, WriterDifference
from headwise.why.tried import control_json, outcome_json

SCHEMA = 1


def to_json(found: PromptDifference) -> dict[str, Any]:
    """Everything but the rows that are merged into ``others``."""
    here, there, answer = found.here, found.there, found.answer
    return {
        "schema": SCHEMA,
        "model": found.model,
        "head": str(found.head),
        "start": found.start,
        "basis": found.basis.to_json(),
        "here": _prompt(here),
        "there": _prompt(there),
        "alignment": [list(pair) for pair in found.alignment.items()],
        "chosen_because": found.question.because,
        "notices": list(found.question.notices),
        "answer": {"text": answer.text, "wrong": answer.wrong_text, "measured_by": answer.measured_by},
        "log_odds": {**found.log_odds.to_json(), "error": found.error},
        "place": {
            name: Both(getattr(here.place, name), getattr(there.place, name)).to_json()
            for name in ("content", "place", "interaction", "level")
        },
        "what": _channels(found),
        "who": [_row(row, found) for row in found.who],
        "sides": {
            side: {
                "larger": found.totals[side].helping,
                "smaller": found.totals[side].hindering,
                "attention": found.whole[side],
            }
            for side in found.totals
        },
        "into": found.into,
        "side": found.side,
        "patch": None if found.patch is None else _patch(found.patch),
        "back": None if found.back is None else _patch(found.back),
        "sentence": found.sentence,
        "seconds": round(found.seconds, 4),
    }


def _prompt(one: OnePrompt) -> dict[str, Any]:
    return {
        "prompt": one.prompt,
        "tokens": list(one.tokens),
        "query": one.cell.query,
        "key": one.cell.key,
        "attention": one.attention,
        "log_odds": one.log_odds,
        "keys": one.keys,
        "row": list(one.row),
        "predicted": one.predicted,
        "outcome": outcome_json(one.outcome),
    }


def _channels(found: PromptDifference) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = [
        {"channel": part.channel, "stable": part.stable, **part.log_odds.to_json()} for part in found.shown
    ]
    rest = found.what[len(found.shown) :]
    if rest:
        both = Both(sum(part.log_odds.here for part in rest), sum(part.log_odds.there for part in rest))
        made.append({"channel": OTHERS, "stable": False, **both.to_json(), "count": len(rest)})
    return made


def _writers(here: Component | None, there: Component | None) -> dict[str, Any]:
    """The writer's name, and the tokens that a head read here and there."""
    one = here if here is not None else there
    reads = [part.source if part is not None and part.kind == "head" else None for part in (here, there)]
    name = OTHERS if one is None else "constants" if one.kind == "offset" and one.layer >= 0 else one.name
    return {"writer": name, "reads": reads[0], "reads_there": reads[1]}


def _row(row: WriterDifference, found: PromptDifference) -> dict[str, Any]:
    channels: list[dict[str, Any]] = [
        {"channel": part.channel, "difference": value}
        for part, value in zip(found.shown, row.channels, strict=True)
    ]
    if len(found.what) > len(found.shown):
        rest = row.log_odds.difference - sum(row.channels)
        channels.append({"channel": OTHERS, "difference": rest})
    return {
        "side": row.side,
        **_writers(row.here, row.there),
        **row.log_odds.to_json(),
        "count": row.count,
        "patched": row.patched,
        "channels": channels,
        "through": [{**_writers(one.here, one.there), **one.log_odds.to_json()} for one in row.through],
    }


def _patch(patch: Patch) -> dict[str, Any]:
    return {
        "into": patch.into,
        "before": outcome_json(patch.before),
        "other": outcome_json(patch.other),
        "after": outcome_json(patch.after),
        "predicted": patch.predicted,
        "controls": [control_json(control) for control in patch.controls],
        "attention": asdict(patch.attention),
        "answer": asdict(patch.answer),
    }
