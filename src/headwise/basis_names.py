"""The names of bases, without anything heavy: files and options are checked before torch is imported."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

BasisKind = Literal["singular", "balanced", "rotated"]
Frame = Literal["query", "absolute"]


@dataclass(frozen=True, slots=True)
class BasisName:
    """Which basis of the heads' QK forms numbers the channels of a result. Channels of two results may be compared
    only where these are equal.

    >>> print(BasisName("balanced", "query", "3f0c"))
    balanced, query's frame
    """

    kind: BasisKind
    """``singular``: of the weights alone; ``balanced``: of what flows, too; ``rotated``: the control."""
    frame: Frame
    """``query``: keys as the query sees them, the same wherever a prompt begins; ``absolute``: as they are rotated."""
    hash: str
    """Of the weights, and of the texts on which a balanced basis was measured."""

    def to_json(self) -> dict[str, str]:
        """Kind, frame and hash."""
        return {"kind": self.kind, "frame": self.frame, "hash": self.hash}

    def __str__(self) -> str:
        return f"{self.kind}, " + ("query's frame" if self.frame == "query" else "absolute frame")
