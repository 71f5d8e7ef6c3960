"""Channels, traces and their memory, side by side with the plain way. Prints ratios.

python benchmarks/trace.py            all four parts
python benchmarks/trace.py channels   (a) channels of a GPT-2-shaped model against the SVD of full products
python benchmarks/trace.py speed      (b) a whole trace against the literal reference of the published rules
python benchmarks/trace.py lengths    (d) a whole trace in the default mode against the bare pass, by prompt length
python benchmarks/trace.py memory     (c) peak extra memory of a trace by prompt length
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

from in_turns import LENGTHS, PROMPT, exponent, in_turns, peak_of, prompt_of  # pyright: ignore[reportMissingImports]

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

MEMORY = (64, 128, 256, 512)


def best(function: Callable[[], object], times: int) -> float:
    """The shortest of some runs, in seconds: what the machine can do when nobody disturbs it."""
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        function()
        taken.append(time.perf_counter() - start)
    return min(taken)


def channels() -> None:
    from headwise.bases.singular import qk_svd

    layers, heads, d_model, d_head = 12, 12, 768, 64
    generator = torch.Generator().manual_seed(0)
    query, key = (torch.randn(layers, heads, d_head, d_model, generator=generator) for _ in range(2))
    ours = best(lambda: [qk_svd(query[layer], key[layer]) for layer in range(layers)], 3)
    # every head takes the same time, so a few stand for all of them
    some = 3
    full = best(
        lambda: [torch.linalg.svd(query[0, i].double().T @ key[0, i].double()) for i in range(some)], 2
    )
    single = best(lambda: [torch.linalg.svd(query[0, i].T @ key[0, i]) for i in range(some)], 2)
    full, single = (x / some * layers * heads for x in (full, single))
    print(f"(a) channels of {layers} × {heads} heads, d_model {d_model}")
    print(f"    QR + small SVD, float64        {ours:8.2f} s")
    print(f"    SVD of full products, float64  {full:8.2f} s   ratio {full / ours:6.1f} (goal 50)")
    print(f"    SVD of full products, float32  {single:8.2f} s   ratio {single / ours:6.1f}")


def speed() -> None:
    from reference_tracer import LiteralTracer  # pyright: ignore[reportMissingImports]

    import headwise
    from headwise.bases.basis import Bases

    model = headwise.load()
    start = time.perf_counter()
    for layer in range(model.n_layers):
        Bases.of(model).layer(layer)
    cold = time.perf_counter() - start
    ids = torch.tensor([model.tokenizer(PROMPT).input_ids])
    answer, wrong = (
        model.tokenizer(text, add_special_tokens=False).input_ids[0] for text in (" Mary", " John")
    )

    def forward() -> None:
        with torch.no_grad():
            model.hf(ids)

    def trace(mode: str) -> headwise.Circuit:
        return headwise.trace(model, PROMPT, answer=" Mary", wrong=" John", mode=mode)

    forward()
    trace("exact")
    forwards, traces, published = [], [], []
    for _ in range(7):  # in turns, so that a busy moment of the machine hits all alike
        forwards.append(best(forward, 1))
        traces.append(best(lambda: trace("exact"), 1))
        published.append(best(lambda: trace("published"), 1))
    bare, ours, ours_published = min(forwards), min(traces), min(published)
    stream = model.split(PROMPT)
    reference = LiteralTracer(model, stream)
    circuit = trace("published")
    for node in circuit.heads:  # the reference's own SVDs are weights' work too: not timed
        reference.svd(headwise.Head(node.layer, node.head or 0))
    weight = model.hf.get_output_embeddings().weight
    start = time.perf_counter()
    literal = reference.trace(weight[answer] - weight[wrong])
    slow = time.perf_counter() - start
    mine = {(e.source, e.target, e.side, e.channels) for e in circuit.edges if e.channels}
    print(f"(b) whole trace, {ids.shape[1]} tokens, {len(circuit.heads)} firings, {len(circuit.edges)} edges")
    print(f"    bare forward pass              {bare:8.3f} s")
    print(
        f"    trace, forward included        {ours:8.3f} s   {ours / bare:5.2f} × the forward pass (goal < 5)"
    )
    print(
        f"    trace --mode published         {ours_published:8.3f} s   {ours_published / bare:5.2f} × the forward pass"
    )
    print(f"    literal reference              {slow:8.3f} s   ratio {slow / ours_published:6.1f} (goal 20)")
    print(f"    same edges: {len(mine)} here, {len(literal.edges)} in the reference")
    print(f"    channels of all {len(model.heads)} heads, once per model: {cold:.2f} s (not in these times)")


def lengths() -> None:
    import headwise

    model = headwise.load()
    print("(d) whole trace, default mode, verified counterfactuals not asked for")
    for tokens, rounds in LENGTHS.items():
        ids = prompt_of(model.tokenizer, tokens)
        batch, seen = torch.tensor([ids]), []
        pace = in_turns(
            lambda batch=batch: model.hf(batch, use_cache=False),
            lambda ids=ids, seen=seen: seen.append(headwise.trace(model, ids, answer=" Mary", wrong=" John")),
            rounds,
        )
        found = seen[-1]
        print(
            f"    T = {tokens:4d}   {pace}   {len(found.heads)} firings, {len(found.edges)} edges", flush=True
        )


def memory_of(tokens: int) -> None:
    """Peak resident memory during one trace above that before it (in a process of its own)."""
    import headwise
    from headwise.bases.basis import Bases

    model = headwise.load()
    for layer in range(model.n_layers):
        Bases.of(model).layer(layer)
    ids = prompt_of(model.tokenizer, tokens)
    headwise.trace(model, PROMPT, answer=" Mary", wrong=" John")
    found = []
    size, seconds = peak_of(
        lambda: found.append(headwise.trace(model, [ids], answer=" Mary", wrong=" John")[0])
    )
    print(f"{tokens} {size} {len(found[0].counterfactuals)} {seconds:.2f}")


def memory() -> None:
    print("(c) peak extra memory of a trace")
    rows = []
    for tokens in MEMORY:
        out = subprocess.run(
            [sys.executable, __file__, "memory-of", str(tokens)], capture_output=True, text=True, check=True
        ).stdout
        _, size, firings, seconds = out.strip().splitlines()[-1].split()
        rows.append((tokens, int(size)))
        print(f"    T = {tokens:4d}   {int(size) / 2**20:8.1f} MB   {firings} searched sides   {seconds} s")
    print(
        f"    fitted exponent {exponent(rows):.2f} (goal <= 1.1); T = 512: {rows[-1][1] / 2**30:.2f} GB (goal < 1.5)"
    )


if __name__ == "__main__":
    parts = {"channels": channels, "speed": speed, "memory": memory, "lengths": lengths}
    match sys.argv[1:]:
        case []:
            for part in parts.values():
                part()
        case ["memory-of", tokens]:
            memory_of(int(tokens))
        case [name] if name in parts:
            parts[name]()
        case _:
            raise SystemExit(__doc__)
