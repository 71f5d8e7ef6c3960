"""Payload retrieval: one attention head must find the token whose latents match a selector, and read its
payload.

A payload token is x_i = Σ_j A_j z_j,i + A_y e_y,i + noise, the selector x_q = Σ_j B_j z_j,i* + noise
(Eq. C11). A *cell* is one head with its own ranks, maps and weights; a grid of cells is one model with a leading cell
axis.

All cells read the same draws: *sources* s = [z_1 | … | z_K | one-hot payload | noise], with z_j padded to
its largest rank. A cell's maps have zero columns where its own rank ends, so x = E s with E [d, S], and
nothing of size cells × tokens × d is ever built: logits are s_i·(W_K E)ᵀq and the output is W_O W_V E (Σ
α_i s_i).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from math import comb, factorial
from typing import Literal

import torch
from torch import Tensor

from headwise.errors import HeadwiseError
from headwise.randomness import keyed

Latents = Literal["discrete", "gaussian"]
PRESETS = {
    "paper": "standard Gaussian maps and noise, as the paper says",
    "released": "maps scaled by 1/√r, payload map by 1/√d, noise 0.01, as the authors' code has it",
}
MAX_RANK = 64


@dataclass(frozen=True)
class PayloadSetup:
    """Which heads to train: ``cells`` holds each cell's ranks (r_1, …, r_K).

    >>> PayloadSetup.grid(8, "discrete").cells[:3]
    ((2, 2), (2, 3), (2, 4))
    """

    d_head: int
    latents: Latents
    cells: tuple[tuple[int, ...], ...]
    preset: str = "released"
    seed: int = 0
    d: int = 32
    tokens: int = 16
    payloads: int = 10

    def __post_init__(self) -> None:
        if self.preset not in PRESETS:
            raise HeadwiseError(f"preset {self.preset!r} is not known: choose one of {', '.join(PRESETS)}")
        if self.latents not in ("discrete", "gaussian"):
            raise HeadwiseError(f"latents {self.latents!r} are not known: write discrete or gaussian")
        if not 1 <= self.d_head <= 256:
            raise HeadwiseError(f"d_head {self.d_head} is outside 1..256")
        if not self.cells:
            raise HeadwiseError("a payload study needs at least one cell of ranks, such as r1=3 and r2=3")
        for ranks in self.cells:
            for r in ranks:
                if not 1 <= r <= MAX_RANK:
                    raise HeadwiseError(
                        f"rank {r} is outside 1..{MAX_RANK}: a latent needs at least one dimension"
                    )
        if len({len(ranks) for ranks in self.cells}) > 1:
            raise HeadwiseError("every cell of a grid needs the same number of latents")

    @classmethod
    def grid(
        cls,
        d_head: int,
        latents: Latents,
        *,
        preset: str = "released",
        seed: int = 0,
        low: int = 0,
        high: int = 0,
    ) -> PayloadSetup:
        """The paper's grid: ranks 2..6 for d_head 8, 4..12 for d_head 16; ``low`` and ``high`` choose others."""
        low, high = low or d_head // 4, high or d_head * 3 // 4
        return cls(d_head, latents, tuple(product(range(low, high + 1), repeat=2)), preset=preset, seed=seed)

    @property
    def latent_count(self) -> int:
        return len(self.cells[0])

    @property
    def widths(self) -> tuple[int, ...]:
        """The largest rank of each latent over the cells: how far it is padded."""
        return tuple(max(ranks[j] for ranks in self.cells) for j in range(self.latent_count))

    @property
    def noise(self) -> float:
        return 1.0 if self.preset == "paper" else 0.01

    def columns(self, latent: int) -> slice:
        """Where latent j stands among the sources."""
        start = sum(self.widths[:latent])
        return slice(start, start + self.widths[latent])


@dataclass(frozen=True, eq=False)
class World:
    """The fixed maps of every cell, as embeddings of the sources: ``key`` and ``query`` [C, d, S], S = ΣR +
    P + d.
    """

    setup: PayloadSetup
    key: Tensor
    query: Tensor

    @classmethod
    def build(cls, setup: PayloadSetup) -> World:
        keys, queries = [], []
        for ranks in setup.cells:
            # Keyed by the cell's own ranks: the same cell in another grid, or alone, is the same cell.
            g = keyed(setup.seed, "maps", setup.d_head, setup.latents, ranks)
            scaled = setup.preset == "released"
            a, b = [], []
            for r, width in zip(ranks, setup.widths, strict=True):
                for side in (a, b):
                    drawn = torch.randn(setup.d, r, generator=g) / (r**0.5 if scaled else 1.0)
                    side.append(torch.nn.functional.pad(drawn, (0, width - r)))
            payload = torch.randn(setup.d, setup.payloads, generator=g) / (setup.d**0.5 if scaled else 1.0)
            noise = setup.noise * torch.eye(setup.d)
            keys.append(torch.cat([*a, payload, noise], 1))
            queries.append(torch.cat([*b, torch.zeros_like(payload), noise], 1))
        return cls(setup, torch.stack(keys), torch.stack(queries))

    def only(self, cell: int) -> World:
        """One cell's world without padding; its draws are its own."""
        ranks = self.setup.cells[cell]
        starts = [self.setup.columns(j).start for j in range(len(ranks))]
        latents = [start + i for start, r in zip(starts, ranks, strict=True) for i in range(r)]
        columns = latents + list(range(sum(self.setup.widths), self.key.shape[-1]))
        alone = replace(self.setup, cells=(ranks,))
        return World(alone, self.key[cell : cell + 1, :, columns], self.query[cell : cell + 1, :, columns])

    def latent_maps(self, cell: int, latent: int) -> tuple[Tensor, Tensor]:
        """A_j and B_j of a cell, [d, r_j] each, without padding."""
        start = self.setup.columns(latent).start
        part = slice(start, start + self.setup.cells[cell][latent])
        return self.key[cell][:, part], self.query[cell][:, part]


@dataclass(frozen=True, eq=False)
class TripletBatch:
    """Samples: token sources [n, T, S], selector sources [n, S], right position [n], right payload [n]."""

    tokens: Tensor
    selector: Tensor
    position: Tensor
    payload: Tensor


def draw_latents(setup: PayloadSetup, count: int, *labels: object) -> list[Tensor]:
    """``count`` values of each latent, [count, width_j]; a smaller width is a prefix of a larger one."""
    found = []
    for j, width in enumerate(setup.widths):
        g = keyed(setup.seed, *labels, "z", j)
        # One draw a column: a tensor of another width would otherwise be another stream.
        if setup.latents == "discrete":
            found.append(
                torch.stack([torch.randint(0, 2, (count,), generator=g) for _ in range(width)], 1) * 2.0 - 1
            )
        else:
            found.append(torch.stack([torch.randn(count, generator=g) for _ in range(width)], 1))
    return found


def draw_batch(setup: PayloadSetup, n: int, *labels: object) -> TripletBatch:
    """``n`` samples of the task, the same for every cell, keyed by the labels."""
    t = setup.tokens
    z = torch.cat(draw_latents(setup, n * t, *labels), 1)
    g = keyed(setup.seed, *labels, "rest")
    payload = torch.randint(0, setup.payloads, (n, t), generator=g)
    position = torch.randint(0, t, (n,), generator=g)
    noise = torch.randn(n, t + 1, setup.d, generator=g)
    z = z.view(n, t, -1)
    one_hot = torch.nn.functional.one_hot(payload, setup.payloads).float()
    rows = torch.arange(n)
    return TripletBatch(
        torch.cat([z, one_hot, noise[:, :t]], -1),
        torch.cat([z[rows, position], torch.zeros(n, setup.payloads), noise[:, t]], -1),
        position,
        payload[rows, position],
    )


Weights = dict[str, Tensor]


def init_weights(setup: PayloadSetup) -> Weights:
    """W_Q, W_K, W_V [C, d_head, d] and W_O [C, P, d_head], drawn as a linear layer's usual start."""
    cells = []
    for ranks in setup.cells:
        g = keyed(setup.seed, "weights", setup.d_head, setup.latents, ranks)

        def uniform(out: int, inner: int, g: torch.Generator = g) -> Tensor:
            return (torch.rand(out, inner, generator=g) * 2 - 1) / inner**0.5

        shape = setup.d_head, setup.d
        cells.append(
            [uniform(*shape), uniform(*shape), uniform(*shape), uniform(setup.payloads, setup.d_head)]
        )
    return {name: torch.stack([c[i] for c in cells]) for i, name in enumerate(("w_q", "w_k", "w_v", "w_o"))}


def forward(world: World, weights: Weights, batch: TripletBatch) -> tuple[Tensor, Tensor]:
    """Attention logits [n, C, T] (scaled) and payload logits [n, C, P]."""
    setup = world.setup
    cells, (n, _, s) = world.key.shape[0], batch.tokens.shape
    read_q = weights["w_q"] @ world.query  # [C, d_head, S]
    read_k = weights["w_k"] @ world.key
    bilinear = (
        read_k.mT @ read_q
    ) / setup.d_head**0.5  # [C, S, S]: sources of a token by sources of the selector
    if n > 4 * setup.d_head:  # the small [S, S] form pays only if it is shared by many samples
        wanted = (batch.selector @ bilinear.reshape(cells * s, s).mT).view(n, cells, s)
    else:
        q = (batch.selector @ read_q.reshape(-1, s).mT).view(n, cells, -1)
        wanted = torch.einsum("nch,chs->ncs", q, read_k) / setup.d_head**0.5
    logits = wanted @ batch.tokens.mT  # [n, C, T]
    mixed = logits.softmax(-1) @ batch.tokens  # [n, C, S]
    write = weights["w_o"] @ weights["w_v"] @ world.key  # [C, P, S]
    return logits, torch.einsum("ncs,cps->ncp", mixed, write)


def queries_and_keys(world: World, weights: Weights, cell: int, batch: TripletBatch) -> tuple[Tensor, Tensor]:
    """One cell's q [n, d_head] and keys [n, T, d_head], float64."""
    w_q, w_k = (weights[name][cell].double() for name in ("w_q", "w_k"))
    q = batch.selector.double() @ (w_q @ world.query[cell].double()).mT
    return q, batch.tokens.double() @ (w_k @ world.key[cell].double()).mT


def accuracy_ceiling(bits: int, tokens: int = 16, payloads: int = 10) -> float:
    """The best accuracy that discrete latents of ``bits`` bits in all allow: other tokens may carry the
    same latents.

    With m duplicates the best guess is the payload that occurs most often among the m + 1, right with
    E[largest count] / (m + 1); m is binomial.

    >>> [round(accuracy_ceiling(b), 3) for b in (4, 5, 8, 12)]
    [0.689, 0.82, 0.974, 0.998]
    """
    p, others = 2.0**-bits, tokens - 1
    return sum(
        comb(others, m) * p**m * (1 - p) ** (others - m) * _largest_count(m + 1, payloads) / (m + 1)
        for m in range(others + 1)
    )


@cache  # a grid asks for the same few counts in every cell
def _largest_count(balls: int, bins: int) -> float:
    """E[largest count] of balls thrown into bins: Σ_k P(largest > k), from the generating function of
    counts ≤ k.
    """
    expected = 0.0
    for k in range(balls):
        series = [1.0] + [0.0] * balls
        for _ in range(bins):
            series = [
                sum(series[n - i] / factorial(i) for i in range(min(k, n) + 1)) for n in range(balls + 1)
            ]
        expected += 1 - factorial(balls) * series[balls] / bins**balls
    return expected
