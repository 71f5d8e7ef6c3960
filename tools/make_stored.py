"""Write the files that tests/stored keeps of each schema: what this version writes, for later versions to read.

Run it when a schema number rises, and commit the new folder beside the old ones, which are never written again:
``python tools/make_stored.py tests/stored/NAME``. In a folder that is there, only kinds are written that it lacks: for
the first version that has a new kind.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import headwise
from headwise.contrast.bank import BankFeature, FeatureBank
from headwise.corpus import Corpus
from headwise.files import write_bytes, write_json
from headwise.model.model import Model
from headwise.toy.language import sentences
from headwise.toy.small_lm import DATA
from headwise.types import Head, Subspace

PROMPT = "then anna and ben went to the store . anna gave a drink to"


def bank_of(model: Model) -> FeatureBank:
    """Two features along axes: what a bank holds does not matter, that it is held does."""
    axes = torch.eye(model.d_head, dtype=torch.float64)

    def feature(name: str, rank: int) -> BankFeature:
        side = Subspace.spanned_by(axes[:, :rank])
        return BankFeature(
            name=name,
            head=Head(2, 1),
            query=side,
            key=side,
            sigma=torch.ones(rank, dtype=torch.float64),
            rank_energy=rank,
            rank_null=rank,
        )

    return FeatureBank(model.name, model.weight_hash, "stored", (feature("one", 1), feature("two", 2)))


def answers(count: int = 6) -> list[dict[str, Any]]:
    """Prompts with answers, as lines of a file."""
    return [
        {"prompt": s.text, "answer": s.answer, "wrong": s.wrong, "labels": {"order": s.order}}
        for s in {s.text: s for s in sentences(count, 0, "stored")}.values()
    ]


def labelled() -> list[dict[str, Any]]:
    """Prompts whose names are labelled: the one to be given, and the other."""
    lines = []
    for number, one in enumerate({s.text: s for s in sentences(60, 0, "stored")}.values()):
        text = re.sub(rf"\b{one.answer}\b", f"[[right:{one.answer}]]", one.text, count=1)
        text = re.sub(rf"\b{one.wrong}\b", f"[[wrong:{one.wrong}]]", text, count=1)
        groups = {"number": str(number)}
        lines.append({"prompt": text, "positive": ["right"], "negative": ["wrong"], "groups": groups})
    return lines


def corpus(count: int) -> Corpus:
    """Different texts of the small model's language."""
    texts = tuple(dict.fromkeys(s.text for s in sentences(count, 0, "corpus")))
    return Corpus("stored", texts, ("stored",) * len(texts))


def write_lines(file: Path, lines: list[dict[str, Any]]) -> Path:
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


def _circuits(model: Model, target: Path, work: Path) -> None:
    headwise.trace_many(model, write_lines(work / "prompts.jsonl", answers()), out=target)


def _more_circuits(model: Model, target: Path, work: Path) -> None:
    headwise.trace_many(model, write_lines(work / "more.jsonl", answers(16)), out=target)


KINDS: dict[str, Callable[[Model, Path, Path], object]] = {
    "circuit.json": lambda model, target, _: headwise.trace(model, PROMPT, answer="ben", wrong="anna").save(
        target
    ),
    "explanation.json": lambda model, target, _: write_json(
        target, headwise.explain(model, PROMPT).to_json()
    ),
    "features.safetensors": lambda model, target, _: bank_of(model).save(target),
    "circuits": _circuits,
    "more_circuits": _more_circuits,
    # Families remember where their circuits are, from their own folder on.
    "families": lambda _, target, __: headwise.find_families(target.parent / "more_circuits").save(target),
    "features": lambda model, target, work: headwise.find_features(
        model, write_lines(work / "labelled.jsonl", labelled()), heads=["L2H1"], draws=100, max_rank=2
    ).save(target),
    "unlabelled": lambda model, target, _: headwise.find_features(
        model, corpus(40), heads=["L2H1"], texts=24, max_rank=2
    ).save(target),
    "sinks": lambda model, target, _: headwise.find_sinks(
        model, list(corpus(8).texts), threshold=0.1, parked=0.1, traced=2, proved=1
    ).save(target),
    "sparsity": lambda model, target, work: headwise.find_sparsity(
        model, write_lines(work / "sparsity.jsonl", answers()), rotations=1
    ).save(target),
    "names": lambda model, target, _: headwise.find_names(
        model, "L2H1", corpus=corpus(80), tokens=16, rotated=False
    ).save(target),
    "atlas": lambda model, target, _: headwise.atlas(model, "L2H1", corpus=corpus(12), cells=1).save(target),
    "explanations": lambda model, target, work: headwise.explain_many(
        model, write_lines(work / "many.jsonl", answers()), head="L2H1"
    ).save(target),
    "roles.json": lambda model, target, _: headwise.head_roles(model, sequences=8, length=8, keep=False).save(
        target
    ),
    "moments.safetensors": lambda model, target, _: write_bytes(
        target, headwise.calibrate(model, corpus(40)).to_bytes()
    ),
}
"""What is stored, by its name in the folder, and how to make it."""


def write(folder: Path) -> None:
    """One of each kind of file, from the small trained model of the package; what is there already stays."""
    folder.mkdir(parents=True, exist_ok=True)
    model = headwise.load(DATA)
    for name, make in KINDS.items():
        if not (folder / name).exists():
            with tempfile.TemporaryDirectory() as work:
                make(model, folder / name, Path(work))


if __name__ == "__main__":
    write(Path(sys.argv[1]))
