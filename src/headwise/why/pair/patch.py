"""Patched passes: what some writers wrote in one prompt is put in place of what they wrote in the other.

The prompt of the larger log-odds *receives* what was written in the other one, which *gives*. What is read is rotated
by where it is read, so a value that comes from another position is turned back there and turned again here. A writer
that the giver has not is taken away; one that the receiver has not is put in; keys that nothing stands for keep what
they hold.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from headwise.circuits.counterfactual import Removal
from headwise.tracing.causes import attention
from headwise.tracing.table import LogOddsTable
from headwise.tracing.writers import fewest, rows_to_take
from headwise.types import Side
from headwise.why.controls import Control, Pool, matched, used_by
from headwise.why.pair.paired import PairedSide

FIRST, MOST = 32, 512
"""Writers tried first, and at most."""


def share_of(log_odds: float, keys: int) -> float:
    """The attention of a cell with these log-odds against an even row.

    >>> share_of(0.0, 4)
    0.25
    """
    return 1 / (1 + math.exp(math.log(keys - 1) - log_odds))


def log_odds_of(share: float, keys: int) -> float:
    """The inverse: log(A / (1 − A)) + log(keys − 1).

    >>> log_odds_of(0.25, 4)
    0.0
    """
    share = min(max(share, 1e-12), 1 - 1e-12)
    return math.log(share / (1 - share)) + math.log(keys - 1)


@dataclass(frozen=True, eq=False)
class Patcher:
    """One side of a cell that receives what was written in the other prompt."""

    receiver: LogOddsTable
    giver: LogOddsTable
    paired: PairedSide
    """The pairs of writers, in the order here, there."""
    swapped: bool
    """Whether the receiver is the prompt *there*."""
    places: Mapping[int, int]
    """Positions of the receiver, each with the giver's that stands for it."""

    @property
    def side(self) -> Side:
        return self.paired.side

    @cached_property
    def _rows(self) -> Tensor:
        """[N, 2]: the rows of receiver and giver."""
        return self.paired.pairs.flip(1) if self.swapped else self.paired.pairs

    @property
    def _device(self) -> torch.device:
        return self.receiver.logits.device

    @property
    def gains(self) -> Tensor:
        """[N]: each writer's part of the receiver's lead over the giver, in log-odds."""
        return -self.paired.differences if self.swapped else self.paired.differences

    def written(self, chosen: Tensor) -> Tensor:
        """What leaves the receiver with some pairs, less what is put in: [n, places, d_head]."""
        width = self.receiver.query.vectors.shape[-1]
        size = 1 if self.side == "query" else self.receiver.query.up.tokens
        made = torch.zeros(len(chosen), size, width, dtype=torch.float64, device=self._device)
        own, other = self._rows[chosen.cpu()].mT
        known = own >= 0
        if bool(known.any()):
            made[known] += self.receiver.side(self.side).written(own[known]).double()
        known = other >= 0
        if bool(known.any()):
            made[known] -= self._moved(self.giver.side(self.side).written(other[known]).double())
        if self.side == "key":
            made[:, [t for t in range(size) if t not in self.places]] = 0.0
        return made

    def _moved(self, vectors: Tensor) -> Tensor:
        """Vectors of the giver [n, places, d_head] where the receiver reads them."""
        layer = self.receiver.cell.head.layer
        ups = [self.giver.query.up, self.receiver.query.up]
        before, after = (up.stream.rotary(layer, up.prompt) for up in ups)
        if self.side == "query":
            if before is None or after is None:
                return vectors
            there, here = self.giver.cell.query, self.receiver.cell.query
            back = before.at_positions([there]).undo(vectors[None])
            return after.at_positions([here]).turn(back)[0]
        if before is not None:
            vectors = before.undo(vectors[None])[0]
        made = torch.zeros(
            len(vectors), ups[1].tokens, vectors.shape[-1], dtype=torch.float64, device=self._device
        )
        made[:, list(self.places)] = vectors[:, list(self.places.values())]
        return made if after is None else after.turn(made[None])[0]

    def logits(self, chosen: Tensor) -> Tensor:
        """What leaves the receiver's row of logits with some pairs: [n, T]."""
        return self._row(self.written(chosen))

    def _row(self, vectors: Tensor) -> Tensor:
        table = self.receiver
        up, (head, d, _) = table.query.up, table.cell
        scale = float(up.scale[head.layer])
        if self.side == "query":
            row = vectors[:, 0] @ up.k[head.layer, head.index // up.group].double().mT
        else:
            row = vectors @ up.q[head.layer, head.index, d].double()
        return scale * row * table.visible

    def attention_with(self, chosen: Tensor) -> float:
        """The receiver's attention with some pairs patched, by the algebra."""
        left = self.receiver.logits - self.logits(chosen).sum(0)
        row = attention(left, self.receiver.visible, self.receiver.query.up.cap)
        return float(row[self.receiver.cell.key])

    @cached_property
    def whole(self) -> float:
        """The attention with all of this side patched: what the side makes of the difference, whoever wrote it."""
        vectors = self.written(torch.arange(len(self._rows))).sum(0)
        left = self.receiver.logits - self._row(vectors[None])[0]
        row = attention(left, self.receiver.visible, self.receiver.query.up.cap)
        return float(row[self.receiver.cell.key])

    def fewest(self, threshold: float) -> Tensor | None:
        """The fewest pairs, by what they make of the difference, with which the attention falls below a threshold."""
        gains = self.gains.masked_fill(~self.paired.possible, 0.0)
        ranked = gains.argsort(descending=True, stable=True)[: min(MOST, int((gains > 0).sum()))]
        width = FIRST
        while len(ranked):
            chosen = ranked[:width]
            candidates = self.logits(chosen)
            found = fewest(rows_to_take(self.receiver, candidates, threshold))
            if found is not None:
                return chosen[found.kept].to(self._device)
            if width >= len(ranked):
                break
            width *= 4
        return None

    def removal(self, chosen: Tensor) -> Removal:
        """The patch as vectors that leave query or keys of the running model."""
        vectors = self.written(chosen).sum(0)
        cell = self.receiver.cell
        return Removal(cell, query=vectors[0]) if self.side == "query" else Removal(cell, key=vectors)

    def controls(self, chosen: Tensor, *, draws: int, seed: int, rises: bool = False) -> list[Control]:
        """As much is patched, but not this: other channels of these writers, as many other writers, directions."""
        one = self.receiver.side(self.side)
        vectors, logits = self.written(chosen).sum(0), self.logits(chosen).sum(0)
        parts = one.by_channel(vectors)[0] @ self.receiver.gradient
        n_heads = len(self._rows) - (len(one) - one.up.n_carried(self.receiver.cell.head.layer))
        pool = Pool(self.paired.possible, torch.arange(len(self._rows)) < n_heads, self.written, self.logits)
        taken = used_by(parts, chosen, vectors, logits)
        labels = ("patch", str(self.receiver.cell), self.side)
        return matched(
            self.receiver, one, taken, pool, labels, seed=seed, draws=draws, whole=True, rises=rises
        )
