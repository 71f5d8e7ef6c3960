"""``headwise.find_sinks``: sinks, the heads that park there, whether a shared signal makes them, and proof."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from headwise.errors import HeadwiseError
from headwise.intervals import mean_interval
from headwise.sinks.clusters import Sharing, Writer, share_signals, writers_of
from headwise.sinks.find import (
    AWAY,
    MIN_ROWS,
    PARKED,
    THRESHOLD,
    Parking,
    SinkToken,
    find_parking,
    parked_heads,
)
from headwise.sinks.proof import Freed, Shared, free_all_at_once, free_one_by_one
from headwise.sinks.signals import SIDES, Agreement, Parked, agreements, trace_parked
from headwise.sinks.texts import TEXTS
from headwise.tokens import is_one, shown
from headwise.types import Head, Side

if TYPE_CHECKING:
    from headwise.model.model import Model

Progress = Callable[[str, int, int], None]
OTHERS = 10
"""Firings on tokens that are no sinks, of each head, that agreement is compared with."""
GROUP = 3
"""Heads a cluster or source needs to be removed at once."""
AT_ONCE = 16
"""Prompts in which it is."""


@dataclass(frozen=True, eq=False)
class SinkStudy:
    """Everything ``headwise sinks`` found; ``document()`` is its JSON."""

    model: str
    weight_hash: str
    settings: dict[str, Any]
    parking: Parking
    sinks: list[SinkToken]
    attention: Tensor
    """[layers, heads] mean attention on sinks."""
    low: Tensor
    high: Tensor
    parked: list[Head]
    traced: list[Parked]
    agreements: dict[tuple[Head, Side], Agreement]
    sharing: list[Sharing]
    freed: list[Freed]
    shared: list[Shared]
    gained: list[tuple[str, int]]
    """Tokens that gained most when a firing lost its signals, and how often."""
    seconds: float

    def controlled(self, side: Side) -> list[Head]:
        return [head for (head, one), a in self.agreements.items() if one == side and a.controlled]

    def of(self, side: Side) -> list[tuple[Head, Agreement]]:
        return [(head, a) for (head, one), a in self.agreements.items() if one == side]

    @property
    def one_by_one(self) -> list[dict[str, Any]]:
        """Removal of each firing's own signals, a record a side, with intervals over prompts."""
        seed = self.settings["seed"]
        made = []
        for side in SIDES:
            rows = [f for f in self.freed if f.side == side]
            if not rows:
                continue
            prompts = sorted({f.prompt for f in rows})

            def mean(
                value: Callable[[Freed], float], rows: list[Freed] = rows, prompts: list[int] = prompts
            ) -> Tensor:
                """One mean a prompt."""
                return torch.tensor(
                    [_mean([value(f) for f in rows if f.prompt == p]) for p in prompts], dtype=torch.float64
                )

            record: dict[str, Any] = {"side": side, "firings": len(rows), "prompts": len(prompts)}
            for name, value in (
                ("attention", lambda f: f.attention),
                ("predicted", lambda f: f.predicted),
                ("edited", lambda f: f.edited),
                ("control", lambda f: f.control),
            ):
                centre, low, high = mean_interval(mean(value), seed, "freed", side, name)
                record[name] = float(centre)
                record[f"{name}_ci"] = [float(low), float(high)]
            freed = sum(f.attention - f.predicted for f in rows)
            record |= {
                "error": max(abs(f.predicted - f.edited) for f in rows),
                "signals": float(torch.tensor([f.removed for f in rows], dtype=torch.float64).median()),
                "to_next": sum(f.next_gain for f in rows) / freed,
                "next_is_top_gainer": _mean([float(f.next_key == f.gainer) for f in rows]),
                "to_top_gainer": sum(f.gain for f in rows) / freed,
                "to_itself": sum(f.own_gain for f in rows) / freed,
            }
            made.append(record)
        return made

    def writers(self, side: Side) -> list[Writer]:
        """Who writes the control signals of a side, over all controlled heads."""
        heads = set(self.controlled(side))
        return writers_of([one for one in self.traced if one.head in heads and side in one.read], side)

    def document(self) -> dict[str, Any]:
        """JSON of the whole study."""
        from headwise.sinks.document import document

        return document(self)


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
) -> SinkStudy:
    """Find sink tokens, the heads that park attention on them, and the signals that make them do it.

    ``prompts`` are texts or token ids (None: the package's own short texts). Attention is measured on all of them,
    signals are traced in ``traced`` of them (one firing a head), and removed in ``proved`` of those.
    """
    started = time.perf_counter()
    if not 0 < parked < 1:
        raise HeadwiseError(f"parked={parked} is not an attention: give a number between 0 and 1")
    for name, value, least in (("traced", traced, 2), ("proved", proved, 1)):
        if value < least:
            raise HeadwiseError(f"{name}={value} prompts are too few: give at least {least}")
    texts: Sequence[Any] = TEXTS if prompts is None else [prompts] if is_one(prompts) else prompts
    report = progress or (lambda _stage, _done, _total: None)
    parking = find_parking(
        model, texts, threshold=threshold, progress=_stage(report, "attention", len(texts))
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
    found = trace_parked(
        model, parking, chosen, heads, kind="sink", per_head=traced, least=parked, seed=seed,
        progress=_stage(report, "signals", len(chosen)),
    )  # fmt: skip
    others = trace_parked(
        model, parking, chosen, heads, kind="other", per_head=min(OTHERS, traced), seed=seed,
        progress=_stage(report, "signals elsewhere", len(chosen)),
    )  # fmt: skip
    agreed = agreements(found, others, seed)
    sharing = share_signals(model, parking, found, agreed)
    some = chosen[:proved]
    freed = free_one_by_one(
        model, parking, found, some, seed=seed, progress=_stage(report, "removal", len(some))
    )
    return SinkStudy(
        model=model.name,
        weight_hash=model.weight_hash,
        settings={"threshold": threshold, "parked": parked, "traced": len(chosen), "proved": len(some), "seed": seed},
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
        shared=_at_once(model, parking, chosen[:AT_ONCE], sharing, seed, report),
        gained=_gained(model, parking, freed),
        seconds=time.perf_counter() - started,
    )  # fmt: skip


def _at_once(
    model: Model,
    parking: Parking,
    prompts: Sequence[int],
    sharing: Sequence[Sharing],
    seed: int,
    report: Progress,
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
    for i, (side, name, heads, direction) in enumerate(plans):
        made.append(free_all_at_once(model, parking, prompts, side, name, heads, direction, seed=seed))
        report("shared removal", (i + 1) * len(prompts), len(plans) * len(prompts))
    return made


def _gained(model: Model, parking: Parking, freed: Sequence[Freed], top: int = 10) -> list[tuple[str, int]]:
    tokens = {p: shown(model.tokenizer, parking.token_ids[p]) for p in {f.prompt for f in freed}}
    count = Counter(tokens[f.prompt][f.gainer] for f in freed)
    return sorted(count.items(), key=lambda item: (-item[1], item[0]))[:top]


def _stage(report: Progress, stage: str, total: int) -> Callable[[int], None]:
    done = 0

    def advance(n: int) -> None:
        nonlocal done
        done += n
        report(stage, done, total)

    return advance


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
