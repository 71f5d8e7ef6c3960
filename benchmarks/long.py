"""Long prompts: the memory and the time of a capture, an explanation and a trace, by the length of the prompt.

    .venv/bin/python benchmarks/long.py [TOKENS …] [KIND …]           on the default model, up to its 8,192 tokens
    .venv/bin/python benchmarks/long.py tiny [TOKENS …] [KIND …]      on a tiny model with a longer context

Each is measured in a process of its own: what it takes above the
loaded model at its peak, and its time of the processor, which is compared with that of a bare pass (on a machine that
others use, too, time on the wall says little). At the end the exponent of memory in the length, fitted over all
lengths: 1 is linear, 2 would be a grid of tokens × tokens.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "helpers"))

from in_turns import PROMPT, exponent, peak_of, prompt_of  # pyright: ignore[reportMissingImports]

LENGTHS = (1024, 2048, 4096, 8192)
LONGER = (8192, 16384, 32768)
"""Of the tiny model."""
KINDS = ("bare", "capture", "explain", "trace")


def one(kind: str, tokens: int, small: bool) -> None:
    """Measure one kind at one length: bytes, seconds on the wall, seconds of the processor."""
    import headwise

    torch.set_num_threads(1)
    if small:
        from tiny import prompts_of, tiny  # pyright: ignore[reportMissingImports]

        model = tiny("llama", settings={"max_position_embeddings": 2 * tokens})
        short, ids = prompts_of(14, tokens)
        answer, wrong = 5, 7
    else:
        model = headwise.load()
        short, ids = list(model.tokenizer(PROMPT).input_ids), prompt_of(model.tokenizer, tokens)
        answer, wrong = " Mary", " John"
    batch = torch.tensor([ids])

    def bare() -> object:
        with torch.no_grad():
            return model.hf(batch, use_cache=False, logits_to_keep=1)

    wanted = {
        "bare": bare,
        "capture": lambda: model.capture(ids, queries=-1, want=("q", "k", "pattern"), logits="last"),
        "explain": lambda: headwise.explain(model, ids, answer=answer, wrong=wrong),
        "trace": lambda: headwise.trace(model, ids, answer=answer, wrong=wrong),
    }
    # What is made once for a model does not count.
    if kind == "explain":
        headwise.explain(model, short, answer=answer, wrong=wrong)
    if kind == "trace":
        headwise.trace(model, short, answer=answer, wrong=wrong)
    if kind in ("bare", "capture"):
        model.capture(short, logits="last")
    used = time.process_time()
    size, wall = peak_of(wanted[kind])
    print(size, wall, time.process_time() - used)


def main(lengths: list[int], kinds: list[str], small: bool) -> None:
    bare: dict[int, float] = {}
    for kind in kinds:
        rows = []
        for tokens in lengths:
            done = subprocess.run(
                [sys.executable, __file__, "one", kind, str(tokens), *(["tiny"] if small else [])],
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode:
                raise SystemExit(f"{kind} of {tokens} tokens: {done.stderr}")
            size, wall, processor = map(float, done.stdout.split()[-3:])
            rows.append((tokens, size))
            if kind == "bare":
                bare[tokens] = processor
            ratio = f"{processor / bare[tokens]:5.2f} × bare" if tokens in bare else ""
            print(
                f"{kind:8} T = {tokens:5d}   {size / 2**20:8.0f} MB   {processor:7.1f} s of the processor {ratio}"
                f"   ({wall:.1f} s on the wall)",
                flush=True,
            )
        if len(rows) > 1:
            print(
                f"{kind:8} memory grows with T to the power of {exponent(rows):.2f} (goal <= 1.1)", flush=True
            )


if __name__ == "__main__":
    if sys.argv[1:2] == ["one"]:
        one(sys.argv[2], int(sys.argv[3]), "tiny" in sys.argv)
    else:
        given = sys.argv[1:]
        main(
            [int(word) for word in given if word.isdecimal()] or list(LONGER if "tiny" in given else LENGTHS),
            [kind for kind in KINDS if kind in given] or list(KINDS),
            "tiny" in given,
        )
