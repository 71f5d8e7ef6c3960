"""What was tried, as JSON: the consequence, the proof and its controls, other prompts, named features."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from headwise.circuits.counterfactual import Outcome
from headwise.types import Component
from headwise.why.consequence import Consequence
from headwise.why.proof import ControlTest, Proof, SignalsTest, Spread
from headwise.why.transfer import Transfer
from headwise.why.what import What
from headwise.why.who import Who

BINS = 20
"""Of the histogram of what a control leaves of the attention, from 0 to 1."""
FEATURE_WRITERS = 40


def writer_json(component: Component) -> dict[str, Any]:
    """A writer's name, and the token that it read, for a head."""
    return {"writer": component.name, "reads": component.source if component.kind == "head" else None}


def consequence_json(found: Consequence) -> dict[str, Any]:
    direct = found.direct
    return {
        "raised": [{"token": one.token, "logit": one.logit} for one in found.raised],
        "lowered": [{"token": one.token, "logit": one.logit} for one in found.lowered],
        "direct": None if direct is None else {"answer": direct.answer, "lead": direct.lead},
        "path": None if found.path is None else outcome_json(found.path),
        "summed": [asdict(one) for one in found.summed],
    }


def proof_json(proof: Proof) -> dict[str, Any]:
    best = proof.next_best
    return {
        "side": proof.side,
        "before": outcome_json(proof.before),
        "after": None if proof.after is None else outcome_json(proof.after),
        "predicted": proof.predicted,
        "error": proof.error,
        "tolerance": proof.tolerance,
        "next": None
        if best is None
        else {
            "writers": [writer_json(member) for member in best.writers],
            "after": best.predicted,
            "outcome": outcome_json(best.observed),
        },
    }


def control_json(control: ControlTest) -> dict[str, Any]:
    attention, answer = _spread(control.attention), control.answer
    bins = [0] * BINS
    for value in control.left:
        bins[min(BINS - 1, int(value * BINS))] += 1
    return {
        "name": control.name,
        "text": control.text,
        "draws": attention.pop("draws"),
        "attention": {**attention, "histogram": bins},
        "p": control.p,
        "answer": None if answer is None else {**_spread(answer), "p": control.answer_p},
    }


def signals_json(found: SignalsTest) -> dict[str, Any]:
    """The cause in finer parts, of which ``cause`` has the signals themselves."""
    return {
        "side": found.side,
        "after": found.after,
        "controls": [control_json(control) for control in found.controls],
        "specific": asdict(found.specific),
    }


def transfer_json(found: Transfer) -> dict[str, Any]:
    proof = found.proof
    return {
        "prompt": found.prompt,
        "tokens": list(found.tokens),
        "query": found.cell.query,
        "key": found.cell.key,
        "writers": [writer_json(member) for member in found.writers],
        "missing": [writer_json(member) for member in found.missing],
        "before": outcome_json(proof.before),
        "after": None if proof.after is None else outcome_json(proof.after),
        "predicted": proof.predicted,
        "controls": [control_json(control) for control in proof.controls],
        "holds": asdict(found.holds),
    }


def _spread(spread: Spread) -> dict[str, Any]:
    return {"draws": spread.draws, "mean": spread.mean, "low": spread.low, "high": spread.high}


def outcome_json(outcome: Outcome) -> dict[str, float]:
    return {
        "attention": outcome.attention,
        "probability": outcome.probability,
        "lead": outcome.lead,
        "log_probability": outcome.log_probability,
    }


def features_json(what: What, who: Who, proof: Proof) -> dict[str, Any]:
    return {
        "parts": [
            {"name": part.name, "rank": part.rank, "value": part.value, "logit": part.logit}
            for part in what.features
        ],
        "unexplained": what.unexplained,
        "unexplained_share": what.unexplained_share,
        "writers": [
            {
                "name": feature.name,
                "log_odds": feature.log_odds,
                "error": feature.error,
                "tolerance": what.tolerance,
                "writers": [
                    {**component(w.component), "side": w.side, "position": w.position, "log_odds": w.log_odds}
                    for w in feature.writers[:FEATURE_WRITERS]
                ],
                "rest": {
                    side: sum(w.log_odds for w in feature.writers[FEATURE_WRITERS:] if w.side == side)
                    for side in ("query", "key")
                },
            }
            for feature in who.features
        ],
        "tests": [
            {
                "name": test.name,
                "kind": test.kind,
                "predicted": test.predicted,
                "observed": outcome_json(test.observed),
                "controls": list(test.controls),
                "percentile": test.percentile,
            }
            for test in proof.features
        ],
    }


def component(part: Component) -> dict[str, Any]:
    """A component's name, kind, layer, and for a head its index and the token it read."""
    made: dict[str, Any] = {"name": part.name, "kind": part.kind, "layer": part.layer}
    if part.kind == "head":
        made |= {"head": part.index, "source": part.source}
    return made
