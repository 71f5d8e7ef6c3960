"""Long prompts: the memory and the time of a capture, an explanation and a trace, by the length of the prompt.

    .venv/bin/python benchmarks/long.py [TOKENS …]

On the default model, whose context is 8,192 tokens. Each is measured in a process of its own: what it takes above the
loaded model at its peak, and its time as a multiple of a bare pass before it. At the end the exponent of memory in the
length, fitted over all lengths: 1 is linear, 2 would be a grid of tokens × tokens.
"""

from __future__ import annotations

import subprocess
import sys
import time

import torch

from in_turns import PROMPT, exponent, peak_of, prompt_of  # pyright: ignore[reportMissingImports]

LENGTHS = (1024, 2048, 4096, 8192)
KINDS = ("bare", "capture", "explain", "trace")


def one(kind: str, tokens: int) -> None:
    """Measure one kind at one length: bytes, seconds, seconds of a bare pass."""
    import headwise

    model = headwise.load()
    ids = prompt_of(model.tokenizer, tokens)
    batch = torch.tensor([ids])

    def bare() -> object:
        with torch.no_grad():
            return model.hf(batch, use_cache=False, logits_to_keep=1)

    wanted = {
        "bare": bare,
        "capture": lambda: model.capture(ids, queries=-1, want=("q", "k", "pattern"), logits="last"),
        "explain": lambda: headwise.explain(model, ids, answer=" Mary", wrong=" John"),
        "trace": lambda: headwise.trace(model, ids, answer=" Mary", wrong=" John"),
    }
    headwise.explain(model, PROMPT, answer=" Mary", wrong=" John")  # what is made once for a model
    headwise.trace(model, PROMPT, answer=" Mary", wrong=" John")
    start = time.perf_counter()
    bare()
    seconds = time.perf_counter() - start
    print(*peak_of(wanted[kind]), seconds)


def main(lengths: list[int]) -> None:
    for kind in KINDS:
        rows = []
        for tokens in lengths:
            done = subprocess.run(
                [sys.executable, __file__, "one", kind, str(tokens)],
                capture_output=True,
                text=True,
                check=True,
            )
            size, seconds, bare = map(float, done.stdout.split()[-3:])
            rows.append((tokens, size))
            print(
                f"{kind:8} T = {tokens:5d}   {size / 2**20:8.0f} MB   {seconds:7.1f} s, {seconds / bare:5.2f} × bare",
                flush=True,
            )
        if len(rows) > 1:
            print(
                f"{kind:8} memory grows with T to the power of {exponent(rows):.2f} (goal <= 1.1)", flush=True
            )


if __name__ == "__main__":
    if sys.argv[1:2] == ["one"]:
        one(sys.argv[2], int(sys.argv[3]))
    else:
        main([int(tokens) for tokens in sys.argv[1:]] or list(LENGTHS))
