"""``headwise.find_sinks``: sinks, the heads that park there, whether a shared signal makes them, and proof."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from headwise.errors import HeadwiseError
from headwise.progress import Begin, Progress, stages
from headwise.sinks.clusters import Sharing, share_signals
from headwise.sinks.find import (
    AWAY,
    MIN_ROWS,
    PARKED,
    THRESHOLD,
    Parking,
    find_parking,
    parked_heads,
)
from headwise.sinks.proof import Freed, Shared, free_all_at_once, free_one_by_one
from headwise.sinks.result import SinksResult
from headwise.sinks.signals import agreements, trace_parked
from headwise.sinks.texts import TEXTS
from headwise.tokens import is_one, shown

if TYPE_CHECKING:
    from headwise.model.model import Model

OTHERS = 10
"""Firings on tokens that are no sinks, of each head, that agreement is compared with."""
GROUP = 3
"""Heads a cluster or source needs to be removed at once."""
AT_ONCE = 16
"""Prompts in which it is."""


def find_sinks(
    model: Model,
    prompts: str | Sequence[str] | Sequence[Sequence[int]] | None = None,
    *,
    threshold: float = THRESHOLD,
    parked: float = PARKED,
    traced: int = 24,
    proved: int = 6,
    seed: int = 0,
    progress: Progress | None = None,
) -> SinksResult:
    """Find sink tokens, the heads that park attention on them, and the signals that make them do it.

    Parameters
    ----------
    model:
        A loaded model.
    prompts:
        Texts or token ids; None takes the package's own short texts. Attention is measured on all of them.
    threshold:
        Mean attention from afar that makes a token a sink.
    parked:
        Attention on sinks that makes a head parked.
    traced:
        Prompts in which signals are traced, one firing per head.
    proved:
        Prompts of those in which they are removed.
    seed:
        The seed of everything random.
    progress:
        Told the stage, how many of its prompts are done, and how many there are.
    """
    started = time.perf_counter()
    if not 0 < parked < 1:
        raise HeadwiseError(f"parked={parked} is not an attention: give a number between 0 and 1")
    for name, value, least in (("traced", traced, 2), ("proved", proved, 1)):
        if value < least:
            raise HeadwiseError(f"{name}={value} prompts are too few: give at least {least}")
    texts: Sequence[Any] = TEXTS if prompts is None else [prompts] if is_one(prompts) else prompts
    begin = stages(progress)
    parking = find_parking(model, texts, threshold=threshold, progress=begin("attention", len(texts)))
    if not parking.with_sinks:
        most = max(float(r.nan_to_num(0.0).max()) for r in parking.received)
        raise HeadwiseError(
            f"no token receives {threshold:g} of the attention over heads and the rows {AWAY} or more positions "
            f"later (the most is {most:.3f}): there is no sink; give a smaller threshold or prompts of more than "
            f"{AWAY + MIN_ROWS} tokens"
        )
    attention, low, high = parking.heads(seed)
    heads = parked_heads(attention, parked)
    if not heads:
        raise HeadwiseError(
            f"no head gives sinks {parked:g} of its attention "
            f"(the most is {float(attention.nan_to_num(0.0).max()):.3f}): give a smaller parked="
        )
    chosen = parking.with_sinks[:traced]
    found = trace_parked(
        model, parking, chosen, heads, kind="sink", per_head=traced, least=parked, seed=seed,
        progress=begin("signals", len(chosen)),
    )  # fmt: skip
    others = trace_parked(
        model, parking, chosen, heads, kind="other", per_head=min(OTHERS, traced), seed=seed,
        progress=begin("signals elsewhere", len(chosen)),
    )  # fmt: skip
    agreed = agreements(found, others, seed)
    sharing = share_signals(model, parking, found, agreed)
    some = chosen[:proved]
    freed = free_one_by_one(model, parking, found, some, seed=seed, progress=begin("removal", len(some)))
    return SinksResult(
        model=model.name,
        weight_hash=model.weight_hash,
        settings={
            "threshold": threshold,
            "parked": parked,
            "traced": len(chosen),
            "proved": len(some),
            "seed": seed,
        },
        parking=parking,
        sinks=parking.tokens(model),
        attention=attention,
        low=low,
        high=high,
        parked=heads,
        traced=found,
        agreements=agreed,
        sharing=sharing,
        freed=freed,
        shared=_at_once(model, parking, chosen[:AT_ONCE], sharing, seed, begin),
        gained=_gained(model, parking, freed),
        seconds=time.perf_counter() - started,
    )


def _at_once(
    model: Model,
    parking: Parking,
    prompts: Sequence[int],
    sharing: Sequence[Sharing],
    seed: int,
    begin: Begin,
) -> list[Shared]:
    """The largest sources and the largest cluster of each side, each taken out of its heads' reads at once."""
    plans = []
    for one in sharing:
        plans += [
            (one.side, s.component, s.heads, s.direction) for s in one.sources[:2] if len(s.heads) >= GROUP
        ]
        plans += [
            (one.side, "largest cluster", c.heads, c.direction)
            for c in one.clusters[:1]
            if len(c.heads) >= GROUP
        ]
    made = []
    tick = begin("shared removal", len(plans) * len(prompts))
    for side, name, heads, direction in plans:
        made.append(free_all_at_once(model, parking, prompts, side, name, heads, direction, seed=seed))
        tick(len(prompts))
    return made


def _gained(model: Model, parking: Parking, freed: Sequence[Freed], top: int = 10) -> list[tuple[str, int]]:
    tokens = {p: shown(model.tokenizer, parking.token_ids[p]) for p in {f.prompt for f in freed}}
    count = Counter(tokens[f.prompt][f.gainer] for f in freed)
    return sorted(count.items(), key=lambda item: (-item[1], item[0]))[:top]
