"""Do signals agree because the token is a sink, or because the same token is read again and again?

A sink's key is nearly the same in every prompt, so that signals at any other tokens agree less, whatever makes heads
park. The null is therefore a token that is as constant: the one that the head attends to in most prompts, always as
many positions back, and no sink. Both signals are compared with the rotation turned back, since the token occurs at
other positions. Where it does not matter which of the two is the sink, they can be exchanged within a prompt: every
exchange over prompts is gone through.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from headwise.claims import LEVEL, claims
from headwise.intervals import estimated, numbered, resampled
from headwise.sinks.find import Parking
from headwise.sinks.signals import MIN_SIGNALS, SIDES, Parked, cosine_distance
from headwise.strings import counted
from headwise.types import Claim, Estimate, Head, Side

MATCHED = 12
"""Firings of each head on its frequent token: 4096 exchanges, of which all are gone through."""
NULL = "a frequent token at a fixed distance, exchanged with the sink within prompts"
GROUP = "all parked heads and both sides"


@dataclass(frozen=True)
class Matched:
    """One head and side: do its signals agree more at sinks than at a frequent token that is none?"""

    token: str
    """The frequent token that the head attends to in most prompts."""
    back: int
    """How many positions before the query it is, in every prompt."""
    firings: int
    """Prompts with a firing on the sink and one on this token: those compared."""
    sink: float
    """Mean cosine distance over these prompts of the signals at sinks, rotation turned back."""
    frequent: float
    """The same at the frequent token."""
    gap: Estimate
    """How much nearer the signals at sinks are, over prompts."""
    claim: Claim
    """Whether they are: both signals exchanged within prompts, all heads and sides together."""

    def to_json(self) -> dict[str, Any]:
        """Every field by its name; the interval's ends beside the gap."""
        found = {name: getattr(self, name) for name in ("token", "back", "firings", "sink", "frequent")}
        ends = {"gap": self.gap.mean, "gap_ci": [self.gap.low, self.gap.high]}
        return {**found, **ends, "claim": self.claim.to_json()}


def told(side: Side, found: Sequence[Matched], heads: int) -> str:
    """One sentence for a side: for how many of its heads the comparison could be made, and what it says.

    >>> told("key", [], 3)
    'key side: none of 3 heads attends to a frequent token at a fixed distance in 4 prompts, so nothing is compared'
    """
    if not found:
        none = f"none of {counted(heads, 'head')} attends to a frequent token at a fixed distance"
        return f"{side} side: {none} in {MIN_SIGNALS} prompts, so nothing is compared"
    held = sum(one.claim.supported for one in found)
    return (
        f"{side} side: signals agree more at sinks than at a frequent token at a fixed distance in {held} of "
        f"{counted(len(found), 'head')} (supported, q ≤ {LEVEL:g}), in {len(found) - held} this is not shown; "
        f"{heads - len(found)} of {heads} have no such token in {MIN_SIGNALS} prompts"
    )


def exchanged(sink: Tensor, frequent: Tensor, clusters: Tensor | None = None) -> tuple[float, int]:
    """Are signals [prompts, d_head] nearer at sinks? The share of all exchanges within prompts that do as much, and
    how many there are. Prompts of one cluster [prompts] are exchanged together.

    >>> same, other = torch.ones(3, 3), torch.eye(3)
    >>> exchanged(same, other), exchanged(other, same)
    ((0.125, 8), (1.0, 8))
    """
    which, n = numbered(clusters, len(sink))
    turns = torch.cartesian_prod(*[torch.tensor([1.0, 0.0], dtype=torch.float64)] * n).reshape(-1, n)
    first = turns[:, which]
    both = torch.cat([sink, frequent]).double()
    gaps = cosine_distance(both, torch.cat([1 - first, first], 1)) - cosine_distance(
        both, torch.cat([first, 1 - first], 1)
    )
    return float((gaps >= gaps[0] - 1e-9).double().mean()), len(gaps)


def matched(
    parking: Parking,
    traced: Sequence[Parked],
    frequent: Sequence[Parked],
    token_of: Callable[[Parked], str],
    seed: int,
) -> dict[tuple[Head, Side], Matched]:
    """Every head and side that has enough prompts with both firings, corrected together."""
    at_sink = {(one.head, one.prompt): one for one in traced}
    pairs: dict[tuple[Head, Side], list[tuple[Parked, Parked]]] = {}
    for side in SIDES:
        for one in frequent:
            beside = at_sink.get((one.head, one.prompt))
            if beside is not None and side in one.written and side in beside.written:
                pairs.setdefault((one.head, side), []).append((beside, one))
    kept = {where: pairs[where] for where in sorted(pairs) if len(pairs[where]) >= MIN_SIGNALS}
    vectors = {
        where: tuple(torch.stack([both[i].written[where[1]] for both in found]) for i in (0, 1))
        for where, found in kept.items()
    }
    shared = {where: parking.cluster_of([one.prompt for one, _ in found]) for where, found in kept.items()}
    tested = {where: exchanged(sink, other, shared[where]) for where, (sink, other) in vectors.items()}
    judged = claims(
        [p for p, _ in tested.values()],
        null=NULL,
        draws=max([count for _, count in tested.values()], default=0),
        group=GROUP,
    )
    made = {}
    for (where, found), one in zip(kept.items(), judged, strict=True):
        sink, other = vectors[where]
        which, count = numbered(shared[where], len(found))
        weights = resampled(count, seed, "matched", str(where[0]), where[1])[:, which]
        near, far = float(cosine_distance(sink)), float(cosine_distance(other))
        drawn = cosine_distance(other, weights) - cosine_distance(sink, weights)
        cell = found[0][1].cell
        made[where] = Matched(
            token=token_of(found[0][1]),
            back=cell.query - cell.key,
            firings=len(found),
            sink=near,
            frequent=far,
            gap=estimated(far - near, drawn, len(found), count),
            claim=replace(one, draws=tested[where][1]),
        )
    return made
