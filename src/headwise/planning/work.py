"""What each command does, as counted: passes of the model, calls of torch around them, and what a run does once.

A call is one of an explanation's (``MachinePace.call``); where Python or numpy does the work, the calls are those in
whose time it does. What each row grows with is read off the code and said beside it; the numbers are from runs on
models of two or three shapes, which docs/guides/plan.md compares with the plan. How much is found in a prompt decides
how many calls it takes, so a plan is for prompts like those, not a bound.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
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
    passes_per_head: float = 0.0
    """Bare passes that every head of the model adds per prompt."""
    first: int = 0
    """Prompts, the first ones, that are also looked at beforehand, to choose what is measured."""
    looks: float = 1.0
    """How many times the work of one they take then."""
    once: float = 0.0
    """Calls of a run, however many prompts it goes over."""
    once_per_head: float = 0.0
    """Calls that every head of the model adds to those."""
    deals: float = 0.0
    """Times per prompt that a head's attention in it is dealt anew."""
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

    def passes_in(self, sizes: ModelSizes) -> float:
        """Bare passes whose time those over one prompt take in a model of these sizes."""
        return self.passes + self.passes_per_head * sizes.layers * sizes.heads

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

DEALS = 9 * 200 * 2 / 3
"""Times per text that features without labels deal a head's attention anew."""

CONTRAST = 0.75
"""Passes per prompt of every contrast that is fitted."""

# Capture and proof once per prompt; the search goes over layers and, where more is found, over tokens. Once: the
# document and its page in the terminal.
EXPLAIN = CommandWork(
    "explain", 1, passes=2.1, calls=7300, calls_per_layer=30, calls_per_layer_token=4.3, once=10_000
)

# As explain, without the proof; the printed circuit is shorter.
TRACE = CommandWork(
    "trace", 1, passes=1.2, calls=2000, calls_per_layer=40, calls_per_layer_token=3.7, once=8000
)

# Texts of one length go through the model 16 at a time, some of them twice: the first 64 also give the levels. Each
# subject's cells are drawn beside those of its rotated control, by torch and numpy, whatever the model. A pass ends at
# the last layer that is asked about: half-way for one head in the middle.
NAME = CommandWork(
    "name", 1500, passes=0.5, calls=150, first=64, once=10_000, tokens=TEXT, together=16, held=0
)

# Two passes over each text, up to the head's layer, and its habits there. Once: 16 cells of every head are explained.
HEAD = CommandWork(
    "head", 120, passes=1.25, calls=0, calls_per_layer=200, once=35_000, tokens=TEXT, together=16
)

WORK: tuple[CommandWork, ...] = (
    # A capture with hooks in every layer, and a table.
    CommandWork("attention", 1, passes=0.85, calls=0, calls_per_layer=165, once=2000, held=0),
    EXPLAIN,
    TRACE,
    # Five edges one by one and together, and their controls: twelve passes, each with 20 draws of unused channels
    # packed into one row. Making the draws takes most, and does not grow with the model.
    CommandWork("intervene FILE", 1, passes=12.0, calls=48_000),
    # A circuit, and its five heaviest edges taken away beside 20 draws, in one packed pass.
    CommandWork("intervene (a task)", 40, passes=4.0, calls=21_000, calls_per_layer=1300, asked=True),
    # One capture per prompt, 16 sharing the calls of every layer, whose attention is compared; then ranks of all heads.
    CommandWork(
        "heads TASK",
        200,
        passes=0.8,
        calls=126,
        calls_per_layer=10,
        together=16,
        held=0,
        libraries=90 * 10**6,
        asked=True,
    ),
    # Each of three contrasts (CONTRAST) is fitted on every prompt, a third as many are scanned and a third tested.
    # Once: random subspaces of each kind.
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
    # A pass over each text for all heads and one for the chosen nine. In each of these the attention in two of three
    # texts, on which features are fitted, is dealt anew 200 times; the third text measures them. The calls stand for
    # the axes, which numpy fits 25 times per head to keys of all texts.
    CommandWork(
        "features",
        240,
        passes=2.0,
        calls=42_000,
        calls_per_layer=20,
        deals=DEALS,
        together=8,
        held=0,
        tokens=TEXT,
    ),
    # Sixteen prompts choose the head, and then the MLPs that are opened; the table of a cell goes over layers.
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
    # The search of trace, for all prompts of a pass.
    replace(
        TRACE,
        command="circuits",
        prompts=300,
        passes=1.0,
        calls_per_layer_token=8.0,
        once=0.0,
        held=32,
        libraries=50 * 10**6,
        asked=True,
        kept="circuits",
    ),
    # Two families, 40 prompts of each: taken apart, and twelve edited passes with the signals of either.
    CommandWork("families", 80, passes=14.0, calls=4000, calls_per_layer=100),
    # Each head that parks is traced in 24 prompts and proved in 6, where its signals leave in packed passes. The texts
    # that come with it are short, and what was written in each is kept until the end.
    CommandWork(
        "sinks",
        60,
        passes=1.0,
        passes_per_head=1 / 6,
        calls=1000,
        calls_per_head=115,
        tokens=18,
        together=8,
        held=60,
    ),
    # A circuit per prompt; the cells that it uses are split beside five nulls, of which some are made once.
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
    HEAD,
    # Passes through all layers, and what one head takes for each of them.
    replace(
        HEAD,
        command="head (all heads)",
        prompts=400,
        passes=2.1,
        calls=250,
        calls_per_layer=0.0,
        once=0.0,
        once_per_head=37_000,
        held=4,
    ),
    NAME,
    replace(NAME, command="name (all heads)", passes=1.0, calls_per_head=43),
    # Signals of the strongest edges: heads of most layers.
    replace(NAME, command="name (500 signals)", passes=0.8, calls=150 + 500 * SIGNAL, calls_per_layer=15),
    # Four texts share a pass, whose queries and keys are added to moments in every layer. Once: the corpus is read and
    # its repetitions are left out, and each head's roles are measured on random tokens.
    CommandWork(
        "calibrate",
        240,
        passes=1.25,
        calls=0,
        once=35_000,
        once_per_head=2500,
        tokens=TEXT,
        together=4,
        held=12,
        kept="moments",
    ),
)
