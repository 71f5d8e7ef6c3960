"""Second moments of all heads over 160 texts of 64 tokens, against the bare forward passes over the same texts.

    .venv/bin/python benchmarks/calibrate.py [ROUNDS]

Batches of both are the same; rounds take turns. What is made of the moments afterwards (bases, and how stable their
channels are) is weights' work of a fixed size, and is told apart.
"""

from __future__ import annotations

import sys
import time

import torch

import headwise
from headwise.bases import calibrate as calibrating
from headwise.bases.moments import collect_moments
from headwise.corpus import Corpus
from in_turns import in_turns  # pyright: ignore[reportMissingImports]

TEXTS, TOKENS, BATCH = 160, 64, 4


def main(rounds: int = 3) -> None:
    model = headwise.load()
    whole = [
        (text, ids[:TOKENS])
        for text in headwise.corpus.documentation().texts
        if len(ids := model.tokenizer(text).input_ids) >= TOKENS
    ][:TEXTS]
    batches = [[ids for _, ids in whole[at : at + BATCH]] for at in range(0, len(whole), BATCH)]
    tensors = [torch.tensor(batch) for batch in batches]
    pace = in_turns(
        lambda: [model.hf(batch, use_cache=False) for batch in tensors],
        lambda: [collect_moments(model, batch) for batch in batches],
        rounds,
    )
    print(f"{len(whole)} texts of {TOKENS} tokens, {BATCH} at a time: {pace} (bound 1.3)")
    corpus = Corpus("documentation", tuple(text for text, _ in whole), ("documentation",) * len(whole))
    began = time.process_time()
    calibrating.calibrate(model, corpus, texts=TEXTS)
    print(
        f"whole calibration, with stability of every channel: {time.process_time() - began:.1f} s of processor time"
    )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
