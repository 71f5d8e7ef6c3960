"""``headwise.find_sparsity``: how few channels carry a task's attention, beside nulls without features."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from headwise.errors import HeadwiseError
from headwise.progress import Progress
from headwise.scale.cluster import WorkSharing
from headwise.scale.engines import engine_for
from headwise.scale.stages import Stages
from headwise.scale.study import run_study
from headwise.scale.work import cut
from headwise.sparsity.cells import PART, PromptCell, split_cells
from headwise.sparsity.result import KIND, SparsityResult
from headwise.sparsity.summary import measure, summaries, summary
from headwise.sparsity.use import UseJob
from headwise.tasks.answers.make import make_answers
from headwise.tasks.answers.types import AnswerPrompt, AnswerSet
from headwise.tasks.clusters import units_of
from headwise.types import Head

if TYPE_CHECKING:
    from headwise.model.model import Model

ANSWER_HEADS = 6
"""Heads chosen because they carry the answer most often."""
HEADS = 12
"""Heads chosen in all; the others are the most frequent in the circuits."""


def find_sparsity(
    model: Model,
    task: str | Path | AnswerSet,
    *,
    heads: str | Sequence[Head | str] = "auto",
    prompts: int = 60,
    rotations: int = 8,
    out: str | Path | None = None,
    workers: WorkSharing = 1,
    seed: int = 0,
    progress: Progress | None = None,
) -> SparsityResult:
    """Trace a task's prompts and split the attention that their circuits use over channels.

    Parameters
    ----------
    model:
        A loaded model.
    task:
        ``ioi``, ``greater-than``, ``pronouns``, ``facts``, the path of a JSONL file, or an answer set.
    heads:
        ``auto`` takes the heads that carry the answer most often and the most frequent others of the circuits; else a
        list such as ``L18H6,L20H3``.
    prompts:
        How many are traced.
    rotations:
        Random rotations that the control is averaged over.
    out:
        A folder that keeps the study; one that was interrupted is continued.
    workers:
        Processes that share the work; above 1, each loads the model anew (in a script, call this under
        ``if __name__ == "__main__":``). Or a :class:`~headwise.scale.cluster.RayCluster`. What is found does not depend
        on it.
    seed:
        The seed of everything random.
    progress:
        Told the stage, how many of its prompts are done, and how many there are.
    """
    if rotations < 1:
        raise HeadwiseError(f"rotations={rotations} leave nothing to compare with: give 1 or more")
    engine = engine_for(model, workers)
    wanted = None if heads == "auto" else model.heads_named(heads)
    made = make_answers(task, model.tokenizer, prompts=prompts, seed=seed)
    chosen = made.prompts[:prompts]
    config = {
        "model": model.name,
        "weight_hash": model.weight_hash,
        "task": made.name,
        "sha256": made.digest,
        "dtype": str(model.dtype).removeprefix("torch."),
        "part": PART,
        "prompts": len(chosen),
        "rotations": rotations,
        "seed": seed,
        "heads": "auto" if wanted is None else [str(h) for h in wanted],
    }
    return run_study(
        KIND,
        config,
        lambda run: _measured(model, made, chosen, wanted, config, run),
        SparsityResult.load,
        engine=engine,
        out=out,
        progress=progress,
    )


def _measured(
    model: Model,
    made: AnswerSet,
    chosen: Sequence[AnswerPrompt],
    wanted: list[Head] | None,
    config: dict[str, Any],
    run: Stages,
) -> SparsityResult:
    """What the circuits use, split over channels."""
    uses = [use for part in run("circuits", UseJob(), cut(chosen, PART)) for use in part]
    rotations, seed = config["rotations"], config["seed"]
    token_ids = model.token_ids([p.prompt for p in chosen])
    used = sorted(PromptCell(prompt, cell) for prompt, use in enumerate(uses) for cell in use.firings)
    in_answer = Counter(head for use in uses for head in use.answer_heads)
    in_circuit = Counter(head for head, prompt in {(one.cell.head, one.prompt) for one in used})
    traced = sum(use.has_edges for use in uses)
    if not used:
        raise HeadwiseError(
            f"none of the {len(chosen)} prompts of {made.name!r} has a circuit in {model.name}: the model does not "
            "prefer the right answers, or no head carries them"
        )
    if wanted is None:
        wanted = choose(in_answer, in_circuit)
    missing = [head for head in wanted if not in_circuit[head]]
    if missing:
        often = ", ".join(str(head) for head, _ in _most(in_circuit)[:4])
        raise HeadwiseError(
            f"{missing[0]} is in none of the {traced} circuits of {made.name!r}: there is no cell of it to look at "
            f"(most often: {often})"
        )
    cells = [one for one in used if one.cell.head in wanted]
    n_prompts = len({one.prompt for one in cells})
    split = split_cells(model, token_ids, cells, rotations=rotations, seed=seed, work=run)
    shared = units_of([p.labels for p in chosen])
    measured = [measure(model, split[head], seed) for head in wanted]
    everything = [split[head] for head in wanted]
    wrong = sum(use.is_wrong for use in uses)
    edges = [n for use in uses for n in use.channels]
    carried = sum(any(head in wanted for head in use.answer_heads) for use in uses)
    return SparsityResult(
        model=model.name,
        weight_hash=model.weight_hash,
        task=made.name,
        config=config,
        prompts=len(chosen),
        wrong=wrong,
        empty=len(chosen) - traced - wrong,
        clusters=shared.name,
        heads=summaries(measured, in_answer, in_circuit, shared.which, seed),
        overall=summary(None, measured, carried, n_prompts, shared.which, seed),
        curve=tuple(reconstruction(torch.cat([s.relative for s in everything]))),
        control_curve=tuple(reconstruction(torch.cat([s.control.flatten(0, 1) for s in everything]))),
        signal_channels=float(median(edges)) if edges else 0.0,
        error=max(s.error for s in everything),
        rotation_error=max(s.rotation_error for s in everything),
        notes=made.notes,
    )


def choose(in_answer: Counter[Head], in_circuit: Counter[Head]) -> list[Head]:
    """The heads that carry the answer most often, then the most frequent others.

    >>> a, b, c = Head(3, 0), Head(2, 1), Head(1, 1)
    >>> choose(Counter({a: 2}), Counter({b: 5, c: 3, a: 2}))
    [L3H0, L2H1, L1H1]
    """
    chosen = [head for head, _ in _most(in_answer)[:ANSWER_HEADS]]
    rest = [head for head, _ in _most(in_circuit) if head not in chosen]
    return [*chosen, *rest[: HEADS - len(chosen)]]


def _most(count: Counter[Head]) -> list[tuple[Head, int]]:
    return sorted(count.items(), key=lambda item: (-item[1], item[0]))


def reconstruction(values: Tensor) -> list[float]:
    """Median over rows [n, K] of |sum of the m largest channels − whole| ÷ |whole|, for m = 0 to K.

    >>> reconstruction(torch.tensor([[3.0, 1.0]], dtype=torch.float64))
    [1.0, 0.25, 0.0]
    """
    order = values.abs().argsort(-1, descending=True)
    running = values.gather(-1, order).cumsum(-1)
    whole = values.sum(-1, keepdim=True)
    off = (running - whole).abs() / whole.abs().clamp_min(1e-12)
    off[:, -1] = 0.0  # the whole sum is the whole, whatever rounding says
    return [1.0, *off.median(0).values.tolist()]
