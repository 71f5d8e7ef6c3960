"""Capture against a bare forward pass, TransformerLens and nnsight: the same numbers, time and memory side by side.

    make bench                       # or: .venv/bin/python benchmarks/capture.py
    .venv/bin/python benchmarks/capture.py --others PYTHON

Request: q of the last row and all keys of three heads, 8 prompts of 128 tokens, on the default model. ``--others``
names the Python of a separate environment that has transformer-lens and nnsight (headwise itself needs neither);
without it only the bare forward pass is compared. Every contender runs in a process of its own, in turns with a bare
forward pass in that same process, and the median of the ratios is taken, with a bootstrap interval: a busy machine then
slows both alike. Peak memory is what the process grows by at its highest (Linux).
"""

from __future__ import annotations

import argparse
import ctypes
import json
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

HEADS = ((9, 1), (14, 4), (18, 6))
LAST_LAYER = 18
BATCH, TOKENS = 8, 128
ROUNDS = 25

Contender = Callable[[], "object"]


def token_ids(vocabulary: int):
    import torch

    return torch.randint(5, vocabulary, (BATCH, TOKENS), generator=torch.Generator().manual_seed(0))


def headwise_contender(folder: str) -> Contender:
    import headwise

    model = headwise.load(folder, check=False)
    prompts = token_ids(model.anatomy.config.vocab_size).tolist()
    heads = [f"L{layer}H{index}" for layer, index in HEADS]

    def run() -> object:
        seen = model.capture(prompts, heads=heads, queries=-1, want=("q", "k"))
        return seen.q[:, :, 0], seen.k  # pyright: ignore[reportOptionalSubscript]

    return run


def bare_contender(folder: str) -> Contender:
    """transformers alone, ended by an exception where the captured pass ends: in the attention of the last layer."""
    import torch

    hf = _transformers_model(folder)
    ids = token_ids(hf.config.vocab_size)

    class Enough(Exception):
        pass

    def stop(*_: object) -> None:
        raise Enough

    # The attention function of layer 18 is entered when its value projection is done.
    hf.model.layers[LAST_LAYER].self_attn.v_proj.register_forward_hook(stop)

    def run() -> object:
        with torch.no_grad():
            try:
                hf.model(ids, use_cache=False)
            except Enough:
                return None
        raise AssertionError("the bare pass was not stopped")

    return run


def transformer_lens_contender(folder: str) -> Contender:
    import torch
    from transformer_lens.model_bridge import TransformerBridge  # pyright: ignore[reportMissingImports]

    tokenizer = _tokenizer(folder)
    model = TransformerBridge.boot_transformers(
        "HuggingFaceTB/SmolLM2-135M-Instruct", hf_model=_transformers_model(folder), tokenizer=tokenizer
    )
    ids = token_ids(model.cfg.d_vocab)
    names = {f"blocks.{layer}.attn.hook_rot_{side}" for layer, _ in HEADS for side in ("q", "k")}

    def run() -> object:
        with torch.no_grad():
            _, cache = model.run_with_cache(
                ids, names_filter=lambda name: name in names, stop_at_layer=LAST_LAYER + 1
            )
        group = model.cfg.n_heads // model.cfg.n_key_value_heads
        q = [cache[f"blocks.{layer}.attn.hook_rot_q"].transpose(1, 2) for layer, _ in HEADS]
        k = [cache[f"blocks.{layer}.attn.hook_rot_k"].transpose(1, 2) for layer, _ in HEADS]
        return _pick(q, k, group)

    return run


def nnsight_contender(folder: str) -> Contender:
    import torch
    from nnsight import LanguageModel  # pyright: ignore[reportMissingImports]

    model = LanguageModel(_transformers_model(folder), tokenizer=_tokenizer(folder))
    ids = token_ids(model.config.vocab_size)
    config = model.config
    d_head, group = config.head_dim, config.num_attention_heads // config.num_key_value_heads

    def run() -> object:
        # The interface shows projections and the rotation, so the caller rotates.
        q, k = [], []
        with torch.no_grad(), model.trace(ids) as tracer:
            cos, sin = model.model.rotary_emb.output
            for layer, _ in HEADS:
                attention = model.model.layers[layer].self_attn
                for projection, kept in ((attention.q_proj, q), (attention.k_proj, k)):
                    flat = projection.output
                    states = flat.view(*flat.shape[:2], -1, d_head).transpose(1, 2)
                    half = d_head // 2
                    turned = torch.cat((-states[..., half:], states[..., :half]), -1)
                    kept.append((states * cos[:, None] + turned * sin[:, None]).save())
            tracer.stop()
        return _pick(q, k, group)

    return run


CONTENDERS = {
    "headwise": headwise_contender,
    "TransformerLens": transformer_lens_contender,
    "nnsight": nnsight_contender,
}


def _pick(q: list, k: list, group: int) -> object:
    import torch

    rows = torch.stack([states[:, head, -1] for states, (_, head) in zip(q, HEADS, strict=True)], 1)
    keys = torch.stack([states[:, head // group] for states, (_, head) in zip(k, HEADS, strict=True)], 1)
    return rows, keys


def _transformers_model(folder: str):
    import torch
    from transformers import AutoModelForCausalLM

    hf = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return hf.eval().requires_grad_(False)


def _tokenizer(folder: str):
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder)


# --- a worker process serves one contender: it warms up, measures memory once, then runs when told -------------------


def serve(name: str, folder: str) -> None:
    import torch

    torch.set_num_threads(2)
    bare, run = bare_contender(folder), CONTENDERS[name](folder)
    bare_peak, _ = _peak_memory(bare)
    peak, result = _peak_memory(run)
    q, k = result  # pyright: ignore[reportGeneralTypeIssues]
    first = {
        "peak": peak,
        "over": peak - bare_peak,
        "q": float(q.double().sum()),
        "k": float(k.double().sum()),
    }
    print(json.dumps(first), flush=True)
    for number, line in enumerate(sys.stdin):
        if line.strip() == "stop":
            return
        pair = [bare, run] if number % 2 else [run, bare]
        seconds = {}
        for each in pair:
            start = time.perf_counter()
            each()
            seconds[each] = time.perf_counter() - start
        print(json.dumps({"run": seconds[run], "bare": seconds[bare]}), flush=True)


def _peak_memory(run: Contender, times: int = 5) -> tuple[float, object]:
    """How much the process grew at its highest during a call, in MB, as the kernel counts it (median of calls).

    torch's own record of allocations follows the calling thread alone; the kernel's count has all threads in it, and
    everything that is not a tensor. What earlier calls left to the C library is given back first.
    """
    result = run()
    grown = []
    for _ in range(times):
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")  # the high-water mark begins anew
        before = _status("VmRSS")
        result = run()
        grown.append(_status("VmHWM") - before)
    return statistics.median(grown), result


def _status(name: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(float(line.split()[1]) * 1024 / 1e6 for line in lines if line.startswith(f"{name}:"))


class Worker:
    def __init__(self, python: str, name: str, folder: str) -> None:
        self.process = subprocess.Popen(
            [python, __file__, "--serve", name, "--folder", folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.first = self._read()
        self.times: list[dict[str, float]] = []

    def turn(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        self.times.append(self._read())

    def _read(self):
        assert self.process.stdout is not None
        while line := self.process.stdout.readline():
            if line.startswith("{"):
                return json.loads(line)
        assert self.process.stderr is not None
        raise SystemExit(f"{self.process.args} failed:\n{self.process.stderr.read()[-2000:]}")

    def close(self) -> None:
        self.process.communicate("stop\n")


def median_interval(values: list[float], draws: int = 2000) -> tuple[float, float]:
    """Bootstrap 95 % interval of a median."""
    chance = random.Random(0)
    medians = sorted(statistics.median(chance.choices(values, k=len(values))) for _ in range(draws))
    return medians[draws // 40], medians[-(draws // 40) - 1]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--others", help="Python of an environment with transformer-lens and nnsight")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve(arguments.serve, arguments.folder)
        return
    from headwise.model.loading import store

    folder = str(store.ensure("smollm2"))
    names = ["headwise", *(["TransformerLens", "nnsight"] if arguments.others else [])]
    workers = {
        name: Worker(sys.executable if name == "headwise" else arguments.others, name, folder)
        for name in names
    }
    for _ in range(arguments.rounds):
        for worker in workers.values():
            worker.turn()
    for worker in workers.values():
        worker.close()

    ours = workers["headwise"]
    print(
        f"{BATCH} prompts × {TOKENS} tokens, 3 heads up to layer {LAST_LAYER}, last row; {arguments.rounds} rounds"
    )
    print(
        f"{'':18}{'median ms':>10}{'bare ms':>9}{'× bare':>8}{'95 %':>14}{'peak MB':>9}{'over bare':>11}"
        f"{'same numbers':>14}"
    )
    for name, worker in workers.items():
        run, bare = ([turn[what] for turn in worker.times] for what in ("run", "bare"))
        ratios = [mine / other for mine, other in zip(run, bare, strict=True)]
        low, high = median_interval(ratios)
        same = "yes" if all(abs(worker.first[s] - ours.first[s]) < 0.5 for s in ("q", "k")) else "NO"
        times = f"{1000 * statistics.median(run):10.1f}{1000 * statistics.median(bare):9.1f}"
        times += f"{statistics.median(ratios):8.3f}{f'{low:.3f}–{high:.3f}':>14}"
        print(f"{name:18}{times}{worker.first['peak']:9.1f}{worker.first['over']:11.1f}{same:>14}")


if __name__ == "__main__":
    main()
