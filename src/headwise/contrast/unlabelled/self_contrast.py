"""Self-contrast: the head's own attention is the label (Eq. C14).

    ΔC_self = E[q (Σ_t A_t k_t − mean_t k_t)ᵀ] = U Σ Vᵀ

A key counts as positive by as much as it was attended to. The placebo deals each row's attention anew among its keys:
what it makes of the same queries and keys is no choice of the head's, and a direction counts if it is above that.
"""

from __future__ import annotations

from typing import Self

import torch
from sklearn.base import BaseEstimator
from torch import Tensor

from headwise.contrast.rank import energy_rank, null_rank
from headwise.contrast.unlabelled.attention_rows import AttendedCells, AttentionRows
from headwise.contrast.unlabelled.placebos import placebo_sums
from headwise.errors import HeadwiseError
from headwise.randomness import keyed

KEYS = 2
"""Keys of each row that are drawn whatever their attention: what the head chooses from."""


class SelfContrast(BaseEstimator):
    """The span in which one head chooses its keys.

    Parameters
    ----------
    placebos:
        How many times the attention is dealt anew.
    alpha:
        Level at which a direction must exceed the placebos. This alone ends the span: a share of the energy would leave
        out what a head reads along a weak direction, and the axes of all others would mix with it.
    max_rank:
        The largest rank; None for as many as the head has dimensions.
    seed:
        The seed of the placebos.

    Learned: ``delta_c_`` and ``placebos_`` ([d, d] and [placebos, d, d]), ``sigma_`` [d], ``rank_null_``
    (directions above the placebos), ``rank_`` (the same, ``max_rank`` at most), ``rank_energy_`` (the published rule,
    99 % of ΔC's energy, for comparison), ``query_`` and ``key_`` [d, rank] (paired singular vectors), ``cells_`` (the
    attended cells), ``keys_`` [m, d] and ``key_units_`` [m] (keys that could be chosen, drawn at random, with their
    texts), ``n_rows_``.

    >>> g = torch.Generator().manual_seed(0)
    >>> keys = torch.randn(300, 9, 6, generator=g) * torch.tensor([3.0, 3.0, 0.1, 0.1, 0.1, 0.1])
    >>> q = keys[:, 4] * torch.tensor([1.0, 1, 0, 0, 0, 0])        # asks for its fifth key, by two of six dimensions
    >>> attention = torch.softmax((keys @ q[..., None])[..., 0], 1)
    >>> rows = AttentionRows(q, keys, attention, torch.ones(300, 9, dtype=torch.bool), torch.arange(300))
    >>> SelfContrast().fit(rows).rank_
    2
    """

    def __init__(
        self,
        *,
        placebos: int = 100,
        alpha: float = 0.01,
        max_rank: int | None = None,
        seed: int = 0,
    ) -> None:
        self.placebos = placebos
        self.alpha = alpha
        self.max_rank = max_rank
        self.seed = seed

    def fit(self, rows: AttentionRows) -> Self:
        """Forget everything, then add rows and finish."""
        return self.reset().partial_fit(rows).finish()

    def reset(self) -> Self:
        """Forget everything."""
        if self.placebos * self.alpha < 1:
            raise HeadwiseError(
                f"placebos={self.placebos} are too few for level {self.alpha:g}: give at least {round(1 / self.alpha)}"
            )
        self.n_rows_ = 0
        self._parts: list[AttendedCells] = []
        self._keys: list[tuple[Tensor, Tensor]] = []
        self._sum: Tensor | None = None
        return self

    def partial_fit(self, rows: AttentionRows) -> Self:
        """Add rows; :meth:`finish` ends the fit."""
        if not hasattr(self, "_parts"):
            self.reset()
        usable = rows.chosen(rows.allowed.sum(1) > 1)
        cells = usable.cells()
        # Rows keep their numbers over all parts.
        cells = AttendedCells(
            cells.q, cells.k, cells.attention, cells.unit, cells.row + self.n_rows_, cells.key
        )
        real = usable.q.double().mT @ usable.contrast().double()
        draws = [keyed(self.seed, "placebo", draw, self.n_rows_) for draw in range(self.placebos)]
        sums = torch.cat([real[None], placebo_sums(usable, draws)])
        self._sum = sums if self._sum is None else self._sum + sums
        self._keys.append(usable.some_keys(KEYS, keyed(self.seed, "keys", self.n_rows_)))
        self.n_rows_ += len(usable)
        self._parts.append(cells)
        return self

    def finish(self) -> Self:
        """Rank and directions, from all rows so far."""
        if self._sum is None or not self.n_rows_:
            raise HeadwiseError("there are no rows with two keys to choose from: give longer texts")
        self.cells_ = AttendedCells.cat(self._parts)
        self.keys_, self.key_units_ = (torch.cat(some) for some in zip(*self._keys, strict=True))
        whole = self._sum / self.n_rows_
        self.delta_c_, self.placebos_ = whole[0], whole[1:]
        left, self.sigma_, right = torch.linalg.svd(self.delta_c_)
        self.rank_energy_ = int(energy_rank(self.sigma_))
        self.rank_null_ = int(null_rank(self.delta_c_[None], self.placebos_[:, None], alpha=self.alpha)[0])
        most = len(self.sigma_) if self.max_rank is None else self.max_rank
        self.rank_ = min(self.rank_null_, most)
        # A sign that depends on the direction alone, so that the same rows give the same bases everywhere.
        sign = torch.gather(left, 0, left.abs().argmax(0, keepdim=True)).sign()
        self.query_ = (left * sign)[:, : self.rank_]
        self.key_ = (right.mT * sign)[:, : self.rank_]
        return self

    def transform(self, keys: Tensor) -> Tensor:
        """Keys [..., d_head] as coordinates inside the span [..., rank]."""
        return keys.double() @ self.key_
