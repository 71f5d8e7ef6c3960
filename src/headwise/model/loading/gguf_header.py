"""The header of a GGUF file: what it says of the model, and whether the file can be what it says.

Read in time and memory that the file's own size bounds, whatever numbers it holds: a length or a count that reaches
past the end of the file is found out before it is acted upon.
"""

from __future__ import annotations

import os
import re
import struct
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

from headwise.errors import HeadwiseError
from headwise.model.loading.folder import LAYERS

# Width and struct code of GGUF's scalar metadata types; 8 is a string and 9 an array.
_SCALARS = {
    0: "<B",
    1: "<b",
    2: "<H",
    3: "<h",
    4: "<I",
    5: "<i",
    6: "<f",
    7: "<?",
    10: "<Q",
    11: "<q",
    12: "<d",
}
_DIMENSIONS = 4
"""Axes that a GGUF tensor has at most."""
_BLOCK = re.compile(r"blk\.(\d{1,6})\.")


@dataclass(frozen=True, slots=True)
class Header:
    """``fields`` is the metadata (arrays only as their length), ``shapes`` those of tensors, innermost axis first."""

    fields: dict[str, Any]
    shapes: dict[str, tuple[int, ...]]

    @property
    def numbers(self) -> int:
        """How many numbers all tensors hold."""
        return sum(map(prod, self.shapes.values()))


def read_header(path: Path) -> Header:
    """The header of a file that is whole: every tensor that it announces is in it."""
    try:
        with path.open("rb") as file:
            return _header(file, path)
    except (struct.error, UnicodeDecodeError, KeyError, MemoryError, OverflowError, ValueError) as error:
        raise HeadwiseError(f"'{path}' is damaged or cut short: fetch the file again") from error
    except OSError as error:
        raise HeadwiseError(f"'{path}' cannot be read: {error.strerror or error}") from error


def _header(file: BinaryIO, path: Path) -> Header:
    if file.read(4) != b"GGUF":
        raise HeadwiseError(f"'{path}' is not a GGUF file: its first four bytes are not GGUF")
    version, tensor_count, field_count = _unpack(file, "<IQQ")
    if version not in (2, 3):
        raise HeadwiseError(f"'{path}' is GGUF version {version}; versions 2 and 3 can be read")
    fields: dict[str, Any] = {}
    for _ in range(field_count):
        key = _string(file)
        fields[key] = _value(file, _unpack(file, "<I")[0])
    shapes: dict[str, tuple[int, ...]] = {}
    ends = [0]
    for _ in range(tensor_count):
        name = _string(file)
        (axes,) = _unpack(file, "<I")
        if axes > _DIMENSIONS or name in shapes:
            raise ValueError("a tensor has too many axes, or occurs twice")
        shapes[name] = _unpack(file, f"<{axes}Q")
        kind, offset = _unpack(file, "<IQ")
        ends.append(offset + _bytes(shapes[name], kind))
    alignment = fields.get("general.alignment", 32)
    if not isinstance(alignment, int) or alignment < 1:
        raise ValueError("the data is not aligned")
    start = -(-file.tell() // alignment) * alignment
    if start + max(ends) > os.fstat(file.fileno()).st_size:
        raise ValueError("a tensor reaches past the end of the file")
    return Header(fields, shapes)


def _bytes(shape: tuple[int, ...], kind: int) -> int:
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

    block, size = GGML_QUANT_SIZES[GGMLQuantizationType(kind)]
    if not shape or min(shape) < 1 or shape[0] % block:
        raise ValueError("a tensor has no size, or not one of its type")
    return prod(shape) // block * size


def _unpack(file: BinaryIO, code: str) -> tuple[Any, ...]:
    return struct.unpack(code, file.read(struct.calcsize(code)))


def _string(file: BinaryIO) -> str:
    size = _unpack(file, "<Q")[0]
    if size > os.fstat(file.fileno()).st_size - file.tell():
        raise ValueError("a string reaches past the end of the file")
    return file.read(size).decode("utf-8")


def _value(file: BinaryIO, kind: int) -> Any:
    if kind == 8:
        return _string(file)
    if kind == 9:
        element, count = _unpack(file, "<IQ")
        if element == 8:
            for _ in range(count):
                file.seek(_unpack(file, "<Q")[0], 1)
        else:
            file.seek(count * struct.calcsize(_SCALARS[element]), 1)
        return count
    return _unpack(file, _SCALARS[kind])[0]


def refuse_unusable(path: Path, header: Header) -> None:
    """Refuse a file of which transformers would silently read only a part, or count without end."""
    fields, arch = header.fields, header.fields.get("general.architecture")
    if not isinstance(arch, str):
        raise HeadwiseError(
            f"'{path}' does not name its architecture (general.architecture): it is not a model"
        )
    scaling = fields.get(f"{arch}.rope.scaling.type", "none")
    if scaling != "none" or any(name.startswith(("rope_freqs", "rope_factors")) for name in header.shapes):
        raise HeadwiseError(
            f"'{path}' rescales its rotary frequencies, which transformers does not read from GGUF, so its "
            "attention would be wrong: load the original safetensors model instead"
        )
    blocks = {int(found[1]) for name in header.shapes if (found := _BLOCK.match(name))}
    said = fields.get(f"{arch}.block_count")
    if said != len(blocks) or not 1 <= len(blocks) <= LAYERS or max(blocks) != len(blocks) - 1:
        raise HeadwiseError(
            f"'{path}' says that it has {said} layers ({arch}.block_count), but it holds {len(blocks)}: it is damaged"
        )
    for key, value in fields.items():
        counts = key.startswith(f"{arch}.") and key.endswith(("_length", "_count", "_count_kv", "_size"))
        if counts and isinstance(value, int) and not 0 <= value < 2**31:
            raise HeadwiseError(f"'{path}' says {key} = {value}: it is damaged")
