"""Activations and sampling of 500 signals over texts of 64 tokens, against the bare forward passes over the same texts.

    .venv/bin/python benchmarks/naming.py [ROUNDS [TEXTS]]

Batches of both are the same; rounds take turns. The search for rules is told apart, and so is the memory that the
process has needed after the first half of the texts and after all of them, which are twice as many.
"""

from __future__ import annotations

import resource
import sys
import time

import numpy as np
import torch

import headwise
from headwise.bases.basis import Bases
from headwise.naming.examine import Cases
from headwise.naming.halves import halves_of
from headwise.naming.reservoir import Reservoir
from headwise.naming.sample import BATCH, CellsJob, Levels, LevelsJob, Scored
from headwise.naming.signals import Subject
from headwise.naming.texts import Texts
from headwise.scale.work import cut
from headwise.types import Component
from in_turns import in_turns  # pyright: ignore[reportMissingImports]

TEXTS, TOKENS, SIGNALS = 128, 64, 500


def signals(model: headwise.Model) -> tuple[Subject, ...]:
    """Signals of MLPs below heads of all layers, in the first channels."""
    found = [
        Subject(head, side, Component("mlp", head.layer - 1 - step), (channel,), "++")
        for step in range(2)
        for channel in range(2)
        for side in ("query", "key")
        for head in model.heads
        if head.layer > step
    ]
    return tuple(found[:: max(1, len(found) // SIGNALS)][:SIGNALS])


def main(rounds: int = 2, number_of_texts: int = TEXTS) -> None:
    model = headwise.load()
    texts = Texts.of(model, headwise.corpus.documentation().first(number_of_texts), tokens=TOKENS)
    halves = halves_of(texts)
    order = np.concatenate([halves.explore, halves.test])
    chunks = cut([(int(i), tuple(texts.ids_of(int(i)))) for i in order], BATCH)
    padded = [
        torch.nn.utils.rnn.pad_sequence([torch.tensor(ids) for _, ids in chunk.items], batch_first=True)
        for chunk in chunks
    ]
    subjects = signals(model)
    scored = Scored(subjects, None, Bases.of(model).name)
    looked = [LevelsJob(scored, 0).make(model, chunk, lambda _: None) for chunk in chunks[:4]]
    levels = Levels.of(subjects, np.concatenate([one.scores for one in looked], axis=1))
    job = CellsJob(scored, levels, 0)
    kept = {half: Reservoir(half, len(subjects)) for half in ("explore", "test")}
    peaks: list[float] = []

    def sampled() -> None:
        for number, chunk in enumerate(chunks):
            kept["explore" if number % 2 else "test"].add(job.make(model, chunk, lambda _: None))
            if number + 1 == len(chunks) // 2:
                peaks.append(_peak())
        peaks.append(_peak())

    def bare() -> None:
        with torch.no_grad():
            for ids in padded:
                model.hf(ids, use_cache=False)

    pace = in_turns(bare, sampled, rounds)
    print(f"{len(order)} texts, {len(subjects)} signals: {pace} (bound 2)", flush=True)
    half, whole = peaks[:2]
    print(
        f"peak memory {half:.2f} GB with {len(order) // 2} texts, {whole:.2f} GB with {len(order)}: "
        f"{whole / half:.3f} × (bound 1.1)",
        flush=True,
    )
    began = time.process_time()
    tried = list(Cases(texts, kept["explore"], kept["test"]).tried(range(len(subjects))))
    print(f"search and test: {(time.process_time() - began) / len(tried):.3f} s of processor time per signal")


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
