"""How long an explanation takes against one bare forward pass, and where the time goes.

    .venv/bin/python benchmarks/explain.py

On the default model and the indirect-object prompt; runs are interleaved with bare forward passes and medians are
taken, so that a busy machine slows both alike.
"""

from __future__ import annotations

import statistics
import time

import torch

import headwise

PROMPT = "When John and Mary went to the store, John gave a drink to"
ROUNDS = 9


def main() -> None:
    model = headwise.load()
    ids = torch.tensor([model.tokenizer(PROMPT).input_ids])
    why = headwise.explain(model, PROMPT, wrong=" John")  # channels of the layer are found once per model
    bare, whole, stages = [], [], []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        with torch.no_grad():
            model.hf(ids, use_cache=False)
        bare.append(time.perf_counter() - start)
        why = headwise.explain(model, PROMPT, wrong=" John")
        whole.append(why.seconds)
        stages.append(why.stages)
    forward, total = statistics.median(bare), statistics.median(whole)
    ratio = statistics.median(w / b for w, b in zip(whole, bare, strict=True))
    copies = 4 + sum(len(control.effects) for control in why.proof.controls)
    print(
        f"{len(why.tokens)} tokens, {why.head}, {copies} copies of the prompt in the edited pass; {ROUNDS} rounds"
    )
    print(f"bare forward pass {1000 * forward:8.0f} ms")
    print(f"explanation       {1000 * total:8.0f} ms   {ratio:.1f} × bare   (bound: 3 × bare)")
    for stage in stages[0]:
        seconds = statistics.median(run[stage] for run in stages)
        print(f"  {stage:22}{1000 * seconds:8.0f} ms   {seconds / total:4.0%}")


if __name__ == "__main__":
    main()
