"""The second moments of every head over a corpus, in one pass, kept under the weights' hash and the corpus's digest.

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

from headwise.bases.balanced import FEW, TOO_FEW, HeadMoments, balanced_maps
from headwise.bases.moments import MomentSums, collect_moments
from headwise.bases.stability import STABLE, stability
from headwise.corpus import Corpus, documentation, read_corpus
from headwise.errors import HeadwiseError
from headwise.files import write_bytes
from headwise.model.loading.store import cache_folder
from headwise.progress import Progress, stages
from headwise.scale import tensors as sealed
from headwise.scale.engines import ThisProcess
from headwise.scale.mapping import map_chunks
from headwise.scale.work import Chunk, Keeper, remove_chunks
from headwise.tokens import encode_one

if TYPE_CHECKING:
    from headwise.model.model import Model

SCHEMA = 1
TEXTS = 240
"""From about 200 texts on the first channels of two halves are the same ones."""
TOKENS = 64
"""Of each text, from its beginning."""
PART = 20
"""Texts of one chunk: its sums take some tens of megabytes, whatever their number."""
HELD = frozenset(("cells", "query_mean", "query", "key", "halves", "across", "outputs"))
LEAST = 8
"""Texts that are too few to be cut into halves of two kinds."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Calibration:
    """What flows through every head of one model, over one corpus. L layers, H heads."""

    model: str
    """The model's name."""
    weight_hash: str
    """The digest of the model's weights."""
    corpus: str
    """The corpus's name."""
    digest: str
    """SHA-256 of the corpus's texts."""
    texts: int
    """How many texts were read."""
    kinds: tuple[str, ...]
    """The kinds of text among them, such as prose and code."""
    moments: HeadMoments
    """[L, H, …]: first and second moments of queries and keys over attended cells."""
    halves: Tensor
    """[L, H, d_head]: agreement of the two halves of the texts on each channel of the balanced basis."""
    across: Tensor
    """[L, H, d_head]: agreement of one kind of text with the others; NaN where there is only one kind."""
    outputs: Tensor
    """[L, H, d_head]: what each head writes on average over all tokens, before the output projection."""

    @property
    def stability(self) -> Tensor:
        """[L, H, d_head]: the smaller of both; a channel of only one kind of text is not known to be stable."""
        return torch.minimum(self.halves, self.across.nan_to_num(0.0))

    def to_json(self) -> dict[str, Any]:
        """What was measured on what, and how far its channels can be trusted."""
        cells, width = self.moments.cells, self.moments.query.shape[-1]
        return {
            "model": self.model,
            "weight_hash": self.weight_hash,
            "corpus": {
                "name": self.corpus,
                "digest": self.digest,
                "texts": self.texts,
                "kinds": list(self.kinds),
            },
            "heads": cells.numel(),
            "cells": {
                "median": float(cells.median()),
                "few": int(((cells < FEW * width) & (cells >= TOO_FEW * width)).sum()),
                "too_few": int((cells < TOO_FEW * width).sum()),
            },
            "stable_channels": {
                "median": float((self.stability >= STABLE).sum(-1).double().median()),
                "of": width,
            },
        }

    def to_bytes(self) -> bytes:
        """The file's content; the same calibration gives the same bytes."""
        record = {
            "schema": SCHEMA,
            "kind": "headwise-moments",
            "model": self.model,
            "weight_hash": self.weight_hash,
            "corpus": self.corpus,
            "digest": self.digest,
            "texts": self.texts,
            "kinds": list(self.kinds),
        }
        m = self.moments
        held = {"cells": m.cells, "query_mean": m.query_mean, "query": m.query, "key": m.key}
        held |= {"halves": self.halves, "across": self.across, "outputs": self.outputs}
        return sealed.to_bytes({name: value.float() for name, value in held.items()}, record)

    @classmethod
    def load(cls, path: str | Path, model: Model) -> Calibration:
        """Read moments from a file; those of another model are refused."""
        again = "make them again with `headwise calibrate`"
        try:
            found, record = sealed.from_bytes(Path(path).read_bytes())
        except OSError as error:
            raise HeadwiseError(f"cannot read the moments {str(path)!r}: {error.strerror or error}") from None
        except sealed.Damaged as error:
            raise HeadwiseError(f"{str(path)!r} does not hold a model's moments ({error}): {again}") from None
        if (
            not isinstance(record, dict)
            or record.get("kind") != "headwise-moments"
            or record.get("schema") != SCHEMA
            or set(found) != HELD
        ):
            raise HeadwiseError(f"{str(path)!r} does not hold moments of this version: {again}")
        model.require(record.get("weight_hash"), str(path), of=str(record.get("model")), do=again)
        held = {name: value.double() for name, value in found.items()}
        shape = (model.n_layers, model.n_heads, model.d_head, model.d_head)
        if held["query"].shape != shape or held["key"].shape != shape:
            raise HeadwiseError(
                f"{str(path)!r} holds moments of other shapes than {model.name!r} has: {again}"
            )
        if not all(bool(held[name].isfinite().all()) for name in HELD - {"across"}):
            raise HeadwiseError(f"{str(path)!r} holds numbers that are not finite: {again}")
        return cls(
            model=record["model"],
            weight_hash=record["weight_hash"],
            corpus=record["corpus"],
            digest=record["digest"],
            texts=record["texts"],
            kinds=tuple(record["kinds"]),
            moments=HeadMoments(held["cells"], held["query_mean"], held["query"], held["key"]),
            halves=held["halves"],
            across=held["across"],
            outputs=held["outputs"],
        )


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


def moments_folder() -> Path:
    """Where moments are kept: beside the models."""
    return cache_folder() / "moments"


def store(calibration: Calibration, folder: str | Path | None = None) -> Path:
    """Keep moments in a folder, as those of this model and corpus and as the newest of this model."""
    folder = moments_folder() if folder is None else Path(folder)
    name = f"{calibration.weight_hash[:16]}-{calibration.digest[:16]}.safetensors"
    content = calibration.to_bytes()
    write_bytes(folder / f"{calibration.weight_hash[:16]}.safetensors", content)
    return write_bytes(folder / name, content)


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


def stored(model: Model) -> Calibration:
    """The moments of a model that were stored last."""
    path = moments_folder() / f"{model.weight_hash[:16]}.safetensors"
    if not path.is_file():
        raise HeadwiseError(
            f"there are no moments of {model.name!r}, which a balanced basis needs: "
            "make them with `headwise calibrate`, or choose the basis 'singular'"
        )
    return Calibration.load(path, model)
