"""Half precision on processors that announce instructions which they refuse.

Some virtual machines announce AMX or AVX512-BF16 and end a process by a signal when it uses them: a plain product in
bfloat16 is enough. No process can try that on itself, so a child does, once per machine: the outcome is remembered in
the cache by processor and version of torch. Where the child dies, settings that keep torch off those instructions are
tried in turn. They count only if they are set before torch is loaded: the command line starts itself again with them,
Python code is told what to set.

Nothing here imports torch.
"""

from __future__ import annotations

import hashlib
import os
import platform
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

from headwise import files, jsons
from headwise.errors import HeadwiseError, NeedsSetting
from headwise.model.loading.store import cache_folder

HALVES = ("bfloat16", "float16")
RESTARTED = "HEADWISE_RESTARTED"
"""Set in a command that has started itself again, so that it does so once."""

ISA, CAPABILITY = "ONEDNN_MAX_CPU_ISA", "ATEN_CPU_CAPABILITY"
SETTINGS: tuple[dict[str, str], ...] = (
    {},
    {ISA: "AVX512_CORE_BF16"},
    {ISA: "AVX512_CORE"},
    {ISA: "AVX2"},
    {ISA: "AVX2", CAPABILITY: "avx2"},
)
"""What is tried, the fastest first."""

# The products of a model: a linear layer (one row, and many), heads side by side, and torch's own attention.
PROBE = """
import resource, sys
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
import torch
kind = getattr(torch, sys.argv[1])
torch.manual_seed(0)
with torch.no_grad():
    layer = torch.nn.Linear(64, 96).to(kind)
    for rows in (1, 7, 64):
        layer(torch.randn(2, rows, 64).to(kind))
    q = torch.randn(2, 4, 64, 64).to(kind)
    q @ q.mT
    torch.nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True)
"""
PATIENCE = 180.0
"""Seconds for a child that loads torch and multiplies small matrices, on a machine with much else to do."""

# x86's and ARM's names for what may be announced in vain; float32 uses none of them.
_ANNOUNCED = ("amx_", "avx512_bf16", "avx512_fp16", "avx10", "avx_ne_convert", "bf16", "svebf16", "sme")
_OWN_FAULT = frozenset(
    {signal.SIGILL, signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGTRAP, signal.SIGABRT}
)
_CPUINFO = Path("/proc/cpuinfo")

HalfOutcome = Literal["works", "dies"]
HalfProbe = Callable[[str, Mapping[str, str]], HalfOutcome]


def refuse_if_deadly(dtype: str, device: str = "cpu") -> None:
    """Raise one line if a product in ``dtype`` would end this process by a signal; it says what to set.

    Costs nothing for single and double precision, on a GPU, and where no such instructions are announced.
    """
    short = dtype.removeprefix("torch.")
    if short not in HALVES or not device.startswith("cpu"):
        return
    if variables := needed(short):
        text = " ".join(f"{name}={value}" for name, value in variables.items())
        raise NeedsSetting(
            f"this processor announces instructions for {short} that it refuses, which would end Python: set {text} "
            "before Python starts, or use float32",
            variables,
        )


def needed(dtype: str) -> dict[str, str]:
    """The variables that a process must be started with for ``dtype`` to work here; none on a sound processor."""
    if dtype not in HALVES or not announced():
        return {}
    return _needed(dtype, probe, _in_force())


@cache  # per process; the memory on disk is for the next ones
def _needed(dtype: str, ask: HalfProbe, in_force: tuple[tuple[str, str], ...]) -> dict[str, str]:
    memory = _remembered()
    for variables in SETTINGS:
        setting = dict(in_force) | variables
        key = " ".join([dtype, *(f"{name}={value}" for name, value in sorted(setting.items()))])
        if key not in memory:
            memory[key] = ask(dtype, setting)
            _remember(memory)
        if memory[key] == "works":
            return variables
    raise HeadwiseError(f"{dtype} cannot be computed on this processor, whatever is set: use float32")


def probe(dtype: str, variables: Mapping[str, str]) -> HalfOutcome:
    """What becomes of a child that multiplies in ``dtype``, started with ``variables`` set."""
    try:
        done = subprocess.run(
            # -P: a torch.py in the working folder is not torch
            [sys.executable, "-P", "-c", PROBE, dtype],
            env={**os.environ, **variables},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=PATIENCE,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise HeadwiseError(
            f"it cannot be found out whether {dtype} works on this processor ({error}): try again, or use float32"
        ) from None
    if done.returncode >= 0:
        return "works"  # or raised an error that Python can say: no signal
    if -done.returncode in _OWN_FAULT:
        return "dies"
    raise HeadwiseError(
        f"it cannot be found out whether {dtype} works on this processor (the trial was ended by signal "
        f"{-done.returncode}): try again, or use float32"
    )


def announced() -> bool:
    """Whether the processor says that it has instructions for half precision."""
    return any(flag.startswith(_ANNOUNCED) for flag in _processor().get("flags", "").split())


@cache
def _processor() -> dict[str, str]:
    """What the system says of its first processor; nothing where it has no such file (macOS runs what it announces)."""
    try:
        first = _CPUINFO.read_text(encoding="utf-8", errors="replace").split("\n\n")[0]
    except OSError:
        return {}
    rows = (line.partition(":") for line in first.splitlines())
    said = {name.strip(): value.strip() for name, _, value in rows}
    said.setdefault("flags", said.pop("Features", ""))  # ARM's word
    # The clock changes from one moment to the next.
    return {name: value for name, value in said.items() if name not in ("cpu MHz", "bogomips", "BogoMIPS")}


def _in_force() -> tuple[tuple[str, str], ...]:
    return tuple((name, os.environ[name]) for name in (ISA, CAPABILITY) if name in os.environ)


def _memory() -> Path:
    """One file per processor, system and torch: what one of them refuses, another may run."""
    try:
        torch = version("torch")
    except PackageNotFoundError:
        torch = "unknown"
    said = repr((sorted(_processor().items()), platform.release(), torch, PROBE))
    return cache_folder() / "processors" / (hashlib.sha256(said.encode()).hexdigest()[:16] + ".json")


def _remembered() -> dict[str, str]:
    try:
        found = jsons.parse(_memory().read_bytes())
    except (OSError, jsons.NotJson):
        return {}
    if not isinstance(found, dict):
        return {}
    return {key: value for key, value in found.items() if value in ("works", "dies")}


def _remember(memory: dict[str, str]) -> None:
    with suppress(
        HeadwiseError
    ):  # only a memory: where nothing can be written, the next process finds out anew
        files.write_json(_memory(), memory)


def restart(variables: Mapping[str, str]) -> None:
    """Start this very command again with ``variables`` set; returns only if that was done before."""
    if os.environ.get(RESTARTED):
        return
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(sys.executable, sys.orig_argv, {**os.environ, **variables, RESTARTED: "1"})
