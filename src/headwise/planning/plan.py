"""What every command will take before one is begun: time, memory and disk, from a configuration and a short probe."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from headwise.errors import HeadwiseError
from headwise.model.sizes import ModelSizes
from headwise.planning.probe import MachinePace
from headwise.planning.work import WORK, CommandWork
from headwise.scale.disk import size_text
from headwise.survey.collect import BYTES_PER_HEAD_TOKEN, BYTES_PER_PROMPT

PROCESS = 480 * 10**6
"""Bytes of a process that has imported torch, transformers and headwise, and has loaded nothing."""


@dataclass(frozen=True)
class CommandCost:
    """What one command takes."""

    command: str
    """The command."""
    prompts: int
    """Prompts or texts that it goes over."""
    tokens: int
    """Tokens of each."""
    passes: float
    """Bare passes over one of them whose time it takes, small calls apart."""
    seconds: float
    """Time of the work, loading apart."""
    memory: int
    """Bytes at its peak, the weights included."""
    disk: int
    """Bytes that it writes."""
    fits: bool
    """Whether there is so much memory."""


@dataclass(frozen=True)
class WorkPlan:
    """What the commands take for one model."""

    sizes: ModelSizes
    """The model."""
    dtype: str
    """The precision of its weights."""
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
            "available": self.available,
            "commands": [asdict(cost) for cost in self.costs],
        }

    def refuse_too_large(self) -> None:
        """One line if not even the smallest command fits into memory."""
        least = min(self.costs, key=lambda cost: cost.memory)
        if not least.fits:
            raise HeadwiseError(
                f"{self.sizes.name!r} needs about {size_text(least.memory)} of memory in {self.dtype}, and there are "
                f"{size_text(self.available)}: take a smaller precision or model, spread it over several devices, or "
                "use a machine with more"
            )


def plan_work(
    sizes: ModelSizes,
    pace: MachinePace,
    *,
    available: int,
    tokens: int = 32,
    prompts: int | None = None,
    dtype: str = "float32",
    work: Sequence[CommandWork] = WORK,
) -> WorkPlan:
    """What each command takes.

    ``tokens`` is the length of a prompt, and ``prompts`` how many each study goes over (None: as many as it does by
    itself); commands that read texts of their own read as many, and as long ones, as they do by themselves.
    """
    for name, value in (("tokens", tokens), ("prompts", prompts)):
        if value is not None and value < 1:
            raise HeadwiseError(f"{name}={value} leaves nothing to plan: give 1 or more")
    costs = []
    for one in work:
        count = prompts if one.asked and prompts is not None else one.prompts
        costs.append(
            command_cost(sizes, pace, one, count, one.tokens or tokens, dtype=dtype, available=available)
        )
    return WorkPlan(sizes, dtype, available, tuple(costs))


def command_cost(
    sizes: ModelSizes,
    pace: MachinePace,
    one: CommandWork,
    count: int,
    length: int,
    *,
    available: int,
    dtype: str = "float32",
) -> CommandCost:
    """What one command takes for so many prompts of this length."""
    together = min(count, one.together)
    each = one.passes_in(sizes) * pace.bare(sizes, length, together) + one.calls_in(sizes, length) * pace.call
    each += one.deals * pace.deal
    memory = PROCESS + one.libraries
    memory += sizes.bytes_in(dtype) + held_bytes(sizes, length, min(count, one.held), together)
    return CommandCost(
        command=one.command,
        prompts=count,
        tokens=length,
        passes=one.passes_in(sizes),
        seconds=one.counted(count) * each + one.calls_once(sizes) * pace.call,
        memory=memory,
        disk=_written(sizes, one, count, length),
        fits=memory <= available,
    )


class Widths(Protocol):
    """What decides how much a prompt takes."""

    @property
    def layers(self) -> int: ...
    @property
    def heads(self) -> int: ...
    @property
    def d_model(self) -> int: ...
    @property
    def vocabulary(self) -> int: ...


def held_bytes(sizes: Widths, tokens: int, held: int = 1, together: int = 1) -> int:
    """Bytes beside the weights: what every head and MLP wrote at every token, and the scores of the answer."""
    writes = 4 * tokens * sizes.layers * (sizes.heads + 1) * sizes.d_model
    scores = 4 * tokens * sizes.vocabulary
    return held * writes + max(held, together) * scores


def _written(sizes: ModelSizes, work: CommandWork, prompts: int, tokens: int) -> int:
    heads = sizes.layers * sizes.heads
    if work.kept == "circuits":
        return round(prompts * (BYTES_PER_PROMPT + BYTES_PER_HEAD_TOKEN * tokens * heads))
    # Moments of queries and of keys, in float32.
    return 8 * heads * sizes.d_head**2 if work.kept == "moments" else 0
