"""How much of labelled features does a head's own attention show? Heads of the default model, in the query's frame.

    python benchmarks/unlabelled_model.py [--out FILE] [--texts 240] [--prompts 360] [--scan 120] [--tests 240]

Spans without labels come from documentation (*prose*) and from prompts of the task whose labels are not looked at
(*prompts*); the labelled subspaces from other prompts, and swaps are on others again. The numbers against labels in
``docs/results/features.md`` are of this run.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import headwise
from headwise.claims import claims, p_value
from headwise.contrast import ContrastiveCovariance, feature, principal_cosines
from headwise.contrast.collect import Pairs
from headwise.contrast.placebo import Placebos, rank_curves
from headwise.contrast.swaps import SwapRows, swap_keys
from headwise.contrast.unlabelled import SelfContrast
from headwise.contrast.unlabelled.collect import PART, HeadVectors, Scanned, TextRows, TextScanJob, VectorsJob
from headwise.contrast.unlabelled.study import _token_ids
from headwise.corpora.known import find_corpus
from headwise.files import write_text
from headwise.jsons import dumps
from headwise.scale.stages import Stages
from headwise.scale.work import cut
from headwise.tasks.labelled.make import make_task
from headwise.tasks.labelled.types import Contrast, Example, Task
from headwise.types import Head

HEADS = ("L14H3", "L18H6", "L18H7", "L21H7", "L21H8", "L22H4", "L23H2")
"""Heads of the binding and filter tasks, and the clearest duplicate-token head."""
TASKS: Mapping[str, Mapping[str, Any]] = {"binding": {}, "filter": {"items": 5}}
SPAN = 9
"""The largest span, and the largest labelled rank."""
PLACEBOS = 400
"""With fewer the smallest p could not pass a correction over all tests."""
SEED = 0


# --- labelled --------------------------------------------------------------------------------------------------------


class InQuerysFrame:
    """Queries and keys of prompts in the query's frame, of some heads."""

    def __init__(self, model: headwise.Model, heads: tuple[Head, ...]) -> None:
        self.model, self.job = model, VectorsJob(heads)

    def read(self, prompts: Sequence[Sequence[int]]) -> Iterator[tuple[HeadVectors, int]]:
        """What each prompt's heads see, as a part and its place there."""
        for chunk in cut([tuple(one) for one in prompts], PART):
            made = self.job.make(self.model, chunk, lambda _n: None)
            yield from ((made, place) for place in range(len(chunk)))

    def pairs(self, examples: Sequence[Example]) -> Pairs:
        """Queries, keys and their means [n, h, …], keys of another prompt as the own query would see them."""
        own = self.read([e.tokens for e in examples])
        crossed = iter(self.read([e.other for e in examples if e.other is not None]))
        found = []
        for example, (made, place) in zip(examples, own, strict=True):
            query = made.q[:, place, example.query].double()[None]
            keys = seen(made, place, len(example.tokens), example.query)
            other = keys
            if example.other is not None:
                there = min(example.query, len(example.other) - 1)
                other = seen(*next(crossed), len(example.other), there)
            plus, minus = keys[:, list(example.positive)], other[:, list(example.negative)]
            counts = torch.tensor([[plus.shape[1], minus.shape[1]]])
            both = torch.cat([plus, minus], 1)[None]
            found.append(Pairs(query, plus.mean(1)[None], minus.mean(1)[None], None, both, counts))
        return Pairs.cat(found)


def seen(made: HeadVectors, place: int, width: int, query: int) -> Tensor:
    """All keys of a prompt as one query sees them [h, T, d_head]."""
    return torch.stack([made.seen_keys(h, place, width)[query] for h in range(len(made.q))]).double()


def contrasts(task: Task) -> dict[str, Contrast]:
    """The features asked for: order and lexical of binding; all categories of filter as one."""
    if task.name == "binding":
        return {c.name: c for c in task.fits if c.name in ("order", "lexical")}
    return {"category": Contrast("category", tuple(e for c in task.fits for e in c.examples))}


# --- without labels --------------------------------------------------------------------------------------------------


def spans(
    model: headwise.Model, heads: tuple[Head, ...], texts: Sequence[tuple[int, ...]]
) -> dict[Head, SelfContrast]:
    """The span of every head over some texts."""
    work, chunks = Stages.here(model), cut(list(texts), PART)
    scan = Scanned.cat(work("scan", TextScanJob(), chunks))
    rows = TextRows(heads, tuple(work("read", VectorsJob(heads), chunks)), scan.sinks())
    found = {}
    for head in heads:
        fitted = SelfContrast(placebos=PLACEBOS, max_rank=SPAN).reset()
        for _, one in rows.of(head, range(rows.texts)):
            fitted.partial_fit(one)
        found[head] = fitted.finish()
        print(head, "rank", fitted.rank_null_, "energy", fitted.rank_energy_, flush=True)
    return found


def share_inside(span: Tensor, wanted: Tensor) -> Tensor:
    """Mean squared principal cosine: the share of a subspace that lies in a span; spans [..., d, r]."""
    return principal_cosines(span, wanted).square().sum(-1) / wanted.shape[-1]


def degrees(span: Tensor, wanted: Tensor) -> Tensor:
    """Principal angles, the smallest first; spans [..., d, r]."""
    return principal_cosines(span, wanted).clamp(-1, 1).acos().rad2deg()


# --- both ------------------------------------------------------------------------------------------------------------


def model_part(texts: int, prompts: int, scan: int, tests: int) -> dict[str, Any]:
    """How much of labelled subspaces is found without labels, and what swaps of both do."""
    model = headwise.load()
    heads = tuple(Head.parse(name) for name in HEADS)
    reader = InQuerysFrame(model, heads)
    prose = spans(model, heads, _token_ids(model, find_corpus().first(texts)))
    records = []
    for name, more in TASKS.items():
        task = make_task(name, model.tokenizer, prompts=prompts, scan=scan, test=tests, seed=SEED, **more)
        sources = {"prose": prose, "prompts": spans(model, heads, [e.tokens for e in task.scan.examples])}
        moved = Moved(reader, task.test.examples, model.d_head**-0.5)
        for what, contrast in contrasts(task).items():
            pairs = reader.pairs(contrast.examples)
            curves = rank_curves(
                pairs, SPAN, clusters=contrast.clusters().which, seed=SEED, labels=(what, "query's frame")
            )
            delta = pairs.feed(ContrastiveCovariance()).delta_c_
            placebos = Placebos.fitted(pairs, SPAN, PLACEBOS, SEED, what, "query's frame")
            for place, head in enumerate(heads):
                rank = curves[place].rank
                wanted = feature(delta[place], rank).key.basis
                drawn = moved.shares(place, placebos.key[:, place, :, :rank])
                swap = float(moved.shares(place, wanted[None])[0])
                about = {
                    "task": name,
                    "feature": what,
                    "head": str(head),
                    "prompts": len(contrast),
                    "rank": rank,
                    "labelled_swap": swap,
                    "labelled_placebo": float(drawn.mean()),
                    "labelled_p": p_value(swap, drawn),
                }
                for source, found in sources.items():
                    record = {**about, "source": source, **compared(found[head], wanted, moved, place)}
                    records.append(record)
                    print(record, flush=True)
    return {
        "texts": texts,
        "prompts": prompts,
        "scan": scan,
        "tests": tests,
        "span": SPAN,
        "placebos": PLACEBOS,
        "records": judged(records),
    }


class Moved:
    """By how much swaps of subspaces move test prompts, as a share of swapping whole keys."""

    def __init__(self, reader: InQuerysFrame, examples: Sequence[Example], scale: float) -> None:
        examples = [e for e in examples if e.swap is not None]
        self.rows: list[SwapRows] = []
        for example, (made, place) in zip(examples, reader.read([e.tokens for e in examples]), strict=True):
            assert example.swap is not None
            row = SwapRows.from_keys(
                made.q[:, place, example.query][:, None],
                seen(made, place, len(example.tokens), example.query)[:, None],
                *(torch.tensor([at]) for at in example.swap),
                scale=scale,
                mask=made.visible[:, place, example.query, : len(example.tokens)][:, None],
            )
            self.rows.append(replace(row, keys=None))
        self.whole = torch.stack([swap_keys(row, None).log_odds[:, 0, 0] for row in self.rows]).mean(0)

    def shares(self, head: int, bases: Tensor) -> Tensor:
        """The share of each subspace [S, d_head, r] of one head: [S]."""
        total = torch.zeros(len(bases), dtype=torch.float64)
        for row in self.rows:
            mine = replace(
                row,
                **{
                    name: getattr(row, name)[head]
                    for name in ("q", "k_original", "k_target", "logits", "mask")
                },
            )
            total += swap_keys(mine, bases).log_odds[:, 0]
        return total / len(self.rows) / self.whole[head]


def compared(span: SelfContrast, wanted: Tensor, moved: Moved, place: int) -> dict[str, Any]:
    """One labelled feature of one head against the span found without labels."""
    if not span.rank_:
        none = {"inside": 0.0, "inside_p": 1.0, "swap": 0.0, "swap_p": 1.0, "same": 0.0, "same_p": 1.0}
        return {"span": 0, "rank_null": 0, "rank_energy": span.rank_energy_, **none}
    placebo = torch.linalg.svd(span.placebos_)[2].mT[:, :, : span.rank_]
    inside, drawn = float(share_inside(span.key_, wanted)), share_inside(placebo, wanted)
    swap, others = float(moved.shares(place, span.key_[None])[0]), moved.shares(place, placebo)
    # Nine dimensions against one would not be a fair comparison: as many of the span's first as were labelled.
    rank = wanted.shape[-1]
    same, few = (
        float(moved.shares(place, span.key_[None, :, :rank])[0]),
        moved.shares(place, placebo[..., :rank]),
    )
    return {
        "span": span.rank_,
        "rank_null": span.rank_null_,
        "rank_energy": span.rank_energy_,
        "inside": inside,
        "placebo_inside": float(drawn.mean()),
        "inside_p": p_value(inside, drawn),
        "angles": degrees(span.key_, wanted).tolist(),
        "placebo_angles": degrees(placebo, wanted).mean(0).tolist(),
        "swap": swap,
        "placebo_swap": float(others.mean()),
        "swap_p": p_value(swap, others),
        "same": same,
        "placebo_same": float(few.mean()),
        "same_p": p_value(same, few),
    }


def judged(records: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """With claims: all spans corrected together, all swaps of them, and all of as many dimensions as were labelled."""
    null = "spans of attention dealt anew"
    made = {
        name: claims(
            [r[f"{name}_p"] for r in records], null=null, draws=PLACEBOS, group=f"all {many} of the run"
        )
        for name, many in (("inside", "spans"), ("swap", "swaps"), ("same", "swaps of as many dimensions"))
    }
    labelled = claims(
        [r["labelled_p"] for r in records if r["source"] == "prose"],
        null="labels shuffled within prompts",
        draws=PLACEBOS,
        group="all labelled features of the run",
    )
    known = {
        (r["head"], r["feature"]): one
        for r, one in zip([r for r in records if r["source"] == "prose"], labelled, strict=True)
    }
    return [
        {
            **r,
            **{f"{name}_claim": made[name][i].to_json() for name in made},
            "labelled_claim": known[r["head"], r["feature"]].to_json(),
        }
        for i, r in enumerate(records)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("runs/unlabelled-model.json"))
    parser.add_argument("--texts", type=int, default=240)
    parser.add_argument("--prompts", type=int, default=360)
    parser.add_argument("--scan", type=int, default=120)
    parser.add_argument("--tests", type=int, default=240)
    options = parser.parse_args()
    torch.set_num_threads(1)
    found = model_part(options.texts, options.prompts, options.scan, options.tests)
    write_text(options.out, dumps(found) + "\n")


if __name__ == "__main__":
    main()
