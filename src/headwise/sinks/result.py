"""What a study of sinks found, saved to and read from a run folder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from headwise.claims import LEVEL
from headwise.intervals import mean_interval
from headwise.known_names import sink_id
from headwise.sinks.clusters import Sharing, SinkWriter, writers_of
from headwise.sinks.find import Parking, SinkToken
from headwise.sinks.matched import Matched, told
from headwise.sinks.proof import Freed, Shared
from headwise.sinks.signals import SIDES, Agreement, Parked
from headwise.strings import counted
from headwise.types import Claim, Head, Side

if TYPE_CHECKING:
    from pandas import DataFrame  # pyright: ignore[reportMissingImports]

    from headwise.scale.folder import RunFolder

KIND = "sinks"
MAKE = "headwise sinks --out DIR"


@dataclass(frozen=True, eq=False, kw_only=True)
class SinksResult:
    """Sinks, the heads that park there, the signals that make them, and what is left without those."""

    model: str
    """The model's name."""
    weight_hash: str
    """The digest of the model's weights."""
    config: dict[str, Any]
    """What was asked for, and of which texts."""
    parking: Parking
    """Which tokens of which prompts are sinks, and how much attention each head gives them."""
    sinks: list[SinkToken]
    """The sink tokens by text and position, with how often they occur."""
    attention: Tensor
    """[layers, heads]: mean attention on sinks."""
    low: Tensor
    """[layers, heads]: the lower end of its 95 % interval over prompts."""
    high: Tensor
    """[layers, heads]: the upper end."""
    parked: list[Head]
    """The heads that give sinks at least ``parked`` of their attention: a definition of whom to look at."""
    traced: list[Parked]
    """One parked firing per head and traced prompt, with its control signals."""
    agreements: dict[tuple[Head, Side], Agreement]
    """By head and side: how far its control signals agree over prompts."""
    matched: dict[tuple[Head, Side], Matched] = field(default_factory=dict, kw_only=True)
    """By head and side: whether they agree more at sinks than at a frequent token at a fixed distance; nothing in runs
    made before that was compared."""
    sharing: list[Sharing]
    """By side: which heads share a signal, and who writes it."""
    freed: list[Freed]
    """Firings without their own signals: attention predicted, edited and in the control."""
    shared: list[Shared]
    """One shared direction taken from all its heads: attention on sinks, and the loss."""
    gained: list[tuple[str, int]]
    """Tokens that gained most when a firing lost its signals, and how often."""
    seconds: float
    """How long it took."""

    @property
    def settings(self) -> dict[str, Any]:
        """The numbers that were asked for, as far as there were prompts with sinks."""
        asked = {name: self.config[name] for name in ("threshold", "parked", "traced", "proved", "seed")}
        traced = min(asked["traced"], len(self.parking.with_sinks))
        return asked | {"traced": traced, "proved": min(asked["proved"], traced)}

    @cached_property
    def parks(self) -> dict[Head, Claim]:
        """By head: that it gives sinks more than ``parked`` of its attention in most prompts."""
        return self.parking.parks(self.config["parked"])

    @property
    def parking_said(self) -> str:
        """How many heads park, as far as that is supported, and how many are above the threshold."""
        held = sum(one.supported for one in self.parks.values())
        return (
            f"{held} of {self.attention.numel()} heads park there (supported, q ≤ {LEVEL:g}; "
            f"{len(self.parked)} give sinks at least {self.config['parked']:g} on average)"
        )

    def agreeing(self, side: Side) -> list[Head]:
        """Heads whose control signals on a side agree over prompts, as far as that is supported."""
        return [head for head, a in self.of(side) if a.claim is not None and a.claim.supported]

    def agreeing_said(self, side: Side) -> str:
        """How many of a side's heads these are; a dash in runs made before that was tested."""
        tested = [a for _, a in self.of(side) if a.claim is not None]
        return f"{len(self.agreeing(side))} of {len(tested)}" if tested else "–"

    def controlled(self, side: Side) -> list[Head]:
        """Heads whose control signals on a side are less than 0.5 apart over prompts: the published cut-off."""
        return [head for (head, one), a in self.agreements.items() if one == side and a.controlled]

    def of(self, side: Side) -> list[tuple[Head, Agreement]]:
        """Every head with the agreement of its control signals on a side."""
        return [(head, a) for (head, one), a in self.agreements.items() if one == side]

    def compared(self, side: Side) -> list[Matched]:
        """What is held against a frequent token at a fixed distance, on a side."""
        return [found for (_, one), found in self.matched.items() if one == side]

    @property
    def said(self) -> list[str]:
        """What these comparisons say, one sentence per side."""
        return [told(side, self.compared(side), len(self.of(side))) for side in SIDES]

    @property
    def one_by_one(self) -> list[dict[str, Any]]:
        """Removal of each firing's own signals, one record per side, with intervals over prompts."""
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
                """One mean per prompt."""
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
                centre, low, high = mean_interval(
                    mean(value), seed, "freed", side, name, clusters=self.parking.cluster_of(prompts)
                )
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

    def writers(self, side: Side) -> list[SinkWriter]:
        """Who writes the control signals of a side, over all controlled heads."""
        heads = set(self.controlled(side))
        return writers_of([one for one in self.traced if one.head in heads and side in one.read], side)

    def to_json(self) -> dict[str, Any]:
        """One document: everything but vectors."""
        from headwise.sinks.document import to_json

        return to_json(self)

    def to_pandas(self) -> dict[str, DataFrame]:
        """Tables by name; needs the extra ``headwise[pandas]``."""
        from headwise.frames import frame

        found = self.to_json()
        heads = [
            {
                **{k: v for k, v in h.items() if k not in ("ci", "sides", "parks")},
                "low": h["ci"][0],
                "high": h["ci"][1],
                "parks": h["parks"]["supported"],
                "parks_q": h["parks"]["q"],
            }
            for h in found["heads"]
        ]
        sides = [
            {
                "head": h["head"],
                **{k: v for k, v in one.items() if k not in ("ci", "matched", "claim")},
                "agree": None if one["claim"] is None else one["claim"]["supported"],
                "low": one["ci"][0],
                "high": one["ci"][1],
            }
            for h in found["heads"]
            for one in h["sides"]
        ]
        matched = [
            {
                "head": str(head),
                "side": side,
                **{k: v for k, v in one.to_json().items() if k not in ("gap_ci", "claim")},
                "gap_low": one.gap.low,
                "gap_high": one.gap.high,
                **one.claim.to_json(),
            }
            for (head, side), one in self.matched.items()
        ]
        freed = [{**vars(f), "cell": str(f.cell), "head": str(f.cell.head)} for f in self.freed]
        tables = {"sinks": found["sinks"], "heads": heads, "agreements": sides, "sources": found["sources"]}
        return {name: frame(rows) for name, rows in {**tables, "matched": matched, "freed": freed}.items()}

    def save(self, folder: str | Path) -> Path:
        """Write a run folder: the document, and the whole result for :meth:`load`."""
        from headwise.scale.study import save_result

        return save_result(self, folder, KIND, self.config)

    def write(self, folder: RunFolder) -> None:
        """Write everything into an open folder, which is finished with that."""
        from headwise.scale.results import write_result

        write_result(folder, self.to_json(), replace(self, seconds=0.0))

    @classmethod
    def load(cls, folder: str | Path) -> SinksResult:
        """Read a finished run, every file of it held against its digest."""
        from headwise.scale.results import load_result

        return load_result(cls, folder, KIND, MAKE)

    @property
    def subjects(self) -> list[str]:
        """What of it may have a name: what makes each parked head rest on the first token, as ``headwise name`` takes
        it."""
        return [sink_id(head) for head in self.parked]

    def __repr__(self) -> str:
        tokens, parked = counted(len(self.sinks), "sink token"), counted(len(self.parked), "head")
        prompts = counted(len(self.parking.token_ids), "prompt")
        return f"SinksResult({self.model!r}: {tokens} in {prompts}, {parked} of {self.attention.numel()} parked there)"

    def _repr_html_(self) -> str:
        from headwise.show.notebook import sinks_result

        return sinks_result(self)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
