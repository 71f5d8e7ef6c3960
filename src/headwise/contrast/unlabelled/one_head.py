"""One head from rows of attention to features: fitted on some texts, measured on others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from headwise.claims import claim
from headwise.contrast.bank import BankFeature
from headwise.contrast.subspaces import principal_components
from headwise.contrast.swaps import Edited, swap_test
from headwise.contrast.unlabelled.attention_rows import AttendedCells
from headwise.contrast.unlabelled.cells import CellInText
from headwise.contrast.unlabelled.collect import TextRows
from headwise.contrast.unlabelled.features import LabelFree
from headwise.contrast.unlabelled.held_out import CellParts, ExplainedShare, span_logits, swap_effects
from headwise.contrast.unlabelled.result import UnlabelledFeature, UnlabelledHead
from headwise.contrast.unlabelled.self_contrast import SelfContrast
from headwise.errors import HeadwiseError
from headwise.randomness import keyed
from headwise.types import Head

PLACEBOS = 200
"""Times that the attention is dealt anew: enough for a p that passes a correction over the features of a few heads."""
NULL = "the spans of attention dealt anew"
FEATURES = 10
"""Features of one head at most: as many as share one logit in an explanation."""
CELLS = 40
"""Attended cells that are too few to say anything of."""
SHOWN = 8
"""Strongest cells of a feature."""
AROUND = 6
"""Tokens shown before the key and after the query."""


@dataclass(frozen=True, eq=False)
class HeadFound:
    """What one head's texts gave."""

    head: Head
    found: LabelFree
    row: UnlabelledHead
    features: tuple[UnlabelledFeature, ...]
    parts: CellParts
    swapped: AttendedCells
    """Cells whose key was swapped: the strongest of each row."""
    moved: Tensor
    """[F, n]: by how much each feature's swap moved their log-odds."""

    @property
    def bank(self) -> list[BankFeature]:
        """The features for a bank, in the query's frame."""
        contrast = self.found.contrast
        return [
            BankFeature(
                name=one.name,
                head=self.head,
                query=one.query,
                key=one.key,
                sigma=one.sigma,
                rank_energy=min(one.rank, contrast.rank_energy_),
                rank_null=min(one.rank, contrast.rank_null_),
                frame="query",
            )
            for one in self.found.features
        ]


@dataclass(frozen=True, eq=False)
class HeadTexts:
    """One head's texts, those that fit and those that are held out."""

    head: Head
    rows: TextRows
    fit: tuple[int, ...]
    held_out: tuple[int, ...]
    tokens: Sequence[Sequence[str]]
    """The tokens of every text."""
    cap: float | None
    changes: float
    seed: int

    @property
    def scale(self) -> float:
        return self.rows.scale(self.head)


def find_in_head(texts: HeadTexts, max_rank: int) -> HeadFound:
    """Fit span, axes and groups of one head, and measure them on the held-out texts."""
    contrast = _span(texts, max_rank)
    held = [rows.cells() for _, rows in texts.rows.of(texts.head, texts.held_out)]
    cells = AttendedCells.cat(held)
    if len(cells) < CELLS:
        raise HeadwiseError(
            f"{texts.head} attends to {len(cells)} cells of the held-out texts, fewer than {CELLS}: give more texts"
        )
    found = LabelFree.fit(contrast, cells, seed=texts.seed)
    share = _parts(texts, found).share()
    found = found.strongest(share.tolist(), FEATURES)
    return _measured(texts, found)


def _span(texts: HeadTexts, max_rank: int) -> SelfContrast:
    contrast = SelfContrast(placebos=PLACEBOS, max_rank=max_rank, seed=texts.seed).reset()
    for _, rows in texts.rows.of(texts.head, texts.fit):
        contrast.partial_fit(rows)
    contrast.finish()
    cells = len(contrast.cells_)
    if cells < CELLS:
        raise HeadwiseError(
            f"{texts.head} attends to {cells} cells besides the first token and sinks (attention of 0.2 or more), "
            f"fewer than {CELLS}: name another head or give more texts"
        )
    if contrast.rank_ < 1:
        raise HeadwiseError(
            f"{texts.head} has no direction above the placebo in these texts: name another head or give more texts"
        )
    return contrast


def _parts(texts: HeadTexts, found: LabelFree) -> CellParts:
    rows = texts.rows.of(texts.head, texts.held_out)
    return CellParts.cat([CellParts.of(found, one, texts.scale) for _, one in rows])


def _measured(texts: HeadTexts, found: LabelFree) -> HeadFound:
    contrast, features = found.contrast, found.features
    ranks = sorted({one.rank for one in features})
    _, _, right = torch.linalg.svd(contrast.placebos_)
    placebo = {rank: right[:, :rank].mT for rank in {*ranks, contrast.rank_}}
    bases = [*(one.key for one in features), *(placebo[rank] for rank in ranks)]
    principal = principal_components(contrast.cells_.k, contrast.rank_).basis
    spans = {"explained": contrast.key_, "principal": principal}
    some = placebo[contrast.rank_][:5]
    explained = {name: ExplainedShare() for name in (*spans, *range(len(some)))}
    parts, cells, edits, whole = [], [], [], []
    for _, rows in texts.rows.of(texts.head, texts.held_out):
        for name, basis in (*spans.items(), *enumerate(some)):
            explained[name] = explained[name].plus(rows, span_logits(rows, basis, texts.scale, texts.cap))
        parts.append(CellParts.of(found, rows, texts.scale))
        swapped = swap_effects(rows, bases, texts.scale, texts.seed, texts.cap)
        if swapped is not None:
            cells.append(swapped[0])
            edits.append(swapped[1])
            whole.append(swapped[2])
    joined = [Edited.cat([one[i] for one in edits]) for i in range(len(bases))]
    full, every = Edited.cat(whole), CellParts.cat(parts)
    swapped_cells = AttendedCells.cat(cells)
    nulls = dict(zip(ranks, joined[len(features) :], strict=True))
    row = UnlabelledHead(
        head=str(texts.head),
        changes=texts.changes,
        rows=contrast.n_rows_,
        cells=len(contrast.cells_),
        held_out=len(every.cells),
        rank_energy=contrast.rank_energy_,
        rank_null=contrast.rank_null_,
        rank=contrast.rank_,
        identified=int(found.axes.identified_.sum()),
        explained=explained["explained"].share,
        principal=explained["principal"].share,
        placebo=sum(explained[i].share for i in range(len(some))) / len(some),
        sigma=tuple(contrast.sigma_.tolist()),
        null_sigma=tuple(
            torch.linalg.svdvals(contrast.placebos_).quantile(1 - contrast.alpha, dim=0).tolist()
        ),
    )
    made = tuple(
        _feature(texts, found, every, i, (joined[i], full, nulls[features[i].rank]), swapped_cells.unit)
        for i in range(len(features))
    )
    moved = torch.stack([joined[i].log_odds[0] for i in range(len(features))])
    return HeadFound(texts.head, found, row, made, every, swapped_cells, moved)


def _feature(
    texts: HeadTexts,
    found: LabelFree,
    parts: CellParts,
    number: int,
    swaps: tuple[Edited, Edited, Edited],
    unit: Tensor,
) -> UnlabelledFeature:
    """One feature; ``unit`` [n] are the texts of the swapped cells, which are resampled as one."""
    name, group = found.names[number], list(found.groups[number])
    test = swap_test(*swaps, generator=keyed(texts.seed, "swap", str(texts.head), name), clusters=unit)
    cells = parts.cells
    asked, has = found.asked(cells.q)[:, group], found.coordinates(cells.k)[:, group]
    strongest = _strongest(parts, number)
    return UnlabelledFeature(
        head=str(texts.head),
        name=name,
        rank=len(group),
        known=found.known[number],
        share=float(parts.share()[number]),
        alignment=_alignment(asked, has),
        halves=found.halves[number],
        seeds=found.seeds[number],
        swap=test.share,
        null_share=sum(test.random_shares) / len(test.random_shares),
        claim=claim(test.p_value, null=NULL, draws=len(test.random_shares), fit=found.known[number]),
        keys=_commonest(texts, [(int(cells.unit[i]), int(cells.key[i])) for i in strongest]),
        queries=_commonest(texts, [(int(cells.unit[i]), int(cells.row[i])) for i in strongest]),
        cells=tuple(in_text(texts.tokens, parts, number, i) for i in varied(parts, strongest)),
    )


def _alignment(asked: Tensor, has: Tensor) -> float:
    """Mean correlation of what is asked for with what is there, over the axes of a feature."""
    a, b = ((x - x.mean(0)) for x in (asked, has))
    size = (a.norm(dim=0) * b.norm(dim=0)).clamp_min(1e-30)
    return float(((a * b).sum(0) / size).mean())


def _strongest(parts: CellParts, number: int) -> list[int]:
    """The strongest twentieth of a feature's cells, at least 40 of them, the strongest first."""
    values = parts.contribution[number]
    return values.argsort(descending=True)[: max(40, len(values) // 20)].tolist()


def varied(parts: CellParts, order: Sequence[int], most: int = SHOWN) -> list[int]:
    """The first cells of an order, one per text."""
    seen: dict[int, int] = {}
    for cell in order:
        seen.setdefault(int(parts.cells.unit[cell]), cell)
    return list(seen.values())[:most]


def _commonest(texts: HeadTexts, places: Sequence[tuple[int, int]]) -> tuple[str, ...]:
    count = Counter(texts.tokens[text][position] for text, position in places)
    return tuple(token for token, _ in sorted(count.items(), key=lambda item: (-item[1], item[0]))[:5])


def in_text(texts: Sequence[Sequence[str]], parts: CellParts, number: int, cell: int) -> CellInText:
    """A cell with the tokens around it, and what one feature does there."""
    cells = parts.cells
    text, query, key = int(cells.unit[cell]), int(cells.row[cell]), int(cells.key[cell])
    tokens = texts[text]
    low, high = max(0, min(key, query) - AROUND), min(len(tokens), max(key, query) + AROUND + 1)
    return CellInText(
        text=text,
        tokens=tuple(tokens[low:high]),
        query=query - low,
        key=key - low,
        attention=float(cells.attention[cell]),
        part=float(parts.contribution[number, cell]),
        without=float(parts.without[number, cell]),
    )
