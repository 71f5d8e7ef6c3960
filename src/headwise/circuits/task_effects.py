"""Over a task: how far behaviour changes when the edges of each prompt's circuit go, and how little the stream moves.

Each prompt is traced, its heaviest edges are taken away together, and beside them as many unused channels of the same
components. Two claims, corrected together, with the wordings as units: the answer's lead changes by more than under the
controls; and so it does for every unit of length by which the stream was moved, so that it is not for moving it more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any

import torch

from headwise.circuits.interventions import Effect, Scope, choose_edges, intervene
from headwise.circuits.trace import trace
from headwise.claims import claims, sign_flips
from headwise.errors import HeadwiseError
from headwise.intervals import as_share, estimate
from headwise.progress import Progress
from headwise.randomness import keyed
from headwise.tasks.answers.make import make_answers
from headwise.tasks.answers.types import AnswerSet
from headwise.tasks.clusters import units_of
from headwise.types import Claim, Estimate

if TYPE_CHECKING:
    from headwise.model.model import Model

DRAWS = 9999
"""Sign flips where there are too many wordings to go through all of them."""
GROUP = "the two claims about the edges of this task's circuits"


@dataclass(frozen=True)
class PromptEffect:
    """One prompt without the heaviest edges of its circuit."""

    prompt: str
    """The prompt."""
    edges: int
    """How many edges went."""
    lead: float
    """The answer's lead, untouched."""
    change: float
    """What became of the lead without the edges: the difference."""
    control_change: float
    """Mean size of this difference in the controls."""
    attention_change: float
    """Change of the attention that the edges cause, mean over heads."""
    control_attention_change: float
    """The same in the controls."""
    flipped: bool
    """Whether the answer is no longer ahead, having been ahead."""
    control_flipped: float
    """The share of controls in which that is so."""
    moved: float
    """Length of the change of the stream over that of the stream."""
    control_moved: float
    """The same, mean over the controls."""

    @classmethod
    def of(cls, prompt: str, effect: Effect) -> PromptEffect:
        """What the intervention did in this prompt."""
        clean = effect.clean.lead
        flips = [clean > 0 >= one.lead for one in effect.controls]
        return cls(
            prompt,
            len(effect.edges),
            clean,
            effect.logit_change,
            effect.control_logit_change,
            effect.attention_change,
            effect.control_attention_change,
            clean > 0 >= effect.edited.lead,
            mean(flips),
            effect.moved,
            mean(effect.control_moved),
        )

    @property
    def share(self) -> float:
        """The size of the change over that of the lead."""
        return abs(self.change) / max(abs(self.lead), 1e-9)

    @property
    def control_share(self) -> float:
        """The same in the controls."""
        return self.control_change / max(abs(self.lead), 1e-9)


@dataclass(frozen=True)
class TaskEffects:
    """A task's prompts, each without the heaviest edges of its circuit."""

    model: str
    """The model's name."""
    task: str
    """The task's name."""
    scope: Scope
    """``local`` or ``global``."""
    top: int
    """How many edges went per prompt, at most."""
    without: int
    """Prompts whose circuit has no edge between components: nothing could be taken away."""
    unit: str
    """What the intervals and tests count: wordings, or prompts where the task has too few wordings."""
    prompts: tuple[PromptEffect, ...]
    """One entry per prompt."""
    estimates: dict[str, Estimate]
    """``change`` (size of the lead's change), ``share`` (of the lead), ``attention_change``, ``flipped`` and ``moved``,
    each also with ``control_`` before it."""
    claims: dict[str, Claim]
    """``behaviour``: the lead changes by more than in the controls; ``per_length``: also per unit of movement."""

    def to_json(self) -> dict[str, Any]:
        """Everything as plain values."""
        return {
            "model": self.model,
            "task": self.task,
            "scope": self.scope,
            "top": self.top,
            "without_edges": self.without,
            "unit": self.unit,
            "estimates": {name: one.to_json() for name, one in self.estimates.items()},
            "claims": {name: one.to_json() for name, one in self.claims.items()},
            "prompts": [vars(one) | {"share": one.share} for one in self.prompts],
        }


def intervene_task(
    model: Model,
    task: str | Path | AnswerSet,
    *,
    prompts: int = 40,
    top: int = 5,
    scope: Scope = "global",
    draws: int = 20,
    seed: int = 0,
    progress: Progress | None = None,
) -> TaskEffects:
    """Take the heaviest edges of every prompt's circuit away, together, and see answer, attention and stream.

    Parameters
    ----------
    model:
        A loaded model.
    task:
        ``ioi``, ``greater-than``, ``pronouns``, ``facts``, the path of a JSONL file, or an answer set.
    prompts:
        How many prompts are made (of a file: taken).
    top:
        How many edges go in each prompt, the heaviest first.
    scope:
        ``global``: the signals leave the residual stream; ``local``: only the heads that read them miss them.
    draws:
        Controls per prompt.
    seed:
        The seed of everything random.
    progress:
        Told the stage, how many prompts are done, and how many there are.

    Returns
    -------
    TaskEffects
        Every prompt, means with intervals over wordings, and the two claims.
    """
    if draws < 1:
        raise HeadwiseError(f"draws={draws}: give at least 1, for without controls a change says nothing")
    answers = make_answers(task, model.tokenizer, prompts=prompts, seed=seed)
    found: list[PromptEffect] = []
    labels = []
    for number, one in enumerate(answers.prompts):
        if progress is not None:
            progress("intervening", number, len(answers))
        circuit = trace(model, one.prompt, answer=one.answer_id, wrong=one.wrong_id)
        if not any(edge.channels for edge in circuit.edges):
            continue
        chosen = choose_edges(circuit, top=top)
        (effect,) = intervene(model, circuit, [chosen], scope=scope, draws=draws, seed=seed)
        found.append(PromptEffect.of(one.prompt, effect))
        labels.append(one.labels)
    if progress is not None:
        progress("intervening", len(answers), len(answers))
    if not found:
        raise HeadwiseError(
            f"none of the {len(answers)} prompts of {answers.name!r} has a circuit with edges: give more prompts"
        )
    clusters = units_of(labels)
    estimates, tested = _judged(found, clusters.which, seed, clusters.name)
    without = len(answers) - len(found)
    return TaskEffects(
        model.name, answers.name, scope, top, without, clusters.name, tuple(found), estimates, tested
    )


def _judged(
    found: Sequence[PromptEffect], which: torch.Tensor, seed: int, unit: str = "prompt"
) -> tuple[dict[str, Estimate], dict[str, Claim]]:
    names = ("change", "share", "attention_change", "flipped", "moved")
    columns = {
        f"{kind}{name}": torch.tensor([float(getattr(one, f"{kind}{name}")) for one in found]).double()
        for name in names
        for kind in ("", "control_")
    }
    columns["change"] = columns["change"].abs()
    estimates = {
        name: estimate(values, seed, "task effects", name, clusters=which) for name, values in columns.items()
    }
    estimates |= {name: as_share(estimates[name]) for name in ("flipped", "control_flipped")}
    least = 1e-12
    per_length = columns["change"] / columns["moved"].clamp_min(least)
    control_per_length = columns["control_change"] / columns["control_moved"].clamp_min(least)
    # Logarithms: a ratio and its inverse are as far from 1, which a flip of the sign takes them for.
    gains = {
        "behaviour": (columns["change"] + least).log() - (columns["control_change"] + least).log(),
        "per_length": (per_length + least).log() - (control_per_length + least).log(),
    }
    tests = [
        sign_flips(gain, which, draws=DRAWS, generator=keyed(seed, "task effects", name))
        for name, gain in gains.items()
    ]
    made = claims(
        [p for p, _ in tests],
        null=f"edges and controls exchanged by {unit}",
        draws=min(n for _, n in tests),
        group=GROUP,
    )
    return estimates, dict(zip(gains, made, strict=True))
