"""What was removed from which prompts, what became of the answer, and the two claims about it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from headwise.types import Claim, Estimate

RemovedKind = Literal["signals", "heads"]
NAMES = ("own", "gap")
"""The two claims about a set."""


@dataclass(frozen=True, kw_only=True)
class FamilyEffect:
    """What removing one set of features did to the answer in prompts of one family; 95 % intervals over prompts."""

    family: int
    """The family whose prompts these are, by number."""
    prompts: int
    """How many were edited."""
    clean: float
    """Mean logit difference, answer − wrong, untouched."""
    change: Estimate
    """Change of the answer's lead."""
    control: Estimate
    """Change when as many signals along unused channels leave."""
    flips: float
    """Share of prompts whose answer falls behind the wrong one."""
    control_flips: float
    """The same with the controls."""
    size: float
    """Length of what was removed, over that of the controls: how much more was written along the real channels."""

    def to_row(self) -> dict[str, Any]:
        """One row of a table."""
        return {
            "family": self.family,
            "prompts": self.prompts,
            "clean": self.clean,
            "change": self.change.mean,
            "low": self.change.low,
            "high": self.change.high,
            "control": self.control.mean,
            "control_low": self.control.low,
            "control_high": self.control.high,
            "flips": self.flips,
            "control_flips": self.control_flips,
            "size": self.size,
        }


@dataclass(frozen=True, kw_only=True)
class CausalTest:
    """What is exclusive to one family, removed in its own prompts and in those of another."""

    kind: RemovedKind = "signals"
    """What is removed: ``signals`` or whole ``heads``."""
    exclusive_to: int
    """The family that holds them, by number."""
    against: int
    """The family that does not."""
    features: int
    """How many there are."""
    heads: int
    """Heads that these signals enter, or the heads themselves."""
    chosen_on: int = 0
    """Prompts of both families that they were chosen on; they are tested on others."""
    unit: str = "prompt"
    """What was resampled and exchanged as one, and split as one where every family had enough of it."""
    own: FamilyEffect | None = None
    """What removing them did in the first family's prompts; None if there is nothing to remove."""
    other: FamilyEffect | None = None
    """The same in the other's prompts."""
    gap: Estimate | None = None
    """Change in own prompts minus change in the other's: negative, if they matter more to their own."""
    seen_own: FamilyEffect | None = None
    """The same as ``own`` in prompts of the choice itself, where an effect is nearly sure."""
    seen_other: FamilyEffect | None = None
    """The same as ``other`` there."""
    claims: dict[str, Claim] = field(default_factory=dict)
    """``own``: the lead falls further than under the controls; ``gap``: and by more than in the other's prompts."""

    @property
    def effects(self) -> dict[str, FamilyEffect | None]:
        """By where they were measured: in own prompts and in the other family's, and in those of the choice."""
        return {
            "own": self.own,
            "other": self.other,
            "own, chosen on": self.seen_own,
            "other, chosen on": self.seen_other,
        }

    def to_row(self) -> dict[str, Any]:
        """What a table says of the test in each row of its effects."""
        gap, tested = self.gap, self.claims
        return {
            "kind": self.kind,
            "exclusive_to": self.exclusive_to,
            "against": self.against,
            "features": self.features,
            "heads": self.heads,
            "chosen_on": self.chosen_on,
            "unit": self.unit,
            "gap": gap and gap.mean,
            "gap_low": gap and gap.low,
            "gap_high": gap and gap.high,
            **{f"{name}_q": tested[name].q if name in tested else None for name in NAMES},
            **{f"{name}_supported": tested[name].supported if name in tested else None for name in NAMES},
        }

    def to_json(self) -> dict[str, Any]:
        """The test with its effects and claims."""
        row = {
            name: value for name, value in self.to_row().items() if not name.endswith(("_q", "_supported"))
        }
        found = {
            where.replace(", ", "_").replace(" ", "_"): e and e.to_row() for where, e in self.effects.items()
        }
        return {**row, **found, "claims": {name: one.to_json() for name, one in self.claims.items()}}
