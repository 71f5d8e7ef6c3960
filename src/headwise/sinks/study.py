"""``headwise.find_sinks``: sinks, the heads that park there, whether a shared signal makes them, and proof."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwise.errors import HeadwiseError
from headwise.progress import Progress
from headwise.scale.cluster import WorkSharing
from headwise.scale.engines import engine_for
from headwise.scale.stages import Stages
from headwise.scale.study import run_study
from headwise.sinks.clusters import Sharing, share_signals
from headwise.sinks.find import (
    AWAY,
    BATCH,
    MAX_TOKENS,
    MIN_ROWS,
    PARKED,
    THRESHOLD,
    Parking,
    check_threshold,
    find_parking,
    parked_heads,
)
from headwise.sinks.matched import MATCHED, matched
from headwise.sinks.proof import Freed, Plan, free_all_at_once, free_one_by_one
from headwise.sinks.result import KIND, SinksResult
from headwise.sinks.signals import TRACED_TOKENS, Kind, Parked, agreements, trace_parked
from headwise.sinks.texts import TEXTS
from headwise.tasks.clusters import units_of
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
    labels: Sequence[Mapping[str, str]] | None = None,
    threshold: float = THRESHOLD,
    parked: float = PARKED,
    traced: int = 24,
    proved: int = 6,
    out: str | Path | None = None,
    workers: WorkSharing = 1,
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
    labels:
        What is known of each prompt, as a task's prompts have it: those of one ``wording`` (or entity) are counted as
        one in tests and intervals. None counts every prompt.
    threshold:
        Mean attention from afar that makes a token a sink.
    parked:
        Attention on sinks that makes a head parked.
    traced:
        Prompts in which signals are traced, one firing per head.
    proved:
        Prompts of those in which they are removed.
    out:
        A folder that keeps the study; one that was interrupted is continued.
    workers:
        Processes that share the work; above 1, each loads the model anew (in a script, call this under
        ``if __name__ == "__main__":``). Or a :class:`~headwise.scale.cluster.RayCluster`. What is found does not depend
        on it.
    seed:
        The seed of everything random.
    progress:
        Told the stage, how many of its prompts are done, and how many there are.
    """
    check_threshold(threshold)
    if not 0 < parked < 1:
        raise HeadwiseError(f"parked={parked} is not an attention: give a number between 0 and 1")
    for name, value, least in (("traced", traced, 2), ("proved", proved, 1)):
        if value < least:
            raise HeadwiseError(f"{name}={value} prompts are too few: give at least {least}")
    engine = engine_for(model, workers)
    texts: Sequence[Any] = TEXTS if prompts is None else [prompts] if is_one(prompts) else prompts
    token_ids = model.token_ids(list(texts))
    shared = None if labels is None else units_of(checked_labels(labels, len(token_ids)))
    clusters = [] if shared is None or shared.name == "prompt" else shared.which.tolist()
    config = {
        "model": model.name,
        "weight_hash": model.weight_hash,
        "dtype": str(model.dtype).removeprefix("torch."),
        "prompts": len(token_ids),
        "sha256": hashlib.sha256(json.dumps(token_ids).encode()).hexdigest(),
        "batches": [BATCH, MAX_TOKENS, TRACED_TOKENS],
        "threshold": threshold,
        "parked": parked,
        "traced": traced,
        "proved": proved,
        "seed": seed,
        **({"clusters": clusters} if clusters else {}),
    }
    return run_study(
        KIND,
        config,
        lambda run: _found(model, token_ids, config, run),
        SinksResult.load,
        engine=engine,
        out=out,
        progress=progress,
    )


def checked_labels(labels: Sequence[Mapping[str, str]], prompts: int) -> list[Mapping[str, str]]:
    if len(labels) != prompts:
        raise HeadwiseError(f"{len(labels)} labels do not fit {prompts} prompts: give one for each")
    return list(labels)


def _found(
    model: Model, token_ids: Sequence[Sequence[int]], config: dict[str, Any], run: Stages
) -> SinksResult:
    """Everything, stage by stage: attention, signals, what they share, removal."""
    threshold, parked, traced, seed = (config[name] for name in ("threshold", "parked", "traced", "seed"))
    parking = find_parking(
        model, token_ids, threshold=threshold, clusters=config.get("clusters", ()), work=run
    )
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
    per_head: dict[Kind, int] = {
        "sink": traced,
        "other": min(OTHERS, traced),
        "frequent": min(MATCHED, traced),
    }
    firings = trace_parked(
        model, parking, chosen, heads, per_head=per_head, least=parked, seed=seed, work=run
    )
    found = [one for one in firings if one.kind == "sink"]
    agreed = agreements(parking, found, [one for one in firings if one.kind == "other"], seed)
    frequent = [one for one in firings if one.kind == "frequent"]
    sharing = share_signals(model, parking, found, agreed, run)
    freed = free_one_by_one(model, parking, found, chosen[: config["proved"]], seed=seed, work=run)
    at_once = parking.some(chosen[:AT_ONCE])
    return SinksResult(
        model=model.name,
        weight_hash=model.weight_hash,
        config=config,
        parking=parking,
        sinks=parking.tokens(model),
        attention=attention,
        low=low,
        high=high,
        parked=heads,
        traced=found,
        agreements=agreed,
        matched=matched(parking, found, frequent, lambda one: _token(model, parking, one), seed),
        sharing=sharing,
        freed=freed,
        shared=free_all_at_once(model, at_once, _plans(sharing), seed=seed, work=run),
        gained=_gained(model, parking, freed),
        seconds=0.0,
    )


def _token(model: Model, parking: Parking, one: Parked) -> str:
    return shown(model.tokenizer, parking.token_ids[one.prompt])[one.cell.key]


def _plans(sharing: Sequence[Sharing]) -> list[Plan]:
    """The largest sources and the largest cluster of each side, each to be taken out of its heads' reads at once."""
    plans = []
    for one in sharing:
        plans += [
            Plan(one.side, s.component, s.heads, s.direction)
            for s in one.sources[:2]
            if len(s.heads) >= GROUP
        ]
        plans += [
            Plan(one.side, "largest cluster", c.heads, c.direction)
            for c in one.clusters[:1]
            if len(c.heads) >= GROUP
        ]
    return plans


def _gained(model: Model, parking: Parking, freed: Sequence[Freed], top: int = 10) -> list[tuple[str, int]]:
    tokens = {p: shown(model.tokenizer, parking.token_ids[p]) for p in {f.prompt for f in freed}}
    count = Counter(tokens[f.prompt][f.gainer] for f in freed)
    return sorted(count.items(), key=lambda item: (-item[1], item[0]))[:top]
