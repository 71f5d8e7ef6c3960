"""A portrait from its parts: the rows of a head, the accounts of its cells, and what is known of it otherwise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from headwise.intervals import as_share, estimate
from headwise.known_names import pole_of
from headwise.naming.texts import Texts
from headwise.portraits.accounts import SIDES, CellAccount, stacked
from headwise.portraits.habits import (
    Account,
    CellInContext,
    ChannelHabit,
    Decile,
    DistanceShare,
    Does,
    ExplainedCell,
    Looks,
    MovedToken,
    PlaceHabit,
    TokenShare,
    WriterHabit,
)
from headwise.portraits.peaks import HeadPeaks
from headwise.randomness import keyed
from headwise.tracing.whole import whole_writers
from headwise.types import Estimate, Head
from headwise.why.consequence import TokenEffect

if TYPE_CHECKING:
    from headwise.model.model import Model

STRONGEST = 5
"""Strongest cells that are shown."""
PER_DECILE = 2
"""Cells of each decile that are shown."""
TOKENS = 8
"""Tokens that are shown."""
WRITERS = 5
"""Writers of each side that are shown."""
CHANNELS = 4
"""Channels that are shown."""
FIRST = 3
"""A writer or channel takes part in a cell if it is among so many of the largest."""
DISTANCES = ((0, 0), (1, 1), (2, 3), (4, 7), (8, 15), (16, 31), (32, None))
REASONS = ("content", "place", "interaction", "nothing")


# --- where it looks --------------------------------------------------------------------------------------------------


def looks_of(head: Head, peaks: HeadPeaks, texts: Texts, seed: int) -> Looks:
    """Where a head looks apart from sinks."""
    weights = peaks.attention.astype(np.float64)
    total = max(float(weights.sum()), np.finfo(float).tiny)
    back = peaks.row.astype(np.int64) - peaks.source
    return Looks(
        rows=len(peaks),
        most=float(peaks.attention.max()) if len(peaks) else 0.0,
        strongest=tuple(_context(peaks, texts, row) for row in _one_per_text(peaks, peaks.order, STRONGEST)),
        deciles=tuple(_decile(head, peaks, texts, number, seed) for number in range(10))
        if len(peaks) >= 10
        else (),
        to=_tokens(texts, peaks.key, weights / total),
        of=_tokens(texts, peaks.at, weights / total),
        distances=tuple(
            DistanceShare(
                low,
                high,
                float(weights[(back >= low) & (back <= (high if high is not None else back))].sum()) / total,
            )
            for low, high in DISTANCES
        ),
    )


def _context(peaks: HeadPeaks, texts: Texts, row: int) -> CellInContext:
    text, d, s = int(peaks.text[row]), int(peaks.row[row]), int(peaks.source[row])
    return CellInContext(text, *texts.around(text, d, s), float(peaks.attention[row]))


def _one_per_text(peaks: HeadPeaks, rows: np.ndarray, most: int) -> list[int]:
    """The first rows, at most one per text."""
    found: dict[int, int] = {}
    for row in rows.tolist():
        found.setdefault(int(peaks.text[row]), row)
        if len(found) == most:
            break
    return list(found.values())


def _decile(head: Head, peaks: HeadPeaks, texts: Texts, number: int, seed: int) -> Decile:
    rows = peaks.tenth(number)
    mixed = torch.randperm(len(rows), generator=keyed(seed, "portraits", "decile", str(head), number)).numpy()
    return Decile(
        float(peaks.attention[rows[-1]]),
        float(peaks.attention[rows[0]]),
        tuple(_context(peaks, texts, row) for row in _one_per_text(peaks, rows[mixed], PER_DECILE)),
    )


def _tokens(texts: Texts, places: np.ndarray, weights: np.ndarray) -> tuple[TokenShare, ...]:
    """The tokens at some places with the largest shares, beside how frequent each is."""
    number = len(texts.strings)
    share = np.bincount(texts.string[places], weights, minlength=number)
    frequency = np.bincount(texts.string, minlength=number) / max(1, texts.tokens)
    best = np.argsort(-share, kind="stable")[:TOKENS]
    return tuple(
        TokenShare(texts.strings[i], float(share[i]), float(frequency[i])) for i in best if share[i] > 0
    )


# --- why, and what then ----------------------------------------------------------------------------------------------

Estimated = Callable[..., Estimate]
"""From values [cells] and labels: their mean with its interval over clusters of texts."""


def account_from(
    model: Model,
    head: Head,
    accounts: Sequence[CellAccount],
    texts: Texts,
    clusters: Tensor,
    stable: Tensor,
    seed: int,
) -> Account | None:
    """What the accounts of a head's cells have in common; ``clusters`` [texts], ``stable`` [channels]."""
    if not accounts:
        return None
    which = clusters[[one.text for one in accounts]]

    def mean(values: np.ndarray | Sequence[float], *labels: object) -> Estimate:
        found = torch.as_tensor(np.asarray(values, dtype=np.float64))
        return estimate(found, seed, "portraits", str(head), *labels, clusters=which)

    return Account(
        cells=tuple(_explained(one, texts) for one in accounts),
        place=_place(accounts, mean),
        writers=tuple(habit for side in SIDES for habit in _writers(model, head, accounts, side, mean)),
        channels=_channels(accounts, stable, mean),
        does=_does(accounts, mean),
    )


def _explained(one: CellAccount, texts: Texts) -> ExplainedCell:
    _, query, key = one.cell
    context = CellInContext(one.text, *texts.around(one.text, query, key), one.attention)
    return ExplainedCell(context, query, key, one.log_odds, one.place, one.raised, one.lowered)


def _place(accounts: Sequence[CellAccount], mean: Estimated) -> PlaceHabit:
    reasons = Counter(one.place.reason for one in accounts)
    names = ("content", "place", "interaction", "level")
    return PlaceHabit(
        *(mean([getattr(one.place, name) for one in accounts], "place", name) for name in names),
        reasons={name: reasons[name] / len(accounts) for name in REASONS},
    )


def _writers(
    model: Model, head: Head, accounts: Sequence[CellAccount], side: str, mean: Estimated
) -> list[WriterHabit]:
    assert side in ("query", "key")
    parts = stacked(accounts, side)
    writers = whole_writers(model, head.layer)
    takes_part, best = most_often(parts, WRITERS)
    return [
        WriterHabit(
            side,
            writers[i],
            as_share(mean(takes_part[:, i], side, writers[i].name, "often")),
            mean(parts[:, i], side, writers[i].name),
        )
        for i in best
    ]


def _channels(accounts: Sequence[CellAccount], stable: Tensor, mean: Estimated) -> tuple[ChannelHabit, ...]:
    numbers = stable.nonzero()[:, 0].tolist()
    if not numbers:
        return ()
    parts = torch.stack([one.channels for one in accounts]).double().numpy()[:, numbers]
    takes_part, best = most_often(parts, CHANNELS)
    return tuple(
        ChannelHabit(
            numbers[i],
            _pole(accounts, numbers[i]),
            as_share(mean(takes_part[:, i], "channel", numbers[i], "often")),
            mean(parts[:, i], "channel", numbers[i]),
        )
        for i in best
    )


def _pole(accounts: Sequence[CellAccount], channel: int) -> str:
    """The attracting pole that more of the log-odds goes with."""
    side = sum(float(one.channels[channel]) * (1 if one.poles[channel][0] == "+" else -1) for one in accounts)
    return pole_of([side])


def most_often(parts: np.ndarray, most: int) -> tuple[np.ndarray, list[int]]:
    """Of parts [cells, N]: in which cells each is among the largest, whatever its sign, and who is most often.

    >>> parts = np.array([[3.0, -2.0, 0.1, 1.0], [2.5, -2.0, 0.2, 0.1]])
    >>> takes_part, best = most_often(parts, 2)
    >>> takes_part.tolist(), best
    ([[1.0, 1.0, 0.0, 1.0], [1.0, 1.0, 1.0, 0.0]], [0, 1])
    """
    largest = np.argsort(-np.abs(parts), axis=1, kind="stable")[:, :FIRST]
    takes_part = np.zeros_like(parts)
    np.put_along_axis(takes_part, largest, 1.0, axis=1)
    takes_part *= parts != 0
    often, size = takes_part.mean(0), np.abs(parts.mean(0))
    best = np.lexsort((-size, -often))[:most]
    return takes_part, [int(i) for i in best if often[i] > 0]


def _does(accounts: Sequence[CellAccount], mean: Estimated) -> Does:
    raised, lowered = ([_texts(effects) for effects in some] for some in _moved(accounts))

    def share(said: Sequence[str | None], among: Sequence[set[str]], name: str) -> Estimate:
        pairs = zip(said, among, strict=True)
        return as_share(mean([np.nan if one is None else float(one in some) for one, some in pairs], name))

    read, follows = [one.read for one in accounts], [one.follows for one in accounts]
    return Does(
        copies=share(read, raised, "copies"),
        suppresses=share(read, lowered, "suppresses"),
        foretells=share(follows, raised, "foretells") if any(follows) else None,
        raised=_most_moved(raised),
        lowered=_most_moved(lowered),
    )


def _moved(accounts: Sequence[CellAccount]) -> tuple[list[tuple[TokenEffect, ...]], ...]:
    return [one.raised for one in accounts], [one.lowered for one in accounts]


def _texts(effects: Sequence[TokenEffect]) -> set[str]:
    return {effect.token for effect in effects}


def _most_moved(moved: Sequence[set[str]]) -> tuple[MovedToken, ...]:
    """The tokens that are moved in most cells."""
    counts = Counter(token for some in moved for token in some)
    order = sorted(counts, key=lambda token: (-counts[token], token))[:TOKENS]
    return tuple(MovedToken(token, counts[token]) for token in order)
