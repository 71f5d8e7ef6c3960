"""An explanation as one JSON document (docs/method/why.md): one table, what takes it apart, and what was tried."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from headwise.basis_names import BasisName
from headwise.contrast.roles import HeadRoles, role_of
from headwise.known_names import signal_id
from headwise.tracing.mlps import MLPAccount, SignedTotals
from headwise.tracing.search import SideSignals
from headwise.tracing.writers import WriterSet
from headwise.types import Component, Side
from headwise.why.consequence import Consequence
from headwise.why.names import names_json
from headwise.why.proof import Foreseen, Proof, Verdict
from headwise.why.question import Answer, Question
from headwise.why.tried import (
    consequence_json,
    control_json,
    features_json,
    proof_json,
    signals_json,
    transfer_json,
    writer_json,
)
from headwise.why.vocabulary import CellVocabulary, ChannelVocabulary
from headwise.why.what import PlaceSplit, What
from headwise.why.who import Who, WriterRow

if TYPE_CHECKING:
    from headwise.why.answers import Continued
    from headwise.why.explanation import Explanation

SCHEMA = 2
OTHERS = "others"


@dataclass(frozen=True, eq=False)
class Step:
    """One part of an explanation as soon as it is known."""

    name: Literal["question", "place", "table", "predicted", "observed", "controls", "consequence", "done"]
    part: Callable[[], dict[str, Any]]
    """Makes the fields of the document that are known now; the last step makes all of it, ``to_json()``."""


FIELDS = (
    *(
        "schema",
        "model",
        "prompt",
        "tokens",
        "start",
        "head",
        "role",
        "query",
        "key",
        "attention",
        "logit",
        "answer",
    ),
    *(
        "continued",
        "chosen_because",
        "runners_up",
        "notices",
        "basis",
        "log_odds",
        "relative",
        "numbered",
        "place",
        "what",
        "who",
        "cause",
    ),
    *(
        "consequence",
        "proof",
        "controls",
        "signals",
        "verdict",
        "transfer",
        "rivals",
        "features",
        "names",
        "sentence",
        "seconds",
    ),
)
"""The document's fields in their order."""


def to_json(why: Explanation) -> dict[str, Any]:
    """Everything but the pattern of the whole head and the rows that are merged into ``others``."""
    made = {
        **asked(
            why.model,
            why.prompt,
            why.tokens,
            why.start,
            why.question,
            why.answer,
            why.basis,
            why.roles,
            why.continued,
        ),
        **placed(why.what, why.place),
        **tabled(why.what, why.who, why.roles, why.vocabulary),
        **observed(why.proof),
        **controlled(why.proof, why.verdict),
        **followed(why.consequence),
        "transfer": [transfer_json(one) for one in why.transfer],
        "features": features_json(why.what, why.who, why.proof) if why.what.features else None,
        "names": None if why.names is None else names_json(why),
        "sentence": why.sentence,
        "seconds": round(why.seconds, 4),
    }
    return {name: made[name] for name in FIELDS}


# --- its parts, in the order in which they become known --------------------------------------------------------------


def asked(
    model: str,
    prompt: str | None,
    tokens: Sequence[str],
    start: int,
    question: Question,
    answer: Answer,
    basis: BasisName,
    roles: HeadRoles | None = None,
    continued: Continued | None = None,
) -> dict[str, Any]:
    """Which cell is meant, and by which answer its effect is measured."""
    return {
        "schema": SCHEMA,
        "model": model,
        "prompt": prompt,
        "tokens": list(tokens),
        "start": start,
        "head": str(question.cell.head),
        "role": role_of(roles, question.cell.head),
        "query": question.cell.query,
        "key": question.cell.key,
        "answer": {
            "text": answer.text,
            "wrong": answer.wrong_text,
            "probability": answer.probability,
            "lead": answer.lead,
            "predicted": answer.predicted,
            "measured_by": answer.measured_by,
        },
        "continued": None if continued is None else continued.to_json(),
        "chosen_because": question.because,
        "runners_up": [
            {"head": str(r.cell.head), "query": r.cell.query, "key": r.cell.key, "score": r.score}
            for r in question.runners_up
        ],
        "notices": list(question.notices),
        "basis": basis.to_json(),
    }


def placed(what: What, place: PlaceSplit) -> dict[str, Any]:
    """The attention itself, whether it is for content or for place, and the keys that lost."""
    return {
        "attention": what.attention,
        "logit": what.logit,
        "relative": {
            "logit": what.relative,
            "channels_needed": what.channels_needed,
            "sparsity": what.sparsity,
        },
        "numbered": None if all(part.stable for part in what.channels) else what.numbered,
        "place": place.to_json(),
        "rivals": [
            {
                "key": rival.key,
                "attention": rival.attention,
                "gap": rival.gap,
                "channels": [{"channel": part.channel, "value": part.value} for part in rival.channels],
            }
            for rival in what.rivals
        ],
    }


def tabled(
    what: What, who: Who, roles: HeadRoles | None = None, vocabulary: CellVocabulary | None = None
) -> dict[str, Any]:
    """The one table, and what of it causes the attention."""
    return {
        "log_odds": _log_odds(what, who),
        "what": _what(what, vocabulary),
        "who": [_row(row, what, roles, vocabulary) for row in who.rows],
        "cause": _causes(who),
    }


def observed(proof: Proof) -> dict[str, Any]:
    """The model without the cause."""
    return {"proof": proof_json(proof)}


def controlled(found: Proof | Foreseen, verdict: Verdict | None = None) -> dict[str, Any]:
    """The controls, and once all of them are measured the three words."""
    controls = found.controls if isinstance(found, Proof) else found.tests
    made: dict[str, Any] = {
        "controls": [control_json(control) for control in controls],
        "signals": None if found.signals is None else signals_json(found.signals),
    }
    return made if verdict is None else {**made, "verdict": verdict.to_json()}


def followed(consequence: Consequence) -> dict[str, Any]:
    """What the head does with what it read."""
    return {"consequence": consequence_json(consequence)}


# --- the table -------------------------------------------------------------------------------------------------------


def _log_odds(what: What, who: Who) -> dict[str, Any]:
    return {
        "total": what.log_odds,
        "baseline": -math.log(what.keys - 1) if what.keys > 1 else 0.0,
        "keys": what.keys,
        "error": what.error,
        "tolerance": what.tolerance,
        **{side: _signed(totals) for side, totals in who.totals.items()},
        "channels": _signed(what.by_channel),
    }


def _signed(totals: SignedTotals) -> dict[str, float]:
    return {"helps": totals.helping, "hinders": totals.hindering}


def _what(what: What, vocabulary: CellVocabulary | None) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = [
        {
            "channel": part.channel,
            "log_odds": part.log_odds,
            "stable": part.stable,
            "pole": part.pole,
            "name": part.name,
            "vocabulary": None if vocabulary is None else _channel(vocabulary.channels.get(part.channel)),
        }
        for part in what.shown
    ]
    rest = what.channels[len(what.shown) :]
    if rest:
        total = what.log_odds - sum(part.log_odds for part in what.shown)
        block = {"channel": OTHERS, "log_odds": total, "stable": False, "pole": None, "name": None}
        listed.append({**block, "count": len(rest), "vocabulary": None})
    return listed


def _channel(found: ChannelVocabulary | None) -> dict[str, Any] | None:
    return None if found is None else {"query": found.query.to_json(), "key": found.key.to_json()}


def _row(
    row: WriterRow, what: What, roles: HeadRoles | None, vocabulary: CellVocabulary | None
) -> dict[str, Any]:
    view = None
    if vocabulary is not None and row.writer is not None:
        view = vocabulary.writers.get((row.side, row.writer))
    channels: list[dict[str, Any]] = [
        {"channel": part.channel, "log_odds": value}
        for part, value in zip(what.shown, row.channels, strict=True)
    ]
    if len(what.channels) > len(what.shown):
        channels.append({"channel": OTHERS, "log_odds": row.log_odds - sum(row.channels)})
    through, neurons = ([], []) if row.mlp is None else _mlp(row.mlp, row.log_odds, roles)
    return {
        "side": row.side,
        **(writer_json(row.writer) if row.writer is not None else {"writer": OTHERS, "reads": None}),
        "log_odds": row.log_odds,
        "count": row.count,
        "cause": row.cause,
        "role": None if row.writer is None else _role(row.writer, roles),
        "vocabulary": None if view is None else view.to_json(),
        "channels": channels,
        "through": through,
        "neurons": neurons,
    }


def _role(component: Component, roles: HeadRoles | None) -> str | None:
    """What a head does on random tokens, if that is known."""
    return role_of(roles, component.head) if component.kind == "head" else None


def _mlp(
    account: MLPAccount, total: float, roles: HeadRoles | None
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """What an MLP read and its neurons, each list with the rest of the row at its end."""
    through = [
        {
            **(
                {"writer": "constants", "reads": None}
                if one.writer.kind == "offset"
                else writer_json(one.writer)
            ),
            "log_odds": one.share,
            "effect": one.effect,
            "role": _role(one.writer, roles),
        }
        for one in account.writers
    ]
    rest = total - sum(one.share for one in account.writers)
    through.append({"writer": OTHERS, "reads": None, "log_odds": rest, "effect": None, "role": None})
    neurons: list[dict[str, Any]] = [{"index": one.index, "log_odds": one.share} for one in account.neurons]
    if account.constant:
        neurons.append({"index": "bias", "log_odds": account.constant})
    rest = total - sum(one["log_odds"] for one in neurons)
    return through, [*neurons, {"index": OTHERS, "log_odds": rest}]


# --- causes ----------------------------------------------------------------------------------------------------------


def _causes(who: Who) -> dict[str, Any]:
    main = who.headline
    sides: tuple[Side, ...] = ("query", "key")
    return {
        "headline": None if main is None else main.side,
        "threshold": who.threshold,
        **{side: _cause(who.sets[side], who.signals[side]) for side in sides},
    }


def _cause(found: WriterSet, signals: SideSignals) -> dict[str, Any]:
    return {
        "writers": [writer_json(member) for member in found.members],
        "drops": list(found.drops),
        "order": found.order,
        "diffuse": found.diffuse,
        "after": found.after if found.resolved else None,
        "signals": [
            {
                **writer_json(one.signal.writer),
                "channels": list(one.signal.channels),
                "drop": one.drop,
                "signal": signal_id(one.signal, one.strengths),
            }
            for one in signals.by_writer()
        ],
        "signals_after": signals.after if signals.resolved else None,
    }
