"""Are a toy head's features found from its attention alone? Worlds in which the right answer is known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from headwise.contrast import SwapRows, principal_cosines, swap_keys, union
from headwise.contrast.unlabelled import AttentionRows, SelfContrast
from headwise.contrast.unlabelled.features import LabelFree
from headwise.toy.alignment import AlignmentRun, strengths
from headwise.toy.payload import TripletBatch, Weights, World, draw_batch, init_weights, queries_and_keys
from headwise.toy.payload_train import Trained
from headwise.types import Subspace

SAMPLES = 8192
"""Samples whose attention the features are found from; half as many more hold out."""
FOUND = 0.95
"""|correlation| from which a latent counts as found."""


@dataclass(frozen=True, eq=False)
class Recovered:
    """One toy head: its record (plain numbers, for JSON) and what was found."""

    record: dict[str, Any]
    found: LabelFree | None
    """None: nothing is above the placebos."""
    correlations: Tensor
    """[axes, latents]: |correlation| of every axis with every latent, over held-out attended keys."""


def attention_rows(q: Tensor, keys: Tensor, scale: float) -> AttentionRows:
    """Rows of a head that may attend to every key; each sample is a unit of its own."""
    attention = torch.softmax(scale * torch.einsum("nd,ntd->nt", q, keys), -1)
    every = torch.ones_like(attention, dtype=torch.bool)
    return AttentionRows(q, keys, attention, every, torch.arange(len(q)))


def recover_cell(
    trained: Trained,
    cell: int,
    *,
    samples: int = SAMPLES,
    fresh: bool = False,
    max_rank: int | None = None,
    seed: int = 0,
) -> Recovered:
    """Features of one payload head without labels, beside its latents; ``fresh`` takes the untrained head."""
    setup, ranks = trained.world.setup, trained.world.setup.cells[cell]
    world = trained.world.only(cell)
    weights = {name: value[cell : cell + 1] for name, value in trained.weights.items()}
    if fresh:
        weights = init_weights(world.setup)
    rows, _ = _rows(world, weights, samples, "unlabelled")
    held, batch = _rows(world, weights, samples // 2, "unlabelled", "held out")
    contrast = SelfContrast(seed=seed, max_rank=max_rank).fit(rows)
    record: dict[str, Any] = {
        "d_head": setup.d_head,
        "latents": setup.latents,
        "ranks": list(ranks),
        "superposed": sum(ranks) >= setup.d_head,
        "trained": not fresh,
        "rank": contrast.rank_,
        "rank_energy": contrast.rank_energy_,
        "rank_null": contrast.rank_null_,
        **_span_truth(world, weights, contrast),
    }
    cells = held.cells()
    if not contrast.rank_ or len(cells) < 2:
        return Recovered(record | _nothing(sum(ranks)), None, torch.zeros(0, sum(ranks)))
    found = LabelFree.fit(contrast, cells, seed=seed)
    latents = batch.tokens[cells.row, cells.key, : sum(world.setup.widths)]
    correlations = correlation(found.coordinates(cells.k), latents)
    best = correlations.amax(0)
    known = torch.from_numpy(found.axes.identified_)
    record |= {
        "correlations": [round(x, 4) for x in best.tolist()],
        "singular_correlations": [
            round(x, 4) for x in correlation(contrast.transform(cells.k), latents).amax(0).tolist()
        ],
        "smallest": float(best.min()),
        "found": int((best >= FOUND).sum()),
        "identified": int(known.sum()),
        "identified_but_no_latent": int((known & (correlations.amax(1) < FOUND)).sum()),
        "groups": [list(group) for group in found.groups],
        "swap": _swap(found, held, batch, setup.d_head**-0.5),
    }
    return Recovered(record, found, correlations)


def _nothing(latents: int) -> dict[str, Any]:
    """The record of a head without a direction above the placebos."""
    none = [0.0] * latents
    counts = dict.fromkeys(("found", "identified", "identified_but_no_latent"), 0)
    return {
        "correlations": none,
        "singular_correlations": none,
        "smallest": 0.0,
        **counts,
        "groups": [],
        "swap": None,
    }


def correlation(found: Tensor, latents: Tensor) -> Tensor:
    """|correlation| between columns of two tables over the same rows [a, b]."""
    a, b = ((x.double() - x.double().mean(0)) for x in (found, latents))
    a, b = (x / x.norm(dim=0).clamp_min(torch.finfo(x.dtype).tiny) for x in (a, b))
    return (a.mT @ b).abs()


def _rows(world: World, weights: Weights, n: int, *labels: object) -> tuple[AttentionRows, TripletBatch]:
    batch = draw_batch(world.setup, n, *labels)
    q, keys = queries_and_keys(world, weights, 0, batch)
    return attention_rows(q, keys, world.setup.d_head**-0.5), batch


def _span_truth(world: World, weights: Weights, contrast: SelfContrast) -> dict[str, float]:
    """Smallest principal cosine between the found span and that of all latents, per side."""
    maps = [world.latent_maps(0, j) for j in range(world.setup.latent_count)]
    a, b = (torch.cat(side, 1).double() for side in zip(*maps, strict=True))
    w_q, w_k = (weights[name][0].double() for name in ("w_q", "w_k"))
    key, query = Subspace.spanned_by(w_k @ a), Subspace.spanned_by(w_q @ b)
    return {
        "span_key": float(principal_cosines(key, contrast.key_)[-1]),
        "span_query": float(principal_cosines(query, contrast.query_)[-1]),
    }


def _swap(found: LabelFree, rows: AttentionRows, batch: TripletBatch, scale: float) -> dict[str, float]:
    """Attention on the original and on another key as they are, and with all features of both exchanged."""
    target = (batch.position + 1) % rows.keys.shape[1]
    made = SwapRows.from_keys(rows.q, rows.keys, batch.position, target, scale=scale)
    span = union([f.key for f in found.features], tolerance=1e-6)
    clean, swapped = made.clean(), swap_keys(made, span.basis[None])
    return {
        "original": float(clean.original.mean()),
        "target": float(clean.target.mean()),
        "swapped_original": float(swapped.original.mean()),
        "swapped_target": float(swapped.target.mean()),
    }


def recover_pairs(
    run: AlignmentRun, variant: int, *, samples: int = SAMPLES, seed: int = 0
) -> dict[str, Any]:
    """The alignment toy without labels: which axes are the key features that the head was made to look for?

    Tokens are W f, and a key feature counts as found if an axis correlates with its strength over attended tokens.
    """
    setup = run.setups[variant]
    w = run.features(variant)
    size = setup.head
    w_q, w_k = (run.weights[name][variant][:size].double() for name in ("w_q", "w_k"))
    rows, held = (
        _alignment_rows(w, w_q, w_k, strengths(setup, n, step))
        for step, n in ((-1, samples), (-2, samples // 2))
    )
    contrast = SelfContrast(seed=seed).fit(rows[0])
    wanted = sorted({j for _, j, _ in setup.targets})
    record: dict[str, Any] = {"pairs": len(setup.targets), "head": size, "rank": contrast.rank_}
    if not contrast.rank_:
        return record | {"correlations": [0.0] * len(wanted), "found": 0}
    cells = held[0].cells()
    found = LabelFree.fit(contrast, cells, seed=seed)
    truth = held[1][cells.row, 1 + cells.key]
    best = correlation(found.coordinates(cells.k), truth[:, wanted]).amax(0)
    singular = correlation(contrast.transform(cells.k), truth[:, wanted]).amax(0)
    return record | {
        "correlations": [round(x, 4) for x in best.tolist()],
        "singular_correlations": [round(x, 4) for x in singular.tolist()],
        "found": int((best >= FOUND).sum()),
        "identified": int(found.axes.identified_.sum()),
    }


def _alignment_rows(w: Tensor, w_q: Tensor, w_k: Tensor, f: Tensor) -> tuple[AttentionRows, Tensor]:
    """Rows of one variant from strengths f [n, 1 + m, N]; token 0 asks."""
    tokens = f.double() @ w.mT
    q, keys = tokens[:, 0] @ w_q.mT, tokens[:, 1:] @ w_k.mT
    return attention_rows(q, keys, 1.0), f
