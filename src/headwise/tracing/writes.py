"""What the components below a layer wrote, as one prompt's tracer needs it: linear in the number of tokens.

Nothing of size tokens² is kept, unless it is small. A head's pattern is rebuilt from its queries, keys and the log-sum
of each row: single rows and columns directly, whole patterns some layers, or some rows of one layer, at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from headwise.bases.basis import Bases
from headwise.errors import HeadwiseError
from headwise.model.attend import row_blocks, soft_cap
from headwise.model.reading import side_maps
from headwise.types import Cell, Component, Head, Side

if TYPE_CHECKING:
    from headwise.model.model import Model
    from headwise.model.stream import Stream

BLOCK_BYTES = 1 << 24
"""Patterns rebuilt at a time: those of some layers, or some rows of one layer."""
KEPT_BYTES = 1 << 21
"""Patterns of all layers that are kept, where they are no larger: about 40 tokens of a small model."""
ROWS = 16
"""Rows of a long prompt's patterns that are rebuilt for each firing, to bound what all others bring."""
GATHERED = 1 << 13
"""Rows of queries that are gathered one by one; more are taken head by head."""
LONG = 96
"""From this many tokens on, heads are read through small d_head × d_head matrices instead of their written vectors."""


class PromptWrites:
    """One prompt's writes. L layers, H heads, T tokens of the prompt (no padding)."""

    def __init__(self, stream: Stream, prompt: int, bases: Bases | None = None) -> None:
        """``bases`` say which channels signals are made of; by default the singular ones, in the query's frame."""
        model = stream.model
        self.bases = Bases.of(model) if bases is None else bases
        anatomy = model.anatomy
        start, self.tokens = int(stream.batch.starts[prompt]), int(stream.batch.lengths[prompt])
        span = slice(start, start + self.tokens)
        self.stream, self.prompt, self.span = stream, prompt, span
        self.n_heads, self.group = anatomy.n_heads, anatomy.group
        records = stream.layers
        self.n_layers = len(records)
        self.dtype, self.device = records[0].stream.dtype, records[0].stream.device
        self.q = torch.stack([r.call.query[prompt, :, span] for r in records])
        self.k = torch.stack([r.call.key[prompt, :, span] for r in records])
        values = []
        for layer, record in enumerate(records):
            value, bias = record.call.value[prompt, :, span], anatomy.value_bias(layer)
            values.append(value if bias is None else value - bias[:, None].to(value.dtype))
        self.v = torch.stack(values)
        self.scale = torch.tensor([r.call.scale for r in records], dtype=self.dtype, device=self.device)
        self.cap = _one_cap(model, [record.call.cap for record in records])
        self._calls = [record.call.of_prompt(prompt) for record in records]
        self.post = None
        if records[0].post_scale is not None:
            self.post = torch.stack(
                [r.post_scale[prompt, span, 0] for r in records if r.post_scale is not None]
            )
        self.static = self._stack_static()
        """[1 + L·per_layer, T, d_model]: embedding, then each layer's bias (where there is one) and MLP."""
        self._kept: Tensor | None = None
        """[L, H, T keys, T rows]: what each value is multiplied with, turned so that sums over rows need no copy."""
        self._kept_values: Tensor | None = None
        if self.n_layers * self.n_heads * self.tokens**2 * self.q.element_size() <= KEPT_BYTES:
            every = torch.arange(self.tokens, device=self.device)
            scores = self._scores(0, self.n_layers, every)
            self.log_sums = scores.logsumexp(-1)  # [L, H, T]
            # A layer that the pass did not finish has no norm on its output yet, and nobody above who reads it.
            finished = self.n_layers if self.post is None else len(self.post)
            self._kept = self._weights(0, finished, scores[:finished], every).mT.contiguous()
            self._kept_values = self.v.repeat_interleave(self.group, dim=1)
        else:
            self.log_sums, self._largest, self._received = self._summed()
        self._written: Tensor | None = None
        self._lengths: Tensor | None = None
        self._writers: dict[tuple[int, Side, int], Tensor] = {}
        self.brings: dict[int, Tensor] = {}
        """By an answer's token: what every component brings to it."""

    # --- components ----------------------------------------------------------------------------------------------

    def n_static(self, layer: int) -> int:
        """Embedding, biases and MLPs below a layer."""
        return 1 + layer * self.per_layer

    def n_carried(self, layer: int) -> int:
        """Heads below a layer, split by the token they read."""
        return layer * self.n_heads * self.tokens

    def component(self, layer: int, index: int) -> Component:
        """The component of a row: heads by token first, then the static ones, then the offset."""
        carried = self.n_carried(layer)
        if index < carried:
            rest, source = divmod(index, self.tokens)
            return Component("head", rest // self.n_heads, rest % self.n_heads, source)
        index -= carried
        if index == 0:
            return Component("embedding")
        if index == self.n_static(layer):
            return Component("offset")
        below, kind = divmod(index - 1, self.per_layer)
        return Component("mlp" if kind == self.per_layer - 1 else "bias", below)

    def row_of(self, layer: int, component: Component) -> int:
        """The row of a component: the inverse of :meth:`component`."""
        if component.kind == "head":
            return (component.layer * self.n_heads + component.index) * self.tokens + component.source
        carried = self.n_carried(layer)
        if component.kind == "embedding":
            return carried
        if component.kind == "offset":
            return carried + self.n_static(layer)
        last = self.per_layer - 1 if component.kind == "mlp" else 0
        return carried + 1 + component.layer * self.per_layer + last

    def _stack_static(self) -> Tensor:
        stream, prompt, span = self.stream, self.prompt, self.span
        parts = [stream.layers[0].stream[prompt, span]]
        biased = stream.bias_write(0, prompt, span) is not None
        self.per_layer = 2 if biased else 1
        for layer, record in enumerate(stream.layers):
            if biased:
                bias = stream.bias_write(layer, prompt, span)
                assert bias is not None
                parts.append(bias.expand(self.tokens, -1))
            if record.mlp is not None:
                parts.append(record.mlp[prompt, span])
        return torch.stack(parts)

    # --- patterns ------------------------------------------------------------------------------------------------

    def visible(self, layer: int, rows: Tensor | None = None) -> Tensor:
        """Which keys some rows [n] of a layer see: [n, T]; without them all rows, which a long prompt has many of."""
        rows = torch.arange(self.tokens, device=self.device) if rows is None else rows
        return self._calls[layer].visible((rows + self.span.start)[None])[0, :, self.span]

    def _scores(self, low: int, high: int, rows: Tensor, keys: int | None = None) -> Tensor:
        """Capped logits of layers ``low`` to ``high`` − 1 at ``rows``, of the first keys: [layers, H, rows, keys], −inf
        where not visible."""
        q = self.q[low:high, :, rows].unflatten(1, (-1, self.group))
        k = self.k[low:high, :, None, :keys]
        scores = (q @ k.mT).flatten(1, 2).mul_(self.scale[low:high, None, None, None])
        scores = soft_cap(scores, self.cap)
        hidden: dict[int, Tensor] = {}  # layers with the same mask share one table
        for layer, call in enumerate(self._calls[low:high], low):
            mask = id(call.mask)
            if mask not in hidden:
                hidden[mask] = ~self.visible(layer, rows)[:, :keys]
            scores[layer - low].masked_fill_(hidden[mask], float("-inf"))
        return scores

    def row_weights(self, layer: int, rows: Tensor, low: int = 0) -> Tensor:
        """What the heads of layers ``low`` to ``layer`` − 1 multiply each value with, at some rows: [rows, l, H, T]."""
        if self._kept is not None:
            return self._kept[low:layer, ..., rows].permute(3, 0, 1, 2)
        weights = torch.softmax(self._scores(low, layer, rows), -1)
        if self.post is not None:
            weights = weights * self.post[low:layer, None, rows, None]
        return weights.permute(2, 0, 1, 3)

    def received_by(self, layer: int, what: Tensor) -> Iterator[tuple[int, int, Tensor]]:
        """Σ_t weight_tj · what_t of every key j of the heads below a layer, from one vector per row [T, n]: some layers
        at a time, (low, high, [layers, H, T keys, n])."""
        if self._kept is not None:
            yield 0, layer, self._kept[:layer] @ what
            return
        step = max(1, self._block // (self.n_heads * self.tokens**2))
        for low in range(0, layer, step):
            high = min(layer, low + step)
            total = what.new_zeros(high - low, self.n_heads, self.tokens, what.shape[-1])
            for rows in self._row_blocks():
                last = int(rows[-1]) + 1
                weights = self._weights(low, high, self._scores(low, high, rows, last), rows)
                total[:, :, :last] += weights.mT @ what[rows]
            yield low, high, total

    @property
    def _block(self) -> int:
        """Weights that are rebuilt at a time."""
        return BLOCK_BYTES // self.q.element_size()

    def _row_blocks(self) -> Iterator[Tensor]:
        """All rows, as many at a time as a block of one layer holds; no key after the last of them is seen."""
        for low, high in row_blocks(0, self.tokens, self.n_heads, self._block):
            yield torch.arange(low, high, device=self.device)

    def _weights(self, low: int, high: int, scores: Tensor, rows: Tensor) -> Tensor:
        """Patterns of some layers, with the norm on the attention's output, from their scores (which are used up)."""
        weights = scores.sub_(self.log_sums[low:high, :, rows, None]).exp_()
        return weights if self.post is None else weights * self.post[low:high, None, rows, None]

    def _summed(self) -> tuple[Tensor, Tensor, Tensor]:
        """The log-sum of every row, and of every key the largest weight and the sum of its weights: [L, H, T] each."""
        shape = (self.n_layers, self.n_heads, self.tokens)
        log_sums, largest, received = (self.q.new_zeros(shape) for _ in range(3))
        finished = self.n_layers if self.post is None else len(self.post)
        for layer in range(self.n_layers):
            for rows in self._row_blocks():
                last = int(rows[-1]) + 1
                scores = self._scores(layer, layer + 1, rows, last)[0]
                highest = scores.amax(-1)
                weights = torch.softmax(scores, -1)
                log_sums[layer, :, rows] = highest - weights.amax(-1).log()
                if self.post is not None and layer < finished:
                    weights *= self.post[layer, None, rows, None]
                so_far = largest[layer, :, :last]
                torch.maximum(so_far, weights.amax(-2), out=so_far)
                received[layer, :, :last] += weights.sum(-2)
        return log_sums, largest, received

    def received(self, layer: int, size: Tensor) -> Tensor:
        """Σ_t size_t · weight_tj, or more, of every key j of the heads below a layer: [f, heads below · T].

        ``size`` [T, f] is not negative. Of a long prompt the rows that count most are rebuilt; what all others bring
        is at most the sum of their sizes times the key's largest weight, and the largest size times its sum.
        """
        if self._kept is not None:
            return (self._kept[:layer].reshape(-1, self.tokens) @ size).mT
        rows = size.topk(min(ROWS, self.tokens), 0).indices.unique()
        rest = size.index_fill(0, rows, 0.0)
        bound = torch.minimum(
            rest.sum(0)[:, None] * self._largest[:layer].flatten(),
            rest.amax(0)[:, None] * self._received[:layer].flatten(),
        )
        return bound.addmm_(size[rows].mT, self.row_weights(layer, rows).flatten(1))

    def attention_at(self, cells: Sequence[Cell]) -> list[float]:
        """The model's attention at some cells of one layer; 0 where not visible."""
        layer = cells[0].head.layer
        places = [(cell.head.index, cell.query, cell.key) for cell in cells]
        head, d, s = torch.tensor(places, device=self.device).mT
        logits = (self.q[layer, head, d] * self.k[layer, head // self.group, s]).sum(-1) * self.scale[layer]
        logits = soft_cap(logits, self.cap)
        seen = self.visible(layer, d).gather(1, s[:, None])[:, 0]
        return ((logits - self.log_sums[layer, head, d]).exp() * seen).tolist()

    def columns(
        self, layer: Tensor, head: Tensor, source: Tensor, dtype: torch.dtype = torch.float64
    ) -> Tensor:
        """What some heads multiply the value of one source token with, at every row: [n, T]."""
        logits = torch.empty(len(layer), self.tokens, dtype=dtype, device=self.device)
        keys = self.k[layer, head // self.group, source].to(dtype)
        if len(layer) * self.tokens <= GATHERED:
            logits[:] = (self.q[layer, head].to(dtype) @ keys[..., None])[..., 0]
        else:
            for number, at in _groups(layer * self.n_heads + head):
                queries = self.q[number // self.n_heads, number % self.n_heads].to(dtype)
                logits[at] = keys[at] @ queries.mT
        logits = soft_cap(logits.mul_(self.scale[layer, None].to(dtype)), self.cap)
        weights = logits.sub_(self.log_sums[layer, head].to(dtype)).exp_()
        if self._windowed:
            visible = torch.empty_like(weights, dtype=torch.bool)
            for call in {id(call.mask): call for call in self._calls}.values():
                same = torch.tensor([one.mask is call.mask for one in self._calls], device=self.device)[layer]
                visible[same] = call.readers(source[same] + self.span.start)[:, self.span]
        else:
            visible = torch.arange(self.tokens, device=self.device) >= source[:, None]
        weights = weights.mul_(visible)
        return weights if self.post is None else weights.mul_(self.post[layer].to(dtype))

    def columns_of(self, component: Tensor) -> Tensor:
        """The same for heads by token, as :meth:`component` counts them, in the prompt's own precision."""
        if self._kept is not None:
            return self._kept.flatten(0, 2)[component]
        return self.columns(*self._places(component), self.dtype)

    def _places(self, component: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Layer, head and source token of heads by token."""
        rest = component // self.tokens
        return rest // self.n_heads, rest % self.n_heads, component % self.tokens

    @property
    def _windowed(self) -> bool:
        return any(record.call.mask is not None for record in self.stream.layers)

    def maps_at(self, head: Head, query: int) -> tuple[Tensor, Tensor]:
        """G_d and G_s of a head for its rotated queries and keys, as the row ``query`` multiplies them."""
        rotary = self.stream.rotary(head.layer, self.prompt)
        basis = self.bases.head(head)
        basis = basis if rotary is None else basis.seen_from(rotary.at_positions([query]).double())
        return basis.query_map.to(self.device), basis.key_map.to(self.device)

    def writer(self, layer: int, side: Side, index: int) -> Tensor:
        """[d_model, d_head]: the smallest change of the stream that gives a head a wanted change of its vector."""
        if (layer, side, index) not in self._writers:
            self._writers[layer, side, index] = torch.linalg.pinv(
                side_maps(self.stream.model, layer, side, torch.float64).matrix[index]
            )
        return self._writers[layer, side, index]

    # --- read by heads above ---------------------------------------------------------------------------------------

    def carried(self, matrices: Tensor, layer: int, joined: Sequence[Tensor | None] = ()) -> Tensor:
        """Each value below a layer, through its head's output and some reading maps [m, d_head, d_model].

        Returns [m, layers·H·T, d_head]. The attention weight is left out: it is a scalar per row. ``joined`` are the
        maps as :meth:`join` gives them, where they are at hand.
        """
        if not any(one is not None for one in joined):
            return self._carried_alone(matrices, layer)
        parts = []
        for place, one in enumerate(joined):
            if one is None:
                parts.append(self._carried_alone(matrices[place : place + 1], layer)[0])
            else:
                parts.append((self._all_values()[:layer].flatten(0, 1) @ one.mT).flatten(0, 1))
        return torch.stack(parts) if len(parts) > 1 else parts[0][None]

    def join(self, matrix: Tensor, layer: int) -> Tensor:
        """A reading map [d_head, d_model] behind every head's output below a layer: [layers·H, d_head, d_head].

        The same for every prompt: this is how a head reads the *values* of the heads below it.
        """
        return torch.cat([matrix @ self.stream.output_weight(below) for below in range(layer)])

    def _carried_alone(self, matrices: Tensor, layer: int) -> Tensor:
        m, width, d_model = matrices.shape
        if self.tokens <= LONG:
            written = self._all_written()[:layer].reshape(-1, d_model)
            return (written @ matrices.reshape(-1, d_model).mT).view(-1, m, width).transpose(0, 1)
        result = torch.empty(m, layer, self.n_heads, self.tokens, width, dtype=self.dtype, device=self.device)
        for below in range(layer):
            # [m·d_head, d_model] @ [d_model, H·d_head]: a small matrix per pair of heads
            output = self.stream.output_weight(below)
            through = torch.einsum("mdx,hxv->mhdv", matrices, output)
            result[:, below] = self._values(below) @ through.mT
        return result.view(m, -1, width)

    def written(self, layer: int) -> Tensor:
        """v W_O of a layer's heads: [H, T, d_model]."""
        return self._values(layer) @ self.stream.output_weight(layer).mT

    def written_rows(self, component: Tensor) -> Tensor:
        """v W_O of heads by token, as :meth:`component` counts them: [n, d_model]."""
        if self.tokens <= LONG:
            return self._all_written().flatten(0, 2)[component]
        rows = torch.empty(len(component), self.stream.model.d_model, dtype=self.dtype, device=self.device)
        _, _, source = self._places(component)
        for number, at in _groups(component // self.tokens):
            layer, head = divmod(number, self.n_heads)
            value = self.v[layer, head // self.group, source[at]]
            rows[at] = value @ self.stream.output_weight(layer)[head].mT
        return rows

    def lengths(self, layer: int) -> Tensor:
        """‖v W_O‖ of every head by token below a layer: [layers · H · T]."""
        if self._lengths is None:
            if self.tokens <= LONG:
                self._lengths = self._all_written().norm(dim=-1)
            else:
                made = []
                for below in range(self.n_layers):
                    output, values = self.stream.output_weight(below), self._values(below)
                    made.append(((values @ (output.mT @ output)) * values).sum(-1).clamp(min=0).sqrt())
                self._lengths = torch.stack(made)
        return self._lengths[:layer].flatten()

    def _all_written(self) -> Tensor:
        if self._written is None:
            self._written = torch.stack([self.written(layer) for layer in range(self.n_layers)])
        return self._written

    def _all_values(self) -> Tensor:
        """[L, H, T, d_head]"""
        return self.v.repeat_interleave(self.group, dim=1) if self._kept_values is None else self._kept_values

    def _values(self, layer: int) -> Tensor:
        return self.v[layer].repeat_interleave(self.group, dim=0)


def _groups(numbers: Tensor) -> Iterator[tuple[int, Tensor]]:
    """Every number that occurs, and where."""
    order = numbers.argsort(stable=True)
    distinct, counts = numbers[order].unique_consecutive(return_counts=True)
    yield from zip(distinct.tolist(), order.split(counts.tolist()), strict=True)


def _one_cap(model: Model, caps: Sequence[float | None]) -> float | None:
    """The soft-cap of all layers: whole blocks of layers are rebuilt at once, so they must have the same."""
    if len(set(caps)) > 1:
        raise HeadwiseError(
            f"{model.name} caps the scores of its layers differently ({', '.join(map(str, dict.fromkeys(caps)))}): "
            "tracing needs one soft-cap for all layers"
        )
    return caps[0]
