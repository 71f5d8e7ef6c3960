"""The vocabulary view: what a vector of the stream looks like through the token embeddings and the unembedding.

No text is needed, weights alone are looked at (docs/method/why.md):

    (V1)   embedding      cos(E_t, y)                      tokens whose embedding points along y
    (V2)   unembedding    ⟨U_t − mean U, n(y)⟩             tokens that a stream of y alone would raise; n: final norm

A channel reads a direction of the stream on either side; a head moves what it reads along the singular directions of
its output map; a writer wrote a vector. Queries and keys are taken before rotation, which is the query's frame at
distance 0. Whatever lies between a layer and the embeddings or the unembedding is left out, so the tokens are a *hint*
and not a name: what a channel does is measured where it acts, in prompts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from headwise.arguments import count
from headwise.bases.basis import Basis, directions
from headwise.basis_names import BasisKind, BasisName
from headwise.contrast.roles import ordinary_tokens
from headwise.errors import HeadwiseError
from headwise.tokens import shown
from headwise.tracing.vectors import component_writes
from headwise.tracing.writes import PromptWrites
from headwise.types import Cell, Component, Head, HeadLike, Side

if TYPE_CHECKING:
    from headwise.model.model import Model

TOP = 5
"""Tokens at either end."""
CHANNELS = 3
"""Channels and output directions of a head that are shown."""
PART = 16_384
"""Tokens whose rows are multiplied at once."""
HINT = "a hint, not a name: tokens of the weights alone, at distance 0, with nothing of a prompt in it"


@dataclass(frozen=True)
class ScoredToken:
    """A token at one end of a direction."""

    token: str
    """The token as text."""
    score: float
    """Its cosine with the direction (embedding), or what is added to its logit against the mean token."""


@dataclass(frozen=True)
class TokenEnds:
    """The tokens at both ends of a direction."""

    most: tuple[ScoredToken, ...]
    """Along it, the furthest first."""
    least: tuple[ScoredToken, ...]
    """Against it, the furthest first."""


@dataclass(frozen=True)
class VocabularyView:
    """One direction of the stream in tokens."""

    embedding: TokenEnds
    """Tokens whose embedding points along it, or against it (V1)."""
    unembedding: TokenEnds
    """Tokens that it raises or lowers if the stream holds nothing else (V2)."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class ChannelVocabulary:
    """What one channel of a head reads on either side. A product of two coordinates: query and key of equal signs go
    together, *most* with *most* and *least* with *least*."""

    channel: int
    """Its number."""
    energy: float
    """Its singular value, or how strongly queries and keys meet in it (balanced)."""
    query: VocabularyView
    """What it reads of the query's stream."""
    key: VocabularyView
    """What it reads of the key's stream."""


@dataclass(frozen=True)
class OutputVocabulary:
    """One singular direction of what a head moves: W_O W_V, the norm's gain included."""

    singular_value: float
    """By how much what is read is scaled."""
    reads: TokenEnds
    """Tokens whose embedding points along what it reads (V1)."""
    writes: TokenEnds
    """Tokens that what it then writes raises or lowers (V2)."""


@dataclass(frozen=True)
class HeadVocabulary:
    """A head in tokens: a hint and not a name."""

    model: str
    """The model's name."""
    head: Head
    """The head."""
    basis: BasisName
    """What the channels are channels of."""
    channels: tuple[ChannelVocabulary, ...]
    """The channels of the largest energy."""
    outputs: tuple[OutputVocabulary, ...]
    """The largest directions of what it moves."""

    def to_json(self) -> dict[str, Any]:
        """One document."""
        return {
            "model": self.model,
            "head": str(self.head),
            "basis": self.basis.to_json(),
            "hint": HINT,
            "channels": [asdict(one) for one in self.channels],
            "outputs": [asdict(one) for one in self.outputs],
        }

    def _repr_html_(self) -> str:
        from headwise.show.notebook import head_vocabulary as show

        return show(self)


def head_vocabulary(
    model: Model,
    head: HeadLike,
    *,
    basis: BasisKind = "singular",
    channels: int = CHANNELS,
    top: int = TOP,
) -> HeadVocabulary:
    """A head through the vocabulary: which tokens its strongest channels read, and what it writes. A hint, not a name.

    Parameters
    ----------
    model:
        A loaded model.
    head:
        The head, such as ``L22H4``.
    basis:
        Which channels: ``singular``, ``balanced`` (after ``headwise calibrate``) or ``rotated``.
    channels:
        How many channels, and how many directions of its output.
    top:
        How many tokens at either end.

    Returns
    -------
    HeadVocabulary
        Per channel the tokens of query and key, per output direction the tokens read and written.
    """
    wanted = model.head(head)
    channels = count(channels, "channels", "shows nothing")
    tokens = Vocabulary(model, count(top, "top", "shows nothing"))
    chosen = Basis.of(model, wanted, kind=basis)
    numbers = list(range(min(channels, int(chosen.rank))))
    shown_channels = channel_views(tokens, wanted, chosen, numbers)
    reads, values, writes = _output(model, wanted)
    read, wrote = tokens.embedding(reads[:channels]), tokens.unembedding(writes[:channels])
    return HeadVocabulary(
        model=model.name,
        head=wanted,
        basis=chosen.name,
        channels=tuple(shown_channels.values()),
        outputs=tuple(
            OutputVocabulary(value, one, other)
            for value, one, other in zip(values[:channels].tolist(), read, wrote, strict=True)
        ),
    )


def vocabulary_rows(found: HeadVocabulary) -> list[tuple[str, str, list[str]]]:
    """One line per direction and end: of what it is, through what it is seen, and the tokens."""
    rows: list[tuple[str, str, list[str]]] = []
    for one in found.channels:
        for side, view in (("query", one.query), ("key", one.key)):
            for through, ends in (("embedding", view.embedding), ("unembedding", view.unembedding)):
                rows += _both(f"channel {one.channel} {side}", through, ends)
    for number, one in enumerate(found.outputs):
        rows += _both(f"output {number} reads", "embedding", one.reads)
        rows += _both(f"output {number} writes", "unembedding", one.writes)
    return rows


def _both(name: str, through: str, ends: TokenEnds) -> list[tuple[str, str, list[str]]]:
    some = ((" +", ends.most), (" −", ends.least))
    return [(name + sign, through, [one.token for one in listed]) for sign, listed in some]


class Vocabulary:
    """The ordinary tokens of a model; vectors of the stream are ranked by them."""

    def __init__(self, model: Model, top: int = TOP) -> None:
        self.model, self.top = model, top
        self.ids = torch.tensor(ordinary_tokens(model))

    def embedding(self, vectors: Tensor) -> list[TokenEnds]:
        """The tokens whose embeddings point along vectors [n, d_model], and against them (V1)."""
        weight = self.model.anatomy.embedding_weights()
        if weight.shape[-1] != vectors.shape[-1]:
            raise HeadwiseError(
                f"{self.model.name!r} projects its embeddings from {weight.shape[-1]} to {vectors.shape[-1]} "
                "dimensions: there is no vocabulary view of such a model"
            )
        unit = torch.nn.functional.normalize(vectors.float(), dim=-1)
        return self._ends(weight, unit.to(weight.device), cosine=True)

    def unembedding(self, vectors: Tensor) -> list[TokenEnds]:
        """The tokens that streams [n, d_model] raise and lower, against the mean token (V2)."""
        weight, _ = self.model.anatomy.unembedding_weights()
        norm = self.model.anatomy.final_norm()
        vectors = vectors.float().to(weight.device)
        if norm is not None:
            vectors = norm.linear(vectors, norm.scale(vectors))
        return self._ends(weight, vectors, cosine=False)

    def views(self, vectors: Tensor) -> list[VocabularyView]:
        """Both, of vectors [n, d_model]."""
        pairs = zip(self.embedding(vectors), self.unembedding(vectors), strict=True)
        return [VocabularyView(*pair) for pair in pairs]

    def _ends(self, weight: Tensor, vectors: Tensor, *, cosine: bool) -> list[TokenEnds]:
        scores = vectors.new_empty(len(vectors), len(weight))
        for start in range(0, len(weight), PART):
            rows = weight[start : start + PART].to(vectors.dtype)
            part = torch.mm(vectors, rows.mT, out=scores[:, start : start + PART])
            if cosine:
                part /= rows.norm(dim=-1).clamp_min(1e-12)
        scores, number = scores[:, self.ids.to(scores.device)].cpu(), min(self.top, len(self.ids))
        if not cosine:
            scores = scores - scores.mean(-1, keepdim=True)
        ends = [(sign * scores).topk(number, -1) for sign in (1.0, -1.0)]
        return [
            TokenEnds(*(self._tokens(end.indices[i], scores[i]) for end in ends)) for i in range(len(vectors))
        ]

    def _tokens(self, places: Tensor, scores: Tensor) -> tuple[ScoredToken, ...]:
        ids = self.ids[places].tolist()
        texts = (shown(self.model.tokenizer, [token])[0] for token in ids)
        return tuple(ScoredToken(*pair) for pair in zip(texts, scores[places].tolist(), strict=True))


def channel_views(
    tokens: Vocabulary, head: Head, basis: Basis, channels: Sequence[int]
) -> dict[int, ChannelVocabulary]:
    """Some channels of a head in tokens, by number. Null channels, which read no direction, are left out."""
    numbers, read = _read(tokens.model, head, basis, channels)
    return _by_channel(basis, numbers, tokens.views(read))


def _read(model: Model, head: Head, basis: Basis, channels: Sequence[int]) -> tuple[list[int], Tensor]:
    """Those channels that read something, and what they read [2n, d_model]: of the query, then of the key."""
    numbers = [channel for channel in channels if channel < int(basis.rank)]
    sides: tuple[Side, ...] = ("query", "key")
    return numbers, torch.cat([directions(model, head, basis, side).mT[numbers] for side in sides])


def _by_channel(
    basis: Basis, numbers: Sequence[int], views: Sequence[VocabularyView]
) -> dict[int, ChannelVocabulary]:
    energies, n = basis.energies.tolist(), len(numbers)
    return {
        channel: ChannelVocabulary(channel, energies[channel], query, key)
        for channel, query, key in zip(numbers, views[:n], views[n:], strict=True)
    }


def _output(model: Model, head: Head) -> tuple[Tensor, Tensor, Tensor]:
    """Singular directions [n, d_model] of what a head reads, their values [n], and what it writes [n, d_model]."""
    anatomy = model.anatomy
    out = anatomy.output(head.layer).weight[head.index].detach().double().cpu()  # [d_model, d_head]
    value = anatomy.value(head.layer).weight[head.index // anatomy.group].detach().double().cpu()
    norm = anatomy.attention_norm(head.layer)
    if norm is not None:
        value = norm.pull(value, torch.ones(1, dtype=value.dtype))
    # The product has d_model² entries and the rank of a head: two thin factors have the same singular vectors.
    left, small = torch.linalg.qr(out)
    right, other = torch.linalg.qr(value.mT)
    u, values, v = torch.linalg.svd(small @ other.mT)
    return (right @ v.mT).mT, values, (left @ u).mT


# --- of one explanation ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class CellVocabulary:
    """The channels and writers of one explained cell, in tokens."""

    channels: Mapping[int, ChannelVocabulary]
    """By number."""
    writers: Mapping[tuple[Side, Component], VocabularyView]
    """What a writer wrote at the query, or at the key."""


def cell_vocabulary(
    up: PromptWrites, cell: Cell, channels: Sequence[int], writers: Sequence[tuple[Side, Component]]
) -> CellVocabulary:
    """The view of some channels of a cell's head, and of some writers at its query or key."""
    tokens, written = Vocabulary(up.stream.model), {}
    for side, writer in writers:
        if writer.kind == "offset":
            continue  # the head's own bias is no part of the stream
        vector = component_writes(up, writer)[cell.query if side == "query" else cell.key]
        if bool(vector.any()):  # a head that could not see its token at the key wrote nothing there
            written[side, writer] = vector.double()
    basis, n = up.bases.head(cell.head), len(written)
    numbers, read = _read(tokens.model, cell.head, basis, channels)
    # All at once: most of the time goes into reading the vocabulary's rows, not into multiplying them.
    views = tokens.views(torch.cat((*(vector[None].cpu() for vector in written.values()), read)))
    return CellVocabulary(
        channels=_by_channel(basis, numbers, views[n:]), writers=dict(zip(written, views[:n], strict=True))
    )
