"""How strongly a subject acts at every cell of some texts: (N1) and (N2) of the method, in head space.

With P = Σ_{k∈K} g_k h_kᵀ, the part of the identity G_d G_s that some channels make, a signal's logits are one product
of two vectors per cell, in the query's frame

    query side   z(d, s) = scale · R_d Pᵀ q_c(d) · k̃(s)           q_c: the writer's share of the query, unrotated
    key side     z(d, s) = scale · R_d Pᵀ q(d) · k̃_c(s)           k̃_c: the writer's share of the key, rotated

with every norm's scalar frozen, so that over all writers they sum to the channel's. What softmax sees of them is the
difference from the other visible keys: α(d, s) = z(d, s) − mean of z(d, t) over visible t ≠ s. A whole writer has
P = 1. A head's own activation is the log-odds of the cell, and a sink's too.

A score is α where the cell is in the subject's pole, and −|α| elsewhere: cells of another pole are never positive.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from headwise.bases.basis import Bases
from headwise.errors import HeadwiseError
from headwise.model.attend import pattern_rows, raw_scores, soft_cap
from headwise.model.reading import Rotary, side_maps
from headwise.naming.signals import Subject
from headwise.randomness import keyed
from headwise.types import Component, Head, Side

if TYPE_CHECKING:
    from headwise.contrast.bank import BankFeature
    from headwise.model.model import Model
    from headwise.model.stream import Stream

BLOCK = 1 << 21
"""Cells of all subjects together that are worked out at a time: what bounds memory."""


@dataclass(frozen=True, eq=False)
class Form:
    """A subject with its maps of head space, in the precision of the pass."""

    subject: Subject
    through: Tensor | None
    """[d_head, d_head]: P, what a query passes before it meets keys; None is the identity."""
    lead: Tensor | None
    """[d_head, d_head]: the same of the leading channel alone."""
    factor: Tensor | None
    """[d_head]: how the leading channel reads a query; its sign is the query's side of the pole."""
    key_projector: Tensor | None = None
    """[d_head, d_head]: what a feature sees of keys."""
    absolute: bool = False
    """Whether maps act on rotated queries: features, and bases of the absolute frame."""


class Activations:
    """Scores of some subjects on batches of texts; their maps are worked out once."""

    def __init__(
        self,
        model: Model,
        subjects: Sequence[Subject],
        *,
        bases: Bases | None = None,
        features: Mapping[tuple[Head, str], BankFeature] | None = None,
        turned: int | None = None,
    ) -> None:
        """``turned`` is the seed of the rotated control: channels along other directions of the same logits, and heads
        and whole writers whose queries are turned before they meet keys."""
        self.model = model
        self.bases = Bases.of(model) if bases is None else bases
        self.features, self.turned = features or {}, turned
        by_layer: dict[int, list[int]] = {}
        for number, subject in enumerate(subjects):
            model.head(subject.head)
            by_layer.setdefault(subject.head.layer, []).append(number)
        self.by_layer = dict(sorted(by_layer.items()))
        self.subjects = tuple(subjects)
        self._forms: dict[tuple[int, torch.dtype], Form] = {}

    @property
    def layers(self) -> int:
        """How many layers a pass must reach."""
        return max(self.by_layer) + 1

    def blocks(self, stream: Stream) -> Iterator[tuple[list[int], Tensor, Tensor]]:
        """Numbers of subjects, their scores [s, n, T, T] and which cells exist [n, T, T], some subjects at a time."""
        for layer, numbers in self.by_layer.items():
            reads = LayerReads(stream, layer)
            cells = reads.visible.numel()
            step = max(1, BLOCK // cells)
            for low in range(0, len(numbers), step):
                some = numbers[low : low + step]
                yield some, torch.stack([self.score(number, reads) for number in some]), reads.exists

    def score(self, number: int, reads: LayerReads) -> Tensor:
        """One subject's scores [n, T, T] where cells exist."""
        form = self._form(number, reads.dtype)
        subject = form.subject
        if subject.level in ("head", "sink"):
            return log_odds(reads, self._logits(form, reads, form.through))
        alpha = centred(self._logits(form, reads, form.through), reads)
        if subject.pole is None:
            return alpha
        query, key = (1.0 if sign == "+" else -1.0 for sign in subject.pole)
        own = self._factor(form, reads)[..., None]
        inside = own * query > 0
        if len(subject.channels) > 1:
            lead = centred(self._logits(form, reads, form.lead), reads)
            inside = inside & (lead * (query * key) > 0)
        return torch.where(inside, alpha * (query * key), -alpha.abs())

    def alpha(self, number: int, reads: LayerReads) -> Tensor:
        """One subject's centred logits, whatever their pole: what sums over writers to the channel's."""
        form = self._form(number, reads.dtype)
        return centred(self._logits(form, reads, form.through), reads)

    def fall(self, number: int, reads: LayerReads) -> Tensor:
        """[n, T, T]: the attention that cells lose when one subject's part leaves their row of logits."""
        form = self._form(number, reads.dtype)
        whole = self._logits(Form(Subject(form.subject.head), None, None, None), reads, None)
        rest = whole - self._logits(form, reads, form.through)
        return log_odds(reads, whole).sigmoid() - log_odds(reads, rest).sigmoid()

    def _query(self, form: Form, reads: LayerReads) -> Tensor:
        subject = form.subject
        if subject.side == "query" and subject.writer is not None:
            share = reads.share(subject.head, "query", subject.writer)
            return reads.turn(share) if form.absolute else share
        return reads.query(subject.head) if form.absolute else reads.plain_query(subject.head)

    def _factor(self, form: Form, reads: LayerReads) -> Tensor:
        assert form.factor is not None
        return self._query(form, reads) @ form.factor

    def _logits(self, form: Form, reads: LayerReads, through: Tensor | None) -> Tensor:
        subject = form.subject
        query = self._query(form, reads)
        if through is not None:
            query = query @ through
        if not form.absolute:
            query = reads.turn(query)
        if subject.side == "key" and subject.writer is not None:
            key = reads.turn(reads.share(subject.head, "key", subject.writer))
        else:
            key = reads.key(subject.head)
        if form.key_projector is not None:
            key = key @ form.key_projector
        return query @ key.mT * reads.scale

    def _form(self, number: int, dtype: torch.dtype) -> Form:
        if (number, dtype) not in self._forms:
            self._forms[number, dtype] = self._made(self.subjects[number], dtype)
        return self._forms[number, dtype]

    def _made(self, subject: Subject, dtype: torch.dtype) -> Form:
        device = self.model.device
        width = self.model.d_head
        turn = None
        if self.turned is not None:
            generator = keyed(self.turned, "turned", str(subject.head))
            turn = torch.linalg.qr(torch.randn(width, width, generator=generator, dtype=torch.float64))[0]
        if subject.feature is not None:
            found = self.features.get((subject.head, subject.feature))
            if found is None:
                raise HeadwiseError(f"{subject} is not in the bank: name one of its features")
            query, key = (x.basis.double() @ x.basis.double().mT for x in (found.query, found.key))
            query = query if turn is None else query @ turn
            if found.frame == "query":
                # Both projections act before the query is turned: a key as the query sees it is R_dᵀ k.
                return Form(subject, (query @ key).to(device, dtype), None, None)
            return Form(subject, query.to(device, dtype), None, None, key.to(device, dtype), absolute=True)
        if not subject.channels:
            through = None if turn is None else turn.to(device, dtype)
            # with channels of no basis the frame decides nothing; unrotated queries can be turned as one
            return Form(subject, through, None, None)
        basis = self.bases.head(subject.head)
        if max(subject.channels) >= width:
            raise HeadwiseError(
                f"{subject} does not exist: a head of {self.model.name!r} has channels 0 to {width - 1}"
            )
        if self.turned is not None:
            basis = basis.rotated(keyed(self.turned, "rotation", str(subject.head), 1))
        query_map, key_map = basis.query_map, basis.key_map
        chosen, first = list(subject.channels), subject.channels[0]
        return Form(
            subject,
            (query_map[:, chosen] @ key_map[chosen]).to(device, dtype),
            torch.outer(query_map[:, first], key_map[first]).to(device, dtype),
            query_map[:, first].to(device, dtype),
            absolute=basis.name.frame == "absolute",
        )


class LayerReads:
    """What the heads of one layer read in a batch of texts, and who wrote it. n texts, T columns."""

    def __init__(self, stream: Stream, layer: int) -> None:
        record = stream.layers[layer]
        self.stream, self.layer, self.record = stream, layer, record
        self.group = stream.model.anatomy.group
        self.scale, self.cap = record.call.scale, record.call.cap
        self.dtype = record.stream.dtype
        n, width = stream.batch.ids.shape
        columns = torch.arange(width, device=record.stream.device)
        every = columns.expand(n, -1)
        starts, lengths = (x.to(columns.device) for x in (stream.batch.starts, stream.batch.lengths))
        real = (columns >= starts[:, None]) & (columns < (starts + lengths)[:, None])
        self.visible = record.call.visible(every) & real[:, :, None] & real[:, None]
        """[n, T, T]: the model's mask, without padding."""
        self.seen = self.visible.sum(-1, keepdim=True)
        """[n, T, 1]: visible keys of each row."""
        # with one visible key there is nothing to compare it with
        self.exists = self.visible & (self.seen > 1)
        self._kept: dict[object, Tensor] = {}

    def query(self, head: Head) -> Tensor:
        return self.record.call.query[:, head.index]

    def key(self, head: Head) -> Tensor:
        return self.record.call.key_of(head.index)

    def plain_query(self, head: Head) -> Tensor:
        """[n, T, d_head]: a head's queries before rotation."""
        place = ("plain", head)
        if place not in self._kept:
            rotary, query = self.record.rotary, self.query(head)
            self._kept[place] = query if rotary is None else rotary.undo(query[:, None])[:, 0]
        return self._kept[place]

    def turn(self, vectors: Tensor) -> Tensor:
        """Vectors [n, T, d_head], each rotated at its column."""
        rotary: Rotary | None = self.record.rotary
        return vectors if rotary is None else rotary.turn(vectors[:, None])[:, 0]

    def share(self, head: Head, side: Side, writer: Component) -> Tensor:
        """[n, T, d_head]: a writer's share of a head's queries or keys, before rotation."""
        place = ("share", head.index if side == "query" else head.index // self.group, side, writer)
        if place not in self._kept:
            self._kept[place] = self._share(place[1], side, writer)
        return self._kept[place]

    def _share(self, index: int, side: Side, writer: Component) -> Tensor:
        maps = side_maps(self.stream.model, self.layer, side, self.dtype)
        scalars = self.stream.scalars(self.layer, side)
        if writer.kind == "offset":
            if maps.offset is None:
                raise HeadwiseError(f"layer {self.layer} adds no constants: it has no offset")
            return maps.offset[index] * scalars.offset[:, :, index, None]
        return writes(self.stream, writer) @ maps.matrix[index].mT * scalars.stream[:, :, index, None]


def writes(stream: Stream, writer: Component) -> Tensor:
    """What one component wrote into the stream at every column: [n, T, d_model]."""
    if writer.kind == "embedding":
        return stream.layers[0].stream
    record = stream.layers[writer.layer]
    if writer.kind == "mlp":
        assert record.mlp is not None
        return record.mlp
    if writer.kind == "bias":
        n, columns = stream.batch.ids.shape
        rows = [stream.bias_write(writer.layer, text, slice(None)) for text in range(n)]
        if rows[0] is None:
            raise HeadwiseError(f"layer {writer.layer} has no attention bias: there is no {writer}")
        return torch.stack([row.expand(columns, -1) for row in rows if row is not None])
    call = record.call
    rows = torch.arange(call.query.shape[2], device=call.query.device).expand(len(stream), -1)
    scores = raw_scores(call.query[:, writer.index], call.key_of(writer.index), call.scale, call.cap)
    value, bias = call.value[:, writer.index // call.group], stream.model.anatomy.value_bias(writer.layer)
    if bias is not None:
        value = value - bias[writer.index // call.group].to(value.dtype)
    carried = pattern_rows(scores, call.visible(rows)).to(value.dtype) @ value
    written = carried @ stream.output_weight(writer.layer)[writer.index].mT
    return written if record.post_scale is None else written * record.post_scale


def writers_of(model: Model, head: Head, side: Side) -> list[Component]:
    """Every writer of a head's query or keys, whatever token it read: their shares sum to the whole."""
    anatomy = model.anatomy
    found = [Component("embedding")]
    for below in range(head.layer):
        found += [Component("head", below, index) for index in range(model.n_heads)]
        if anatomy.output_bias(below) is not None or anatomy.value_bias(below) is not None:
            found.append(Component("bias", below))
        found.append(Component("mlp", below))
    if side_maps(model, head.layer, side, model.dtype).offset is not None:
        found.append(Component("offset"))
    return found


def centred(logits: Tensor, reads: LayerReads) -> Tensor:
    """Each logit less the mean of the other visible ones of its row."""
    total = logits.masked_fill(~reads.visible, 0.0).sum(-1, keepdim=True)
    seen = reads.seen.to(logits.dtype)
    # z − (Σ − z)/(n − 1), in one pass over the cells
    return (logits * seen - total) / (seen - 1).clamp(min=1)


def log_odds(reads: LayerReads, logits: Tensor) -> Tensor:
    """log A/(1 − A) of every cell, in the model's own attention (its soft-cap included)."""
    scores = soft_cap(logits, reads.cap).masked_fill(~reads.visible, float("-inf"))
    log_attention = (scores - scores.logsumexp(-1, keepdim=True)).nan_to_num(
        float("-inf"), neginf=float("-inf")
    )
    rest = -torch.expm1(log_attention)
    return log_attention - rest.clamp(min=torch.finfo(rest.dtype).eps).log()
