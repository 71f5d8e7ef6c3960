"""Frozen values to files and back: a tree of dataclasses as one JSON record, and its arrays as tensors.

What a value is read back into follows from the types of its fields, so a class that can be saved needs nothing of its
own for that; what does not fit its type is refused. Numbers come back to the bit, those that are not finite too.
"""

from __future__ import annotations

import math
import types
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from headwise.scale.tensors import Damaged, from_bytes, to_bytes

Value = TypeVar("Value")


class Misfit(Damaged):
    """A whole file of another kind of value: another version of its class, most likely."""


def value_bytes(value: Any, *, without: Sequence[str] = ()) -> bytes:
    """A value as a sealed file, ``without`` some of its fields; the same value gives the same bytes.

    >>> from headwise.types import Estimate
    >>> again = value_from(Estimate, value_bytes(Estimate(0.5, float("nan"), 0.6, n=4, clusters=2)))
    >>> again.mean, again.low, again.clusters
    (0.5, nan, 2)
    """
    tensors: dict[str, Tensor] = {}
    kept = [field.name for field in fields(value) if field.name not in without]
    record = {name: _packed(getattr(value, name), tensors) for name in kept}
    return to_bytes(tensors, record)


def value_from(kind: type[Value], content: bytes, **given: Any) -> Value:
    """The value that :func:`value_bytes` was given, or :class:`~headwise.scale.tensors.Damaged`.

    ``given`` are the fields that were left out. A field that is not in a file of an earlier version has its default.
    """
    tensors, record = from_bytes(content)
    hints = get_type_hints(kind)
    try:
        _fit_fields(kind, {**record, **given})
        read = {name: _unpacked(hints[name], item, tensors) for name, item in record.items()}
        return kind(**read, **given)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, RuntimeError) as error:
        raise Misfit(f"not a {kind.__name__} ({error})") from None


def values_bytes(values: Sequence[Any]) -> bytes:
    """Values of one kind as a sealed file."""
    tensors: dict[str, Tensor] = {}
    record = [_packed(value, tensors) for value in values]
    return to_bytes(tensors, record)


def values_from(kind: type[Value], content: bytes) -> list[Value]:
    """The values that :func:`values_bytes` was given, or :class:`~headwise.scale.tensors.Damaged`.

    >>> from headwise.types import Head
    >>> values_from(Head, values_bytes([Head(9, 6), Head(1, 2)]))
    [L9H6, L1H2]
    """
    tensors, record = from_bytes(content)
    try:
        return _unpacked(list[kind], record, tensors)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, RuntimeError) as error:
        raise Damaged(f"not values of {kind.__name__} ({error})") from None


# --- to plain values ---


def _packed(value: Any, tensors: dict[str, Tensor]) -> Any:
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Tensor):
        return _kept(value, tensors)
    if isinstance(value, np.ndarray):
        # safetensors knows no text.
        return value.tolist() if value.dtype.kind in "UO" else _kept(torch.from_numpy(value.copy()), tensors)
    if isinstance(value, sparse.csr_matrix):
        parts = {name: _packed(getattr(value, name), tensors) for name in ("data", "indices", "indptr")}
        return {**parts, "shape": [int(n) for n in cast(tuple[int, ...], value.shape)]}
    if is_dataclass(value):
        return {field.name: _packed(getattr(value, field.name), tensors) for field in fields(value)}
    if isinstance(value, Mapping):
        # A list of pairs: keys may be numbers or values of their own.
        return [[_packed(key, tensors), _packed(item, tensors)] for key, item in value.items()]
    if isinstance(value, Sequence):
        return [_packed(item, tensors) for item in value]
    raise TypeError(f"a {type(value).__name__} cannot be saved")


def _kept(value: Tensor, tensors: dict[str, Tensor]) -> str:
    name = str(len(tensors))
    # A copy: fields may be the same tensor, which safetensors does not take.
    tensors[name] = value.detach().cpu().clone()
    return name


# --- and back ---


def _unpacked(kind: Any, record: Any, tensors: Mapping[str, Tensor]) -> Any:
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        some = [one for one in inner if one is not type(None)]
        return None if record is None and len(some) < len(inner) else _unpacked(some[0], record, tensors)
    if origin is Literal:
        return _fit(record in inner, record)
    if kind is float:
        return float(_fit(isinstance(record, int | float | str) and not isinstance(record, bool), record))
    if kind in (bool, int, str):
        return _fit(type(record) is kind, record)
    if kind is Any:
        return _plain(record)
    if kind is Tensor:
        return tensors[record]
    if kind is np.ndarray:
        return np.array(record) if isinstance(record, list) else tensors[record].numpy()
    if kind is sparse.csr_matrix:
        parts = tuple(tensors[record[name]].numpy() for name in ("data", "indices", "indptr"))
        return sparse.csr_matrix(parts, shape=tuple(record["shape"]))
    if isinstance(kind, type) and is_dataclass(kind):
        hints = get_type_hints(kind)
        _fit_fields(kind, record)
        return kind(**{name: _unpacked(hints[name], item, tensors) for name, item in record.items()})
    if isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields"):
        hints = get_type_hints(kind)
        made = zip(hints, record, strict=True)
        return kind(*(_unpacked(hints[name], item, tensors) for name, item in made))
    if origin in (dict, Mapping) or (isinstance(origin, type) and issubclass(origin, Mapping)):
        return {_unpacked(inner[0], k, tensors): _unpacked(inner[1], v, tensors) for k, v in record}
    if origin is tuple:
        kinds = [inner[0]] * len(record) if inner[-1] is Ellipsis else inner
        return tuple(_unpacked(one, item, tensors) for one, item in zip(kinds, record, strict=True))
    if origin is list or (isinstance(origin, type) and issubclass(origin, Sequence)):
        return [_unpacked(inner[0], item, tensors) for item in record]
    raise TypeError(f"a {kind} cannot be read")


def _fit_fields(kind: Any, record: Mapping[str, Any]) -> None:
    """All fields without a default have to be there, and no others."""
    known = fields(kind)
    needed = {one.name for one in known if one.default is MISSING and one.default_factory is MISSING}
    _fit(needed <= set(record) <= {one.name for one in known}, record)


def _fit(fits: bool, record: Any) -> Any:
    if not fits:
        raise ValueError(f"{record!r} does not fit")
    return record


def _plain(record: Any) -> Any:
    """What has no type of its own: numbers, texts, and lists of them."""
    return [_plain(item) for item in record] if isinstance(record, list) else record
