"""The second moments of every head over a corpus, in one pass.

Half of the texts against the other half, and one kind of text against the others, say which channels of the balanced
basis stay what they are: only those may go by a number or a name.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import reduce
from operator import add
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from headwise.bases.balanced import TOO_FEW, balanced_maps
from headwise.bases.calibration import Calibration, moments_folder, store
from headwise.bases.moments import MomentSums, collect_moments
from headwise.bases.stability import stability
from headwise.corpus import Corpus, documentation, read_corpus
from headwise.errors import HeadwiseError
from headwise.progress import Progress, stages
from headwise.scale import tensors as sealed
from headwise.scale.engines import ThisProcess
from headwise.scale.mapping import map_chunks
from headwise.scale.work import Chunk, Keeper, remove_chunks
from headwise.tokens import encode_one

if TYPE_CHECKING:
    from headwise.model.model import Model

TEXTS = 240
"""From about 200 texts on the first channels of two halves are the same ones."""
TOKENS = 64
"""Of each text, from its beginning."""
PART = 20
"""Texts of one chunk: its sums take some tens of megabytes, whatever their number."""
LEAST = 8
"""Texts that are too few to be cut into halves of two kinds."""


def calibrate(
    model: Model,
    corpus: str | Path | Corpus | None = None,
    *,
    texts: int = TEXTS,
    keep: str | Path | None = None,
    progress: Progress | None = None,
) -> Calibration:
    """Take the second moments of every head of a model over a corpus.

    Parameters
    ----------
    model:
        A loaded model.
    corpus:
        A folder, a .txt, .jsonl or .parquet file, or a :class:`~headwise.corpus.Corpus`; by default documentation,
        the tasks' prompts and the project's prose, pooled.
    texts:
        How many texts at most, spread evenly over the corpus.
    keep:
        A folder for the work under way: the same call continues one that was interrupted.
    progress:
        Told how many texts are done.

    Returns
    -------
    Calibration
        Moments, and how stable each channel of the balanced basis is.
    """
    chosen = _corpus(model, corpus).first(texts)
    _refuse_other_script(model, chosen)
    groups = _groups(model, chosen)
    chunks = _chunks(groups)
    tick = stages(progress)("moments", sum(len(chunk) for chunk in chunks))
    stamp = f"{model.weight_hash}-{chosen.digest}-{TOKENS}"
    keeper = None if keep is None else Keeper(Path(keep), 0, stamp)
    if keeper is not None:
        keeper.work.mkdir(parents=True, exist_ok=True)
    sums: dict[tuple[str, int], MomentSums] = {}
    job = _MomentJob(model.n_layers, model.n_heads, model.d_head)
    with closing(map_chunks(job, chunks, engine=ThisProcess(model), keeper=keeper, tick=tick)) as every:
        for chunk, part in zip(chunks, every, strict=True):
            group = chunk.items[0][0]
            sums[group] = sums[group] + part if group in sums else part
    if keeper is not None:
        remove_chunks(keeper.work)
    return _calibration(model, chosen, sums)


def _corpus(model: Model, given: str | Path | Corpus | None) -> Corpus:
    if isinstance(given, Corpus):
        return given
    return pooled_corpus(model) if given is None else read_corpus(given)


def pooled_corpus(model: Model) -> Corpus:
    """Three kinds of text: documentation, the prompts of the tasks, and the project's own prose where it is at hand."""
    from headwise.tasks.answers.make import ANSWER_TASKS, make_answers

    # As many of each kind as the others have, so that no kind decides what a channel is.
    pools = [documentation().first(TEXTS)]
    prompts = [
        one.prompt for task in ANSWER_TASKS for one in make_answers(task, model.tokenizer, prompts=20).prompts
    ]
    pools.append(Corpus("prompts", tuple(prompts), ("prompts",) * len(prompts)))
    prose = Path(__file__).parents[3] / "docs"
    if (prose / "index.md").is_file():
        found = read_corpus(prose)
        pools.append(Corpus("prose", found.texts, ("prose",) * len(found)).first(TEXTS // 3))
    even = max(1, TEXTS // len(pools))
    pooled = reduce(add, (pool.first(even) for pool in pools))
    return Corpus("pooled", pooled.texts, pooled.kinds)


Group = tuple[str, int]
"""The kind of a text, and which half it is in."""


def _groups(model: Model, corpus: Corpus) -> list[tuple[Group, tuple[int, ...]]]:
    """Each text's group and its token ids; texts of a single token have nothing to be relative to."""
    found: list[tuple[Group, tuple[int, ...]]] = []
    count: dict[str, int] = {}
    unread = 0
    for text, kind in zip(corpus.texts, corpus.kinds, strict=True):
        # A text may be longer than the model's context: only its beginning is read.
        ids = encode_one(model.tokenizer, text, None, model.vocabulary)[
            : min(TOKENS, model.context or TOKENS)
        ]
        if len(ids) < 4:
            unread += 1
            continue
        count[kind] = count.get(kind, -1) + 1
        found.append(((kind, count[kind] % 2), tuple(ids)))
    if len(found) < LEAST:
        raise HeadwiseError(
            f"the corpus {corpus.name!r} has {len(found)} usable texts: moments take at least {LEAST}, "
            f"each of 4 tokens or more"
        )
    return found


ENGLISH = "The committee has not said when it will publish the report, but its members expect it this week."
SCRIPT = 2.5
"""How many times more tokens per character than English makes a corpus unreadable for a model."""


def _refuse_other_script(model: Model, corpus: Corpus) -> None:
    """A text in a script that a model does not know is read byte by byte: its heads then show how bytes are joined."""

    def density(texts: Sequence[str]) -> float:
        tokens = sum(len(encode_one(model.tokenizer, text[:400], None, model.vocabulary)) for text in texts)
        return tokens / max(1, sum(len(text[:400]) for text in texts))

    found, usual = density(corpus.first(40).texts), density([ENGLISH])
    if found >= SCRIPT * usual:
        raise HeadwiseError(
            f"the corpus {corpus.name!r} is in a script that {model.name!r} hardly knows ({found:.1f} tokens per "
            f"character, English has {usual:.1f}): give texts like those the model was trained on"
        )


def _chunks(found: Sequence[tuple[Group, tuple[int, ...]]]) -> list[Chunk[tuple[Group, tuple[int, ...]]]]:
    """Chunks of one group each, so that what is kept of a chunk is one sum."""
    chunks, start = [], 0
    for group in sorted({group for group, _ in found}):
        mine = sorted((one for one in found if one[0] == group), key=lambda one: len(one[1]))
        for at in range(0, len(mine), PART):
            part = tuple(mine[at : at + PART])
            chunks.append(Chunk(start, part))
            start += len(part)
    return chunks


@dataclass(frozen=True)
class _MomentJob:
    layers: int
    heads: int
    d_head: int

    def make(self, model: Model, chunk: Chunk[Any], tick: Any, /) -> MomentSums:
        texts = [ids for _, ids in chunk.items]
        total = MomentSums.zero(self.layers, self.heads, self.d_head)
        for at in range(0, len(texts), 4):
            part = texts[at : at + 4]
            total = total + collect_moments(model, part)
            tick(len(part))
        return total

    def to_bytes(self, made: MomentSums, /) -> bytes:
        return sealed.to_bytes(
            {
                "cells": made.cells,
                "query": made.query,
                "query_square": made.query_square,
                "key_square": made.key_square,
                "tokens": made.tokens,
                "output": made.output,
            }
        )

    def from_bytes(self, content: bytes, /) -> MomentSums:
        return MomentSums(**sealed.from_bytes(content)[0])


def _calibration(model: Model, corpus: Corpus, sums: dict[Group, MomentSums]) -> Calibration:
    kinds = sorted({kind for kind, _ in sums})
    whole = reduce(add, sums.values())
    halves = _agreement(whole, *(_of(sums, lambda g, half=half: g[1] == half) for half in (0, 1)))
    across = torch.full_like(halves, float("nan"))
    if len(kinds) > 1:
        # The first kind against all others: for the pooled corpus, documentation against prompts and prose.
        across = _agreement(
            whole, _of(sums, lambda g: g[0] == kinds[0]), _of(sums, lambda g: g[0] != kinds[0])
        )
    return Calibration(
        model=model.name,
        weight_hash=model.weight_hash,
        corpus=corpus.name,
        digest=corpus.digest,
        texts=len(corpus),
        kinds=tuple(kinds),
        moments=whole.moments(),
        halves=halves,
        across=across,
        outputs=whole.mean_output,
    )


def _of(sums: dict[Group, MomentSums], wanted: Any) -> MomentSums:
    return reduce(add, (part for group, part in sums.items() if wanted(group)))


def _agreement(whole: MomentSums, first: MomentSums, second: MomentSums) -> Tensor:
    """The stability of each head's channels between two parts; 0 for heads with too few cells in either."""
    pooled = whole.moments()
    found = stability(
        balanced_maps(pooled),
        balanced_maps(first.moments()),
        balanced_maps(second.moments()),
        pooled.shrunk(),
    )
    least = TOO_FEW * pooled.query.shape[-1]
    known = (first.cells >= least) & (second.cells >= least)
    return torch.where(known[..., None], found, torch.zeros_like(found))


def calibrated(
    model: Model,
    corpus: str | Path | Corpus | None = None,
    *,
    texts: int = TEXTS,
    progress: Progress | None = None,
) -> tuple[Calibration, Path]:
    """The moments of a model over a corpus, as they are stored, or made and stored now; and where they lie.

    An interrupted call is continued by the same call.
    """
    made = _corpus(model, corpus)
    names = model.weight_hash[:16], made.first(texts).digest[:16]
    path = moments_folder() / f"{'-'.join(names)}.safetensors"
    if path.is_file():
        try:
            found = Calibration.load(path, model)
            return found, store(found)
        except HeadwiseError:
            pass  # damaged, or of an earlier version: made again
    work = moments_folder() / f"work-{'-'.join(names)}"
    found = calibrate(model, made, texts=texts, keep=work, progress=progress)
    where = store(found)
    remove_chunks(work)
    with suppress(OSError):
        work.rmdir()
    return found, where
