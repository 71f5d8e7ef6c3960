"""The study of features without labels: scan, read, fit, measure, tell apart. Every pass over texts can be resumed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from headwise.claims import claims
from headwise.contrast.bank import FeatureBank
from headwise.contrast.heads import MOST
from headwise.contrast.unlabelled.cells import CellInText
from headwise.contrast.unlabelled.collect import PART, Scanned, TextRows, TextScanJob, VectorsJob
from headwise.contrast.unlabelled.one_head import (
    NULL,
    PLACEBOS,
    HeadFound,
    HeadTexts,
    find_in_head,
    in_text,
    varied,
)
from headwise.contrast.unlabelled.pairs import (
    FeaturePair,
    PairTest,
    alike,
    carried,
    judged,
    swap_difference,
    writer_test,
)
from headwise.contrast.unlabelled.result import KIND, UnlabelledResult
from headwise.contrast.unlabelled.writers import writer_profiles
from headwise.corpus import Corpus
from headwise.errors import HeadwiseError
from headwise.progress import Progress
from headwise.scale.cluster import WorkSharing
from headwise.scale.engines import engine_for
from headwise.scale.stages import Stages
from headwise.scale.study import run_study
from headwise.scale.work import cut
from headwise.tokens import encode_one, shown
from headwise.types import Head

if TYPE_CHECKING:
    from headwise.model.model import Model

TEXTS = 240
"""Texts at most, spread evenly over the corpus."""
TOKENS = 64
"""Of each text, from its beginning."""
LEAST = 24
"""Texts that are too few to fit on some and measure on others."""
SHORT = 8
"""Tokens of a text that are too few to choose from."""
EVERY = 3
"""Each third text is held out."""
MAX_RANK = 9
"""The largest span: of more dimensions fewer axes are found again in other texts."""
CELLS = 12
"""Cells of each feature whose writers are compared."""
DISAGREE = 3
"""Cells shown that one of two features alone carries."""
FITTING = "fitting features"
"""The stage that goes over heads, not texts."""
ALIKE_PAIRS = 12
"""Pairs of one head that are looked into at most: the most alike."""


@dataclass(frozen=True, kw_only=True)
class _TextsAsked:
    texts: int
    max_rank: int
    seed: int


def find_unlabelled(
    model: Model,
    corpus: Corpus,
    *,
    heads: str | Sequence[Head | str] = "auto",
    texts: int = TEXTS,
    max_rank: int = MAX_RANK,
    out: str | Path | None = None,
    workers: WorkSharing = 1,
    seed: int = 0,
    progress: Progress | None = None,
) -> UnlabelledResult:
    """Find features of heads from their own attention over ordinary text.

    Parameters
    ----------
    model:
        A loaded model.
    corpus:
        Texts; of each the first 64 tokens are read.
    heads:
        ``auto`` takes the heads whose attention changes most with the text; else a list such as ``L18H6,L20H3``.
    texts:
        How many texts at most, spread evenly over the corpus. Each third one is held out.
    max_rank:
        The largest span of one head.
    out:
        A folder that keeps the run; one that was interrupted is continued.
    workers:
        Processes that share the passes over texts; above 1, each loads the model anew. Or a
        :class:`~headwise.scale.cluster.RayCluster`.
    seed:
        The seed of everything random.
    progress:
        Told the stage, how many of its parts are done, and how many there are.

    Returns
    -------
    UnlabelledResult
        Heads, features with their strongest cells, pairs that seem to do the same, and the feature bank.
    """
    if not 1 <= max_rank <= model.d_head:
        raise HeadwiseError(f"max_rank={max_rank} is outside 1..{model.d_head}, the head's dimensions")
    engine = engine_for(model, workers)
    named = None if heads == "auto" else model.heads_named(heads)
    chosen = corpus.first(texts)
    ids = _token_ids(model, chosen)
    asked = _TextsAsked(texts=texts, max_rank=max_rank, seed=seed)
    config = {
        "model": model.name,
        "weight_hash": model.weight_hash,
        "dtype": str(model.dtype).removeprefix("torch."),
        "corpus": chosen.name,
        "digest": chosen.digest,
        "tokens": TOKENS,
        "part": PART,
        "placebos": PLACEBOS,
        "heads": "auto" if named is None else [str(h) for h in named],
        **asdict(asked),
    }
    return run_study(
        KIND,
        config,
        lambda work: _TextStudy(model, chosen.name, ids, asked, work).run(named, config),
        UnlabelledResult.load,
        engine=engine,
        out=out,
        progress=progress,
    )


def _token_ids(model: Model, corpus: Corpus) -> list[tuple[int, ...]]:
    """The beginnings of the texts as tokens, those that are long enough."""
    most = min(TOKENS, model.context or TOKENS)
    # A text may be longer than the model's context: only its beginning is read.
    found = [tuple(encode_one(model.tokenizer, text, None, model.vocabulary)[:most]) for text in corpus.texts]
    usable = [ids for ids in found if len(ids) >= SHORT]
    if len(usable) < LEAST:
        said = "text" if len(usable) == 1 else "texts"
        raise HeadwiseError(
            f"the corpus {corpus.name!r} has {len(usable)} usable {said}: features without labels take at least "
            f"{LEAST}, each of {SHORT} tokens or more"
        )
    return usable


class _TextStudy:
    """The stages of one study."""

    def __init__(
        self, model: Model, corpus: str, ids: list[tuple[int, ...]], asked: _TextsAsked, work: Stages
    ) -> None:
        self.model, self.corpus, self.ids, self.asked, self.work = model, corpus, ids, asked, work
        self.warnings: list[str] = []

    def run(self, named: list[Head] | None, config: dict[str, Any]) -> UnlabelledResult:
        chunks = cut(self.ids, PART)
        scan = Scanned.cat(self.work("looking at every head", TextScanJob(), chunks))
        changes = scan.changes()
        heads = tuple(self._most_changing(changes) if named is None else named)
        parts = tuple(self.work("reading heads", VectorsJob(heads), chunks))
        rows = TextRows(heads, parts, scan.sinks())
        held_out = tuple(range(EVERY - 1, len(self.ids), EVERY))
        fit = tuple(i for i in range(len(self.ids)) if i not in set(held_out))
        tokens = [shown(self.model.tokenizer, list(ids)) for ids in self.ids]
        tick = self.work.begin(FITTING, len(heads))
        found: list[HeadFound] = []
        for head in heads:
            one = HeadTexts(
                head=head,
                rows=rows,
                fit=fit,
                held_out=held_out,
                tokens=tokens,
                cap=rows.cap(head),
                changes=float(changes[head.layer, head.index]),
                seed=self.asked.seed,
            )
            try:
                found.append(find_in_head(one, self.asked.max_rank))
            except HeadwiseError as error:
                if named is not None:
                    raise
                self.warnings.append(f"{error}: skipped")
            tick(1)
        if not found:
            raise HeadwiseError(f"no head has features in {self.corpus!r}: {self.warnings[0]}")
        features = [one for head in found for one in head.features]
        held = claims(
            [one.claim.p for one in features],
            null=NULL,
            draws=features[0].claim.draws,
            group="all features of the run",
            fit=[one.known for one in features],
        )
        return UnlabelledResult(
            model=self.model.name,
            weight_hash=self.model.weight_hash,
            corpus=self.corpus,
            texts=len(self.ids),
            held_out=len(held_out),
            sinks=int(scan.sinks()[:, 1:].sum()),
            heads=tuple(one.row for one in found),
            features=tuple(replace(one, claim=claim) for one, claim in zip(features, held, strict=True)),
            pairs=judged([pair for head in found for pair in self._pairs(head, tokens)]),
            warnings=tuple(self.warnings),
            bank=FeatureBank(
                self.model.name,
                self.model.weight_hash,
                self.corpus,
                tuple(
                    replace(one, supported=claim.supported)
                    for one, claim in zip((one for head in found for one in head.bank), held, strict=True)
                ),
            ),
            config=config,
        )

    def _most_changing(self, changes: Tensor) -> list[Head]:
        order = changes.flatten().argsort(descending=True, stable=True)[:MOST].tolist()
        width = changes.shape[1]
        return sorted(Head(place // width, place % width) for place in order)

    def _pairs(self, one: HeadFound, tokens: Sequence[Sequence[str]]) -> list[FeaturePair]:
        """Features of a head that carry the same cells, the most alike first."""
        names = one.found.names
        known = [pair for pair in alike(one.parts) if one.found.known[pair[0]] and one.found.known[pair[1]]]
        known.sort(key=lambda pair: -pair[2] / pair[3])
        return [
            FeaturePair(
                head=str(one.head),
                first=names[a],
                second=names[b],
                overlap=overlap,
                chance=chance,
                swaps=self._swaps(one, a, b),
                writers=self._writers(one, a, b),
                only_first=_disagreement(one, a, b, tokens),
                only_second=_disagreement(one, b, a, tokens),
            )
            for a, b, overlap, chance in known[:ALIKE_PAIRS]
        ]

    def _swaps(self, one: HeadFound, a: int, b: int) -> PairTest | None:
        """Swaps in cells that only one of two features carries."""
        held = carried(one.parts)
        mine, theirs = (_same_cells(one, held[i] & ~held[j]) for i, j in ((a, b), (b, a)))
        return swap_difference(
            mine, theirs, one.moved[[a, b]], one.swapped.unit, self.asked.seed, str(one.head), a, b
        )

    def _writers(self, one: HeadFound, a: int, b: int) -> PairTest | None:
        """Who writes the keys' coordinate, in cells that only one of two features carries.

        One cell per text and feature: cells of a text share their words, and are not exchangeable one by one.
        """
        profiles: list[tuple[list[str], Tensor]] = []
        texts = []
        for i, j in ((a, b), (b, a)):
            chosen = varied(one.parts, _only(one, i, j).tolist(), CELLS)
            cells = one.parts.cells.chosen(torch.tensor(chosen, dtype=torch.long))
            profiles.append(writer_profiles(self.model, one.head, one.found, i, cells, self.ids))
            texts.append(cells.unit)
        names = list(dict.fromkeys([*profiles[0][0], *profiles[1][0]]))
        first, second = (_ordered(names, *profile) for profile in profiles)
        return writer_test(first, second, torch.cat(texts), self.asked.seed, str(one.head), a, b)


def _only(one: HeadFound, mine: int, other: int) -> Tensor:
    """Numbers of the cells that one feature carries and another does not, the strongest first."""
    held = carried(one.parts)
    only = (held[mine] & ~held[other]).nonzero()[:, 0]
    return only[one.parts.contribution[mine, only].argsort(descending=True)]


def _disagreement(
    one: HeadFound, mine: int, other: int, tokens: Sequence[Sequence[str]]
) -> tuple[CellInText, ...]:
    """The strongest of these cells in their texts, one per text."""
    chosen = varied(one.parts, _only(one, mine, other).tolist(), DISAGREE)
    return tuple(in_text(tokens, one.parts, mine, cell) for cell in chosen)


def _same_cells(one: HeadFound, wanted: Tensor) -> Tensor:
    """Which of the swapped cells are among some of the attended ones."""
    cells = one.parts.cells
    places = {
        (int(cells.unit[i]), int(cells.row[i]), int(cells.key[i])) for i in wanted.nonzero()[:, 0].tolist()
    }
    mine = zip(one.swapped.unit.tolist(), one.swapped.row.tolist(), one.swapped.key.tolist(), strict=True)
    return torch.tensor([place in places for place in mine])


def _ordered(names: Sequence[str], mine: Sequence[str], profile: Tensor) -> Tensor:
    """Profiles [n, writers] with a column for every name."""
    made = profile.new_zeros(len(profile), len(names))
    made[:, [names.index(name) for name in mine]] = profile
    return made
