"""The whole study: find heads, fit features, test them on what was held out. Every stage can be resumed.

With a run folder, each stage leaves its shards there as it goes; the same command finds them and continues.
The shards are cut at fixed places, so an interrupted run ends with the very numbers of one that was not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import torch

from headwise.contrast.alignment import alignment_draws, alignment_rows, judged_alignment
from headwise.contrast.attribution import attribution_rows
from headwise.contrast.bank import FeatureBank
from headwise.contrast.collect import Pairs, PairsJob
from headwise.contrast.edited_passes import answers_through_model
from headwise.contrast.fit import (
    Fitted,
    HeadStudy,
    angle_rows,
    crowding_null,
    curve_rows,
    fit_contrast,
    growth_rows,
    head_studies,
    placebo_banks,
    probes_of,
    rank_warnings,
    spectrum_rows,
)
from headwise.contrast.geometry import judged_shapes, shape_rows
from headwise.contrast.heads import (
    MOST,
    HeadScore,
    choose_heads,
    key_labels,
    rank_heads,
    scanned,
    score_again,
)
from headwise.contrast.labelled_vectors import LabelledVectors
from headwise.contrast.measured import Gallery, Measured, join
from headwise.contrast.result import KIND, FeaturesResult
from headwise.contrast.rows import AlignmentRow, AnswerRow, HeadRow, ShapeRow
from headwise.contrast.swap_tests import DOSES, SwapJob
from headwise.contrast.tables import (
    Chosen,
    changes_nothing,
    dose_rows,
    draw_rows,
    feature_row,
    judged,
    swap_rows,
)
from headwise.contrast.unlabelled.given import corpus_given
from headwise.corpus import Corpus
from headwise.errors import HeadwiseError
from headwise.progress import Progress, stages
from headwise.randomness import keyed
from headwise.scale.cluster import WorkSharing
from headwise.scale.engines import engine_for
from headwise.scale.manifest import ModelShape
from headwise.scale.stages import Stages
from headwise.scale.study import run_study
from headwise.scale.work import cut
from headwise.tasks.labelled.design import design_warnings, require_clusters
from headwise.tasks.labelled.make import make_task
from headwise.tasks.labelled.types import Contrast, Task
from headwise.types import Estimate, Head

if TYPE_CHECKING:
    from headwise.contrast.unlabelled.result import UnlabelledResult
    from headwise.model.model import Model

SHARD = 64
"""Prompts that are worked on and saved together; even, so that test prompts stay with their partners."""
GALLERY = 240
"""Test prompts whose vectors are kept for pictures."""


@overload
def find_features(model: Model, task: Corpus, **options: Any) -> UnlabelledResult: ...


@overload
def find_features(model: Model, task: str | Path | Task = "binding", **options: Any) -> FeaturesResult: ...


def find_features(
    model: Model,
    task: str | Path | Task | Corpus = "binding",
    *,
    heads: str | Sequence[Head | str] = "auto",
    out: str | Path | None = None,
    draws: int = 200,
    energy: float = 0.99,
    max_rank: int = 9,
    through_model: int = 0,
    workers: WorkSharing = 1,
    seed: int = 0,
    progress: Progress | None = None,
    **options: Any,
) -> FeaturesResult | UnlabelledResult:
    """Find the heads of a task, fit its features in them and test them on unseen items; or, of ordinary text, features
    that heads' own attention shows.

    Parameters
    ----------
    model:
        A loaded model.
    task:
        ``binding``, ``filter``, the path of a JSONL file, or a :class:`headwise.tasks.Task`. A
        :class:`~headwise.corpus.Corpus`, its name, or a file or folder of text: features without labels, for which
        ``heads``, ``max_rank``, ``out``, ``workers``, ``seed``, ``progress`` and ``texts`` (how many at most) count.
    heads:
        ``auto`` scans every head and takes those that do the task; else a list such as ``L18H6,L20H3``.
    out:
        A folder that keeps the run; one that was interrupted is continued.
    draws:
        Subspaces that mean nothing that every swap is compared with, of each kind (placebo labels, the keys'
        covariance, uniform), at least 100. That clusters of queries and keys match is held against up to 500, as
        many as the correction over all such claims of the run asks for.
    energy:
        The part of ΔC's energy that the published rank must reach.
    max_rank:
        The largest subspace, so that a swap of one stays far from a swap of the whole keys.
    through_model:
        Test prompts on which swaps are also made in the running model; 0 for none.
    workers:
        Processes that share the work; above 1, each loads the model anew (in a script, call this under
        ``if __name__ == "__main__":``). Or a :class:`~headwise.scale.cluster.RayCluster`. What is found does not depend
        on it.
    seed:
        The seed of everything random.
    progress:
        Told the stage, how many of its prompts are done, and how many there are.
    options:
        The task's own: ``prompts``, ``test``, ``scan``, ``format``, ``jitter`` …

    Returns
    -------
    FeaturesResult
        Heads, features, swaps with their controls, and the feature bank. Of ordinary text an ``UnlabelledResult``.
    """
    corpus = corpus_given(task)
    if corpus is not None:
        from headwise.contrast.unlabelled.study import find_unlabelled

        labelled = {"draws": draws != 200, "energy": energy != 0.99, "through_model": through_model != 0}
        for name in (*(name for name, given in labelled.items() if given), *options):
            if name != "texts":
                raise HeadwiseError(
                    f"{name}= is of labelled prompts, and {corpus.name!r} is ordinary text: leave it out"
                )
        return find_unlabelled(
            model,
            corpus,
            heads=heads,
            max_rank=max_rank,
            out=out,
            workers=workers,
            seed=seed,
            progress=progress,
            **options,
        )
    assert not isinstance(task, Corpus)
    if draws < 100:
        raise HeadwiseError(f"draws={draws} subspaces are too few to compare with: give at least 100")
    if not 1 <= max_rank <= model.d_head:
        raise HeadwiseError(f"max_rank={max_rank} is outside 1..{model.d_head}, the head's dimensions")
    engine = engine_for(model, workers)
    made = make_task(task, model.tokenizer, seed=seed, **options)
    require_clusters(made)
    named = None if heads == "auto" else model.heads_named(heads)
    asked = _Asked(draws=draws, energy=energy, max_rank=max_rank, through_model=through_model, seed=seed)
    config = {
        "model": model.name,
        "weight_hash": model.weight_hash,
        "shape": ModelShape.of(model).model_dump(),
        "dtype": str(model.dtype).removeprefix("torch."),
        "task": made.name,
        "settings": dict(made.settings),
        "examples": made.digest,
        "shard": SHARD,
        "heads": "auto" if named is None else [str(h) for h in named],
        **asdict(asked),
    }
    return run_study(
        KIND,
        config,
        lambda work: _Study(model, made, asked, work).run(named, config),
        FeaturesResult.load,
        engine=engine,
        out=out,
        progress=progress,
        needed=_needed_bytes(model, made, len(named) if named else MOST, draws),
    )


def scan_heads(
    model: Model, task: Task, *, workers: WorkSharing = 1, seed: int = 0, progress: Progress | None = None
) -> list[HeadScore]:
    """Every head of the model ranked on the task's scanning prompts, by one process or several."""
    with closing(engine_for(model, workers)) as engine:
        return _scan(model, task, Stages(engine, None, stages(progress)), seed)


@dataclass(frozen=True, kw_only=True)
class _Asked:
    """The numbers that a study was asked for."""

    draws: int
    energy: float
    max_rank: int
    through_model: int
    seed: int


def _needed_bytes(model: Model, task: Task, heads: int, draws: int) -> int:
    """About how much the shards of all stages take, and the pictures' vectors and tables that are made of them."""
    keys = max(len(e.keys) for e in task.scan.examples)
    scan = len(task.scan) * keys * (4 * len(model.heads) + 8)
    fits = sum(len(item) for item in task.fits) * heads * model.d_head * (8 * 4 + 4 * keys)
    conditions = 3 * 8 * (3 * draws + len(DOSES) + 10)
    test = len(task.test) * heads * len(task.names) * conditions
    vectors = min(GALLERY + SHARD, len(task.test)) * heads * model.d_head * 4 * (keys + 1)
    return scan + fits + test + 2 * vectors + 300 * draws * heads * len(task.names) + 1_000_000


def _scan(model: Model, task: Task, work: Stages, seed: int) -> list[HeadScore]:
    """Attention of every head on the labelled keys of the scanning prompts, ranked."""
    found = scanned(task.scan, SHARD, work)
    return rank_heads(
        model.heads,
        found.attention,
        found.labels,
        rule=task.rule,
        generator=keyed(seed, "scan"),
        clusters=task.scan.clusters().which,
    )


class _Study:
    """The stages of one study: scan, choose, fit, test, and the result put together."""

    def __init__(self, model: Model, task: Task, asked: _Asked, work: Stages) -> None:
        self.model, self.task, self.asked, self.work = model, task, asked, work
        self.warnings = design_warnings(task)

    def run(self, named: list[Head] | None, config: Mapping[str, Any]) -> FeaturesResult:
        scores = _scan(self.model, self.task, self.work, self.asked.seed)
        heads = self.choose(scores) if named is None else named
        heads = sorted(heads, key=[s.head for s in scores].index)
        fitted = {item.name: self.fit(item, heads) for item in self.task.fits}
        studies = head_studies(self.task, fitted, heads)
        measured, gallery = self.test(studies, fitted)
        heads = self.testable(measured, may_skip=named is None)
        studies = [study for study in studies if study.head in heads]
        chosen = {name: Chosen.of(self.task, name) for name in ("", *self.task.names)}
        gallery = gallery.of_heads([study.place for study in studies])
        kept = set(map(str, heads))
        self.warnings += rank_warnings(fitted, heads)
        seed, energy, draws = self.asked.seed, self.asked.energy, self.asked.draws
        crowding = {s.head: crowding_null(s, fitted, draws) for s in studies}
        rows = judged(
            [
                feature_row(s, f, measured[s.head], chosen[f.name], seed=seed, crowding=crowding[s.head])
                for s in studies
                for f in s.features
            ]
        )
        holds = {(row.head, row.name): row.supported for row in rows}
        features = tuple(
            replace(f, supported=holds[str(f.head), f.name]) for study in studies for f in study.features
        )
        bank = FeatureBank(self.model.name, self.model.weight_hash, self.task.name, features)
        answers = self.answers(bank, measured)
        alignment, shapes = self.geometry(studies, fitted, gallery)
        again = self.scored_again(measured)
        shown = self.task.test.examples[0].tokens
        return FeaturesResult(
            task=self.task.name,
            model=self.model.name,
            rule=self.task.rule,
            heads=tuple(HeadRow.of(s, chosen=s.head in heads, again=again.get(s.head)) for s in scores),
            features=rows,
            swaps=tuple(row for h in heads for row in swap_rows(h, measured[h], chosen, seed=seed)),
            draws=tuple(row for h in heads for row in draw_rows(h, measured[h], chosen)),
            doses=tuple(row for h in heads for row in dose_rows(h, measured[h], chosen)),
            curves=tuple(row for f in fitted.values() for row in curve_rows(f) if row.head in kept),
            spectra=tuple(row for f in fitted.values() for row in spectrum_rows(f) if row.head in kept),
            angles=tuple(row for study in studies for row in angle_rows(study)),
            alignment=alignment,
            shapes=shapes,
            growth=tuple(
                row
                for f in fitted.values()
                for row in growth_rows(f, seed=seed, energy=energy)
                if row.head in kept
            ),
            answers=tuple(answers),
            attribution=tuple(
                attribution_rows(
                    self.model, shown, bank.with_unsupported(), placebos=placebo_banks(bank, studies, fitted)
                )
            ),
            warnings=tuple(self.warnings),
            bank=bank,
            gallery=gallery,
            config=config,
        )

    def choose(self, scores: Sequence[HeadScore]) -> list[Head]:
        """The heads that do the task, or the best one with a warning.

        Where all prompts ask by the same token, a head of the first layer cannot know what is asked: it attends alike
        in prompts that ask for one key and for the other, and what swapping the two does adds up to nothing.
        """
        found = choose_heads(scores, self.task.rule)
        if found:
            return found
        alike = len({example.tokens[example.query] for example in self.task.test.examples}) == 1
        best = next((one for one in scores if one.head.layer or not alike), scores[0])
        self.warnings.append(
            f"no head does the task by the rule: {best.head} is the best with {best.score.mean:.2f}"
        )
        return [best.head]

    def fit(self, item: Contrast, heads: Sequence[Head]) -> Fitted:
        """One contrast in all heads."""
        asked = self.asked
        parts = self.work(f"fitting {item.name}", PairsJob(tuple(heads)), cut(item.examples, SHARD))
        pairs = Pairs.cat(parts)
        return fit_contrast(
            item,
            heads,
            pairs,
            seed=asked.seed,
            energy=asked.energy,
            max_rank=asked.max_rank,
            placebos=alignment_draws(self.task, len(heads), asked.draws),
        )

    def test(
        self, studies: Sequence[HeadStudy], fitted: Mapping[str, Fitted]
    ) -> tuple[dict[Head, Measured], Gallery]:
        """Every edit of every feature on the test prompts, and the vectors of the first of them."""
        asked, examples = self.asked, self.task.test.examples
        probes = {s.head: probes_of(s, fitted, seed=asked.seed, draws=asked.draws) for s in studies}
        shards = self.work("testing swaps", SwapJob(probes, GALLERY), cut(examples, SHARD))
        return join(shards), Gallery.of(shards, examples, self.task.colours)

    def geometry(
        self, studies: Sequence[HeadStudy], fitted: Mapping[str, Fitted], gallery: Gallery
    ) -> tuple[tuple[AlignmentRow, ...], tuple[ShapeRow, ...]]:
        """Whether clusters of queries and keys match, and what ordered ones lie on, on the gallery's prompts."""
        seed = self.asked.seed
        draws = alignment_draws(self.task, len(studies), self.asked.draws)
        aligned: list[AlignmentRow] = []
        shaped: list[ShapeRow] = []
        for number, study in enumerate(studies):
            single = {f.name: f for f in study.features if not f.parts}
            for item in study.features:
                by = self.task.colours.get(item.name, "")
                vectors = LabelledVectors.of(gallery, number, by, self.task.test)
                if vectors is None:
                    continue
                aligned += alignment_rows(item, single, fitted, study.place, vectors, draws=draws, seed=seed)
                shaped += shape_rows(item, vectors, seed=seed)
        return judged_alignment(aligned), judged_shapes(shaped)

    def scored_again(self, measured: Mapping[Head, Measured]) -> dict[Head, Estimate]:
        """The score of the studied heads on the test prompts, which had no part in choosing them."""
        labels = key_labels(self.task.test.examples)
        attention = torch.stack([one.keys for one in measured.values()], 1)
        clusters = self.task.test.clusters().which
        found = score_again(attention, labels, self.task.rule, clusters, self.asked.seed)
        return dict(zip(measured, found, strict=True))

    def testable(self, measured: Mapping[Head, Measured], *, may_skip: bool) -> list[Head]:
        """The heads in which swapping whole keys does anything: no share of nothing can be taken.

        Of heads that nobody named, the others are skipped with a warning.
        """
        idle = [str(head) for head, one in measured.items() if changes_nothing(one)]
        if not idle:
            return list(measured)
        told = f"swapping whole keys changes nothing in {', '.join(idle)}, so no feature can be tested there"
        if not may_skip or len(idle) == len(measured):
            raise HeadwiseError(f"{told}: name other heads")
        self.warnings.append(f"{told}: skipped")
        return [head for head in measured if str(head) not in idle]

    def answers(self, bank: FeatureBank, measured: Mapping[Head, Measured]) -> list[AnswerRow]:
        """The swaps in the running model, if they are asked for."""
        count = min(self.asked.through_model, len(self.task.test))
        if not count:
            return []
        return answers_through_model(self.model, self.task, bank, count, measured, self.work)
