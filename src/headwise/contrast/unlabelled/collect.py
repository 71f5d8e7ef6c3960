"""From ordinary text to rows of attention: queries and keys of some heads, and the tokens on which all heads rest.

Vectors are taken in the query's frame: the query before its rotation, keys as that query sees them (R_dᵀ k_t). So a
feature is the same wherever in a text it acts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from headwise.contrast.unlabelled.attention_rows import AttentionRows
from headwise.model.attend import AttentionCall, pattern_rows, raw_scores
from headwise.model.batch import Batch
from headwise.model.forward import Instruments, forward
from headwise.model.reading import Rotary
from headwise.model.threads import steady
from headwise.progress import Tick
from headwise.scale.stages import ValueJob
from headwise.scale.work import Chunk
from headwise.types import Head

if TYPE_CHECKING:
    from headwise.model.model import Model

SINK = 0.3
"""Mean attention over all heads and later rows from which a token is a sink."""
PART = 8
"""Texts that pass through the model together."""


def _pattern(call: AttentionCall) -> tuple[Tensor, Tensor]:
    """Attention of all heads of a layer [n, heads, T, T], and which keys each row sees [n, T, T]."""
    prompts, _, columns, _ = call.query.shape
    visible = call.visible(torch.arange(columns, device=call.query.device).expand(prompts, -1))
    grouped = call.query.unflatten(1, (-1, call.group))
    scores = raw_scores(grouped, call.key[:, :, None], call.scale, call.cap).flatten(1, 2)
    return pattern_rows(scores, visible[:, None]), visible


def _real(batch: Batch) -> Tensor:
    """[n, T]: columns that are tokens, not padding."""
    return torch.arange(batch.ids.shape[1]) < batch.lengths[:, None]


# --- which heads, and where they rest --------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Scanned:
    """Every head on some texts: L layers, H heads, T columns."""

    received: Tensor
    """[n, T]: mean attention that a token gets from all heads of all later rows."""
    attention: Tensor
    """[L, H, T, T]: Σ A over texts, without the first token."""
    square: Tensor
    """[L, H, T, T]: Σ A²."""
    count: Tensor
    """[T]: how many texts have a row there."""

    def sinks(self) -> Tensor:
        """[n, T]: the first token, and those above ``SINK``."""
        return (self.received >= SINK) | (torch.arange(self.received.shape[1]) == 0)

    @classmethod
    def cat(cls, parts: Sequence[Scanned]) -> Scanned:
        """Several groups of texts, one after another."""
        width = max(part.received.shape[1] for part in parts)

        def wide(x: Tensor, axes: int) -> Tensor:
            missing = width - x.shape[-1]
            return torch.nn.functional.pad(x, (0, missing) * axes)

        attention, square = (
            torch.stack([wide(getattr(part, name), 2) for part in parts]).sum(0)
            for name in ("attention", "square")
        )
        received = torch.cat([wide(part.received, 1) for part in parts])
        return cls(received, attention, square, torch.stack([wide(part.count, 1) for part in parts]).sum(0))

    def changes(self) -> Tensor:
        """[L, H]: attention that changes with the text. Σ over keys of the variance of A between texts, mean over rows.

        A head that looks at a place whatever is there has none, and so has one that rests on the first token.
        """
        rows = self.count >= 2
        count = self.count.clamp_min(1)[:, None]
        variance = (self.square / count - (self.attention / count).square()).clamp_min(0)
        return variance[:, :, rows].sum(-1).mean(-1) if bool(rows.any()) else variance.sum((-1, -2)) * 0


@dataclass(frozen=True)
class TextScanJob(ValueJob):
    """Looks at every head of some texts."""

    kind: ClassVar = Scanned

    def make(self, model: Model, chunk: Chunk[tuple[int, ...]], tick: Tick, /) -> Scanned:
        batch = Batch.of([list(ids) for ids in chunk.items])
        real, width = _real(batch), batch.ids.shape[1]
        shape = (model.n_layers, model.anatomy.n_heads, width, width)
        total, square = torch.zeros(shape), torch.zeros(shape)
        received = torch.zeros(len(batch), width)

        def observe(call: AttentionCall) -> None:
            pattern = _pattern(call)[0].float().cpu() * real[:, None, :, None]
            received.add_(pattern.tril(-1).mean(1).sum(1))
            pattern[..., 0] = 0
            total[call.layer], square[call.layer] = pattern.sum(0), pattern.square().sum(0)

        with steady():
            last = model.n_layers - 1
            forward(model, batch, Instruments(observe=observe, stop_at=last))
        later = (real.sum(1, keepdim=True) - 1 - torch.arange(width)).clamp_min(1)
        tick(len(chunk))
        return Scanned(received / (later * model.n_layers), total, square, real.sum(0))


# --- what some heads see ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class HeadVectors:
    """Queries and keys of h heads in n texts of T columns at most."""

    q: Tensor
    """[h, n, T, d_head]: before rotation."""
    k: Tensor
    """[h, n, T, d_head]: as the head multiplies them."""
    attention: Tensor
    """[h, n, T, T]"""
    visible: Tensor
    """[h, n, T, T]: the model's mask, without padding."""
    cos: Tensor
    """[h, T, rotated dimensions]: the rotation, of no width where there is none."""
    sin: Tensor
    """[h, T, rotated dimensions]"""
    scale: Tensor
    """[h]: what the head multiplies q·k with."""
    cap: Tensor
    """[h]: the soft-cap; 0 where there is none."""

    def rows(self, head: int, text: int, sinks: Tensor, unit: int) -> AttentionRows:
        """The rows of one head in one text, sinks [T] left out; rows that see a single key are none."""
        width = int(self.visible[head, text].any(1).sum())
        visible = self.visible[head, text, :width, :width]
        keys = self.seen_keys(head, text, width)
        allowed = visible & ~sinks[:width]
        rows = AttentionRows(
            q=self.q[head, text, :width],
            keys=keys,
            attention=self.attention[head, text, :width, :width],
            allowed=allowed,
            unit=torch.full((width,), unit),
        )
        return rows

    def seen_keys(self, head: int, text: int, width: int) -> Tensor:
        """Every key as every query sees it [T, T, d_head]: R_dᵀ k_t."""
        keys = self.k[head, text, :width]
        if not self.cos.shape[-1]:
            return keys.expand(width, -1, -1)
        rotary = Rotary(self.cos[head, None, :width], self.sin[head, None, :width])
        turned = rotary.transposed(keys[None, :, None].expand(1, width, width, -1))
        return turned[0].transpose(0, 1)


@dataclass(frozen=True)
class VectorsJob(ValueJob):
    """Takes the queries and keys of some heads."""

    kind: ClassVar = HeadVectors
    heads: tuple[Head, ...]

    def make(self, model: Model, chunk: Chunk[tuple[int, ...]], tick: Tick, /) -> HeadVectors:
        batch = Batch.of([list(ids) for ids in chunk.items])
        real = _real(batch)
        found: dict[Head, dict[str, Tensor]] = {}
        rotaries: dict[int, Rotary | None] = {}

        def observe(call: AttentionCall) -> None:
            mine = [head for head in self.heads if head.layer == call.layer]
            if not mine:
                return
            pattern, visible = _pattern(call)
            visible = visible.cpu() & real[:, :, None] & real[:, None]
            for head in mine:
                found[head] = _vectors(call, head, rotaries.get(call.layer), pattern[:, head.index], visible)

        with steady():
            run_noting(model, batch, rotaries, observe, max(head.layer for head in self.heads))
        tick(len(chunk))
        names = ("q", "k", "attention", "visible", "cos", "sin", "scale", "cap")
        return HeadVectors(*(torch.stack([found[head][name] for head in self.heads]) for name in names))


def _vectors(
    call: AttentionCall, head: Head, rotary: Rotary | None, pattern: Tensor, visible: Tensor
) -> dict[str, Tensor]:
    q = call.query[:, head.index].float()
    cos = sin = torch.zeros(q.shape[1], 0)
    if rotary is not None:
        # Texts are filled up on the right, so positions are the same in all of them.
        cos, sin = (x[0].float().cpu() for x in (rotary.cos, rotary.sin))
        q = rotary.undo(q[:, None])[:, 0]
    return {
        "q": q.cpu(),
        "k": call.key_of(head.index).float().cpu(),
        "attention": pattern.float().cpu() * visible,
        "visible": visible,
        "cos": cos,
        "sin": sin,
        "scale": torch.tensor(float(call.scale)),
        "cap": torch.tensor(float(call.cap or 0.0)),
    }


def run_noting(
    model: Model, batch: Batch, rotaries: dict[int, Rotary | None], observe: Any, last: int
) -> None:
    """One pass up to a layer, with the rotation of every layer noted before it is observed."""

    def note(layer: int, _module: Any, _args: tuple, kwargs: dict) -> None:
        rotaries[layer] = Rotary.of(kwargs.get("position_embeddings"))

    instruments = Instruments(observe=observe, stop_at=last)
    for layer in range(last + 1):
        instruments.before.append((model.anatomy.attention[layer], partial(note, layer)))
    forward(model, batch, instruments)


def rotation_of(
    model: Model, token_ids: Sequence[int], position: int, start: int = 0
) -> dict[int, Rotary | None]:
    """The rotation of every layer at one position of a prompt; None where a layer has none."""
    rotaries: dict[int, Rotary | None] = {}
    batch = Batch.of([list(token_ids)], counts_from=start)
    run_noting(model, batch, rotaries, lambda _call: None, model.n_layers - 1)
    place = position % len(token_ids)
    return {
        layer: None if one is None else one.of_prompt(batch, 0).at_positions([place])
        for layer, one in rotaries.items()
    }


@dataclass(frozen=True, eq=False)
class TextRows:
    """All that was read of some texts: rows of any head, text by text."""

    heads: tuple[Head, ...]
    parts: tuple[HeadVectors, ...]
    sinks: Tensor
    """[n, T]"""

    @property
    def texts(self) -> int:
        return len(self.sinks)

    def of(self, head: Head, texts: Sequence[int]) -> Iterator[tuple[int, AttentionRows]]:
        """Each text's number, and the head's rows in it."""
        place = self.heads.index(head)
        for text in texts:
            part = self.parts[text // PART]
            yield text, part.rows(place, text % PART, self.sinks[text], text)

    def scale(self, head: Head) -> float:
        """What the head multiplies q·k with."""
        return float(self.parts[0].scale[self.heads.index(head)])

    def cap(self, head: Head) -> float | None:
        """The head's soft-cap, if it has one."""
        return float(self.parts[0].cap[self.heads.index(head)]) or None
