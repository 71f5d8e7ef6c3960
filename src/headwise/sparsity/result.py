"""What a study of sparsity found: heads with their estimates, saved to and read from a run folder."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwise.bases.basis import singular_name
from headwise.strings import counted
from headwise.types import Claim, Estimate, Head

if TYPE_CHECKING:
    from pandas import DataFrame  # pyright: ignore[reportMissingImports]

    from headwise.scale.folder import RunFolder

KIND = "sparsity"
MAKE = "headwise sparsity TASK --out DIR"
ESTIMATES = (
    "attention",
    "sparsity",
    "control",
    "difference",
    "needed",
    "control_needed",
    "needed_difference",
)


@dataclass(frozen=True, kw_only=True)
class NullSparsity:
    """How sparse a head's cells would be without features, by one null."""

    name: str
    """``isotropic``, ``matched``, ``unattended``, ``shuffled`` or ``turned``."""
    sparsity: Estimate
    """Sparsity of the null's cells."""
    difference: Estimate
    """Sparsity of the head's own cells less that, paired by prompt."""
    p: float
    """How often flipped signs of clusters make the difference as small."""
    draws: int
    """How many flips that was counted over."""

    def to_json(self) -> dict[str, Any]:
        """The null by name, its sparsity, and its test."""
        return {
            "name": self.name,
            "sparsity": self.sparsity.to_json(),
            "difference": self.difference.to_json(),
            "p": self.p,
            "draws": self.draws,
        }


@dataclass(frozen=True, eq=False, kw_only=True)
class HeadSparsity:
    """One head's cells, or (``head`` None) those of all heads together."""

    head: Head | None
    """The head; None for all of them together."""
    in_answer: int
    """Prompts in which it carries the answer."""
    in_circuit: int
    """Prompts whose circuit uses a cell of it."""
    cells: int
    """Cells that its circuits use."""
    attention: Estimate
    """Attention of those cells."""
    sparsity: Estimate
    """Sparsity along singular channels: 1 ÷ channels if one does it all, 1 if all contribute alike."""
    control: Estimate
    """The same along rotated directions."""
    difference: Estimate
    """Sparsity less that along rotated directions, paired by prompt."""
    needed: Estimate
    """Channels, largest first, whose sum comes within 10 % of the relative logit."""
    control_needed: Estimate
    """The same along rotated directions."""
    needed_difference: Estimate
    """``needed`` less ``control_needed``, paired by prompt."""
    nulls: tuple[NullSparsity, ...]
    """What its cells are held against; a null that has nothing to draw from is missing."""
    claim: Claim
    """That its cells are sparser than by every null: sparse because of what is attended, not of Ω's singular values."""
    against_rotation: Claim
    """The old claim, beside it: sparser than along rotated directions."""

    def null(self, name: str) -> NullSparsity | None:
        """One null by name, if it could be drawn."""
        return next((one for one in self.nulls if one.name == name), None)

    def to_json(self) -> dict[str, Any]:
        counts = {"in_answer": self.in_answer, "in_circuit": self.in_circuit, "cells": self.cells}
        name = None if self.head is None else str(self.head)
        tests = {
            "nulls": [one.to_json() for one in self.nulls],
            "claim": self.claim.to_json(),
            "against_rotation": self.against_rotation.to_json(),
        }
        return {
            "head": name,
            **counts,
            **{name: getattr(self, name).to_json() for name in ESTIMATES},
            **tests,
        }

    def to_row(self) -> dict[str, Any]:
        """One row of a table: every estimate as three columns."""
        counts = {"in_answer": self.in_answer, "in_circuit": self.in_circuit, "cells": self.cells}
        row: dict[str, Any] = {"head": "all" if self.head is None else str(self.head), **counts}
        for name in ESTIMATES:
            one: Estimate = getattr(self, name)
            row |= {name: one.mean, f"{name}_low": one.low, f"{name}_high": one.high}
        row |= {one.name: one.sparsity.mean for one in self.nulls}
        return row | {"p": self.claim.p, "q": self.claim.q, "supported": self.claim.supported}


@dataclass(frozen=True, eq=False, kw_only=True)
class SparsityResult:
    """Everything ``headwise sparsity`` found."""

    model: str
    """The model's name."""
    weight_hash: str
    """The digest of the model's weights."""
    task: str
    """The task's name."""
    config: dict[str, Any]
    """What was asked, as the manifest has it."""
    prompts: int
    """Prompts that were given to the model."""
    clusters: str
    """What prompts share (a label such as ``wording``, or ``prompt``): intervals and tests take it as one."""
    wrong: int
    """Prompts in which the model prefers the wrong answer: set aside."""
    empty: int
    """Prompts without a circuit."""
    heads: tuple[HeadSparsity, ...]
    """One entry per head, with sparsity along singular channels and rotated ones."""
    overall: HeadSparsity
    """All those heads together."""
    curve: tuple[float, ...]
    """Median over cells: how far the sum of the n largest channels is from the whole, as a share of it."""
    control_curve: tuple[float, ...]
    """The same along rotated directions."""
    signal_channels: float
    """Median number of channels of an edge in the circuits."""
    error: float
    """The largest difference between the sum over channels and the model's own relative logit."""
    rotation_error: float
    """The same along rotated directions."""
    notes: tuple[str, ...]
    """Lines a reader should see."""
    seconds: float = 0.0
    """How long it took."""

    @property
    def settings(self) -> dict[str, Any]:
        """What can be chosen."""
        return {name: self.config[name] for name in ("prompts", "rotations", "seed", "heads")}

    @property
    def supported(self) -> list[Head]:
        """The heads whose cells are sparser than by every null."""
        return [one.head for one in self.heads if one.head is not None and one.claim.supported]

    @property
    def traced(self) -> int:
        """Prompts whose circuits were traced."""
        return self.prompts - self.wrong - self.empty

    def to_json(self) -> dict[str, Any]:
        """One document of the whole study."""
        return {
            "model": self.model,
            "weight_hash": self.weight_hash,
            "basis": singular_name(self.weight_hash, "absolute").to_json(),
            "task": self.task,
            "settings": self.settings,
            "prompts": self.prompts,
            "clusters": self.clusters,
            "wrong": self.wrong,
            "empty": self.empty,
            "heads": [h.to_json() for h in self.heads],
            "overall": self.overall.to_json(),
            "curve": list(self.curve),
            "control_curve": list(self.control_curve),
            "signal_channels": self.signal_channels,
            "error": self.error,
            "rotation_error": self.rotation_error,
            "notes": list(self.notes),
            "seconds": round(self.seconds, 1),
        }

    def to_pandas(self) -> dict[str, DataFrame]:
        """Tables by name; needs the extra ``headwise[pandas]``."""
        from headwise.frames import frame

        curves = zip(self.curve, self.control_curve, strict=True)
        return {
            "heads": frame([one.to_row() for one in (*self.heads, self.overall)]),
            "curves": frame([{"channels": n, "off": a, "control": b} for n, (a, b) in enumerate(curves)]),
        }

    def save(self, folder: str | Path) -> Path:
        """Write a run folder: the document, and the whole result for :meth:`load`."""
        from headwise.scale.study import save_result

        return save_result(self, folder, KIND, self.config)

    def write(self, folder: RunFolder) -> None:
        """Write everything into an open folder, which is finished with that."""
        from headwise.scale.results import write_result

        write_result(folder, self.to_json(), replace(self, seconds=0.0))

    @classmethod
    def load(cls, folder: str | Path) -> SparsityResult:
        """Read a finished run, every file of it held against its digest."""
        from headwise.scale.results import load_result

        return load_result(cls, folder, KIND, MAKE)

    def __repr__(self) -> str:
        whole = self.overall
        return (
            f"SparsityResult({self.task!r} in {self.model!r}: {counted(len(self.heads), 'head')} in {self.traced} of "
            f"{counted(self.prompts, 'prompt')}, {whole.needed.mean:.1f} channels needed, "
            f"{whole.control_needed.mean:.1f} along rotated directions)"
        )

    def _repr_html_(self) -> str:
        from headwise.show.notebook import sparsity_result

        return sparsity_result(self)
