"""Second moments of all heads over 160 texts of 64 tokens, against the bare forward passes over the same texts.

    .venv/bin/python benchmarks/calibrate.py

Both read the same batches, in turns. What is made of the moments afterwards (bases, and how stable their
channels are) is weights' work of a fixed size, and is told apart.
"""

from __future__ import annotations

import time

import torch

import headwise
from headwise.bases import calibrate as calibrating
from headwise.bases.moments import collect_moments
from headwise.corpus import Corpus
from in_turns import in_turns  # pyright: ignore[reportMissingImports]

TEXTS, TOKENS, BATCH = 160, 64, 4


def main() -> None:
    model = headwise.load()
    whole = [
        (text, ids[:TOKENS])
        for text in headwise.corpus.documentation().texts
        if len(ids := model.tokenizer(text).input_ids) >= TOKENS
    ][:TEXTS]
    batches = [[ids for _, ids in whole[at : at + BATCH]] for at in range(0, len(whole), BATCH)]
    batches = [batches[0], *batches]  # the first one is not counted
    bare, ours = iter(batches), iter(batches)
    pace = in_turns(
        lambda: model.hf(torch.tensor(next(bare)), use_cache=False),
        lambda: collect_moments(model, next(ours)),
        len(batches) - 1,
    )
    print(f"{len(whole)} texts of {TOKENS} tokens, {BATCH} at a time: {pace} (bound 1.3)", flush=True)
    corpus = Corpus("documentation", tuple(text for text, _ in whole), ("documentation",) * len(whole))
    began = time.process_time()
    calibrating.calibrate(model, corpus, texts=TEXTS)
    print(
        f"whole calibration, with stability of every channel: {time.process_time() - began:.1f} s of processor time"
    )


if __name__ == "__main__":
    main()
