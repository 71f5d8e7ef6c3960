"""Split the residual stream into what every component wrote, in residual space and in a later head's q/k space.

One forward pass keeps, per layer, what is linear in the number of tokens: queries, keys, values, MLP writes and the
scalars of every norm. Patterns and writes are rebuilt from these for the row that is asked for, never for all.
With the scalars of the norms frozen everything between a write and a later query or key is linear (norm, projection,
QK-norm, RoPE), so the parts sum to the query or key exactly (docs: Splitting the stream).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from headwise.errors import HeadwiseError
from headwise.model.attend import AttentionCall, at_least_float32, pattern_rows, raw_scores
from headwise.model.batch import Batch, CleanPass, Inputs, Padding, checked_start, resolve_positions
from headwise.model.forward import Instruments, forward
from headwise.model.reading import Rotary, SideScalars, side_maps, side_scalars
from headwise.tokens import Prompt
from headwise.types import Component, Head, Side

if TYPE_CHECKING:
    from headwise.model.model import Model


@dataclass(eq=False)
class LayerRecord:
    """What one layer's attention read and wrote. n prompts, t columns; scalars of norms are [n, t, heads or 1, 1]."""

    stream: Tensor
    """[n, t, d_model] before the layer."""
    call: AttentionCall
    """Queries, keys and values (with bias) as the attention function got them."""
    rotary: Rotary | None = None
    post_scale: Tensor | None = None
    """[n, t, 1]: the frozen scalar of the norm on the attention's output, where there is one."""
    query_scale: Tensor | None = None
    key_scale: Tensor | None = None
    mlp: Tensor | None = None
    """[n, t, d_model]: what the MLP added (None for a layer that was only looked at, not finished)."""
    inputs: Inputs = ((), {})
    """What the layer was called with beside the stream."""


class Recorder:
    """Fills ``layers`` and ``final`` during one pass."""

    def __init__(self, model: Model, batch: Batch, layers: int) -> None:
        self.model, self.batch, self.n = model, batch, layers
        self.place = model.result_device
        self.layers: list[LayerRecord] = []
        self.final: Tensor | None = None
        self.before: list[Tensor] = []
        self.inputs: list[Inputs] = []
        self.notes: dict[tuple[int, str], Any] = {}

    def run(self, *, stop_early: bool) -> None:
        anatomy = self.model.anatomy
        instruments = Instruments(observe=self._observe, stop_at=self.n - 1 if stop_early else None)
        for layer in range(self.n):
            attention = anatomy.attention[layer]
            instruments.before.append((anatomy.layers[layer], self._enter))
            instruments.before.append((attention, partial(self._note_rotary, layer)))
            instruments.after.append((anatomy.mlp_output(layer), partial(self._note_mlp, layer)))
            if anatomy.attention_post_norm(layer) is not None:
                instruments.after.append((attention, partial(self._note_post_scale, layer)))
            if anatomy.query_norm(layer) is not None:
                instruments.before.append((attention.q_norm, partial(self._note_qk_scale, layer, "query")))
                instruments.before.append((attention.k_norm, partial(self._note_qk_scale, layer, "key")))
        if not stop_early:
            final_norm = getattr(anatomy.trunk, anatomy.family.final_norm)
            if final_norm is not None:
                instruments.before.append((final_norm, self._note_final))
        forward(self.model, self.batch, instruments)
        for layer, record in enumerate(self.layers):
            record.post_scale = self.notes.get((layer, "post"))
            record.mlp = self.notes.get((layer, "mlp"))

    def _here(self, tensor: Tensor) -> Tensor:
        """A tensor of any layer where results live, in at least float32."""
        return at_least_float32(tensor).to(self.place)

    def _enter(self, _module: Any, args: tuple, kwargs: dict) -> None:
        self.before.append(self._here(args[0] if args else kwargs["hidden_states"]))
        self.inputs.append((args[1:], {k: v for k, v in kwargs.items() if k != "hidden_states"}))

    def _observe(self, call: AttentionCall) -> None:
        if call.layer >= self.n:
            return
        layer = call.layer
        self.layers.append(
            LayerRecord(
                stream=self.before[layer],
                inputs=self.inputs[layer],
                call=AttentionCall(
                    None,
                    layer,
                    self._here(call.query),
                    self._here(call.key),
                    self._here(call.value),
                    call.mask.to(self.place) if isinstance(call.mask, Tensor) else call.mask,
                    call.scale,
                    call.cap,
                ),
                rotary=self.notes.get((layer, "rotary")),
                query_scale=self.notes.get((layer, "query")),
                key_scale=self.notes.get((layer, "key")),
            )
        )

    def _note_rotary(self, layer: int, _module: Any, _args: tuple, kwargs: dict) -> None:
        rotary = Rotary.of(kwargs.get("position_embeddings"))
        self.notes[layer, "rotary"] = None if rotary is None else rotary.to(self.place)

    def _note_mlp(self, layer: int, _module: Any, _args: tuple, output: Tensor) -> None:
        self.notes[layer, "mlp"] = self._here(output).view(self.before[layer].shape)

    def _note_post_scale(self, layer: int, _module: Any, _args: tuple, output: Any) -> None:
        norm = self.model.anatomy.attention_post_norm(layer)
        assert norm is not None
        self.notes[layer, "post"] = norm.scale(self._here(output[0]))

    def _note_qk_scale(self, layer: int, side: Side, _module: Any, args: tuple, _kwargs: dict) -> None:
        anatomy = self.model.anatomy
        norm = anatomy.query_norm(layer) if side == "query" else anatomy.key_norm(layer)
        assert norm is not None
        scale = norm.scale(self._here(args[0]))
        match anatomy.family.qk_norm:
            case "all_heads":
                scale = scale[:, :, None]
            case "head_token":
                scale = scale.transpose(1, 2)
            case _:
                pass
        self.notes[layer, side] = scale

    def _note_final(self, _module: Any, args: tuple, _kwargs: dict) -> None:
        self.final = self._here(args[0])


@dataclass(frozen=True, eq=False)
class Parts:
    """Vectors that sum to one vector of the model, one per component.

    ``vectors`` is [components, d]; ``whole`` is the model's own vector, ``error`` how far the sum is from it,
    relative to its largest entry.
    """

    components: tuple[Component, ...]
    vectors: Tensor
    whole: Tensor

    @property
    def error(self) -> float:
        return float((self.vectors.sum(0) - self.whole).abs().max() / self.whole.abs().max().clamp(min=1e-30))

    def __len__(self) -> int:
        return len(self.components)

    def __repr__(self) -> str:
        return f"Parts({len(self)} components in {self.vectors.shape[-1]} dimensions, error {self.error:.1e})"


@dataclass(eq=False)
class Stream:
    """The residual stream of some prompts, ready to be split at any position, for any layer that was captured."""

    model: Model
    batch: Batch
    layers: list[LayerRecord] = field(default_factory=list)
    final: Tensor | None = None
    """[n, t, d_model] after the last layer, before the final norm (None if the pass stopped earlier)."""
    _scalars: dict[tuple[int, Side], SideScalars] = field(default_factory=dict, repr=False)

    def __len__(self) -> int:
        return len(self.batch)

    @property
    def token_ids(self) -> list[list[int]]:
        return [self.batch.token_ids(prompt) for prompt in range(len(self))]

    @property
    def start(self) -> int:
        """The position id of every prompt's first token."""
        return self.batch.counts_from

    def before(self, layer: int) -> Tensor:
        """The stream [n, t, d_model] before a layer; ``n_layers`` gives the stream before the final norm."""
        if layer < len(self.layers):
            return self.layers[layer].stream
        if layer == self.model.n_layers and self.final is not None:
            return self.final
        raise HeadwiseError(
            f"the stream was captured before layers 0 to {len(self.layers) - 1}, not before {layer}"
        )

    @torch.no_grad()
    def pattern(self, layer: int, position: int, prompt: int = 0) -> Tensor:
        """Attention of every head of a layer from one position: [heads, positions of the prompt]."""
        column, span = self._column(position, prompt), self.batch.span(prompt)
        return self._pattern_row(layer, prompt, column)[:, span]

    @torch.no_grad()
    def whole_pattern(self, head: Head | str, prompt: int = 0, rows: Sequence[int] | None = None) -> Tensor:
        """Attention of one head from every position (or from ``rows``): [positions or rows, positions]."""
        call = self.call_of(self.model.head(head), prompt)
        at = range(call.query.shape[2]) if rows is None else rows
        return call.pattern(torch.tensor(at, device=call.query.device))

    def call_of(self, head: Head, prompt: int = 0) -> AttentionCall:
        """What one head was handed in one prompt."""
        return self.layers[head.layer].call.of_head(head.index, prompt, self.batch.span(prompt))

    @torch.no_grad()
    def writes(self, layer: int, position: int, prompt: int = 0) -> Parts:
        """Who wrote the stream before ``layer`` at a position: parts in residual space, summing to the stream."""
        column = self._column(position, prompt)
        whole = self.before(layer)[prompt, column]
        components: list[Component] = [Component("embedding")]
        vectors = [self.layers[0].stream[prompt, column][None]]
        for below in range(layer):
            heads = self._head_writes(below, prompt, column)
            components += _head_components(below, *heads.shape[:2])
            vectors.append(heads.flatten(0, 1))
            bias = self.bias_write(below, prompt, column)
            if bias is not None:
                components.append(Component("bias", below))
                vectors.append(bias[None])
            components.append(Component("mlp", below))
            vectors.append(self._mlp(below)[prompt, column][None])
        return Parts(tuple(components), torch.cat(vectors), whole)

    @torch.no_grad()
    def shares(self, head: Head | str, side: Side, position: int, prompt: int = 0) -> Parts:
        """Who made a head's query or key at a position: parts in its q/k space, summing to the captured vector."""
        head = self._captured(head)
        column = self._column(position, prompt)
        index = head.index if side == "query" else head.index // self.model.anatomy.group
        dtype = self.layers[head.layer].stream.dtype
        maps, scalars = side_maps(self.model, head.layer, side, dtype), self.scalars(head.layer, side)
        rotary = self.rotary(head.layer, prompt)

        def placed(vectors: Tensor, scalar: Tensor) -> Tensor:
            """Vectors [n, d_head] as the head multiplies them at this position."""
            vectors = vectors * scalar[prompt, column, index]
            if rotary is None:
                return vectors
            here = rotary.at_positions([column - int(self.batch.starts[prompt])])
            return here.turn(vectors[None, :, None])[0, :, 0]

        matrix = maps.matrix[index]
        components: list[Component] = [Component("embedding")]
        # what each part is before norms and rotation: the same map for all
        read = [self.layers[0].stream[prompt, column][None] @ matrix.mT]
        for below in range(head.layer):
            weighted = self._weighted_values(below, prompt, column)
            # One small matrix per upstream head instead of a residual-space vector per head and token.
            through = torch.einsum("dm,hmv->hdv", matrix, self.output_weight(below))
            seen = torch.einsum("hjv,hdv->hjd", weighted, through)
            post_scale = self.layers[below].post_scale
            if post_scale is not None:
                seen = seen * post_scale[prompt, column]
            components += _head_components(below, *seen.shape[:2])
            read.append(seen.flatten(0, 1))
            bias = self.bias_write(below, prompt, column)
            if bias is not None:
                components.append(Component("bias", below))
                read.append(bias[None] @ matrix.mT)
            components.append(Component("mlp", below))
            read.append(self._mlp(below)[prompt, column][None] @ matrix.mT)
        vectors = [placed(torch.cat(read), scalars.stream)]
        if maps.offset is not None:
            components.append(Component("offset"))
            vectors.append(placed(maps.offset[index][None], scalars.offset))
        call = self.layers[head.layer].call
        whole = call.query[prompt, head.index] if side == "query" else call.key_of(head.index)[prompt]
        return Parts(tuple(components), torch.cat(vectors), whole[column])

    def scalars(self, layer: int, side: Side) -> SideScalars:
        """The frozen scalars of a layer's norms on one side, of all prompts that went through the model together."""
        if (layer, side) not in self._scalars:
            self._scalars[layer, side] = side_scalars(self.model.anatomy, self.layers[layer], layer, side)
        return self._scalars[layer, side]

    def rotary(self, layer: int, prompt: int) -> Rotary | None:
        """The rotation of a layer's queries and keys at the positions of one prompt; None where there is none."""
        rotary = self.layers[layer].rotary
        return None if rotary is None else rotary.of_prompt(self.batch, prompt)

    def clean_pass(self, prompt: int) -> CleanPass | None:
        """What edited copies of a prompt can go on from; None where the pass was not finished, or prompts were padded
        on the left."""
        if self.final is None or self.batch.is_left_padded:
            return None
        parts = ([getattr(record, name) for record in self.layers] for name in ("stream", "call", "inputs"))
        return CleanPass(*parts).of_prompt(prompt, self.batch.span(prompt))

    def _captured(self, head: Head | str) -> Head:
        head = self.model.head(head)
        if head.layer >= len(self.layers):
            raise HeadwiseError(f"the stream was captured up to layer {len(self.layers) - 1}, not for {head}")
        return head

    # --- rebuilt from the record, one row at a time --------------------------------------------------------------

    def _pattern_row(self, layer: int, prompt: int, column: int) -> Tensor:
        """[heads, columns]"""
        call = self.layers[layer].call
        rows = torch.full((call.query.shape[0], 1), column, device=call.query.device)
        visible = call.visible(rows)[prompt]
        keys = call.key[prompt].repeat_interleave(call.group, dim=0)
        scores = raw_scores(call.query[prompt, :, column][:, None], keys, call.scale, call.cap)
        return pattern_rows(scores, visible)[:, 0]

    def _weighted_values(self, layer: int, prompt: int, column: int) -> Tensor:
        """Attention times value (value bias taken out): [heads, source positions, d_head]."""
        call, anatomy = self.layers[layer].call, self.model.anatomy
        value = call.value[prompt]
        bias = anatomy.value_bias(layer)
        if bias is not None:
            value = value - bias[:, None].to(value.dtype)
        row = self._pattern_row(layer, prompt, column).to(value.dtype)
        span = slice(self.batch.span(prompt).start, column + 1)
        return row[:, span, None] * value.repeat_interleave(anatomy.group, dim=0)[:, span]

    def output_weight(self, layer: int) -> Tensor:
        """[heads, d_model, d_head], with the gain of a post-norm folded in."""
        weight = self.model.anatomy.output(layer).weight.to(self.layers[layer].stream.dtype)
        norm = self.model.anatomy.attention_post_norm(layer)
        return weight if norm is None else weight * norm.gain.to(weight.dtype)[:, None]

    def _head_writes(self, layer: int, prompt: int, column: int) -> Tensor:
        """[heads, source positions, d_model]"""
        weighted = self._weighted_values(layer, prompt, column)
        writes = torch.einsum("hjv,hmv->hjm", weighted, self.output_weight(layer))
        post_scale = self.layers[layer].post_scale
        return writes if post_scale is None else writes * post_scale[prompt, column]

    def bias_write(self, layer: int, prompt: int, column: int | slice) -> Tensor | None:
        """[d_model]: output bias and value bias (every row of attention sums to one).

        For several columns, a row for each where a post-norm makes them differ.
        """
        anatomy = self.model.anatomy
        bias, value_bias = anatomy.output_bias(layer), anatomy.value_bias(layer)
        if bias is None and value_bias is None:
            return None
        dtype = self.layers[layer].stream.dtype
        total = torch.zeros(anatomy.d_model, dtype=dtype, device=self.layers[layer].stream.device)
        norm = anatomy.attention_post_norm(layer)
        if bias is not None:
            total = total + bias.to(dtype) * (1.0 if norm is None else norm.gain.to(dtype))
        if value_bias is not None:
            per_head = value_bias.to(dtype).repeat_interleave(anatomy.group, dim=0)
            total = total + torch.einsum("hmv,hv->m", self.output_weight(layer), per_head)
        post_scale = self.layers[layer].post_scale
        return total if post_scale is None else total * post_scale[prompt, column]

    def _mlp(self, layer: int) -> Tensor:
        mlp = self.layers[layer].mlp
        if mlp is None:
            raise HeadwiseError(f"layer {layer} was not finished in this pass: split more layers")
        return mlp

    def _column(self, position: int, prompt: int) -> int:
        if not 0 <= prompt < len(self):
            raise HeadwiseError(f"prompt {prompt} does not exist: the stream holds {len(self)} prompts")
        resolved = resolve_positions(position, [int(self.batch.lengths[prompt])], "stream")[0][0]
        return self.batch.column(prompt, resolved)

    def __repr__(self) -> str:
        return f"Stream({self.model.name!r}, {len(self)} prompts, {len(self.layers)} layers)"


def _head_components(layer: int, heads: int, sources: int) -> list[Component]:
    return [Component("head", layer, head, source) for head in range(heads) for source in range(sources)]


def split(
    model: Model,
    prompts: Prompt | Sequence[Prompt],
    *,
    layers: int | None = None,
    padding: Padding = "right",
    start: int = 0,
) -> Stream:
    """One forward pass that keeps what a split needs; see :meth:`headwise.Model.split`."""
    if layers is not None and not 1 <= layers <= model.n_layers:
        raise HeadwiseError(f"layers={layers} is outside 1 to {model.n_layers}")
    token_ids = model.token_ids(prompts)
    batch = Batch.of(token_ids, padding, checked_start(model, start, [len(ids) for ids in token_ids]))
    recorder = Recorder(model, batch, model.n_layers if layers is None else layers)
    recorder.run(stop_early=layers is not None)
    return Stream(model, batch, recorder.layers, recorder.final)
