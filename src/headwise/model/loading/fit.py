"""Do the weights fit the configuration, all of them, and are they numbers?

transformers goes on where they do not: it fills gaps with random numbers, drops what has no place, and reads whole
numbers as if they were weights. An explanation of such a model would be fiction.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import torch

from headwise.errors import HeadwiseError
from headwise.model.loading.folder import Tensor
from headwise.strings import shortened

_FLOATS = ("F64", "F32", "F16", "BF16")
# Tables that older checkpoints carry along; every model computes its own.
_TABLES = re.compile(r"(rotary_emb\.inv_freq|(attn|attention)\.(masked_)?bias)$")


def refuse_misfit(held: dict[str, Tensor], config: Any, name: str) -> None:
    """Refuse weights whose headers do not agree with the configuration, before memory is taken for either."""
    layers = config.get_text_config().num_hidden_layers
    if not held or layers > len(held):
        raise HeadwiseError(
            f"the weights of {name!r} do not fill the model: its configuration says {layers} layers, "
            f"but there are {len(held)} tensors in all"
        )
    quantized = getattr(config, "quantization_config", None) is not None
    expected, prefix = _expected(config)
    absent: list[str] = []
    for key, shape in expected.items():
        tensor = _held(held, key, prefix)
        if tensor is None:
            absent.append(key)
        elif quantized:
            continue  # packed: other shapes, other types
        elif tensor.shape != shape:
            raise HeadwiseError(
                f"the weights of {name!r} do not fit its configuration: {key} is {list(tensor.shape)} in the file, "
                f"{list(shape)} by the configuration"
            )
        elif tensor.kind not in _FLOATS:
            raise HeadwiseError(
                f"the weights of {name!r} are quantized without scales ({key} is {tensor.kind}), so their values are "
                "not known: load the original model"
            )
    # By size, not by name: transformers knows older names for some weights.
    asked, there = _numbers(expected.values()), _numbers(tensor.shape for tensor in held.values())
    if asked > there and not quantized:
        raise gaps(absent or list(expected), name)


def refuse_wrong_map(device_map: Mapping[str, Any], config: Any, name: str) -> None:
    """Refuse a map of modules that this model does not have, or that leaves some of it without a place.

    transformers drops such a map without a word where it names a single device.
    """
    from transformers import AutoModelForCausalLM

    with torch.device("meta"):
        model: Any = AutoModelForCausalLM.from_config(config)
    modules = {key for key, _ in model.named_modules()}
    weights = [key for key, _ in model.named_parameters()]
    for key in device_map:
        if key not in modules and key not in weights:
            raise HeadwiseError(
                f"the device map names {shortened(str(key))!r}, which {name!r} has no module of: its modules are "
                f"{', '.join(child for child, _ in model.named_children())} and what is in them"
            )
    placed = tuple(f"{key}." if key else "" for key in device_map)
    for key in weights:
        if not f"{key}.".startswith(placed):
            raise HeadwiseError(f"the device map gives {key!r} of {name!r} no device: name every module")


def refuse_larger(config: Any, held: int, name: str) -> None:
    """Refuse a configuration that asks for more numbers than the files hold, before memory is taken for them."""
    if (asked := _numbers(_expected(config)[0].values())) > held:
        raise HeadwiseError(
            f"the weights of {name!r} do not fill the model: its configuration asks for {asked:,} numbers, "
            f"there are {held:,}"
        )


def gaps(absent: list[str], name: str) -> HeadwiseError:
    """The one line about weights that the files do not hold."""
    more = f" and {len(absent) - 1} more" if len(absent) > 1 else ""
    return HeadwiseError(
        f"the weights of {name!r} do not fill the model: {absent[0]}{more} missing or misshapen"
    )


def refuse_unplaced(unexpected: Iterable[str], name: str) -> None:
    """Refuse weights for which the model has no place: its configuration describes another, smaller model."""
    left = sorted(key for key in unexpected if not _TABLES.search(key))
    if left:
        more = f" and {len(left) - 1} more have" if len(left) > 1 else " has"
        raise HeadwiseError(
            f"the weights of {name!r} are of a larger model than its configuration describes: {left[0]}{more} no "
            "place in it"
        )


def refuse_not_finite(hf: Any, name: str) -> None:
    """Refuse NaN or infinity in any weight, in one pass over all of them."""
    seen: set[int] = set()
    for key, weight in hf.state_dict().items():
        if weight.device.type == "meta" or not weight.is_floating_point() or weight.data_ptr() in seen:
            continue
        seen.add(weight.data_ptr())
        # A sum reads every number once and takes no memory; it is finite only if all are. It could overflow.
        single = torch.promote_types(weight.dtype, torch.float32)
        if not torch.isfinite(weight.sum(dtype=single)) and not torch.isfinite(weight).all():
            kind = str(weight.dtype).removeprefix("torch.")
            raise HeadwiseError(
                f"the weights of {name!r} are not all numbers: {key} holds NaN or infinity (as {kind})"
            )


def _expected(config: Any) -> tuple[dict[str, tuple[int, ...]], str]:
    """The shape of every weight that the configuration asks for, and the prefix that older files leave out."""
    from transformers import AutoModelForCausalLM

    with torch.device("meta"):
        model: Any = AutoModelForCausalLM.from_config(config)
    shapes = {key: tuple(weight.shape) for key, weight in model.named_parameters()}  # tied ones once
    return shapes, f"{model.base_model_prefix}."


def _held(held: dict[str, Tensor], key: str, prefix: str) -> Tensor | None:
    for candidate in (key, key.removeprefix(prefix), prefix + key):
        if candidate in held:
            return held[candidate]
    return None


def _numbers(shapes: Iterable[tuple[int, ...]]) -> int:
    total = 0
    for shape in shapes:
        size = 1
        for length in shape:
            size *= length
        total += size
    return total
