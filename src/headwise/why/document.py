"""An explanation as one JSON document."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headwise.types import Component
from headwise.why.proof import Outcome, Proof, Spread
from headwise.why.what import ChannelPart, What
from headwise.why.who import Who

if TYPE_CHECKING:
    from headwise.why.explain import Explanation


def to_json(why: Explanation) -> dict[str, Any]:
    """Everything but the pattern of the whole head."""
    question, answer = why.question, why.answer
    return {
        "schema": 1,
        "model": why.model,
        "prompt": why.prompt,
        "tokens": list(why.tokens),
        "start": why.start,
        "head": str(question.cell.head),
        "query": question.cell.query,
        "key": question.cell.key,
        "attention": why.what.attention,
        "logit": why.what.logit,
        "answer": {
            "text": answer.text,
            "wrong": answer.wrong_text,
            "probability": answer.probability,
            "lead": answer.lead,
            "predicted": answer.predicted,
        },
        "basis": why.basis.to_json(),
        "what": _what(why.what),
        "who": _who(why.who),
        "proof": _proof(why.proof),
        "chosen_because": question.because,
        "runners_up": [
            {"head": str(r.cell.head), "query": r.cell.query, "key": r.cell.key, "score": r.score}
            for r in question.runners_up
        ],
        "sentence": why.sentence,
        "seconds": round(why.seconds, 4),
    }


def _what(what: What) -> dict[str, Any]:
    return {
        "relative_logit": what.relative,
        "channels": [_channel(part) for part in what.channels],
        "channels_needed": what.channels_needed,
        "sparsity": what.sparsity,
        "features": [
            {"name": part.name, "rank": part.rank, "value": part.value, "logit": part.logit}
            for part in what.features
        ],
        "unexplained": what.unexplained if what.features else None,
        "unexplained_share": what.unexplained_share if what.features else None,
        "rivals": [
            {
                "key": rival.key,
                "attention": rival.attention,
                "gap": rival.gap,
                "channels": [_channel(part) for part in rival.channels],
            }
            for rival in what.rivals
        ],
        "error": what.error,
    }


def _channel(part: ChannelPart) -> dict[str, Any]:
    return {"channel": part.channel, "value": part.value, "logit": part.logit}


def _who(who: Who) -> dict[str, Any]:
    return {
        "threshold": who.threshold,
        "writers": [
            {
                **component(writer.component),
                "side": writer.side,
                "position": writer.position,
                "channels": list(writer.channels),
                "drop": writer.drop,
                "share": writer.share,
            }
            for writer in who.writers
        ],
        "unresolved": list(who.unresolved),
        "features": [
            {
                "name": feature.name,
                "logit": feature.logit,
                "error": feature.error,
                "writers": [
                    {**component(w.component), "side": w.side, "position": w.position, "logit": w.logit}
                    for w in feature.writers[:40]
                ],
                "rest": {
                    side: sum(w.logit for w in feature.writers[40:] if w.side == side)
                    for side in ("query", "key")
                },
            }
            for feature in who.features
        ],
        "error": who.error,
    }


def component(part: Component) -> dict[str, Any]:
    """A component's name, kind, layer, and for a head its index and the token it read."""
    name = part.name
    made: dict[str, Any] = {"name": name, "kind": part.kind, "layer": part.layer}
    if part.kind == "head":
        made |= {"head": part.index, "source": part.source}
    return made


def _proof(proof: Proof) -> dict[str, Any]:
    holds, words = proof.verdict
    return {
        "before": _outcome(proof.before),
        "tests": [
            {
                "name": test.name,
                "signals": test.removed,
                "predicted": test.predicted,
                "observed": _outcome(test.observed),
                "controls": [_outcome(control) for control in test.controls],
                "spread": _spread(test.spread),
                "percentile": test.percentile,
            }
            for test in proof.tests
        ],
        "features": [
            {
                "name": test.name,
                "kind": test.kind,
                "predicted": test.predicted,
                "observed": _outcome(test.observed),
                "controls": list(test.controls),
                "percentile": test.percentile,
            }
            for test in proof.features
        ],
        "error": proof.error,
        "holds": holds,
        "verdict": words,
    }


def _outcome(outcome: Outcome) -> dict[str, float]:
    return {"attention": outcome.attention, "probability": outcome.probability, "lead": outcome.lead}


def _spread(spread: Spread | None) -> dict[str, list[float]] | None:
    if spread is None:
        return None
    return {
        "attention": list(spread.attention),
        "probability": list(spread.probability),
        "lead": list(spread.lead),
    }
