"""Instrumented forward passes: every layer's attention call is seen, may be edited, and nothing stays behind.

transformers dispatches attention by a name in the model's config. A pass registers a private name for the
attention function *and* for the mask function (without the second the model would silently be bidirectional),
points the config at it, and takes all of it back in ``finally``.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from transformers.masking_utils import (
    AttentionMaskInterface,
    and_masks,
    eager_mask,
    padding_mask_function,
    prepare_padding_mask,
    sdpa_mask,
)
from transformers.modeling_utils import AttentionInterface

from headwise.errors import HeadwiseError
from headwise.model.attend import AttentionCall, RowMask, attend, attend_from, attend_packed
from headwise.model.batch import Batch, Packing
from headwise.model.threads import side_by_side

if TYPE_CHECKING:
    from headwise.model.model import Model

_names = itertools.count()
_registry_lock = threading.Lock()


class Stopped(Exception):
    """A pass was ended in the middle, because its result is no longer wanted."""


_unwanted: ContextVar[Callable[[], bool] | None] = ContextVar("unwanted", default=None)


@contextmanager
def stoppable(unwanted: Callable[[], bool]) -> Iterator[None]:
    """Inside, a pass asks at every layer whether it is still wanted, and ends with :class:`Stopped` if it is not."""
    outside = _unwanted.set(unwanted)
    try:
        yield
    finally:
        _unwanted.reset(outside)


class _Enough(Exception):
    """Ends a forward pass after the last layer that is needed."""


@dataclass
class Instruments:
    """What a pass does at each layer. All are optional; an untouched set gives the model's own forward pass."""

    edit: Callable[[AttentionCall], AttentionCall] | None = None
    observe: Callable[[AttentionCall], None] | None = None
    finish: Callable[[AttentionCall, Tensor], Tensor] | None = None
    """Sees, and may change, a layer's attention output [prompts, columns, heads, d_head]."""
    stop_at: int | None = None
    """The last layer whose attention call is needed: its output and everything after it is not computed."""
    packing: Packing | None = None
    """Where a batch holds one prompt many times, each copy to be edited in its own way: how they share what no edit
    can reach."""
    left: list[Tensor] = field(default_factory=list)
    """The last layer's output of a packed pass, which ends there."""
    before: list[tuple[nn.Module, Callable[..., Any]]] = field(default_factory=list)
    """Module, function of (module, args, kwargs) called before it runs; may return other args and kwargs."""
    after: list[tuple[nn.Module, Callable[..., None]]] = field(default_factory=list)
    """Module, function of (module, args, output) called after it ran."""


@dataclass(frozen=True, eq=False)
class Pass:
    """One forward pass to be made."""

    batch: Batch
    instruments: Instruments
    logits_at: Tensor | None = None
    """Positions [prompts, n] whose logits are wanted."""
    unembed: bool = True
    """Whether these are wanted, or only what the unembedding would read there."""


def forward(
    model: Model, batch: Batch, instruments: Instruments, logits_at: Tensor | None = None
) -> Tensor | None:
    """Run one pass; returns logits [prompts, n, vocabulary] at positions ``logits_at`` [prompts, n], if given."""
    return forward_all(model, [Pass(batch, instruments, logits_at)])[0]


def forward_all(model: Model, passes: Sequence[Pass]) -> list[Tensor | None]:
    """Run passes side by side, a thread each; every thread is followed by its own pass's instruments alone."""
    passes = [_with_copies(model, one) for one in passes]
    with _instrumented(model, [one.instruments for one in passes]) as mine:
        return side_by_side([partial(_run, model, one, mine) for one in passes])


def _with_copies(model: Model, one: Pass) -> Pass:
    packing = one.instruments.packing
    if packing is None:
        return one
    layers = model.anatomy.layers[packing.below :]
    hooks: list[tuple[nn.Module, Callable[..., Any]]] = [(layer, packing.place) for layer in layers]
    if packing.clean is None:
        hooks.insert(0, (layers[0], packing.enter))
    instruments = replace(one.instruments, before=[*hooks, *one.instruments.before], left=[])
    instruments.after = [*instruments.after, (layers[-1], partial(_leave, instruments.left))]
    return replace(one, instruments=instruments)


def _run(model: Model, one: Pass, mine: threading.local, given_up: threading.Event) -> Tensor | None:
    inputs = one.batch.model_inputs(model.device)
    mine.instruments, mine.given_up = one.instruments, given_up
    try:
        with torch.no_grad():
            if one.instruments.packing is not None:
                first = {name: None if tensor is None else tensor[:1] for name, tensor in inputs.items()}
                return _packed_logits(model, one, one.instruments.packing, first)
            if one.logits_at is None:
                model.anatomy.trunk(**inputs, use_cache=False)
                return None
            columns = one.batch.columns_of(one.logits_at)
            kept, place = columns.unique(return_inverse=True)
            if one.unembed:
                every = model.hf(**inputs, use_cache=False, logits_to_keep=kept.to(model.device)).logits
            else:
                every = model.anatomy.trunk(**inputs, use_cache=False).last_hidden_state[:, kept]
            index = place.to(every.device)[..., None].expand(-1, -1, every.shape[-1])
            logits = every.gather(1, index).to(model.result_device)
    except _Enough:
        return None
    finally:
        del mine.instruments
    absent = (one.logits_at < 0).to(logits.device)
    return logits.masked_fill(absent[..., None], 0.0) if absent.any() else logits


def _packed_logits(model: Model, one: Pass, packing: Packing, inputs: dict[str, Any]) -> Tensor | None:
    """Logits of packed copies, from the last layer's output: a trunk may count on as many columns as it was given."""
    left = one.instruments.left
    try:
        if packing.clean is None:
            model.anatomy.trunk(**inputs, use_cache=False)
        else:
            packing.go_on(model.anatomy.layers, model.dtype)
    except _Enough:
        if not left:
            raise
    if one.logits_at is None:
        return None
    columns = packing.columns(torch.arange(packing.copies)[:, None], one.logits_at)
    kept, place = columns.unique(return_inverse=True)
    read = model.anatomy.read_out(left[0][0, kept.to(left[0].device)])
    logits = model.anatomy.logits(read) if one.unembed else read
    if torch.equal(place.flatten(), torch.arange(place.numel())):  # every row is in its place: none is copied
        return logits.view(*place.shape, -1).to(model.result_device)
    return logits[place.to(logits.device)].to(model.result_device)


def _leave(left: list[Tensor], _module: Any, _args: tuple, output: Any) -> None:
    left.append(output[0] if isinstance(output, tuple) else output)
    raise _Enough


@contextmanager
def _instrumented(model: Model, every: Sequence[Instruments]) -> Iterator[threading.local]:
    """In the ``mine`` that it gives, each thread says which of ``every`` it follows for the time of its pass."""
    name = f"headwise-{next(_names)}"
    mine, unwanted = threading.local(), _unwanted.get()

    def function(
        module: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        scaling: float | None = None,
        softcap: float | None = None,
        **_: Any,
    ) -> tuple[Tensor, None]:
        scale = query.shape[-1] ** -0.5 if scaling is None else scaling
        mask = attention_mask
        if isinstance(mask, Tensor) and mask.dtype != torch.bool:
            mask = (
                mask >= 0
            )  # an eager mask adds 0 where a key is visible and a huge negative number elsewhere
        call = AttentionCall(module, module.layer_idx, query, key, value, mask, scale, softcap)
        instruments: Instruments | None = getattr(mine, "instruments", None)
        if instruments is None:
            # Somebody calls the bare model from another thread meanwhile: give them the model's own attention.
            return attend(call), None
        if mine.given_up.is_set():
            raise _Enough
        if unwanted is not None and unwanted():
            raise Stopped
        return _attended(call, instruments), None

    # Passes on one model take turns: its config says which attention function runs. Other models are free to run.
    with model.lock, ExitStack() as undo:
        if model.hf.training:
            raise HeadwiseError("the model is in training mode: call model.hf.eval() first")
        config = model.anatomy.config
        before = config._attn_implementation
        with _registry_lock:
            AttentionInterface.register(name, function)
            # The model's own kind of mask: a bare forward pass in another thread that is under way while the name
            # changes goes on with a mask that fits both.
            own_mask = eager_mask if before == "eager" else sdpa_mask
            AttentionMaskInterface.register(name, partial(_mask, mine, own_mask))
        undo.callback(_unregister, name)
        undo.callback(setattr, config, "_attn_implementation", before)
        config._attn_implementation = name
        for instruments in every:
            for module, hook in instruments.before:
                only = partial(_only_in, mine, instruments, hook)
                undo.callback(module.register_forward_pre_hook(only, with_kwargs=True).remove)
            for module, hook in instruments.after:
                only = partial(_only_in, mine, instruments, hook)
                undo.callback(module.register_forward_hook(only).remove)
        yield mine


def _attended(call: AttentionCall, instruments: Instruments) -> Tensor:
    """A layer's attention output, edited and looked at as the instruments say."""
    packed, packing = call, instruments.packing if _is_packed(instruments, call.layer) else None
    if packing is not None:
        if call.layer not in packing.touched:
            return attend_packed(call, packing)
        call = packing.unpacked(call)
    if instruments.edit is not None:
        call = instruments.edit(call)
    if instruments.observe is not None:
        instruments.observe(call)
    if instruments.stop_at is not None and call.layer >= instruments.stop_at:
        raise _Enough
    if packing is None:
        output = attend(call)
        return output if instruments.finish is None else instruments.finish(call, output)
    # Rows before the first that an edit reaches are those of the shared prefix.
    output = attend_from(call, packing.start)
    if instruments.finish is not None:
        whole = output.new_zeros(len(output), packing.length, *output.shape[2:])
        whole[:, packing.start :] = output
        output = instruments.finish(call, whole)[:, packing.start :]
    return packing.packed(output, lambda: attend(packing.before(packed)))


LONG = 1024
"""Tokens from which on a mask is a rule instead of a table."""


def _mask(mine: threading.local, own: Callable[..., Any], **given: Any) -> Any:
    """The model's own kind of mask; of a long prompt, in a thread of ours, its rule."""
    length, rule = given["kv_length"], given["mask_function"]
    if length < LONG or given.get("use_vmap") or getattr(mine, "instruments", None) is None:
        return own(**given)
    padding = prepare_padding_mask(given.get("attention_mask"), length, given["kv_offset"])
    local = given.get("local_size")
    if given.get("allow_is_causal_skip") and padding is None and (local is None or length <= local):
        return None
    rule = rule if padding is None else and_masks(rule, padding_mask_function(padding))
    return RowMask(rule, torch.arange(given["batch_size"], device=given["device"]), 0, length)


def _is_packed(instruments: Instruments, layer: int) -> bool:
    return instruments.packing is not None and layer >= instruments.packing.below


def _only_in(mine: threading.local, instruments: Instruments, hook: Callable[..., Any], *args: Any) -> Any:
    """Call a hook in the thread that follows these instruments; every other thread passes by."""
    return hook(*args) if getattr(mine, "instruments", None) is instruments else None


def _unregister(name: str) -> None:
    with _registry_lock:
        AttentionInterface._global_mapping.pop(name, None)
        AttentionMaskInterface._global_mapping.pop(name, None)
