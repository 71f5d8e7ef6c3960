"""One head over many prompts: their tables, averaged with intervals over what belongs together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from headwise.bases.basis import Bases
from headwise.basis_names import BasisKind
from headwise.errors import HeadwiseError
from headwise.intervals import as_share, estimate
from headwise.progress import Progress
from headwise.randomness import seeded
from headwise.scale.engines import engine_for
from headwise.scale.stages import Stages
from headwise.scale.study import run_study
from headwise.scale.work import cut
from headwise.tasks.answers.make import make_answers
from headwise.tasks.answers.types import AnswerPrompt, AnswerSet
from headwise.tasks.clusters import units_of
from headwise.types import Estimate, Head
from headwise.why.many.parts import CHUNK, READS, ChunkParts, HeadJob, PartsJob, PromptParts, strongest_mlps
from headwise.why.many.result import (
    KIND,
    ExplanationsResult,
    LabelledMeans,
    MeanChannel,
    MeanPath,
    MeanWriter,
)
from headwise.why.who import SIDES, THROUGH

if TYPE_CHECKING:
    from headwise.model.model import Model
    from headwise.scale.engines import WorkSharing

ROWS, CHANNELS, PATHS, BY_LABEL = 24, 12, 8, 4
"""Rows of their own: writers of a side, channels, paths through an MLP, and writers of a side by label."""
LEAST = 0.1
"""A writer takes part from this part of the log-odds: it multiplies the odds by 1.1 or more."""
FIRST = 16
"""Prompts from which the head, and the MLPs that are followed, are chosen."""
VALUES = 8
"""A label with more values than this is not told apart."""


def explain_many(
    model: Model,
    task: str | Path | AnswerSet,
    *,
    head: Head | str | None = None,
    query: str | int = -1,
    key: str | int | None = None,
    prompts: int = 100,
    basis: BasisKind = "singular",
    out: str | Path | None = None,
    workers: WorkSharing = 1,
    seed: int = 0,
    progress: Progress | None = None,
) -> ExplanationsResult:
    """How often and how much does each writer, channel and path take part in one head's attention?

    Parameters
    ----------
    model:
        A loaded model.
    task:
        ``ioi``, ``greater-than``, ``pronouns``, ``facts``, the path of a JSONL file, or an answer set.
    head:
        The head, such as ``L23H3``; default: the one that most often brings most of the answer in the first prompts.
    query:
        The token that attends in every prompt, as text or position; default: the last.
    key:
        The token it attends to, as text or position; default: in every prompt the one it attends to most, the first
        token, where heads rest, left out.
    prompts:
        How many are explained.
    basis:
        Which channels: ``singular``, ``balanced`` (after ``headwise calibrate``) or ``rotated``.
    out:
        A folder that keeps the study; one that was interrupted is continued.
    workers:
        Processes that share the work; above 1, each loads the model anew (in a script, call this under
        ``if __name__ == "__main__":``). What is found does not depend on it.
    seed:
        The seed of everything random.
    progress:
        Told the stage, how many of its prompts are done, and how many there are.

    Returns
    -------
    ExplanationsResult
        The aggregated table with intervals, as values, as a sentence and as a page.
    """
    seeded(seed)
    asked = None if head is None else model.head(head)
    made = make_answers(task, model.tokenizer, prompts=prompts, seed=seed)
    chosen = made.prompts[:prompts]
    if not chosen:
        raise HeadwiseError(f"the task {made.name!r} has no prompts: give one or more")
    config = {
        "model": model.name,
        "weight_hash": model.weight_hash,
        "task": made.name,
        "sha256": made.digest,
        "dtype": str(model.dtype).removeprefix("torch."),
        "prompts": len(chosen),
        "head": None if asked is None else str(asked),
        "query": query,
        "key": key,
        "basis": Bases.of(model, basis).name.to_json(),
        "seed": seed,
    }
    return run_study(
        KIND,
        config,
        lambda run: _explained(model, made, chosen, asked, query, key, basis, config, run),
        ExplanationsResult.load,
        engine=engine_for(model, workers),
        out=out,
        progress=progress,
    )


def _explained(
    model: Model,
    made: AnswerSet,
    chosen: Sequence[AnswerPrompt],
    asked: Head | None,
    query: str | int,
    key: str | int | None,
    basis: BasisKind,
    config: dict[str, Any],
    run: Stages,
) -> ExplanationsResult:
    first = cut(chosen[:FIRST], CHUNK)
    because = "the head was given"
    if asked is None:
        heads = Counter(head for part in run("which head", HeadJob(basis), first) for head in part)
        asked, number = min(heads.items(), key=lambda item: (-item[1], item[0]))
        because = f"it brings most of the answer in {number} of the first {len(chosen[:FIRST])} prompts"
    job = PartsJob(asked, query, key, basis)
    mlps = strongest_mlps(run("which MLPs", job, first), THROUGH)
    parts = run("tables", PartsJob(asked, query, key, basis, mlps), cut(chosen, CHUNK))
    several = [one for part in parts for one in part.prompts]
    if key is None and all(one.log_odds <= 0 for one in several):
        most = max(one.attention for one in several)
        raise HeadwiseError(
            f"{asked} never attends to another token than the first in these {len(several)} prompts: it gives no key "
            f"more than an even share (at most {most:.3f}); choose another head, or name a key"
        )
    return _Aggregate(model, made, chosen, config, parts, several, mlps, asked, because).result()


class _Aggregate:
    """Means over prompts, with intervals over clusters of them."""

    def __init__(
        self,
        model: Model,
        made: AnswerSet,
        chosen: Sequence[AnswerPrompt],
        config: dict[str, Any],
        parts: Sequence[ChunkParts],
        several: Sequence[PromptParts],
        mlps: Sequence[tuple[str, int]],
        head: Head,
        because: str,
    ) -> None:
        self.model, self.made, self.chosen, self.config = model, made, chosen, config
        self.parts, self.several, self.mlps, self.head, self.because = parts, several, mlps, head, because
        self.clusters = units_of([one.labels for one in chosen])
        self.rows = torch.stack([one.rows for one in several])  # [prompts, 2, W, 4]
        self.causes = torch.stack([one.causes for one in several])

    def estimate(self, values: Tensor, which: Tensor | None = None) -> Estimate:
        """The mean of values [prompts]; every interval rests on the same resamples."""
        clusters = self.clusters.which
        if which is not None:
            values, clusters = values[which], clusters[which]
        return estimate(values.double(), self.config["seed"], "explanations", clusters=clusters)

    def share(self, values: Tensor, which: Tensor | None = None) -> Estimate:
        return as_share(self.estimate(values.double(), which))

    def number(self, name: str) -> Tensor:
        return torch.tensor([float(getattr(one, name)) for one in self.several], dtype=torch.float64)

    def result(self) -> ExplanationsResult:
        model, log_odds = self.model, self.number("log_odds")
        place = torch.stack([one.place for one in self.several])
        sums = self.rows.sum((2, 3)) - log_odds[:, None]
        keys = Counter(one.tokens[1] for one in self.several)
        return ExplanationsResult(
            model=model.name,
            weight_hash=model.weight_hash,
            task=self.made.name,
            config=self.config,
            head=self.head,
            chosen_because=self.because,
            prompts=len(self.several),
            clusters=self.clusters.name,
            attends=self.share(log_odds > 0),
            attention=self.share(self.number("attention")),
            log_odds=self.estimate(log_odds),
            place={
                name: self.estimate(place[:, i]) for i, name in enumerate(("content", "place", "interaction"))
            },
            right=self.share(self.number("lead") > 0),
            keys=tuple(sorted(keys.items(), key=lambda item: (-item[1], item[0]))),
            writers=tuple(row for place in range(len(SIDES)) for row in self.writers(place)),
            channels=self.channels(),
            paths=self.paths(),
            labels=tuple(self.labels()),
            basis=self.config["basis"],
            error=float(sums.abs().max()),
            notes=self.made.notes,
        )

    # --- writers -----------------------------------------------------------------------------------------------------

    def strongest(self, place: int, number: int) -> list[int]:
        """Writers of a side by their mean part, whatever its sign."""
        mean = self.rows[:, place].sum(-1).mean(0).abs()
        return mean.argsort(descending=True, stable=True)[:number].tolist()

    def writer(self, place: int, index: int, which: Tensor | None = None) -> MeanWriter:
        """One writer over all prompts, or over some."""
        by_read = self.rows[:, place, index]
        name = self.parts[0].writers[index]
        part = by_read.sum(-1)
        some = slice(None) if which is None else which
        means = by_read[some].mean(0).tolist()
        return MeanWriter(
            side=SIDES[place],
            writer=name,
            log_odds=self.estimate(part, which),
            often=self.share(part >= LEAST, which),
            against=self.share(part <= -LEAST, which),
            cause=self.share(self.causes[:, place, index], which),
            reads=dict(zip(READS, means, strict=True)) if name.startswith("L") else {},
        )

    def writers(self, place: int) -> list[MeanWriter]:
        chosen = self.strongest(place, ROWS)
        made = [self.writer(place, index) for index in chosen]
        rest = self.rows.shape[2] - len(chosen)
        if rest > 0:
            others = torch.ones(self.rows.shape[2], dtype=torch.bool)
            others[chosen] = False
            part = self.rows[:, place, others].sum((1, 2))
            made.append(
                MeanWriter(
                    side=SIDES[place],
                    writer="others",
                    log_odds=self.estimate(part),
                    often=self.share(part >= LEAST),
                    against=self.share(part <= -LEAST),
                    cause=self.share(self.causes[:, place, others].any(1)),
                    reads={},
                    count=rest,
                )
            )
        return made

    # --- channels, paths, labels -------------------------------------------------------------------------------------

    def channels(self) -> tuple[MeanChannel, ...]:
        values = torch.stack([one.channels for one in self.several])
        stable = self.parts[0].stable
        order = values.mean(0).abs().argsort(descending=True, stable=True)[:CHANNELS].tolist()
        return tuple(
            MeanChannel(
                channel=n,
                stable=stable[n],
                log_odds=self.estimate(values[:, n]),
                often=self.share(values[:, n] >= LEAST),
            )
            for n in order
        )

    def paths(self) -> tuple[MeanPath, ...]:
        made = []
        for number, (side, layer) in enumerate(self.mlps):
            shares = torch.stack([one.paths[number] for one in self.several])
            names = self.parts[0].read[number]
            order = shares.mean(0).abs().argsort(descending=True, stable=True)[:PATHS].tolist()
            made += [
                MeanPath(
                    side=side,
                    mlp=f"MLP{layer}",
                    writer=names[i],
                    log_odds=self.estimate(shares[:, i]),
                    often=self.share(shares[:, i] >= LEAST),
                )
                for i in order
            ]
        return tuple(sorted(made, key=lambda one: -abs(one.log_odds.mean)))

    def labels(self) -> list[LabelledMeans]:
        """The prompts by each label that tells a few kinds apart, and by whether the model answers right."""
        lead, attention, log_odds = (self.number(name) for name in ("lead", "attention", "log_odds"))
        found = {"answer": ["right" if one > 0 else "wrong" for one in lead.tolist()]}
        names = dict.fromkeys(name for one in self.chosen for name in one.labels)
        found |= {name: [one.labels.get(name, "–") for one in self.chosen] for name in names}
        made = []
        for label, values in found.items():
            distinct = sorted(set(values))
            if not 2 <= len(distinct) <= VALUES:
                continue
            for value in distinct:
                which = torch.tensor([one == value for one in values])
                made.append(
                    LabelledMeans(
                        label=label,
                        value=value,
                        prompts=int(which.sum()),
                        attention=self.share(attention, which),
                        log_odds=self.estimate(log_odds, which),
                        writers=tuple(
                            self.writer(place, index, which)
                            for place in range(len(SIDES))
                            for index in self.strongest(place, BY_LABEL)
                        ),
                    )
                )
        return made
