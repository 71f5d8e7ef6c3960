"""The label-free search on heads of the default model: pairs of features, and models whose weights are random.

    python benchmarks/unlabelled_heads.py pairs [--texts 240] [--out FILE] [--heads L22H4 --alike 1]
    python benchmarks/unlabelled_heads.py untrained [--texts 24] [--models 4] [--sharper 1] [--out FILE]

``pairs`` asks the heads that the search chooses by itself and those of ``docs/results/features.md``: how alike are
their features, and what tells alike ones apart? Named heads alone are asked instead, and pairs that are less alike than
the study asks about. ``untrained`` counts what the search says of heads that have learned nothing: two layers of the
default model's shape, with its tokens and the same texts, other weights for each model. Queries may be made larger, for
a head that is initialised attends almost evenly.
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

import headwise
from headwise.contrast.unlabelled import pairs as unlabelled_pairs
from headwise.contrast.unlabelled import study
from headwise.contrast.unlabelled.one_head import HeadFound
from headwise.contrast.unlabelled.pairs import FeaturePair, overlaps
from headwise.contrast.unlabelled.result import UnlabelledResult
from headwise.corpora.known import find_corpus
from headwise.corpus import Corpus
from headwise.errors import HeadwiseError
from headwise.files import write_text
from headwise.intervals import wilson
from headwise.jsons import dumps
from headwise.model.model import Model
from headwise.scale.stages import Stages
from headwise.types import Head

HEADS = ("L14H3", "L18H6", "L21H7", "L21H8", "L22H4")
LAYERS = 2
HELD = ("rank_null", "rank_energy", "rank", "identified", "cells", "explained", "principal", "placebo")


class Watched(study._TextStudy):
    """The study, noting how alike all pairs of features are, those that are not asked about too."""

    def __init__(self, model: Model, corpus: Corpus, more: Sequence[str] = ()) -> None:
        asked = study._TextsAsked(texts=len(corpus), max_rank=study.MAX_RANK, seed=0)
        ids = study._token_ids(model, corpus)
        super().__init__(model, corpus.name, ids, asked, Stages.here(model))
        self.more, self.seen = tuple(Head.parse(name) for name in more), list[dict[str, Any]]()

    def _most_changing(self, changes: Tensor) -> list[Head]:
        return sorted({*super()._most_changing(changes), *self.more})

    def _pairs(self, one: HeadFound, tokens: Sequence[Sequence[str]]) -> list[FeaturePair]:
        names, known = one.found.names, one.found.known
        self.seen += [
            {
                "head": str(one.head),
                "first": names[a],
                "second": names[b],
                "overlap": overlap,
                "chance": chance,
                "times_chance": overlap / chance,
            }
            for a, b, overlap, chance in overlaps(one.parts)
            if known[a] and known[b]
        ]
        print(one.head, "rank", one.row.rank_null, "features", len(names), flush=True)
        return super()._pairs(one, tokens)


def pairs(texts: int, heads: str | None, alike: float) -> dict[str, Any]:
    """Every pair of features of some heads, and what tells those apart that are alike."""
    unlabelled_pairs.ALIKE = alike
    model = headwise.load()
    watched = Watched(model, find_corpus().first(texts), HEADS)
    found = watched.run(None if heads is None else model.heads_named(heads), {})
    return {
        "alike": alike,
        "texts": found.texts,
        "held_out": found.held_out,
        "heads": [{"head": one.head, **_some(asdict(one))} for one in found.heads],
        "features": [_plain(one.to_json()) for one in found.features],
        "supported": sum(one.claim.supported for one in found.features),
        "compared": sorted(watched.seen, key=lambda pair: -pair["times_chance"]),
        "pairs": [one.to_json() for one in found.pairs],
        "warnings": list(found.warnings),
    }


def untrained(texts: int, models: int, sharper: float) -> dict[str, Any]:
    """What the search says of heads of random weights."""
    trained, corpus = headwise.load(), find_corpus().first(texts)
    records = []
    for seed in range(models):
        try:
            found = Watched(random_weights(trained, sharper, seed), corpus).run(None, {})
        except HeadwiseError as error:
            print(seed, error, flush=True)
            records.append({"seed": seed, "heads": [], "features": 0, "known": 0, "supported": 0})
            continue
        records.append(_said(seed, found))
        print({name: value for name, value in records[-1].items() if name != "heads"}, flush=True)
    some = sum(one["supported"] > 0 for one in records)
    heads = [head for one in records for head in one["heads"]]
    return {
        "texts": texts,
        "models": models,
        "layers": LAYERS,
        "sharper": sharper,
        "asked_heads": models * study.MOST,
        "features": sum(one["features"] for one in records),
        "runs_with_supported": some,
        "runs_rate": some / models,
        "runs_wilson": wilson(some, models),
        # Keys of the first layer are tokens, which are something to tell apart whatever the weights.
        "layers_apart": [
            _counted([one for one in heads if Head.parse(one["head"]).layer == layer])
            for layer in range(LAYERS)
        ],
        "all": _counted(heads),
        "records": records,
    }


def _counted(heads: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Of some heads: directions above the placebo, features, and how many of these are supported."""
    known, supported = (sum(one[name] for one in heads) for name in ("known", "supported"))
    return {
        "heads": len(heads),
        **{name: _quartiles([head[name] for head in heads]) for name in HELD},
        "known": known,
        "supported": supported,
        "rate": supported / known if known else None,
        "wilson": wilson(supported, known) if known else None,
        "heads_with_supported": sum(one["supported"] > 0 for one in heads),
    }


def random_weights(trained: Model, sharper: float, seed: int) -> Model:
    """Two layers of a model's shape, as its family is initialised."""
    torch.manual_seed(seed)
    config = copy.deepcopy(trained.hf.config)
    config.num_hidden_layers = LAYERS
    hf: Any = AutoModelForCausalLM.from_config(config).eval().requires_grad_(False)
    for layer in hf.model.layers:
        layer.self_attn.q_proj.weight.mul_(sharper)
    return Model(hf, trained.tokenizer, name=f"random-{seed}")


def _said(seed: int, found: UnlabelledResult) -> dict[str, Any]:
    return {
        "seed": seed,
        "heads": [
            {
                "head": one.head,
                **_some(asdict(one)),
                "known": sum(feature.known for feature in found.of(one.head)),
                "supported": sum(feature.claim.supported for feature in found.of(one.head)),
            }
            for one in found.heads
        ],
        "features": len(found.features),
        "known": sum(one.known for one in found.features),
        "supported": sum(one.claim.supported for one in found.features),
    }


def _some(row: dict[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in HELD}


def _plain(feature: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in feature.items() if name != "cells"}


def _quartiles(values: Sequence[float]) -> list[float] | None:
    """Smallest, quartiles, largest."""
    if not values:
        return None
    return torch.tensor(values).double().quantile(torch.linspace(0, 1, 5).double()).tolist()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=("pairs", "untrained"))
    parser.add_argument("--texts", type=int, help="240 for pairs, 24 for untrained")
    parser.add_argument("--heads", help="of pairs: these alone")
    parser.add_argument(
        "--alike", type=float, default=unlabelled_pairs.ALIKE, help="times chance, to be asked"
    )
    parser.add_argument("--models", type=int, default=4)
    parser.add_argument("--sharper", type=float, default=1.0)
    parser.add_argument("--out", type=Path, help="the file to write (runs/unlabelled-PART.json)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.part == "pairs":
        found = pairs(options.texts or study.TEXTS, options.heads, options.alike)
    else:
        found = untrained(options.texts or study.LEAST, options.models, options.sharper)
    write_text(options.out or Path("runs") / f"unlabelled-{options.part}.json", dumps(found) + "\n")


if __name__ == "__main__":
    main()
