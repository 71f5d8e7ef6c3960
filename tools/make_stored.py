"""Write the files that tests/stored keeps of each schema: what this version writes, for later versions to read.

Run it when a schema number rises, and commit the new folder beside the old ones, which are never written again:
``python tools/make_stored.py tests/stored/NAME``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch

import headwise
from headwise.contrast.bank import BankFeature, FeatureBank
from headwise.files import write_json
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


def write(folder: Path) -> None:
    """One of each kind of file, from the small trained model of the package."""
    folder.mkdir(parents=True)
    model = headwise.load(DATA)
    headwise.trace(model, PROMPT, answer="ben", wrong="anna").save(folder / "circuit.json")
    write_json(folder / "explanation.json", headwise.explain(model, PROMPT).to_json())
    bank_of(model).save(folder / "features.safetensors")
    lines = [
        {"prompt": s.text, "answer": s.answer, "wrong": s.wrong, "labels": {"order": s.order}}
        for s in {s.text: s for s in sentences(6, 0, "stored")}.values()
    ]
    prompts = folder / "prompts.jsonl"
    prompts.write_text("".join(json.dumps(line) + "\n" for line in lines))
    headwise.trace_many(model, prompts, out=folder / "circuits")
    prompts.unlink()


if __name__ == "__main__":
    write(Path(sys.argv[1]))
