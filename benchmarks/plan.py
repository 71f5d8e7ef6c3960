"""`headwise plan` against what happens: time and memory of an explanation and a circuit, on three sizes of model.

    .venv/bin/python benchmarks/plan.py [TOKENS]

The small trained model that the package carries, a random one of 25 million parameters, and the default model. Every
command runs in a process of its own with one thread: processor time (the median of 5) and the peak of its memory.
Goals: time within 30 %, memory within 15 %.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RUNS = 5


def main(tokens: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name in (_small(), _middle(Path(folder)), "default"):
            for command in ("explain", "trace"):
                environment = os.environ | {"OMP_NUM_THREADS": "1"}
                asked = [sys.executable, __file__, "one", name, command, str(tokens)]
                done = subprocess.run(asked, env=environment, check=True, capture_output=True, text=True)
                found = json.loads(done.stdout.splitlines()[-1])
                print(
                    f"{Path(name).name:10} {command:8} T = {tokens}: "
                    f"{found['seconds']:7.3f} s, planned {found['planned_seconds']:7.3f} s "
                    f"({found['planned_seconds'] / found['seconds'] - 1:+.0%}); bare pass {found['bare']:.3f} s, "
                    f"planned {found['planned_bare']:.3f} s; {found['memory'] / 1e6:5.0f} MB, "
                    f"planned {found['planned_memory'] / 1e6:5.0f} MB "
                    f"({found['planned_memory'] / found['memory'] - 1:+.0%})",
                    flush=True,
                )


def _small() -> str:
    from headwise.toy.small_lm import DATA

    return str(DATA)


def _middle(folder: Path) -> str:
    import torch
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    sizes = {"hidden_size": 384, "intermediate_size": 1024, "num_hidden_layers": 12, "num_attention_heads": 6}
    LlamaForCausalLM(LlamaConfig(vocab_size=8000, **sizes)).save_pretrained(folder / "random")
    AutoTokenizer.from_pretrained(_small()).save_pretrained(folder / "random")
    return str(folder / "random")


def one(name: str, command: str, tokens: int) -> None:
    """Measure one command in this process, and say what was planned."""
    import torch

    import headwise
    from headwise.model.sizes import sizes_of
    from headwise.scale.plan import plan_work
    from headwise.scale.probe import measured_pace

    torch.set_num_threads(1)
    given = None if name == "default" else name
    model = headwise.load(given)
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(5, min(model.vocabulary, 70), (tokens,), generator=generator).tolist()
    call = {"explain": lambda: headwise.explain(model, ids), "trace": lambda: headwise.trace(model, ids)}[
        command
    ]
    call()
    taken, bare = [], []
    for _ in range(RUNS):
        start = time.process_time()
        model.hf(torch.tensor([ids]), use_cache=False)
        middle = time.process_time()
        call()
        bare.append(middle - start)
        taken.append(time.process_time() - middle)
    status = Path("/proc/self/status").read_text()
    peak = int(status.split("VmHWM:")[1].split()[0]) * 1024
    sizes = sizes_of(given)
    pace = measured_pace(sizes, tokens)
    planned = plan_work(sizes, pace, tokens=tokens, prompts=1, available=10**15)
    cost = next(cost for cost in planned.costs if cost.command == command)
    found = {
        "seconds": statistics.median(taken),
        "planned_seconds": cost.seconds,
        "bare": statistics.median(bare),
        "planned_bare": pace.bare(sizes, tokens),
        "memory": peak,
        "planned_memory": cost.memory,
    }
    print(json.dumps(found))


if __name__ == "__main__":
    if sys.argv[1:2] == ["one"]:
        one(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 48)
