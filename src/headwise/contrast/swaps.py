"""What would the head attend to if two keys exchanged one feature? Exactly, and without a second forward
pass.

A swap (Eqs. C5–C7) moves k_o to k_o + P(k_t − k_o) and k_t to k_t + P(k_o − k_t). Only the logits of these
two keys change, by ±scale · q·P(k_t − k_o), so one forward pass serves every subspace and every random draw.

Axes: ``...`` any leading axes (heads), S subspaces or draws, n prompts, T keys. Logits are the model's own
before soft-cap and softmax, scale included; where the mask is False a key does not exist.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from headwise.claims import p_value
from headwise.errors import HeadwiseError
from headwise.intervals import as_share, estimated, numbered, weights_of
from headwise.model.attend import soft_cap
from headwise.types import Estimate


@dataclass(frozen=True, eq=False)
class Edited:
    """Attention after edits, per subspace and prompt, float64 [..., S, n]."""

    original: Tensor
    """Attention on the original key."""
    target: Tensor
    """Attention on the target key."""
    log_odds: Tensor
    """log(target / original) after the edit minus before it."""

    @classmethod
    def cat(cls, parts: Sequence[Edited]) -> Edited:
        """Several groups of prompts, one after another."""
        names = ("original", "target", "log_odds")
        return cls(*(torch.cat([getattr(part, name) for part in parts], -1) for name in names))

    def first(self) -> Edited:
        """The first subspace alone: [..., n]."""
        return Edited(self.original[..., 0, :], self.target[..., 0, :], self.log_odds[..., 0, :])

    def of(self, prompts: Tensor) -> Edited:
        """Some of the prompts alone."""
        return Edited(self.original[..., prompts], self.target[..., prompts], self.log_odds[..., prompts])

    def __repr__(self) -> str:
        low, high = self.original.mean().item(), self.target.mean().item()
        return f"Edited({list(self.original.shape)}, original={low:.3f}, target={high:.3f})"


@dataclass(frozen=True, eq=False)
class SwapRows:
    """One query row per test prompt: everything a swap needs.

    q [..., n, d_head]; k_original, k_target [..., n, d_head]; logits [..., n, T]; original, target: their
    positions [n]; mask [n, T] or [..., n, T]; ``keys`` [..., n, T, d_head] only for edits of the query or
    of every key.
    """

    q: Tensor
    k_original: Tensor
    k_target: Tensor
    logits: Tensor
    original: Tensor
    target: Tensor
    scale: float
    cap: float | None = None
    mask: Tensor | None = None
    keys: Tensor | None = None

    def __post_init__(self) -> None:
        same = (self.original == self.target).nonzero()
        if len(same):
            raise HeadwiseError(
                f"prompt {int(same[0])}: original and target are the same key {int(self.original[same[0]])}"
            )
        if self.logits.shape[:-1] != self.q.shape[:-1]:
            raise HeadwiseError(
                f"logits {list(self.logits.shape)} do not go with queries {list(self.q.shape)}"
            )
        if self.mask is not None and not (self.mask.gather(-1, self._index(self.mask))).all():
            raise HeadwiseError("an original or target key is masked: the query cannot see it")

    @classmethod
    def from_keys(
        cls,
        q: Tensor,
        keys: Tensor,
        original: Tensor,
        target: Tensor,
        *,
        scale: float,
        cap: float | None = None,
        mask: Tensor | None = None,
    ) -> SwapRows:
        """Rows from q [..., n, d_head] and all keys [..., n, T, d_head]."""
        q, keys = q.double(), keys.double()
        logits = scale * (keys @ q[..., None])[..., 0]

        def pick(at: Tensor) -> Tensor:
            index = at[:, None, None].expand(*keys.shape[:-2], 1, keys.shape[-1])
            return keys.gather(-2, index)[..., 0, :]

        return cls(q, pick(original), pick(target), logits, original, target, scale, cap, mask, keys)

    def _index(self, like: Tensor) -> Tensor:
        pair = torch.stack([self.original, self.target], -1).to(like.device)
        return pair.expand(*like.shape[:-1], 2)

    def _parts(self, logits: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The two logits [..., S, n, 2] before the cap, and log Σ exp of the other keys after it [..., S, n].

        ``logits`` [..., S, n, T] are edited rows; without them, the clean rows stand as one subspace.
        """
        logits = self.logits.double()[..., None, :, :] if logits is None else logits
        index = self._index(logits)
        others = soft_cap(logits, self.cap)
        if self.mask is not None:
            mask = self.mask if self.mask.ndim == 2 else self.mask[..., None, :, :]
            others = others.masked_fill(~mask.to(others.device), float("-inf"))
        return logits.gather(-1, index), others.scatter(-1, index, float("-inf")).logsumexp(-1)

    def clean(self) -> Edited:
        """The attention as it is, as one pseudo-subspace [..., 1, n]; its change in log-odds is zero."""
        return self._attention(*self._parts())

    def _attention(self, pair: Tensor, rest: Tensor) -> Edited:
        capped = soft_cap(pair, self.cap)
        total = torch.logaddexp(capped.logsumexp(-1), rest)
        change = capped - soft_cap(self._parts()[0], self.cap)
        return Edited(
            (capped[..., 0] - total).exp(), (capped[..., 1] - total).exp(), change[..., 1] - change[..., 0]
        )


def _shift(q: Tensor, difference: Tensor, bases: Tensor, scale: float) -> Tensor:
    """scale · q·P(difference) per subspace: [..., S, n] from q, difference [..., n, d], bases [(...,) S, d, r]."""
    bases = bases.to(q)
    return scale * ((q[..., None, :, :] @ bases) * (difference[..., None, :, :] @ bases)).sum(-1)


def swap_keys(rows: SwapRows, bases: Tensor | None, *, dose: float = 1.0) -> Edited:
    """Swap the two keys' coordinates inside each subspace; ``bases`` [(...,) S, d_head, r], None for a full
    swap.

    ``dose`` moves them only part of the way: 0 changes nothing, 1 is the swap, ½ makes the coordinates equal.

    >>> q = torch.tensor([[1.0, 0.0]]); keys = torch.tensor([[[2.0, 5.0], [0.0, 1.0]]])
    >>> rows = SwapRows.from_keys(q, keys, torch.tensor([0]), torch.tensor([1]), scale=1.0)
    >>> swapped = swap_keys(rows, torch.eye(2)[None, :, :1])
    >>> [round(x.item(), 3) for x in (rows.clean().original, swapped.original)]
    [0.881, 0.119]
    """
    pair, rest = rows._parts()
    q, difference = rows.q.double(), (rows.k_target - rows.k_original).double()
    if bases is None:
        shift = rows.scale * (q * difference).sum(-1)[..., None, :]
    else:
        shift = _shift(q, difference, bases, rows.scale)
    return rows._attention(pair + dose * torch.stack([shift, -shift], -1), rest)


def dose_response(rows: SwapRows, bases: Tensor | None, doses: Tensor) -> Edited:
    """``swap_keys`` at several doses: a new leading axis, [doses, ..., S, n]."""
    runs = [swap_keys(rows, bases, dose=float(dose)) for dose in doses]
    return Edited(*(torch.stack([getattr(r, f) for r in runs]) for f in ("original", "target", "log_odds")))


def edit_rows(
    rows: SwapRows,
    *,
    query_bases: Tensor | None = None,
    key_bases: Tensor | None = None,
    new_q: Tensor | None = None,
    mode: Literal["swap", "ablate"] = "swap",
    dose: float = 1.0,
) -> Edited:
    """Edits that reach every key of the row, from ``rows.keys``; bases [(...,) S, d_head, r].

    * ``swap`` with ``query_bases``: q takes the coordinates of ``new_q`` (a query that asks for the
      target). With ``key_bases`` too, the two keys are swapped as well: asking for the target where the
      target's key is at the original undoes itself if both subspaces carry the feature.
    * ``ablate``: the subspace is taken out of q (``query_bases``), of every key (``key_bases``), or of both.
    """
    if rows.keys is None:
        raise HeadwiseError(
            "this edit reaches every key: build the rows with SwapRows.from_keys(q, keys, ...)"
        )
    if query_bases is None and key_bases is None:
        raise HeadwiseError("give query_bases, key_bases or both")
    q, keys = rows.q.double()[..., None, :, :], rows.keys.double()
    query = q
    if query_bases is not None:
        u = query_bases.to(q)
        if mode == "swap":
            if new_q is None:
                raise HeadwiseError(
                    "a swap on the query side needs new_q, the query that asks for the target"
                )
            change = new_q.double()[..., None, :, :] - q
        else:
            change = -q
        query = q + dose * (change @ u) @ u.mT
    # [..., S, n, T]; the key edit is folded into the query where it reaches every key, since (q)·Pk = (Pq)·k.
    reader = query
    if key_bases is not None and mode == "ablate":
        v = key_bases.to(q)
        reader = query - dose * (query @ v) @ v.mT
    logits = rows.scale * torch.einsum(
        "...snd,...ntd->...snt", reader.expand(*reader.shape[:-3], -1, *q.shape[-2:]), keys
    )
    pair, rest = rows._parts(logits)
    if key_bases is not None and mode == "swap":
        difference = (rows.k_target - rows.k_original).double()[..., None, :, :]
        v = key_bases.to(q)
        shift = dose * rows.scale * ((query @ v) * (difference @ v)).sum(-1)
        pair = pair + torch.stack([shift, -shift], -1)
    return rows._attention(pair, rest)


@dataclass(frozen=True, kw_only=True)
class SwapTest:
    """One feature's swap against subspaces of the same rank that mean nothing."""

    original: Estimate
    target: Estimate
    share: Estimate
    """Mean change of log-odds as a share of the change that swapping the whole keys makes."""
    percentile: float
    """Percent of the random draws with a smaller share."""
    p_value: float
    """(1 + draws at least as large) / (1 + draws), one-sided."""
    random_original: float
    random_target: float
    random_shares: tuple[float, ...]

    def __repr__(self) -> str:
        return (
            f"SwapTest(original={self.original.mean:.3f}, target={self.target.mean:.3f}, "
            f"share={self.share.mean:.2f}, percentile={self.percentile:.1f}, p={self.p_value:.3g})"
        )


def swap_test(
    edited: Edited,
    full: Edited,
    draws: Edited,
    *,
    generator: torch.Generator,
    bootstrap: int = 1000,
    clusters: Tensor | None = None,
) -> SwapTest:
    """Summarise one subspace's edit [1, n] or [n] against a full swap [1, n] and random draws [draws, n].

    Shares are ratios of means over prompts: a mean of ratios would be ruled by prompts whose full swap does
    little. ``clusters`` [n] are prompts that are resampled as one.
    """
    flat = [x.reshape(-1) for x in (edited.original, edited.target, edited.log_odds, full.log_odds)]
    n = flat[0].shape[0]
    if any(x.shape[0] != n for x in flat) or draws.log_odds.ndim != 2 or draws.log_odds.shape[1] != n:
        raise HeadwiseError(
            "swap_test takes one head and one subspace over the same prompts in all three results"
        )
    whole = flat[3].mean()
    if whole.abs() < 1e-12:
        raise HeadwiseError("a full key swap changes nothing here: the share of it is not defined")
    share = float(flat[2].mean() / whole)
    shares = draws.log_odds.mean(1) / whole
    means = weights_of(clusters, n, bootstrap, generator) @ torch.stack(flat, 1)
    count = numbered(clusters, n)[1]
    return SwapTest(
        original=as_share(estimated(flat[0].mean(), means[:, 0], n, count)),
        target=as_share(estimated(flat[1].mean(), means[:, 1], n, count)),
        share=estimated(share, means[:, 2] / means[:, 3], n, count),
        percentile=100.0 * float((shares < share).double().mean()),
        p_value=p_value(share, shares),
        random_original=float(draws.original.mean()),
        random_target=float(draws.target.mean()),
        random_shares=tuple(shares.tolist()),
    )
