"""How long one head's explanation over many prompts takes against bare forward passes over the same prompts.

    .venv/bin/python benchmarks/many.py [PROMPTS]

On the default model and the task ``ioi``; bare passes are made one prompt at a time.
"""

from __future__ import annotations

import sys
import time

import torch

import headwise
from headwise.tasks.answers.make import make_answers


def main(prompts: int) -> None:
    model = headwise.load()
    texts = [one.prompt for one in make_answers("ioi", model.tokenizer, prompts=prompts).prompts]
    batches = [torch.tensor([ids]) for ids in model.token_ids(texts)]
    headwise.explain_many(model, "ioi", head="L23H3", prompts=2)  # what is made once for a model
    began = time.perf_counter()
    with torch.no_grad():
        for batch in batches:
            model.hf(batch, use_cache=False)
    bare = time.perf_counter() - began
    found = headwise.explain_many(model, "ioi", head="L23H3", prompts=prompts)
    print(
        f"{prompts} prompts: {found.seconds:.1f} s, {found.seconds / bare:.2f} × bare passes ({bare:.1f} s)"
    )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100)
