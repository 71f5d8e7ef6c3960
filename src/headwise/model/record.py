"""What one forward pass leaves for a split of its stream: linear in the number of tokens, nothing of size tokens²."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from torch import Tensor

from headwise.model.attend import AttentionCall, at_least_float32
from headwise.model.batch import Batch
from headwise.model.forward import Instruments, forward
from headwise.model.rotary import Rotary
from headwise.types import Side

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


class Recorder:
    """Fills ``layers`` and ``final`` during one pass."""

    def __init__(self, model: Model, batch: Batch, layers: int) -> None:
        self.model, self.batch, self.n = model, batch, layers
        self.layers: list[LayerRecord] = []
        self.final: Tensor | None = None
        self.before: list[Tensor] = []
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

    def _enter(self, _module: Any, args: tuple, kwargs: dict) -> None:
        self.before.append(at_least_float32(args[0] if args else kwargs["hidden_states"]))

    def _observe(self, call: AttentionCall) -> None:
        if call.layer >= self.n:
            return
        layer = call.layer
        self.layers.append(
            LayerRecord(
                stream=self.before[layer],
                call=AttentionCall(
                    None,
                    layer,
                    at_least_float32(call.query),
                    at_least_float32(call.key),
                    at_least_float32(call.value),
                    call.mask,
                    call.scale,
                    call.cap,
                ),
                rotary=self.notes.get((layer, "rotary")),
                query_scale=self.notes.get((layer, "query")),
                key_scale=self.notes.get((layer, "key")),
            )
        )

    def _note_rotary(self, layer: int, _module: Any, _args: tuple, kwargs: dict) -> None:
        self.notes[layer, "rotary"] = Rotary.of(kwargs.get("position_embeddings"))

    def _note_mlp(self, layer: int, _module: Any, _args: tuple, output: Tensor) -> None:
        self.notes[layer, "mlp"] = at_least_float32(output).view(self.before[layer].shape)

    def _note_post_scale(self, layer: int, _module: Any, _args: tuple, output: Any) -> None:
        norm = self.model.anatomy.attention_post_norm(layer)
        assert norm is not None
        self.notes[layer, "post"] = norm.scale(at_least_float32(output[0]))

    def _note_qk_scale(self, layer: int, side: Side, _module: Any, args: tuple, _kwargs: dict) -> None:
        anatomy = self.model.anatomy
        norm = anatomy.query_norm(layer) if side == "query" else anatomy.key_norm(layer)
        assert norm is not None
        scale = norm.scale(at_least_float32(args[0]))
        match anatomy.family.qk_norm:
            case "all_heads":
                scale = scale[:, :, None]
            case "head_token":
                scale = scale.transpose(1, 2)
            case _:
                pass
        self.notes[layer, side] = scale

    def _note_final(self, _module: Any, args: tuple, _kwargs: dict) -> None:
        self.final = at_least_float32(args[0])
