"""The names of bases, without anything heavy: files and options are checked before torch is imported."""

from __future__ import annotations

from collections.abc import Sequence
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

    def listed(self, channels: Sequence[int]) -> str:
        """Some channels by their numbers; of a balanced basis how many, for most of them change with the texts.

        >>> [BasisName(kind, "query", "3f0c").listed([4, 11]) for kind in ("singular", "balanced")]
        ['4, 11', '2 unnumbered']
        """
        if self.kind != "balanced":
            return ", ".join(map(str, channels))
        return f"{len(channels)} unnumbered" if channels else ""

    def __str__(self) -> str:
        return f"{self.kind}, " + ("query's frame" if self.frame == "query" else "absolute frame")
