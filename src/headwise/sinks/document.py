"""A study of sinks as JSON."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from headwise.bases.basis import singular_name
from headwise.sinks.find import Parking
from headwise.sinks.proof import Shared
from headwise.sinks.signals import SIDES
from headwise.types import Head

if TYPE_CHECKING:
    from headwise.sinks.result import SinksResult


def to_json(study: SinksResult) -> dict[str, Any]:
    """Everything but vectors: sinks, heads with both sides, clusters, sources, removal."""
    return {
        "model": study.model,
        "weight_hash": study.weight_hash,
        "basis": singular_name(study.weight_hash, "absolute").to_json(),
        "settings": study.settings,
        "prompts": len(study.parking.token_ids),
        "prompts_with_sinks": len(study.parking.with_sinks),
        "sinks": [vars(s) for s in study.sinks],
        "positions": positions(study.parking),
        "heads": [_head(study, Head(*place)) for place in _places(study)],
        "said": study.said,
        "sharing": [
            {
                "side": s.side,
                "heads": len(s.heads),
                "mean_distance": s.mean_distance,
                "clusters": len(s.clusters),
                "silhouette": s.silhouette,
                "writers": [vars(w) for w in study.writers(s.side)[:10]],
            }
            for s in study.sharing
        ],
        "clusters": [
            {
                "side": c.side,
                "size": len(c.heads),
                "heads": [str(h) for h in c.heads],
                "distance": c.distance,
                "read_by": c.read_by,
                "writers": [vars(w) for w in c.writers[:5]],
            }
            for s in study.sharing
            for c in s.clusters
        ],
        "sources": [
            {
                "side": s.side,
                "component": s.component,
                "size": len(s.heads),
                "heads": [str(h) for h in s.heads],
                "share": s.share,
                "distance": number(s.distance),
                "reading": s.reading,
                "seen": s.seen,
                "apart": s.apart,
                "readings_apart": s.readings_apart,
            }
            for sharing in study.sharing
            for s in sharing.sources
        ],
        "removal": {
            "one_by_one": study.one_by_one,
            "gained": [{"token": token, "times": n} for token, n in study.gained],
            "shared": [_shared(s) for s in study.shared],
        },
        "seconds": round(study.seconds, 1),
    }


def _shared(one: Shared) -> dict[str, Any]:
    removed, change = one.removed, one.loss_change
    return {
        "side": one.side,
        "name": one.name,
        "heads": [str(head) for head in one.heads],
        "prompts": one.prompts,
        "attention": one.attention,
        "removed": removed.mean,
        "removed_low": removed.low,
        "removed_high": removed.high,
        "control": one.control,
        "freed": one.freed.mean,
        "freed_low": one.freed.low,
        "freed_high": one.freed.high,
        "loss": one.loss,
        "loss_change": change.mean,
        "loss_low": change.low,
        "loss_high": change.high,
        "control_loss_change": one.control_loss_change,
        "claim": one.claim.to_json(),
    }


def _places(study: SinksResult) -> list[tuple[int, int]]:
    layers, heads = study.attention.shape
    return [(layer, index) for layer in range(layers) for index in range(heads)]


def _head(study: SinksResult, head: Head) -> dict[str, Any]:
    sides = []
    for side in SIDES:
        a = study.agreements.get((head, side))
        if a is None:
            continue
        record = {
            "side": side,
            "distance": a.distance.mean,
            "ci": [a.distance.low, a.distance.high],
            "shuffled": a.shuffled,
            "others": a.others,
            "others_firings": a.others_firings,
            "firings": a.firings,
            "signals": a.signals,
            "controlled": a.controlled,
            "claim": None if a.claim is None else a.claim.to_json(),
            "matched": beside.to_json() if (beside := study.matched.get((head, side))) else None,
        }
        sides.append(record)
    at = (head.layer, head.index)
    return {
        "head": str(head),
        "attention": number(float(study.attention[at])),
        "ci": [number(float(study.low[at])), number(float(study.high[at]))],
        "parked": head in study.parked,
        "parks": study.parks[head].to_json(),
        "sides": sides,
        "controlled": any(record["controlled"] for record in sides),
    }


def positions(parking: Parking) -> list[dict[str, Any]]:
    """How many prompts have a sink at each position, and the mean attention received there in all prompts."""
    count = Counter(s for found in parking.sinks for s in found)
    made = []
    for position in range(max(len(ids) for ids in parking.token_ids)):
        values = [float(r[position]) for r in parking.received if len(r) > position]
        values = [v for v in values if v == v]
        if values:
            made.append(
                {"position": position, "sinks": count[position], "received": sum(values) / len(values)}
            )
    return made


def number(value: float) -> float | None:
    """JSON has no NaN: nothing was measured."""
    return None if value != value else value
