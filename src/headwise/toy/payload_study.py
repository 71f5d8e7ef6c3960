"""What a trained payload head represents, measured with the estimator that serves language models, beside the truth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from headwise.contrast import (
    ContrastiveCovariance,
    Feature,
    RankReport,
    SwapRows,
    feature,
    principal_cosines,
    random_subspaces,
    rank_report,
    superposition_index,
    swap_keys,
    union,
)
from headwise.errors import HeadwiseError
from headwise.randomness import keyed
from headwise.toy.payload import (
    PayloadSetup,
    Weights,
    World,
    accuracy_ceiling,
    draw_batch,
    draw_latents,
    init_weights,
    queries_and_keys,
)
from headwise.toy.payload_train import Trained
from headwise.types import Subspace


@dataclass(frozen=True)
class Effort:
    """How many samples the measurements take; the defaults are the paper's for a head of 8 dimensions."""

    triplets: int = 40_960
    control_triplets: int = 8_192
    swaps: int = 51_200
    random_draws: int = 10
    null_draws: int = 100

    def __post_init__(self) -> None:
        if min(self.triplets, self.control_triplets, self.swaps) < 16 or self.random_draws < 1:
            raise HeadwiseError("a payload study needs at least 16 triplets and samples and one random draw")

    @classmethod
    def for_head(cls, d_head: int) -> Effort:
        """Triplets in proportion to the head: an estimated subspace errs as √(dimensions / samples).

        >>> Effort.for_head(8).triplets, Effort.for_head(16).triplets
        (40960, 81920)
        """
        return cls(triplets=max(cls.triplets, cls.triplets * d_head // 8))


@dataclass(frozen=True, eq=False)
class CellStudy:
    """One cell: its record (plain numbers, for JSON) and what figures draw."""

    ranks: tuple[int, ...]
    record: dict[str, Any]
    features: tuple[Feature, ...]
    interactions: Tensor
    """G [Σr, Σr] (Eq. C13): rows are query coordinates, columns key coordinates."""


def triplets(world: World, latent: int, n: int, *labels: object) -> tuple[Tensor, Tensor, Tensor]:
    """Sources [n, S] of selectors, of keys that match on one latent, and of keys that differ on it alone.

    The other latents and the payload are the same in both keys; only the noise is drawn anew.
    """
    setup = world.setup
    wanted = draw_latents(setup, n, *labels, "wanted")
    shared = draw_latents(setup, n, *labels, "shared")
    g = keyed(setup.seed, *labels, "triplet")
    payload = torch.randint(0, setup.payloads, (n,), generator=g)
    one_hot = torch.nn.functional.one_hot(payload, setup.payloads).float()
    noise = torch.randn(3, n, setup.d, generator=g)
    if setup.latents == "discrete":
        other = _another_sign_vector(wanted[latent], g)
    else:
        other = torch.randn(n, wanted[latent].shape[1], generator=g)

    def key(value: Tensor, i: int) -> Tensor:
        return torch.cat([*shared[:latent], value, *shared[latent + 1 :], one_hot, noise[i]], 1)

    return torch.cat([*wanted, torch.zeros_like(one_hot), noise[0]], 1), key(wanted[latent], 1), key(other, 2)


def _another_sign_vector(z: Tensor, g: torch.Generator) -> Tensor:
    """Uniform among the 2^r − 1 sign vectors that differ from each row of z [n, r]."""
    n, r = z.shape
    if r > 30:  # a repeat has probability 2^-r: drawing once is exact to any precision that matters
        return torch.randint(0, 2, (n, r), generator=g) * 2.0 - 1
    # Adding 1 .. 2^r − 1 to the code, modulo 2^r, reaches every other code exactly once.
    powers = 2 ** torch.arange(r)
    code = ((z > 0).long() * powers).sum(1)
    code = (code + torch.randint(1, 2**r, (n,), generator=g)) % 2**r
    return (code[:, None] // powers % 2) * 2.0 - 1


def latent_covariance(
    world: World, weights: Weights, latent: int, n: int, *labels: object
) -> ContrastiveCovariance:
    """ΔC of one latent in a one-cell world."""
    selector, plus, minus = triplets(world, latent, n, *labels)
    w_q, w_k = (weights[name][0].double() for name in ("w_q", "w_k"))
    read_q, read_k = w_q @ world.query[0].double(), w_k @ world.key[0].double()
    q, k_plus, k_minus = (s.double() @ m.mT for s, m in ((selector, read_q), (plus, read_k), (minus, read_k)))
    return ContrastiveCovariance().fit(q, k_plus, k_minus)


def closed_form(world: World, weights: Weights, latent: int) -> Tensor:
    """E[ΔC] = W_Q B M Aᵀ W_Kᵀ of a one-cell world; M = (1 + 1/(2^r − 1)) I for sign vectors that must differ."""
    a, b = (m.double() for m in world.latent_maps(0, latent))
    w_q, w_k = (weights[name][0].double() for name in ("w_q", "w_k"))
    factor = 1 + 1 / (2.0 ** a.shape[1] - 1) if world.setup.latents == "discrete" else 1.0
    return factor * (w_q @ b) @ (w_k @ a).mT


def interactions(world: World, weights: Weights) -> Tensor:
    """G = (W_Q [B_1 … B_K])ᵀ (W_K [A_1 … A_K]) of a one-cell world [Σr, Σr]: q·k = z_qᵀ G z_k."""
    a, b = (torch.cat(x, 1).double() for x in zip(*_maps(world), strict=True))
    return (weights["w_q"][0].double() @ b).mT @ (weights["w_k"][0].double() @ a)


def _maps(world: World) -> list[tuple[Tensor, Tensor]]:
    return [world.latent_maps(0, j) for j in range(world.setup.latent_count)]


def interaction_energy(g: Tensor, ranks: tuple[int, ...]) -> dict[str, float]:
    """Shares of ‖G‖² on the diagonal, inside the latents' blocks (diagonal included), and between latents.

    >>> interaction_energy(torch.tensor([[1.0, 1.0], [0.0, 1.0]]), (1, 1))
    {'diagonal': 0.667, 'block': 0.667, 'between': 0.333}
    """
    square = g.square()
    owner = torch.repeat_interleave(torch.arange(len(ranks)), torch.tensor(ranks))
    block = (square * (owner[:, None] == owner)).sum() / square.sum()
    shares = {"diagonal": square.diagonal().sum() / square.sum(), "block": block, "between": 1 - block}
    return {name: round(float(x), 3) for name, x in shares.items()}


def swap_effects(
    world: World, weights: Weights, features: tuple[Feature, ...], effort: Effort, chunk: int = 12_800
) -> dict[str, dict[str, Any]]:
    """Mean attention on original and target after swaps in each latent's key subspace, in all, and in
    random ones.

    The target is uniform among the positions that mismatch on *every* latent; samples without one are left
    out.
    """
    setup = world.setup
    both = union([f.key for f in features], tolerance=1e-3)
    named = {f.name: f.key for f in features} | {"both": both}
    g = keyed(setup.seed, "random subspaces")
    bases = {name: s.basis[None] for name, s in named.items()}
    for name, s in named.items():
        bases[f"random_{name}"] = random_subspaces(setup.d_head, s.rank, effort.random_draws, generator=g)
    total: dict[str, Tensor] = {}
    seen = 0
    for i, start in enumerate(range(0, effort.swaps, chunk)):
        batch = draw_batch(setup, min(chunk, effort.swaps - start), "swap", i)
        target, usable = _targets(setup, batch.tokens, batch.position, keyed(setup.seed, "target", i))
        q, keys = queries_and_keys(world, weights, 0, batch)
        rows = SwapRows.from_keys(
            q[usable], keys[usable], batch.position[usable], target[usable], scale=setup.d_head**-0.5
        )
        for name, edit in {"none": None, **bases}.items():
            edited = rows.clean() if edit is None else swap_keys(rows, edit)
            sums = torch.stack([edited.original.sum(-1), edited.target.sum(-1)])
            total[name] = total.get(name, torch.zeros_like(sums)) + sums
        seen += int(usable.sum())
    found: dict[str, dict[str, Any]] = {}
    for name, sums in total.items():
        original, attended = (sums / seen).tolist()
        found[name] = {"original": sum(original) / len(original), "target": sum(attended) / len(attended)}
        if name.startswith("random"):
            found[name] |= {"originals": original, "targets": attended}
    found["none"]["samples"] = seen
    return found


def _targets(
    setup: PayloadSetup, tokens: Tensor, position: Tensor, g: torch.Generator
) -> tuple[Tensor, Tensor]:
    """A target per sample [n] and whether there is one [n]."""
    n, t, _ = tokens.shape
    free = torch.ones(n, t, dtype=torch.bool)
    for j in range(setup.latent_count):
        z = tokens[..., setup.columns(j)]
        free &= (z != z[torch.arange(n), position][:, None]).any(-1)
    score = torch.rand(n, t, generator=g).masked_fill(~free, -1)
    return score.argmax(1), free.any(1)


def study_cell(trained: Trained, cell: int, effort: Effort = Effort()) -> CellStudy:  # noqa: B008 (frozen)
    """Everything the paper measures on one cell, and what it leaves out: null rank, truth, untrained control."""
    setup = trained.world.setup
    ranks = setup.cells[cell]
    world = trained.world.only(cell)
    weights = {name: value[cell : cell + 1] for name, value in trained.weights.items()}
    start = init_weights(world.setup)
    features, reports, controls, errors, cosines = [], [], [], [], []
    for j, rank in enumerate(ranks):
        cov = latent_covariance(world, weights, j, effort.triplets, "fit", j)
        reports.append(_report(cov, setup, effort, rank, j))
        fresh = latent_covariance(world, start, j, effort.control_triplets, "control", j)
        controls.append(_report(fresh, setup, effort, rank, j))
        features.append(feature(cov.delta_c_, max(1, reports[-1].rank_energy), f"z{j + 1}"))
        expected = closed_form(world, weights, j)
        errors.append(float((cov.delta_c_ - expected).norm() / expected.norm()))
        cosines.append(_true_cosine(world, weights, cov.delta_c_, j))
    g = interactions(world, weights)
    record: dict[str, Any] = {
        "d_head": setup.d_head,
        "latents": setup.latents,
        "preset": setup.preset,
        **{f"r{j + 1}": r for j, r in enumerate(ranks)},
        "superposed": sum(ranks) >= setup.d_head,
        "accuracy": float(trained.accuracy[cell]),
        "ceiling": accuracy_ceiling(sum(ranks), setup.tokens, setup.payloads)
        if setup.latents == "discrete"
        else 1.0,
        "steps": int(trained.steps[cell]),
        "rank99": [r.rank_energy for r in reports],
        "rank_null": [r.rank_null for r in reports],
        "untrained": {
            "rank99": [r.rank_energy for r in controls],
            "rank_null": [r.rank_null for r in controls],
        },
        "principal_cosine": cosines,
        "closed_form_error": errors,
        "superposition_index": superposition_index([f.key for f in features]),
        "swap": swap_effects(world, weights, tuple(features), effort),
        "g_energy": interaction_energy(g, ranks),
        "singular_values": [r.singular_values.tolist() for r in reports],
        "null_sigma": [r.null_sigma.tolist() for r in reports],
    }
    return CellStudy(ranks, record, tuple(features), g)


def _report(
    cov: ContrastiveCovariance, setup: PayloadSetup, effort: Effort, rank: int, latent: int
) -> RankReport:
    distinct = 2**rank if setup.latents == "discrete" and rank < 30 else cov.n_prompts_
    g = keyed(setup.seed, "rank", latent)
    return rank_report(
        cov, generator=g, draws=effort.null_draws, splits=2, distinct=max(distinct, setup.d_head)
    )


def _true_cosine(world: World, weights: Weights, delta: Tensor, latent: int) -> float:
    """The smallest principal cosine between recovered and true subspaces, over both sides."""
    a, b = (m.double() for m in world.latent_maps(0, latent))
    rank = min(a.shape[1], delta.shape[0])
    found = feature(delta, rank)
    true_query = Subspace.spanned_by(weights["w_q"][0].double() @ b)
    true_key = Subspace.spanned_by(weights["w_k"][0].double() @ a)
    return float(
        min(principal_cosines(found.query, true_query)[-1], principal_cosines(found.key, true_key)[-1])
    )


@dataclass(frozen=True, eq=False)
class Cloud:
    """Queries and keys of one cell inside one latent's subspace, in three principal components (Figures 3
    and 12).

    Coordinates are those along the paired singular vectors, each side scaled to unit size, so that a query
    and the key it looks for fall together. ``points`` [2n, 3]; ``is_key`` [2n]; ``value`` [2n, r] the
    latent's value.
    """

    points: Tensor
    is_key: Tensor
    value: Tensor
    explained: tuple[float, ...]


def latent_cloud(trained: Trained, study: CellStudy, cell: int, latent: int, n: int = 400) -> Cloud:
    world = trained.world.only(cell)
    weights = {name: value[cell : cell + 1] for name, value in trained.weights.items()}
    batch = draw_batch(world.setup, n, "cloud")
    q, keys = queries_and_keys(world, weights, 0, batch)
    rows = torch.arange(n)
    found = study.features[latent]
    sides = [q @ found.query.basis, keys[:, 0] @ found.key.basis]
    columns = world.setup.columns(latent)
    values = [batch.tokens[rows, batch.position][:, columns], batch.tokens[:, 0, columns]]
    stacked = torch.cat([s / s.square().sum(-1).mean().sqrt() for s in sides])
    centred = stacked - stacked.mean(0)
    left, sigma, _ = torch.linalg.svd(centred, full_matrices=False)
    points = torch.nn.functional.pad((left * sigma)[:, :3], (0, max(0, 3 - sigma.shape[0])))
    share = (sigma.square() / sigma.square().sum())[:3].tolist()
    is_key = torch.arange(2 * n) >= n
    return Cloud(points, is_key, torch.cat(values), tuple(share))
