"""Where every head looks, row by row: of each row of each text, the strongest cell that is on no sink.

A head that has nothing to do rests on a sink: the first token, or another that all heads together give much
(:mod:`headwise.sinks.find`). What it does beside that is seen once the sinks are left out. Of a row only its strongest
cell is kept, so that as little is held of ten thousand texts as of a few. Rows that see few keys give each of them
much, whatever the head is for, and do not count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch
from torch import Tensor

from headwise.bases.singular import one_thread
from headwise.errors import HeadwiseError
from headwise.model.batch import by_length
from headwise.naming.sample import NumberedText
from headwise.naming.texts import Texts
from headwise.progress import Tick
from headwise.randomness import keyed
from headwise.scale.stages import Stages, ValuesJob, batched
from headwise.scale.work import Chunk
from headwise.sinks.find import THRESHOLD, Parking, on_sinks, tokens_received
from headwise.strings import counted
from headwise.types import Head

if TYPE_CHECKING:
    from headwise.model.model import Model

KEYS = 8
"""Visible keys that a row must have."""
BATCH, MAX_TOKENS = 16, 1024
"""Texts and tokens that are read together: the patterns of every head are held."""
PICTURED = 24
"""Tokens of the text in which every head is pictured."""


@dataclass(frozen=True, eq=False)
class TextPeaks:
    """One text: its sinks, and of every head and row the strongest cell beside them. H heads of the model, T tokens."""

    received: Tensor
    """[T]: the mean attention that each token receives; NaN where too few rows see it."""
    sinks: tuple[int, ...]
    """The positions of its sinks; the first token need not be one."""
    on_sinks: Tensor
    """[H]: the mean attention that each head gives the sinks; NaN where there are none."""
    attention: Tensor
    """[H, T] float32: the strongest attention of each row apart from sinks and the first token; −1 where a row does not
    count."""
    source: Tensor
    """[H, T] int16: where it goes."""
    picture: Tensor
    """[H, P, P] uint8: the square root of the attention over the first tokens, if this is the text to be pictured."""


@dataclass(frozen=True)
class PeaksJob(ValuesJob):
    """The peaks of a batch of texts."""

    kind: ClassVar = TextPeaks
    pictured: int
    """The number of the text in which heads are pictured."""

    @torch.no_grad()
    def make(self, model: Model, chunk: Chunk[NumberedText], _tick: Tick, /) -> list[TextPeaks]:
        texts = [list(ids) for _, ids in chunk.items]
        with one_thread():
            got = model.capture(
                texts, want=("pattern",), logits="none", batch_size=BATCH, max_tokens=MAX_TOKENS
            )
            made = []
            for place, (number, ids) in enumerate(chunk.items):
                t = len(ids)
                pattern, visible = got.pattern[place, :, :t, :t], got.visible[place, :, :t, :t]
                made.append(text_peaks(pattern, visible, picture=number == self.pictured))
        return made


def text_peaks(pattern: Tensor, visible: Tensor, *, picture: bool = False) -> TextPeaks:
    """The peaks of one text, from its patterns and what is visible in them [H, T, T].

    >>> pattern = torch.eye(12).expand(1, -1, -1)
    >>> found = text_peaks(pattern, torch.ones(1, 12, 12).tril().bool())
    >>> found.attention[0, 5:9].tolist(), found.source[0, 8].item(), found.sinks
    ([-1.0, -1.0, 1.0, 1.0], 8, ())
    """
    received = tokens_received(pattern, visible)
    sinks = tuple((received >= THRESHOLD).nonzero()[:, 0].tolist())
    columns = torch.ones(pattern.shape[-1], dtype=torch.bool, device=pattern.device)
    columns[[0, *sinks]] = False
    seen = visible & columns
    counts = (visible.sum(-1) >= KEYS) & seen.any(-1)
    best = pattern.masked_fill(~seen, -1.0).max(-1)
    small = pattern[:, :PICTURED, :PICTURED] if picture else pattern[:, :0, :0]
    return TextPeaks(
        received.cpu(),
        sinks,
        on_sinks(pattern, visible, sinks).cpu(),
        torch.where(counts, best.values, -1.0).float().cpu(),
        torch.where(counts, best.indices, 0).short().cpu(),
        (small.clamp(0, 1).sqrt() * 255).round().to(torch.uint8).cpu(),
    )


@dataclass(frozen=True, eq=False)
class Peaks:
    """The peaks of all texts, as columns over the rows of one head that count: texts in order, rows in order."""

    texts: Texts
    parking: Parking
    """Sinks by text, and what every head gives them."""
    attention: Sequence[Tensor]
    """Per text [H, T]."""
    source: Sequence[Tensor]
    """Per text [H, T]."""
    picture: Tensor
    """[H, P, P]"""

    def of(self, head: int) -> HeadPeaks:
        """The rows of one head, by its number in the model."""
        return HeadPeaks(
            torch.cat([one[head] for one in self.attention]).numpy(),
            torch.cat([one[head] for one in self.source]).numpy(),
            self.texts,
        )


class HeadPeaks:
    """One head's rows that count: which text, which row, which key, how much attention."""

    def __init__(self, attention: np.ndarray, source: np.ndarray, texts: Texts) -> None:
        """``attention`` and ``source`` [tokens] are over all tokens of all texts."""
        self.at = np.flatnonzero(attention >= 0)
        """[rows]: where the rows are among all tokens."""
        self.attention, self.source = attention[self.at], source[self.at].astype(np.int64)
        self.text, self.row = texts.text[self.at], texts.position[self.at]
        self.key = texts.starts[self.text] + self.source
        """[rows]: where the keys are among all tokens."""

    def __len__(self) -> int:
        return len(self.at)

    @cached_property
    def order(self) -> np.ndarray:
        """The rows, strongest first; of equal ones the earlier."""
        return np.argsort(-self.attention, kind="stable")

    def tenth(self, number: int) -> np.ndarray:
        """The rows of one decile, strongest first; decile 0 is the strongest. Together they are all rows."""
        n = len(self)
        return self.order[number * n // 10 : (number + 1) * n // 10]


def find_peaks(model: Model, texts: Texts, seed: int, work: Stages) -> Peaks:
    """Read all texts and keep their peaks."""
    items: list[NumberedText] = [(number, tuple(texts.ids_of(number))) for number in range(len(texts))]
    batches = list(by_length([ids for _, ids in items], BATCH, MAX_TOKENS))
    pictured = pictured_text(texts, seed)
    parts = work("attention", PeaksJob(pictured), batched([[items[i] for i in batch] for batch in batches]))
    found: dict[int, TextPeaks] = {}
    for batch, part in zip(batches, parts, strict=True):
        found |= zip(batch, part, strict=True)
    ordered = [found[number] for number in range(len(texts))]
    attention = torch.stack([one.on_sinks for one in ordered]).view(-1, model.n_layers, model.n_heads)
    parking = Parking(
        [list(ids) for _, ids in items],
        [one.sinks for one in ordered],
        [one.received for one in ordered],
        attention,
    )
    return Peaks(
        texts,
        parking,
        [one.attention for one in ordered],
        [one.source for one in ordered],
        found[pictured].picture,
    )


def text_order(texts: Texts, seed: int) -> list[int]:
    """The texts in a random order, the same for every head: heads that share texts share their passes."""
    return torch.randperm(len(texts), generator=keyed(seed, "portraits", "texts")).tolist()


def pictured_text(texts: Texts, seed: int) -> int:
    """The text in which heads are pictured: the first in the order that is long enough, else the longest."""
    order = text_order(texts, seed)
    longest = max(order, key=lambda number: int(texts.lengths[number]))
    return next((number for number in order if texts.lengths[number] >= PICTURED), longest)


def refuse_short(texts: Texts, name: str) -> None:
    """Refuse texts in which no row sees enough keys."""
    if not len(texts) or int(texts.lengths.max()) < KEYS:
        raise HeadwiseError(f"no text of the corpus {name!r} has {KEYS} tokens: give longer texts")


def nothing_seen(head: Head, peaks: HeadPeaks, texts: int, least: float) -> HeadwiseError:
    """Why there is no portrait of a head that never attends beyond sinks."""
    most = float(peaks.attention.max()) if len(peaks) else 0.0
    return HeadwiseError(
        f"{head} never gives {least:g} of its attention to a token that is no sink in {counted(texts, 'text')} (the "
        f"most is {most:.2f}): there is nothing to portray; choose another head or other texts"
    )
