"""What a study will take before it is begun: time, memory and disk, from a model's configuration and a short probe."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from headwise.errors import HeadwiseError
from headwise.model.sizes import ModelSizes
from headwise.scale.disk import size_text
from headwise.scale.probe import MachinePace

BARE = 450 * 10**6
"""Bytes of a process that has imported torch, transformers and headwise, and has loaded nothing."""
PASSES = {"attention": 1.0, "explain": 2.5, "trace": 2.2, "circuits": 2.2, "calibrate": 1.0}
"""Bare passes that a command takes per prompt, as measured on the default model (see the README's measurements)."""
CALIBRATED = (240, 64)
"""Texts that ``headwise calibrate`` reads, and tokens of each."""
BATCH = 16
"""Prompts that ``headwise circuits`` holds at a time."""


@dataclass(frozen=True)
class CommandCost:
    """What one command takes."""

    command: str
    """The command."""
    prompts: int
    """Prompts or texts that it goes over."""
    seconds: float
    """Time of the work, loading apart."""
    memory: int
    """Bytes at its peak, the weights included."""
    disk: int
    """Bytes that it writes."""


@dataclass(frozen=True)
class WorkPlan:
    """What the commands take for one model."""

    sizes: ModelSizes
    """The model."""
    dtype: str
    """The precision of its weights."""
    tokens: int
    """Tokens of a prompt."""
    available: int
    """Bytes of memory that there are."""
    costs: tuple[CommandCost, ...]
    """One command each."""

    def to_json(self) -> dict[str, Any]:
        return {
            "model": self.sizes.name,
            "sizes": asdict(self.sizes),
            "dtype": self.dtype,
            "weights": self.sizes.bytes_in(self.dtype),
            "tokens": self.tokens,
            "available": self.available,
            "commands": [asdict(cost) for cost in self.costs],
        }

    def refuse_too_large(self) -> None:
        """One line if not even the smallest command fits into memory."""
        least = min(self.costs, key=lambda cost: cost.memory)
        if least.memory > self.available:
            raise HeadwiseError(
                f"{self.sizes.name!r} needs about {size_text(least.memory)} of memory in {self.dtype}, and there are "
                f"{size_text(self.available)}: take a smaller precision or model, or a machine with more"
            )


def plan_work(
    sizes: ModelSizes, pace: MachinePace, *, tokens: int, prompts: int, available: int, dtype: str = "float32"
) -> WorkPlan:
    """What each command takes for prompts of so many tokens."""
    if tokens < 1 or prompts < 1:
        raise HeadwiseError(
            f"tokens={tokens} and prompts={prompts} leave nothing to plan: give 1 or more of each"
        )
    bare = pace.bare(sizes, tokens)
    costs = []
    for command, passes in PASSES.items():
        count = {"circuits": prompts, "calibrate": CALIBRATED[0]}.get(command, 1)
        length = CALIBRATED[1] if command == "calibrate" else tokens
        each = pace.bare(sizes, length) if command == "calibrate" else bare
        costs.append(
            CommandCost(
                command=command,
                prompts=count,
                seconds=count * passes * each,
                memory=BARE + sizes.bytes_in(dtype) + _held(sizes, command, length),
                disk=_written(sizes, command, count, length),
            )
        )
    return WorkPlan(sizes, dtype, tokens, available, tuple(costs))


def _held(sizes: ModelSizes, command: str, tokens: int) -> int:
    """Bytes beside the weights: what every head and MLP wrote at every token, and the scores of the answer."""
    together = BATCH if command in ("circuits", "calibrate") else 1
    scores = 4 * tokens * sizes.vocabulary
    writes = 4 * tokens * sizes.layers * (sizes.heads + 1) * sizes.d_model
    return together * (scores + (0 if command == "attention" else writes))


def _written(sizes: ModelSizes, command: str, prompts: int, tokens: int) -> int:
    if command == "circuits":
        return round(prompts * (800 + 1.15 * tokens * sizes.layers * sizes.heads))
    # Moments of queries and of keys, in float32.
    return 8 * sizes.layers * sizes.heads * sizes.d_head**2 if command == "calibrate" else 0
