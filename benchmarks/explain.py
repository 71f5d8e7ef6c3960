"""How long an explanation takes against one bare forward pass, by the length of the prompt, and where the time goes.

    .venv/bin/python benchmarks/explain.py [TOKENS …]

On the default model; runs take turns with bare forward passes and medians are taken, so that a busy machine slows both
alike.
"""

from __future__ import annotations

import statistics
import sys

import torch

import headwise
from in_turns import LENGTHS, in_turns, prompt_of  # pyright: ignore[reportMissingImports]


def main(lengths: list[int]) -> None:
    model = headwise.load()
    for tokens in lengths:
        ids = prompt_of(model.tokenizer, tokens)
        batch, seen = torch.tensor([ids]), []
        pace = in_turns(
            lambda batch=batch: model.hf(batch, use_cache=False),
            lambda ids=ids, seen=seen: seen.append(headwise.explain(model, ids, wrong=" John")),
            LENGTHS.get(tokens, 3),
        )
        why = seen[-1]
        copies = 4 + sum(len(control.effects) for control in why.proof.controls)
        print(f"T = {tokens:4d}   {pace}   {why.head}, {copies} edited copies")
        whole = statistics.median(one.seconds for one in seen[1:])
        for stage in why.stages:
            seconds = statistics.median(one.stages[stage] for one in seen[1:])
            print(f"    {stage:22}{seconds / whole:4.0%}")


if __name__ == "__main__":
    main([int(tokens) for tokens in sys.argv[1:]] or list(LENGTHS))
