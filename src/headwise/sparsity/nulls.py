"""Would channels be as sparse without features? Five nulls, through the same QK form, and one claim against all.

Singular values alone make channels unequal: whatever goes through Ω is sparser along its singular vectors than along
directions that mix them. So a rotation that evens out the singular values lets nearly everything through, and a head's
cells are held against

*isotropic* Gaussian streams: every coordinate independent, times the singular value;
*matched* Gaussian streams: queries and relative keys with the means and covariances that the head really has;
*unattended* keys of the same queries: those that get less than an even share of the attention;
*shuffled* pairs: the query of one prompt with keys of the others, attended or not;
*turned* directions: the real queries and keys, each side turned by its own random rotation, with Ω's singular values.

A Gaussian row has as many keys as the real one, and the key is taken whose score is of the same rank in it: being
attended is a choice that the null makes too. The claim is that a head's cells are sparser than by every one of them,
so its p-value is the largest of the five.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from headwise.bases.basis import Basis
from headwise.bases.relative import relative, sparsity
from headwise.claims import p_value, sign_flips
from headwise.randomness import keyed

NULLS = {
    "isotropic": "isotropic Gaussian streams",
    "matched": "Gaussian streams of the same covariance",
    "unattended": "unattended keys of the same queries",
    "shuffled": "queries with keys of other prompts",
    "turned": "directions turned on each side, with the same singular values",
}
"""What each null is called."""
ALL_FIVE = "the closest of: " + "; ".join(NULLS.values())
ROTATED = "directions rotated alike on both sides (the published control)"
DRAWS = 16
"""Draws of a random null per cell; their mean is what the cell is held against."""
TURNS = 399
"""Draws of turned directions: each is another head, the same for all cells, so they are counted one by one."""
FLIPS = 4999
"""Flips of the clusters' signs where these are too many to go through them all."""
OTHERS = 6
"""Unattended keys per cell, at most."""
KEYS = 32
"""Keys of a Gaussian row, at most: of a longer row the rank is taken in proportion."""


@dataclass(frozen=True, eq=False)
class CellVectors:
    """The queries and keys behind some cells of one head, as it multiplies them; n cells, float64."""

    q: Tensor
    """[n, d_head], scaled like a logit."""
    key: Tensor
    """[n, d_head]: relative to the mean of the other visible keys."""
    others: Tensor
    """[n, OTHERS, d_head]: unattended keys of the same query, relative in the same way; NaN beyond the last."""
    higher: Tensor
    """[n]: visible keys with a higher score."""
    visible: Tensor
    """[n]: visible keys."""

    @classmethod
    def cat(cls, parts: Sequence[CellVectors]) -> CellVectors:
        """Several groups of cells, one after another."""
        return cls(*(torch.cat([getattr(part, field.name) for part in parts]) for field in fields(cls)))


def cell_vectors(
    q: Tensor, k: Tensor, key: int, seen: Tensor, attention: Tensor, generator: torch.Generator
) -> CellVectors:
    """One cell of a row: a query [d_head] that is scaled, keys [T, d_head], which are seen [T] and attended [T]."""
    scores = (k @ q).masked_fill(~seen, -torch.inf)
    visible = int(seen.sum())
    low = (seen & (attention * visible < 1)).nonzero().flatten()
    low = low[low != key]
    low = low[torch.randperm(len(low), generator=generator)[:OTHERS]]
    others = q.new_full((OTHERS, len(q)), torch.nan)
    for place, other in enumerate(low.tolist()):
        others[place] = relative(k, other, seen)
    higher = torch.tensor([int((scores > scores[key]).sum())])
    return CellVectors(q[None], relative(k, key, seen)[None], others[None], higher, torch.tensor([visible]))


@dataclass(frozen=True, eq=False)
class NullCells:
    """How sparse each null is in place of some cells of one head, or of several one after another."""

    each: dict[str, Tensor]
    """By the null's name [n]: the mean over its draws; NaN where there is none."""
    turned: Tensor
    """[TURNS, n]: the draws of turned directions."""

    @classmethod
    def cat(cls, parts: Sequence[NullCells]) -> NullCells:
        """Those of several heads, one after another."""
        each = {name: torch.cat([part.each[name] for part in parts]) for name in NULLS}
        return cls(each, torch.cat([part.turned for part in parts], 1))


def null_cells(cells: CellVectors, basis: Basis, prompts: Tensor, seed: int, *labels: object) -> NullCells:
    """Draw every null in place of a head's cells; ``prompts`` [n] says of which prompt each is."""
    a, b = cells.q @ basis.query_map, cells.key @ basis.key_map.mT
    plain, alike = _isotropic(cells, basis), _matched(cells, basis)
    isotropic, matched = [], []
    for draw in range(DRAWS):
        g = keyed(seed, "sparsity null", *labels, draw)
        isotropic.append(_gaussian(cells, plain, g))
        matched.append(_gaussian(cells, alike, g))
    g = keyed(seed, "turned", *labels)
    turned = torch.stack([sparsity(_turned(a, b, basis, g)) for _ in range(TURNS)])
    others = cells.others @ basis.key_map.mT
    each = {
        "isotropic": torch.stack(isotropic).mean(0),
        "matched": torch.stack(matched).mean(0),
        "unattended": sparsity(a[:, None] * others).nanmean(1),
        "shuffled": _shuffled(a, torch.cat((b[:, None], others), 1), prompts),
        "turned": turned.mean(0),
    }
    return NullCells(each, turned)


DrawRows = Callable[[int, int, torch.Generator], tuple[Tensor, Tensor]]
"""From numbers of queries and of keys in a row: coordinates of the queries [n, K], and of their keys [n, width, K]."""


def _gaussian(cells: CellVectors, draw: DrawRows, g: torch.Generator) -> Tensor:
    """Sparsity of Gaussian cells [n]: a row of keys for each query, of which the key of the same rank is taken."""
    width = min(KEYS, max(2, int(cells.visible.max())))
    a, b = draw(len(cells.q), width, g)
    order = torch.einsum("nc,nkc->nk", a, b)
    # Shorter rows have fewer keys: the others can come neither before nor after.
    there = torch.arange(width) < cells.visible.clamp(max=width)[:, None]
    ranked = order.masked_fill(~there, -torch.inf).argsort(1, descending=True)
    share = cells.higher.double() / (cells.visible - 1).clamp_min(1)
    place = (share * (there.sum(1) - 1)).round().long()
    chosen = ranked.gather(1, place[:, None])[..., None].expand(-1, 1, b.shape[-1])
    return sparsity(a * b.gather(1, chosen)[:, 0])


def _isotropic(cells: CellVectors, basis: Basis) -> DrawRows:
    size = cells.q.shape[-1]
    real = torch.arange(size) < basis.rank

    def draw(n: int, width: int, g: torch.Generator) -> tuple[Tensor, Tensor]:
        a = torch.randn(n, size, generator=g, dtype=torch.float64) * basis.query_units * real
        return a, torch.randn(n, width, size, generator=g, dtype=torch.float64) * basis.key_units * real

    return draw


def _matched(cells: CellVectors, basis: Basis) -> DrawRows:
    keys = torch.cat((cells.others.flatten(0, 1), cells.key))
    q, k = _Normal.of(cells.q @ basis.query_map), _Normal.of(keys[~keys[:, 0].isnan()] @ basis.key_map.mT)

    def draw(n: int, width: int, g: torch.Generator) -> tuple[Tensor, Tensor]:
        return q.drawn((n,), g), k.drawn((n, width), g)

    return draw


@dataclass(frozen=True, eq=False)
class _Normal:
    """The Gaussian with the mean and the covariance of some samples."""

    mean: Tensor
    root: Tensor

    @classmethod
    def of(cls, samples: Tensor) -> _Normal:
        away = samples - samples.mean(0)
        values, vectors = torch.linalg.eigh(away.mT @ away / max(1, len(samples) - 1))
        return cls(samples.mean(0), values.clamp_min(0).sqrt()[:, None] * vectors.mT)

    def drawn(self, shape: tuple[int, ...], g: torch.Generator) -> Tensor:
        return self.mean + torch.randn(*shape, len(self.root), generator=g, dtype=torch.float64) @ self.root


def _turned(a: Tensor, b: Tensor, basis: Basis, g: torch.Generator) -> Tensor:
    """Channels [n, K] where each side's coordinates, without their units, are turned by a rotation of its own."""
    rank, made = int(basis.rank), [a.clone(), b.clone()]
    for side, units in zip(made, (basis.query_units, basis.key_units), strict=True):
        turn, _ = torch.linalg.qr(torch.randn(rank, rank, generator=g, dtype=torch.float64))
        side[:, :rank] = (side[:, :rank] / units[:rank]) @ turn * units[:rank]
    return made[0] * made[1]


def _shuffled(a: Tensor, keys: Tensor, prompts: Tensor) -> Tensor:
    """Every query [n, K] with the keys [n, m, K] of all other prompts: the mean over them [n].

    Not with their attended keys alone: what these share with one another is what a feature would be.
    """
    flat, whose = keys.flatten(0, 1), prompts.repeat_interleave(keys.shape[1])
    found = torch.stack([sparsity(one * flat) for one in a])
    return found.masked_fill(prompts[:, None] == whose, torch.nan).nanmean(1)


def sparser_than(
    used: Tensor, null: NullCells, prompts: Tensor, clusters: Tensor, seed: int, *labels: object
) -> dict[str, tuple[float, int]]:
    """Are cells of this sparsity [n] sparser than every null? p and the draws behind it, by the null's name.

    ``prompts`` [n] are the cells' prompts and ``clusters`` [all prompts] what these share.
    """
    shared, own = clusters[prompts.unique()], by_prompt(used, prompts)
    found = {
        name: sparser(own, by_prompt(drawn, prompts), shared, seed, *labels, name)
        for name, drawn in null.each.items()
    }
    # Cells of one head share its directions: what other directions would do is not known from how cells differ.
    drawn = p_value(-float(used.mean()), -null.turned.mean(1))
    found["turned"] = max(found["turned"], (drawn, len(null.turned)))
    return found


def sparser(used: Tensor, null: Tensor, clusters: Tensor, seed: int, *labels: object) -> tuple[float, int]:
    """Are cells sparser than their null? p by the signs of whole clusters, and the flips behind it; 1 without any.

    ``used`` and ``null`` are means per prompt [prompts], NaN where a prompt has none.
    """
    known = ~(used.isnan() | null.isnan())
    if not bool(known.any()):
        return 1.0, 0
    g = keyed(seed, "signs", *labels)
    return sign_flips((null - used)[known], clusters[known], draws=FLIPS, generator=g)


def strictest(tests: Mapping[str, tuple[float, int]]) -> tuple[float, int]:
    """p and draws of the claim that all of some nulls are beaten: those of the one that is nearest.

    >>> strictest({"isotropic": (0.01, 99), "shuffled": (0.4, 99)})
    (0.4, 99)
    """
    return max(tests.values())


def by_prompt(values: Tensor, prompts: Tensor) -> Tensor:
    """Mean over the cells of each prompt, of those that have a value; NaN where none has.

    >>> by_prompt(torch.tensor([1.0, 3.0, float("nan")]).double(), torch.tensor([4, 4, 9])).tolist()
    [2.0, nan]
    """
    unique, place = prompts.unique(return_inverse=True)
    known = ~values.isnan()
    total, count = (
        torch.zeros(len(unique), dtype=torch.float64).index_add_(0, place[known], x)
        for x in (values[known], torch.ones(int(known.sum()), dtype=torch.float64))
    )
    return total / count
