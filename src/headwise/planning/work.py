"""What each command does, as counted: passes of the model, and calls of torch around them.

Both were counted on the default model and on the small one that the package carries, with ordinary prompts, and some on
one of them alone (docs/guides/plan.md has what was compared with a run). How much is found in a prompt decides how many
calls it takes, so a plan is for prompts like those, not a bound.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from headwise.model.sizes import ModelSizes


@dataclass(frozen=True)
class CommandWork:
    """The work of one command per prompt."""

    command: str
    """The command, as it is given."""
    prompts: int
    """Prompts or texts that it goes over unless told otherwise."""
    passes: float
    """Bare passes whose time its own passes and products take, per prompt."""
    calls: float
    """Calls of torch around them per prompt, whatever the model."""
    calls_per_layer: float = 0.0
    """Calls that every layer adds to them."""
    calls_per_layer_token: float = 0.0
    """Calls that every token of every layer adds, where more is found in longer prompts."""
    calls_per_head: float = 0.0
    """Calls that every head of the model adds, for commands that go over all of them."""
    first: int = 0
    """Prompts, the first ones, that are also looked at beforehand, to choose what is measured."""
    looks: float = 1.0
    """How many times the work of one they take then."""
    once: float = 0.0
    """Calls of a run, however many prompts it goes over."""
    once_per_head: float = 0.0
    """Calls that every head of the model adds to those."""
    tokens: int | None = None
    """Tokens of each text; None: as the plan says."""
    together: int = 1
    """Prompts that share a pass."""
    held: int = 1
    """Prompts of which what every component wrote is held at a time."""
    libraries: int = 0
    """Bytes of what it imports beyond any command."""
    asked: bool = False
    """Whether the plan says how many prompts there are."""
    kept: Literal["nothing", "circuits", "moments"] = "nothing"
    """What it keeps on disk that grows with the model."""

    def calls_in(self, sizes: ModelSizes, tokens: int) -> float:
        """Calls around the passes over one prompt in a model of these sizes."""
        each = self.calls_per_layer + self.calls_per_layer_token * tokens + self.calls_per_head * sizes.heads
        return self.calls + sizes.layers * each

    def counted(self, prompts: int) -> float:
        """Prompts whose work it does when it goes over so many."""
        return prompts + self.looks * min(prompts, self.first)

    def calls_once(self, sizes: ModelSizes) -> float:
        """Calls of a run in a model of these sizes, its prompts apart."""
        return self.once + self.once_per_head * sizes.layers * sizes.heads


TEXT = 64
"""Tokens of each text that studies of ordinary text read."""

SIGNAL = 55
"""Calls per text that each signal to be named adds."""

CONTRAST = 0.75
"""Passes per prompt of every contrast that is fitted."""

EXPLAIN = CommandWork("explain", 1, passes=2.1, calls=7300, calls_per_layer=30, calls_per_layer_token=4.3)

TRACE = CommandWork("trace", 1, passes=1.2, calls=2000, calls_per_layer=40, calls_per_layer_token=3.7)

WORK: tuple[CommandWork, ...] = (
    CommandWork("attention", 1, passes=0.85, calls=0, calls_per_layer=165, held=0),
    EXPLAIN,
    TRACE,
    # Five edges one by one and together, each beside 20 draws of unused channels.
    CommandWork("intervene FILE", 1, passes=132.0, calls=2000, calls_per_layer=60, together=21),
    # A circuit, and its five heaviest edges taken away beside 20 draws, in one packed pass.
    CommandWork("intervene (a task)", 40, passes=4.0, calls=21_000, calls_per_layer=1300, asked=True),
    # One capture per prompt, whose attention is compared.
    CommandWork(
        "heads TASK",
        200,
        passes=0.8,
        calls=0,
        calls_per_layer=50,
        together=16,
        held=0,
        libraries=90 * 10**6,
        asked=True,
    ),
    # Each of three contrasts is fitted on every prompt, a third as many are scanned and a third tested.
    CommandWork(
        "features TASK",
        600,
        passes=2.9,
        calls=400,
        calls_per_layer=20,
        once=80_000,
        together=16,
        held=0,
        libraries=140 * 10**6,
        asked=True,
    ),
    # Moments of all heads, then the rows of the chosen ones, half of the texts for finding and half for testing.
    CommandWork("features", 240, passes=2.0, calls=400, calls_per_layer=20, together=16, held=0, tokens=TEXT),
    # Sixteen prompts choose the head, and then the MLPs that are opened.
    CommandWork(
        "explain (a task)",
        100,
        passes=0.85,
        calls=1000,
        calls_per_layer=300,
        first=16,
        looks=1.25,
        held=16,
        asked=True,
    ),
    CommandWork(
        "circuits",
        300,
        passes=1.0,
        calls=TRACE.calls,
        calls_per_layer=TRACE.calls_per_layer,
        calls_per_layer_token=8.0,
        held=32,
        libraries=50 * 10**6,
        asked=True,
        kept="circuits",
    ),
    # Two families, 40 prompts of each: taken apart, and twelve edited passes with the signals of either.
    CommandWork("families", 80, passes=14.0, calls=4000, calls_per_layer=100),
    # The texts that come with it are short, and what was written in each is kept until the end.
    CommandWork("sinks", 60, passes=45.0, calls=3000, calls_per_layer=1000, tokens=18, together=8, held=60),
    CommandWork(
        "sparsity",
        60,
        passes=1.4,
        calls=2000,
        calls_per_layer=220,
        calls_per_layer_token=8.0,
        once=120_000,
        held=16,
        asked=True,
    ),
    # A capture of every text, and 16 cells explained per head.
    CommandWork("head", 120, passes=1.4, calls=1800, calls_per_layer=10, tokens=TEXT, together=16),
    CommandWork(
        "head (all heads)", 400, passes=2.0, calls=1000, calls_per_head=150, tokens=TEXT, together=16, held=4
    ),
    # Texts that give the levels, then all of them; each subject's cells beside those of its rotated control.
    CommandWork(
        "name",
        1500,
        passes=0.8,
        calls=150,
        calls_per_layer=15,
        first=64,
        once=10_000,
        tokens=TEXT,
        together=16,
        held=0,
    ),
    CommandWork(
        "name (all heads)",
        1500,
        passes=0.8,
        calls=150,
        calls_per_layer=15,
        calls_per_head=50,
        first=64,
        once=10_000,
        tokens=TEXT,
        together=16,
        held=0,
    ),
    CommandWork(
        "name (500 signals)",
        1500,
        passes=0.8,
        calls=150 + 500 * SIGNAL,
        calls_per_layer=15,
        first=64,
        once=10_000,
        tokens=TEXT,
        together=16,
        held=0,
    ),
    # The passes, and then the channels of all heads in halves and kinds of the texts.
    CommandWork(
        "calibrate",
        240,
        passes=1.25,
        calls=0,
        calls_per_layer=5,
        tokens=TEXT,
        together=16,
        held=12,
        kept="moments",
    ),
)
