"""How often is a claim supported where nothing is there, and how often where something is?

python benchmarks/calibration.py [REPETITIONS] [NAME …]     (200 repetitions of every test)

Every test is repeated on data without the effect that it looks for, but with all that could be mistaken for it:
wordings that decide where the right key is, keys that vary along what the head reads, streams that are Gaussian, a
model of random weights in the default model's shape (two of its layers, other weights each time), copies of one wording
at other offsets. Prints the rate of false "supported" with its Wilson interval, whose lower bound has to be at most
5 %, and beside it the rate for planted effects of three sizes.

Claims that rest on the same test have one trial: effects over a task, sinks' removal and what is exclusive to a family
(own) are sign flips over clusters; what an explanation and the bench say of attention and answer, and label-free
features are ranks among draws, as swaps are. Families have a benchmark of their own,
``calibration_families.py``, with more kinds of data.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from calibration_data import (  # pyright: ignore[reportMissingImports]
    SLOTS,
    circuit_of_firings,
    copies_at_other_offsets,
    ends_of_an_arc,
    exclusive_in_wordings_of_both,
    exclusive_to_a_family,
    head_in_two_families,
    label_of_whole_wordings,
    name_of_nothing,
    names_of_two_families,
    parked_on_half,
    random_model,
    role_by_distance,
    signals_agree,
    sink_or_frequent_token,
    worded,
)
from headwise.bases.basis import Basis
from headwise.bases.relative import sparsity
from headwise.bases.singular import qk_svd
from headwise.basis_names import BasisName
from headwise.claims import claim, p_value, sign_flips
from headwise.contrast.collect import Pairs
from headwise.contrast.covariance import ContrastiveCovariance
from headwise.contrast.heads import rank_heads
from headwise.contrast.placebo import (
    Placebos,
    covariance_root,
    covariance_subspaces,
    key_vectors,
    rank_curves,
)
from headwise.contrast.rank import rank_report
from headwise.contrast.swaps import SwapRows, swap_keys
from headwise.families.within import within_claims
from headwise.intervals import estimate, wilson
from headwise.randomness import keyed
from headwise.sparsity.nulls import OTHERS, CellVectors, null_cells, sparser_than, strictest
from headwise.types import Head

REPETITIONS = 200
LEVEL = 0.05
WIDTH = 16

Trial = Callable[[float, int], bool]
"""One repetition with an effect of some size and a seed: whether the claim was supported."""


def head_by_labels(effect: float, seed: int) -> bool:
    """Ten heads of random attention, labels that mean nothing; with an effect the first finds the right key."""
    g = keyed(seed, "heads")
    attention = torch.rand(60, 10, 5, generator=g)
    labels = torch.zeros(60, 5).long().scatter_(1, torch.randint(5, (60, 1), generator=g), 1)
    right = torch.rand(60, generator=g) < effect
    attention[:, 0] += (labels * right[:, None]).float()
    attention /= attention.sum(-1, keepdim=True)
    return any(
        s.claim.supported
        for s in rank_heads(
            _heads(10), attention, labels, rule="accuracy", generator=g, permutations=999, bootstrap=50
        )
    )


def head_by_wording(effect: float, seed: int) -> bool:
    """Eight wordings that decide which place is right, and heads that like some place whatever is asked."""
    g = keyed(seed, "wordings")
    wording = torch.arange(80) % 8
    place = torch.randint(5, (8,), generator=g)[wording]
    moved = (place + torch.randint(1, 5, (80,), generator=g)) % 5
    place = torch.where(torch.rand(80, generator=g) < effect, moved, place)
    labels = torch.zeros(80, 5).long().scatter_(1, place[:, None], 1)
    attention = torch.rand(80, 6, 5, generator=g) * 0.2
    attention[torch.arange(80)[:, None], torch.arange(6), torch.randint(5, (6,), generator=g)] += 1.0
    if effect:  # one head follows the label wherever it is
        attention[:, 0] = 0.2 * torch.rand(80, 5, generator=g) + labels
    attention /= attention.sum(-1, keepdim=True)
    found = rank_heads(
        _heads(6),
        attention,
        labels,
        rule="accuracy",
        generator=g,
        permutations=999,
        bootstrap=50,
        clusters=wording,
    )
    return any(s.claim.supported for s in found)


def rank_of_wordings(effect: float, seed: int) -> bool:
    """Queries and key differences that depend on twenty wordings alone; with an effect they match."""
    g = keyed(seed, "rank")
    wording = torch.arange(160) % 20
    q, d = (torch.randn(20, WIDTH, generator=g)[wording] for _ in range(2))
    own = torch.randn(160, WIDTH, generator=g)
    q = q + own
    noise = torch.randn(160, WIDTH, generator=g)
    covariance = ContrastiveCovariance().fit(q, d + noise + effect * own, torch.zeros(160, WIDTH))
    found = rank_report(covariance, generator=g, wordings=wording, alpha=LEVEL, draws=100, splits=2)
    return found.rank_null > 0


def swap_of_a_feature(effect: float, seed: int) -> bool:
    """Gaussian queries and keys that vary most along what the head reads; with an effect positive keys match."""
    g = keyed(seed, "swap")
    spread = torch.ones(WIDTH).double()
    spread[:4] = 3.0
    q = torch.randn(120, WIDTH, generator=g).double() + 2.0 * torch.eye(WIDTH)[0]
    k = torch.randn(120, 5, WIDTH, generator=g).double() * spread
    k[:, 0, 6:8] += effect * q[:, 6:8]
    return fitted_claim(q, k, 60, seed) <= LEVEL


def fitted_claim(q: Tensor, k: Tensor, fit: int, seed: int, draws: int = 99) -> float:
    """p of a feature whose rank and subspace come from the first prompts, and whose swaps are made on the others."""
    counts = torch.tensor([[1, k.shape[1] - 1]]).repeat(fit, 1)
    plus, minus = k[:fit, 0], k[:fit, 1:].mean(1)
    pairs = Pairs(q[:fit, None], plus[:, None], minus[:, None], None, k[:fit, None], counts)
    rank = rank_curves(pairs, 5, clusters=None, seed=seed)[0].rank
    basis = key_vectors(q[:fit].mT @ (plus - minus) / fit, rank)
    n = len(q) - fit
    rows = SwapRows.from_keys(q[fit:], k[fit:], torch.zeros(n).long(), torch.ones(n).long(), scale=0.2)
    whole = swap_keys(rows, None).log_odds.mean()
    real = float(swap_keys(rows, basis[None]).log_odds.mean() / whole)
    nulls = (
        Placebos.fitted(pairs, rank, draws, seed).key[:, 0],
        covariance_subspaces(covariance_root(pairs)[0], rank, draws, keyed(seed, "follow")),
    )
    return max(p_value(real, swap_keys(rows, bases).log_odds.mean(1) / whole) for bases in nulls)


def mean_by_flips(effect: float, seed: int) -> bool:
    """Fifteen wordings of four prompts each, most of the variance between wordings."""
    values, which = _clustered(effect, seed, 15)
    p, draws = sign_flips(values, which, draws=199, generator=keyed(seed, "signs"))
    return claim(p, null="signs of clusters", draws=draws).supported


def mean_by_interval(effect: float, seed: int, clusters: int = 15) -> bool:
    """The same by whether the interval holds zero."""
    values, which = _clustered(effect, seed, clusters)
    return estimate(values, seed, clusters=which).excludes(0.0)


def mean_of_six(effect: float, seed: int) -> bool:
    """Six wordings, for which the interval is Student's t."""
    return mean_by_interval(effect, seed, 6)


def _clustered(effect: float, seed: int, clusters: int) -> tuple[Tensor, Tensor]:
    g = keyed(seed, "clustered", clusters)
    which = torch.arange(clusters).repeat_interleave(4)
    common, own = (torch.randn(n, generator=g).double() for n in (clusters, 4 * clusters))
    return effect + math.sqrt(0.6) * common[which] + math.sqrt(0.4) * own, which


def sparse_channels(effect: float, seed: int) -> bool:
    """Gaussian streams through random weights, each query with its highest key; with an effect both hold one singular
    vector."""
    g = keyed(seed, "sparse")
    query, key = (torch.randn(1, WIDTH, 4 * WIDTH, generator=g, dtype=torch.float64) for _ in range(2))
    streams = torch.randn(24, 9, 4 * WIDTH, generator=g, dtype=torch.float64)
    return _sparser(streams, query, key, effect, seed)


def _sparser(streams: Tensor, query: Tensor, key: Tensor, effect: float, seed: int) -> bool:
    """Of streams [n, 1 + keys, d_model] the first is the query's; each query with its highest key."""
    n, keys = len(streams), streams.shape[1] - 1
    basis = _basis(query, key)
    q, k = streams[:, 0] @ query[0].mT, streams[:, 1:] @ key[0].mT
    q = q + effect * basis.key_map[2] * basis.query_units[2]
    top = torch.einsum("nd,nkd->nk", q, k).argmax(1)
    rows = torch.arange(n)
    used = k[rows, top] + effect * basis.query_map[:, 2]
    rest = torch.stack([k[i, [j for j in range(keys) if j != top[i]][:OTHERS]] for i in range(n)])
    cells = CellVectors(q, used, rest, torch.zeros(n).long(), torch.full((n,), keys))
    found = sparser_than(
        sparsity(basis.split(q, used)), null_cells(cells, basis, rows, seed), rows, rows, seed
    )
    return strictest(found)[0] <= LEVEL


def _basis(query: Tensor, key: Tensor) -> Basis:
    """The singular basis of one head of these weights."""
    svd, ones = qk_svd(query, key), torch.ones(1, query.shape[1], dtype=torch.float64)
    return Basis(
        name=BasisName("singular", "absolute", ""),
        energies=svd.sigma,
        query_map=svd.query_map,
        key_map=svd.key_map,
        query_units=svd.sigma,
        key_units=ones,
        rank=svd.rank,
        halves=ones,
        across=ones,
    ).at(0)


def label_within_wordings(effect: float, seed: int) -> bool:
    """Twelve wordings far apart, and a label that varies within them; with an effect it moves their circuits."""
    g = np.random.default_rng([seed, 1])
    wording, order = np.repeat(np.arange(12), 4), np.tile([0, 0, 1, 1], 12)
    places = g.normal(size=(12, 6))[wording] * 5 + g.normal(size=(48, 6)) + effect * order[:, None]
    distances = np.sqrt(((places[:, None] - places) ** 2).sum(-1))
    groups = {"wording": wording.astype(str), "order": order.astype(str)}
    return within_claims(groups, distances, seed=seed)["order"].supported


def head_of_a_random_model(effect: float, seed: int) -> bool:
    """All 18 heads, labels that the wording decides; with an effect one head follows them."""
    seen, wording = _random_attention(seed)
    attention = seen.clone()
    g = keyed(seed, "random heads")
    place = torch.randint(5, (8,), generator=g)[wording]
    place = torch.where(torch.rand(64, generator=g) < 0.5, place, torch.randint(5, (64,), generator=g))
    labels = torch.zeros(64, 5).long().scatter_(1, place[:, None], 1)
    attention[:, 0] += effect * attention[:, 0].mean() * labels
    found = rank_heads(
        [Head(layer, head) for layer in range(2) for head in range(9)],
        attention,
        labels,
        rule="accuracy",
        generator=g,
        permutations=999,
        bootstrap=50,
        clusters=wording,
    )
    return any(s.claim.supported for s in found)


def swap_in_a_random_model(effect: float, seed: int) -> bool:
    """A head's own queries and keys, one of five keys called right by lot; with an effect it matches."""
    q, k = _random_vectors(seed)
    right = torch.rand(120, 5, generator=keyed(seed, "right")).argsort(1)  # the first of each row
    k = k.gather(1, right[..., None].expand_as(k)).clone()
    k[:, 0, :2] += effect * q[:, :2]
    return fitted_claim(q, k, 60, seed) <= LEVEL


def sparse_in_a_random_model(effect: float, seed: int) -> bool:
    """The stream before the second layer, through the weights of one of its heads."""
    return _sparser(*_random_stream(seed), effect, seed)


@lru_cache(maxsize=64)  # each size of an effect asks the same models again
def _random_attention(seed: int) -> tuple[Tensor, Tensor]:
    """The attention of all heads to the keys [prompts, heads, keys], and each prompt's wording."""
    prompts, wording = worded(seed, 64)
    seen = random_model(seed).capture(prompts, queries=[-1], keys=list(SLOTS), want=("pattern",))
    return seen.pattern[:, :, 0].float(), wording


@lru_cache(maxsize=64)
def _random_vectors(seed: int) -> tuple[Tensor, Tensor]:
    """One head's queries [prompts, d_head] and keys [prompts, keys, d_head]."""
    prompts, _ = worded(seed, 120)
    seen = random_model(seed).capture(
        prompts, heads=["L1H4"], queries=[-1], keys=list(SLOTS), want=("q", "k")
    )
    return seen.q[:, 0, 0].double(), seen.k[:, 0].double()


@lru_cache(maxsize=64)
def _random_stream(seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """The normalised stream at the query and some keys, and the weights that make a head's query and key."""
    prompts, _ = worded(seed, 24)
    model = random_model(seed)
    with torch.no_grad():
        stream = model.split(prompts).before(1).double()
    stream = stream / stream.square().mean(-1, keepdim=True).sqrt()
    attention = model.hf.model.layers[1].self_attn
    query, key = attention.q_proj.weight[:64].double()[None], attention.k_proj.weight[:64].double()[None]
    return torch.cat([stream[:, 11:], stream[:, 1:9]], 1), query, key


def _heads(number: int) -> list[Head]:
    return [Head(0, i) for i in range(number)]


TRIALS: dict[str, tuple[Trial, tuple[float, float, float]]] = {
    "head, shuffled labels": (head_by_labels, (0.15, 0.3, 0.5)),
    "head, wordings decide": (head_by_wording, (0.3, 0.6, 0.9)),
    "rank, wordings alone": (rank_of_wordings, (0.3, 0.6, 1.0)),
    "swap, Gaussian streams": (swap_of_a_feature, (0.5, 1.5, 3.0)),
    "sparse, Gaussian streams": (sparse_channels, (1.0, 2.0, 4.0)),
    "own or other's, wordings": (exclusive_to_a_family, (1.0, 2.0, 3.0)),
    "own or other's, both": (exclusive_in_wordings_of_both, (0.5, 1.0, 2.0)),
    "label, whole wordings": (label_of_whole_wordings, (0.3, 0.6, 0.9)),
    "circle, six clusters": (ends_of_an_arc, (0.2, 0.4, 0.8)),
    "names of two families": (names_of_two_families, (0.5, 1.0, 2.0)),
    "same in two families": (head_in_two_families, (0.05, 0.1, 0.3)),
    "sink, frequent token": (sink_or_frequent_token, (0.5, 1.0, 2.0)),
    "name, random cells": (name_of_nothing, (0.1, 0.3, 0.5)),
    "role, distance alone": (role_by_distance, (0.1, 0.2, 0.4)),
    "parks, in half of texts": (parked_on_half, (0.2, 0.3, 0.4)),
    "signals agree, shuffled": (signals_agree, (0.1, 0.2, 0.4)),
    "head, random model": (head_of_a_random_model, (0.3, 1.0, 3.0)),
    "swap, random model": (swap_in_a_random_model, (0.3, 1.0, 3.0)),
    "sparse, random model": (sparse_in_a_random_model, (1.0, 2.0, 4.0)),
    "circuit, other firings": (circuit_of_firings, (0.5, 1.0, 2.0)),
    "families, other offsets": (copies_at_other_offsets, (0.3, 0.6, 0.9)),
    "label, within wordings": (label_within_wordings, (0.3, 0.6, 1.2)),
    "mean, sign flips": (mean_by_flips, (0.3, 0.6, 1.0)),
    "mean, 15 clusters": (mean_by_interval, (0.3, 0.6, 1.0)),
    "mean, 6 clusters": (mean_of_six, (0.5, 1.0, 2.0)),
}
"""Every test by name, and the three sizes of what is planted."""


def rate(trial: Trial, effect: float, repetitions: int) -> int:
    """In how many repetitions the claim was supported."""
    return sum(trial(effect, seed) for seed in range(repetitions))


def main(repetitions: int = REPETITIONS, names: Sequence[str] = ()) -> None:
    torch.set_num_threads(1)
    chosen = {name: TRIALS[name] for name in (names or TRIALS)}
    print(
        f"{repetitions} repetitions: supported where nothing is there (95 %), and with planted effects",
        flush=True,
    )
    for name, (trial, effects) in chosen.items():
        false = rate(trial, 0.0, repetitions)
        low, high = wilson(false, repetitions)
        power = [rate(trial, effect, repetitions // 4) / (repetitions // 4) for effect in effects]
        verdict = "" if low <= LEVEL else "   TOO OFTEN"
        planted = "  ".join(f"{effect:g}: {value:.2f}" for effect, value in zip(effects, power, strict=True))
        print(
            f"    {name:24}{false / repetitions:6.3f} ({low:.3f} to {high:.3f})   {planted}{verdict}",
            flush=True,
        )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else REPETITIONS, sys.argv[2:])
