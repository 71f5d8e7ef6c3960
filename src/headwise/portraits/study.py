"""``headwise.head_portrait`` and ``headwise.atlas``: everything known about one head, and about all.

Three passes over the texts, each all heads at once: rows (where it looks), accounts of drawn cells (why, and what it
does then), and the strongest cells of the writers and channels that these name.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from headwise.arguments import count
from headwise.bases.basis import Bases
from headwise.basis_names import BasisKind
from headwise.contrast.roles import roles_once
from headwise.corpora.known import find_corpus
from headwise.corpus import Corpus
from headwise.intervals import as_share
from headwise.naming.sample import BATCH, LEAST_ATTENTION, NumberedText, Scored
from headwise.naming.signals import Subject
from headwise.naming.strongest import Strongest, StrongestJob
from headwise.naming.texts import Texts
from headwise.portraits.accounts import CELLS, drawn_cells, find_accounts
from headwise.portraits.assemble import account_from, looks_of
from headwise.portraits.habits import CellInContext, SinkPlace
from headwise.portraits.peaks import (
    KEYS,
    PICTURED,
    Peaks,
    find_peaks,
    nothing_seen,
    pictured_text,
    refuse_short,
    text_order,
)
from headwise.portraits.portrait import HeadPortrait
from headwise.portraits.result import KIND, Atlas
from headwise.progress import Progress
from headwise.randomness import seeded
from headwise.scale.cluster import WorkSharing
from headwise.scale.engines import engine_for
from headwise.scale.stages import Stages
from headwise.scale.study import run_study
from headwise.scale.work import cut
from headwise.sinks.document import positions
from headwise.sinks.find import PARKED
from headwise.tasks.answers.make import make_answers
from headwise.tasks.clusters import units_of
from headwise.types import Estimate, Head, HeadLike

if TYPE_CHECKING:
    from headwise.model.model import Model

TEXTS = 400
"""Texts that an atlas reads."""
FEWER_TEXTS = 120
"""Texts that the portrait of one head reads."""
TOKENS = 64
"""Tokens of each of them."""
SHOWN = 3
"""Strongest cells of a writer or channel that are shown."""
SINKS = 3
"""Positions with sinks that are shown."""


def head_portrait(
    model: Model,
    head: HeadLike,
    *,
    corpus: str | Path | Corpus | None = None,
    task: str | Path | None = None,
    texts: int = FEWER_TEXTS,
    tokens: int = TOKENS,
    cells: int = CELLS,
    basis: BasisKind = "singular",
    seed: int = 0,
    out: str | Path | None = None,
    workers: WorkSharing = 1,
    progress: Progress | None = None,
) -> HeadPortrait:
    """Everything known about one head: role, where it looks, why, who shapes it, what it does with what it reads.

    Parameters
    ----------
    model:
        A loaded model.
    head:
        The head, such as ``L23H3``.
    corpus:
        Texts to read: a corpus, its name (``wikipedia-excerpt``), a folder or a file; None is the documentation of
        installed packages.
    task:
        Prompts to read instead: ``ioi``, ``greater-than``, ``pronouns``, ``facts``, or a .jsonl file.
    texts:
        At most so many texts, spread evenly over the corpus.
    tokens:
        At most so many tokens of each text.
    cells:
        Cells that are explained, one per text.
    basis:
        Which channels: ``singular``, ``balanced`` (after ``headwise calibrate``) or ``rotated``.
    seed:
        The seed of everything random.
    out:
        A folder that keeps the run; one that was interrupted is continued.
    workers:
        Processes that share the work; above 1, each loads the model anew (in a script, call this under
        ``if __name__ == "__main__":``). Or a :class:`~headwise.scale.cluster.RayCluster`. What is found does not depend
        on it.
    progress:
        Told the stage, how many of its texts are done, and how many there are.

    Returns
    -------
    HeadPortrait
        The portrait as values, as a document and in a notebook.
    """
    wanted = model.head(head)
    made = atlas(
        model,
        [wanted],
        corpus=corpus,
        task=task,
        texts=texts,
        tokens=tokens,
        cells=cells,
        basis=basis,
        seed=seed,
        out=out,
        workers=workers,
        progress=progress,
    )
    return made.of(wanted)


def atlas(
    model: Model,
    heads: str | HeadLike | Iterable[HeadLike] | None = None,
    *,
    corpus: str | Path | Corpus | None = None,
    task: str | Path | None = None,
    texts: int = TEXTS,
    tokens: int = TOKENS,
    cells: int = CELLS,
    basis: BasisKind = "singular",
    seed: int = 0,
    out: str | Path | None = None,
    workers: WorkSharing = 1,
    progress: Progress | None = None,
) -> Atlas:
    """Portraits of all heads of a model, or of some, from the same texts.

    Parameters
    ----------
    model:
        A loaded model.
    heads:
        Some heads, such as ``L18H6,L23H3``; None is all.
    corpus:
        Texts to read: a corpus, its name (``wikipedia-excerpt``), a folder or a file; None is the documentation of
        installed packages.
    task:
        Prompts to read instead: ``ioi``, ``greater-than``, ``pronouns``, ``facts``, or a .jsonl file.
    texts:
        At most so many texts, spread evenly over the corpus.
    tokens:
        At most so many tokens of each text.
    cells:
        Cells of each head that are explained, one per text.
    basis:
        Which channels: ``singular``, ``balanced`` (after ``headwise calibrate``) or ``rotated``.
    seed:
        The seed of everything random.
    out:
        A folder that keeps the run; one that was interrupted is continued.
    workers:
        Processes that share the work; above 1, each loads the model anew (in a script, call this under
        ``if __name__ == "__main__":``). Or a :class:`~headwise.scale.cluster.RayCluster`. What is found does not depend
        on it.
    progress:
        Told the stage, how many of its texts are done, and how many there are.

    Returns
    -------
    Atlas
        The portraits, as values, as a document and as pages.
    """
    wanted = list(model.heads) if heads is None else sorted(model.heads_named(heads))
    texts = count(texts, "texts", "leaves nothing to read")
    tokens = count(tokens, "tokens", "leaves too little of each text", least=KEYS)
    cells = count(cells, "cells", "leaves nothing to explain")
    seeded(seed)
    held, clusters = _held(model, corpus, task, texts, seed)
    read, which = _read(model, held, clusters, tokens)
    chosen = Bases.of(model, basis)
    config = {
        "model": model.name,
        "weight_hash": model.weight_hash,
        "dtype": str(model.dtype).removeprefix("torch."),
        "heads": [str(head) for head in wanted],
        "corpus": held.name,
        "corpus_sha256": held.digest,
        "texts": len(held),
        "tokens": tokens,
        "cells": cells,
        "basis": chosen.name.kind,
        "basis_hash": chosen.name.hash,
        "seed": seed,
    }
    return run_study(
        KIND,
        config,
        lambda run: _found(model, wanted, read, which, chosen, config, run),
        Atlas.load,
        engine=engine_for(model, workers),
        out=out,
        progress=progress,
    )


def _held(
    model: Model, corpus: str | Path | Corpus | None, task: str | Path | None, texts: int, seed: int
) -> tuple[Corpus, Tensor | None]:
    """The texts that were asked for, and of a task's prompts which belong together."""
    if task is None:
        return (corpus if isinstance(corpus, Corpus) else find_corpus(corpus)).first(texts), None
    if corpus is not None:
        from headwise.errors import HeadwiseError

        raise HeadwiseError(f"task={str(task)!r} and a corpus both say what to read: give one of them")
    made = make_answers(str(task), model.tokenizer, prompts=texts, seed=seed)
    prompts = made.prompts[:texts]
    found = units_of([prompt.labels for prompt in prompts])
    return Corpus(made.name, tuple(p.prompt for p in prompts), (made.name,) * len(prompts)), found.which


def _read(model: Model, held: Corpus, clusters: Tensor | None, tokens: int) -> tuple[Texts, Tensor]:
    """The texts that are long enough as the model reads them, and the cluster of each."""
    read = Texts.of(model, held, tokens=tokens)
    refuse_short(read, held.name)
    kept = [number for number in range(len(read)) if read.lengths[number] >= KEYS]
    which = torch.arange(len(held)) if clusters is None else clusters
    if len(kept) == len(read):
        return read, which
    some = Corpus(held.name, tuple(held.texts[i] for i in kept), tuple(held.kinds[i] for i in kept))
    return Texts.of(model, some, tokens=tokens), which[kept]


def _found(
    model: Model,
    heads: Sequence[Head],
    texts: Texts,
    clusters: Tensor,
    bases: Bases,
    config: dict[str, Any],
    run: Stages,
) -> Atlas:
    """Rows, accounts, and the strongest cells of what these name."""
    seed = config["seed"]
    peaks = find_peaks(model, texts, seed, run)
    numbers = {head: number for number, head in enumerate(model.heads)}
    rows = {head: peaks.of(numbers[head]) for head in heads}
    order = text_order(texts, seed)
    drawn = {head: drawn_cells(head, rows[head], order, config["cells"], seed) for head in heads}
    if not any(drawn.values()):
        best = max(heads, key=lambda head: float(rows[head].attention.max(initial=0.0)))
        raise nothing_seen(best, rows[best], len(texts), LEAST_ATTENTION)
    accounts = find_accounts(texts, drawn, bases.name, seed, run)
    on_sinks = _on_sinks(peaks, seed)
    parks = peaks.parking.parks(PARKED) if peaks.parking.with_sinks else {}
    roles, sinks = roles_once(model), _sink_places(peaks)
    made = [
        HeadPortrait(
            head=head,
            model=model.name,
            weight_hash=model.weight_hash,
            corpus=config["corpus"],
            texts=len(texts),
            tokens=texts.tokens,
            basis=bases.name,
            role=None if roles is None else roles.by_head.get(head),
            on_sinks=on_sinks(head),
            parks=parks.get(head),
            sinks=sinks,
            looks=looks_of(head, rows[head], texts, seed),
            account=account_from(model, head, accounts[head], texts, clusters, bases.head(head).stable, seed),
            picture=tuple(bytes(row).hex() for row in peaks.picture[numbers[head]].tolist()),
        )
        for head in heads
    ]
    strongest = find_strongest(texts, made, bases, run)
    return Atlas(
        model=model.name,
        weight_hash=model.weight_hash,
        config=config,
        texts=len(texts),
        tokens=texts.tokens,
        sinks=sinks,
        pictured=tuple(texts.strings_of(pictured_text(texts, seed))[:PICTURED]),
        portraits=tuple(one.with_strongest(strongest) for one in made),
        seconds=0.0,
    )


def _on_sinks(peaks: Peaks, seed: int) -> Any:
    """What a head gives sinks, over texts that have some."""
    some = peaks.parking.with_sinks
    if not some:
        return lambda head: None
    mean, low, high = peaks.parking.heads(seed)

    def of(head: Head) -> Estimate | None:
        values = [float(x[head.layer, head.index]) for x in (mean, low, high)]
        return as_share(Estimate(*values, n=len(some), clusters=len(some)))

    return of


def _sink_places(peaks: Peaks) -> tuple[SinkPlace, ...]:
    found = [one for one in positions(peaks.parking) if one["sinks"]]
    found.sort(key=lambda one: (-one["sinks"], one["position"]))
    n = len(peaks.texts)
    return tuple(SinkPlace(one["position"], one["sinks"] / n, one["received"]) for one in found[:SINKS])


def find_strongest(
    texts: Texts, portraits: Sequence[HeadPortrait], bases: Bases, work: Stages
) -> dict[str, tuple[CellInContext, ...]]:
    """Of every writer and channel in some portraits, the cells of all texts where it acts most strongly, by what it
    is."""
    subjects = [
        Subject.parse(signal) for one in portraits if one.account is not None for signal in one.subjects[2:]
    ]
    if not subjects:
        return {}
    items: list[NumberedText] = [(number, tuple(texts.ids_of(number))) for number in range(len(texts))]
    job = StrongestJob(Scored(tuple(subjects), None, bases.name))
    found = Strongest.joined(work("writers and channels", job, cut(items, BATCH)))
    made = {}
    for number, subject in enumerate(subjects):
        kept = found.kept(number, SHOWN)
        cells = zip(kept.cells.rows(), kept.score.tolist(), strict=True)
        made[str(subject)] = tuple(
            CellInContext(text, *texts.around(text, d, s), score) for (text, d, s), score in cells
        )
    return made
