"""Features without labels against what is known: toys with latents, and labelled features of the default model.

    python benchmarks/unlabelled.py toys GRID --train FOLDER --out FILE        # GRID: 8, 16, gaussian, three, pairs
    python benchmarks/unlabelled.py model --out FILE [--texts 240] [--prompts 96]
    python benchmarks/unlabelled.py draw --toys FILE --out FILE.svg            # a grid of two latents

The first two write one JSON file; ``docs/results/features.md`` has their numbers.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import headwise
from headwise.claims import claims, p_value
from headwise.contrast import ContrastiveCovariance, energy_rank, feature, principal_cosines
from headwise.contrast.swaps import SwapRows, swap_keys
from headwise.contrast.unlabelled import SelfContrast
from headwise.contrast.unlabelled.collect import PART, Scanned, TextRows, TextScanJob, VectorsJob
from headwise.corpora.known import find_corpus
from headwise.files import write_text
from headwise.jsons import dumps, parse
from headwise.scale.folder import opened
from headwise.scale.stages import Stages
from headwise.scale.work import Chunk, cut
from headwise.tasks.labelled.make import make_task
from headwise.tasks.labelled.types import Contrast, Example
from headwise.toy import alignment
from headwise.toy.payload import PayloadSetup
from headwise.toy.payload_train import FAST, Trained, config, train
from headwise.toy.unlabelled import recover_cell, recover_pairs
from headwise.types import Head

GRIDS = {
    "8": PayloadSetup.grid(8, "discrete"),
    "16": PayloadSetup.grid(16, "discrete"),
    "gaussian": PayloadSetup.grid(8, "gaussian"),
    "three": PayloadSetup(16, "discrete", ((2, 2, 2), (3, 3, 3), (2, 4, 6), (4, 4, 4), (5, 5, 5), (6, 6, 6))),
}
HEADS = ("L14H3", "L18H6", "L18H7", "L21H7", "L21H8", "L22H4")
"""Heads of the binding and filter tasks, and the clearest duplicate-token head."""
LABELLED = {"binding": ("order", "lexical"), "filter": ("category",)}
MAX_LABELLED = 6
SPAN = 9
PLACEBOS = 400
"""With fewer the smallest p could not pass a correction over 18 tests."""


# --- toys ------------------------------------------------------------------------------------------------------------


def toys(grid: str, folder: Path, steps: int | None, most: int | None, energy: float) -> dict[str, Any]:
    """Every cell of a grid without labels, or the first ``most``: those that fit the head come first.

    Records are kept beside the training, so that an interrupted run goes on where it was.
    """
    if grid == "pairs":
        setups = [*alignment.case("pair", 3), *alignment.case("none", 1)]
        run = alignment.train_alignment(setups, steps=3000)
        many = alignment.train_alignment(alignment.case("pairs", 2), steps=3000)
        records = [
            {"case": name, **recover_pairs(one, place)}
            for name, one, places in (("pair", run, range(3)), ("pairs", many, range(2)))
            for place in places
        ]
        return {"grid": grid, "records": records}
    setup = GRIDS[grid]
    with opened(folder, "toy payload", config(setup, FAST)) as kept:
        trained = train(setup, FAST, folder=kept, stop_after=steps)
    order = sorted(range(len(setup.cells)), key=lambda cell: sum(setup.cells[cell]))
    file = folder / f"records-{energy}.json"
    records: list[dict[str, Any]] = parse(file.read_text()) if file.exists() else []
    for cell in order[len(records) : most]:
        records.append(
            {**recover_cell(trained, cell, energy=energy).record, "accuracy": float(trained.accuracy[cell])}
        )
        write_text(file, dumps(records))
        print(records[-1]["ranks"], records[-1]["rank"], round(records[-1]["smallest"], 3), flush=True)
    return {
        "grid": grid,
        "energy": energy,
        "steps": int(trained.steps.max()),
        "records": records,
        **_summary(records, trained),
    }


def _summary(records: Sequence[dict[str, Any]], trained: Trained) -> dict[str, Any]:
    fits = [r for r in records if not r["superposed"]]
    full = [r for r in records if r["superposed"]]
    return {
        "cells": len(records),
        "cells_that_fit": len(fits),
        "all_latents_found": sum(r["smallest"] >= 0.95 for r in fits),
        "smallest_span_cosine": min((min(r["span_key"], r["span_query"]) for r in fits), default=None),
        "identified": [r["identified"] for r in fits],
        "found_of_latents_when_superposed": [[r["found"], sum(r["ranks"])] for r in full],
        "mean_accuracy": float(trained.accuracy.mean()),
    }


def drawn(records: Sequence[dict[str, Any]]) -> str:
    """A grid of two latents: in each cell how many of its latents are found, dark where all are."""
    size, left, top = 52, 60, 46
    firsts, seconds = (sorted({r["ranks"][i] for r in records}) for i in (0, 1))
    width, height = left + size * len(seconds) + 12, top + size * len(firsts) + 34
    parts = [f'<rect width="{width}" height="{height}" fill="#ffffff"/>']
    for r in records:
        x, y = left + size * seconds.index(r["ranks"][1]), top + size * firsts.index(r["ranks"][0])
        total = sum(r["ranks"])
        share = r["found"] / total
        shade = round(245 - 165 * share)
        ink = "#ffffff" if share > 0.7 else "#1b1f24"
        edge = "#1b1f24" if not r["superposed"] else "#c3c8ce"
        parts.append(
            f'<rect x="{x + 2}" y="{y + 2}" width="{size - 4}" height="{size - 4}" rx="4" '
            f'fill="rgb({shade - 40},{shade},{min(255, shade + 25)})" stroke="{edge}" stroke-width="1.5"/>'
            f'<text x="{x + size / 2}" y="{y + size / 2 + 5}" fill="{ink}" text-anchor="middle">'
            f"{r['found']}/{total}</text>"
        )
    parts += [
        f'<text x="{left + size * (i + 0.5)}" y="{top - 8}" text-anchor="middle">{r}</text>'
        for i, r in enumerate(seconds)
    ]
    parts += [
        f'<text x="{left - 12}" y="{top + size * (i + 0.5) + 5}" text-anchor="end">{r}</text>'
        for i, r in enumerate(firsts)
    ]
    parts.append(f'<text x="{left}" y="18">dimensions of the second latent</text>')
    parts.append(
        f'<text x="8" y="{height - 12}">rows: dimensions of the first; framed dark: all fit the head</text>'
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'font-family="system-ui, sans-serif" font-size="13" fill="#1b1f24">{"".join(parts)}</svg>'
    )


# --- the default model -----------------------------------------------------------------------------------------------


class Labelled:
    """Queries and keys of labelled prompts in the query's frame, of some heads."""

    def __init__(self, model: headwise.Model, heads: tuple[Head, ...]) -> None:
        self.model, self.job = model, VectorsJob(heads)

    def rows(self, tokens: Sequence[int], query: int) -> tuple[Tensor, Tensor, Tensor]:
        """q [h, d], keys as that query sees them [h, T, d], visible [h, T], of one prompt."""
        made = self.job.make(self.model, Chunk(0, (tuple(tokens),)), lambda _n: None)
        keys = torch.stack([made.seen_keys(h, 0, len(tokens))[query] for h in range(len(made.q))])
        return made.q[:, 0, query].double(), keys.double(), made.visible[:, 0, query]

    def pairs(self, contrast: Contrast, most: int) -> tuple[Tensor, Tensor, Tensor]:
        """(q, mean k+, mean k−) [n, h, d] each."""
        found = []
        for example in contrast.examples[:most]:
            q, keys, _ = self.rows(example.tokens, example.query)
            plus = keys[:, list(example.positive)].mean(1)
            minus = self._negative(example, keys)
            found.append((q, plus, minus))
        return tuple(torch.stack(side) for side in zip(*found, strict=True))  # pyright: ignore[reportReturnType]

    def _negative(self, example: Example, keys: Tensor) -> Tensor:
        if example.other is None:
            return keys[:, list(example.negative)].mean(1)
        # A triplet: the keys of the other prompt, as the first prompt's query would see them.
        _, other, _ = self.rows(example.other, min(example.query, len(example.other) - 1))
        return other[:, list(example.negative)].mean(1)


def share_inside(span: Tensor, wanted: Tensor) -> Tensor:
    """Mean squared principal cosine: the share of a subspace that lies in a span; spans [..., d, r]."""
    return principal_cosines(span, wanted).square().sum(-1) / wanted.shape[-1]


def model_part(texts: int, prompts: int, tests: int) -> dict[str, Any]:
    """How much of labelled subspaces is found without labels, and what swaps of both do."""
    model = headwise.load()
    heads = tuple(Head.parse(name) for name in HEADS)
    spans = _spans(model, heads, texts)
    labelled = Labelled(model, heads)
    records = []
    for task, names in LABELLED.items():
        made = make_task(task, model.tokenizer, prompts=prompts, test=tests, seed=0)
        rows = [labelled.rows(e.tokens, e.query) for e in made.test.examples[:tests]]
        single = {
            c.name: labelled.pairs(c, prompts) for c in made.fits if task == "filter" or c.name in names
        }
        if task == "filter":
            single = {"category": tuple(torch.cat(side) for side in zip(*single.values(), strict=True))}
        for name, pairs in single.items():
            for place, head in enumerate(heads):
                record = _compared(
                    pairs, place, spans[head], rows, made.test.examples[:tests], model.d_head**-0.5
                )
                records.append({"task": task, "feature": name, "head": str(head), **record})
                print(records[-1], flush=True)
    about = {"texts": texts, "prompts": prompts, "tests": tests, "span": SPAN, "placebos": PLACEBOS}
    return {**about, "records": _judged(records)}


def _judged(records: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """With claims, all spans corrected together, and all swaps."""
    null = "spans of attention dealt anew"
    spans = claims([r["inside_p"] for r in records], null=null, draws=PLACEBOS, group="all spans of the run")
    swaps = claims(
        [r["swap_p"]["label-free"] for r in records], null=null, draws=PLACEBOS, group="all swaps of the run"
    )
    return [
        {**r, "inside_claim": a.to_json(), "swap_claim": b.to_json()}
        for r, a, b in zip(records, spans, swaps, strict=True)
    ]


def _spans(model: headwise.Model, heads: tuple[Head, ...], texts: int) -> dict[Head, SelfContrast]:
    from headwise.contrast.unlabelled.study import _token_ids

    work, ids = Stages.here(model), _token_ids(model, find_corpus().first(texts))
    chunks = cut(ids, PART)
    scan = Scanned.cat(work("scan", TextScanJob(), chunks))
    rows = TextRows(heads, tuple(work("read", VectorsJob(heads), chunks)), scan.sinks())
    found = {}
    for head in heads:
        fitted = SelfContrast(placebos=PLACEBOS, max_rank=SPAN).reset()
        for _, one in rows.of(head, range(rows.texts)):
            fitted.partial_fit(one)
        found[head] = fitted.finish()
    return found


def _compared(
    pairs: tuple[Tensor, ...],
    place: int,
    span: SelfContrast,
    rows: Sequence[tuple[Tensor, Tensor, Tensor]],
    examples: Sequence[Example],
    scale: float,
) -> dict[str, Any]:
    """One labelled feature of one head against the span found without labels."""
    q, plus, minus = (side[:, place] for side in pairs)
    delta = ContrastiveCovariance().fit(q, plus, minus).delta_c_
    rank = max(1, min(int(energy_rank(torch.linalg.svdvals(delta))), MAX_LABELLED))
    wanted = feature(delta, rank).key.basis
    right = torch.linalg.svd(span.placebos_)[2].mT
    placebo = right[:, :, : span.rank_]
    inside, drawn = float(share_inside(span.key_, wanted)), share_inside(placebo, wanted)
    subspaces = {
        "labelled": wanted[None],
        "label-free, same rank": span.key_[None, :, :rank],
        "label-free": span.key_[None],
        "placebo, same rank": right[:, :, :rank],
        "placebo": placebo,
    }
    moved: dict[str, list[Tensor]] = {name: [] for name in (*subspaces, "whole")}
    for (own, keys, visible), example in zip(rows, examples, strict=True):
        if example.swap is None:
            continue
        original, target = (torch.tensor([at]) for at in example.swap)
        row = SwapRows.from_keys(
            own[None, place], keys[None, place], original, target, scale=scale, mask=visible[None, place]
        )
        moved["whole"].append(swap_keys(row, None).log_odds[:, 0])
        for name, bases in subspaces.items():
            moved[name].append(swap_keys(row, bases).log_odds[:, 0])
    mean = {name: torch.stack(values).mean(0) for name, values in moved.items()}
    shares = {name: mean[name] / mean["whole"] for name in subspaces}
    single = {name: float(values.mean()) for name, values in shares.items()}
    return {
        "rank": rank,
        "span": span.rank_,
        "inside": inside,
        "placebo_inside": float(drawn.mean()),
        "inside_p": p_value(inside, drawn),
        "angles": principal_cosines(span.key_, wanted).acos().rad2deg().tolist(),
        "swaps": single,
        "swap_p": {
            "label-free, same rank": p_value(single["label-free, same rank"], shares["placebo, same rank"]),
            "label-free": p_value(single["label-free"], shares["placebo"]),
            "labelled": p_value(single["labelled"], shares["placebo, same rank"]),
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=("toys", "model", "draw"))
    parser.add_argument("grid", nargs="?", choices=(*GRIDS, "pairs"))
    parser.add_argument("--train", type=Path)
    parser.add_argument("--toys", type=Path, help="what toys wrote")
    parser.add_argument("--cells", type=int, help="so many cells, the least crowded first")
    parser.add_argument(
        "--energy", type=float, default=0.99, help="share of ΔC's energy at which a span ends"
    )
    parser.add_argument("--steps", type=int, help="stop a training here")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--texts", type=int, default=240)
    parser.add_argument("--prompts", type=int, default=96)
    parser.add_argument("--tests", type=int, default=48)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.part == "draw":
        write_text(options.out, drawn(parse(options.toys.read_text())["records"]) + "\n")
        return
    if options.part == "toys":
        found = toys(options.grid, options.train, options.steps, options.cells, options.energy)
    else:
        found = model_part(options.texts, options.prompts, options.tests)
    write_text(options.out, dumps(found) + "\n")


if __name__ == "__main__":
    main()
