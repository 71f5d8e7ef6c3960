"""What a model's files hold, read and judged before anything of it is loaded.

Nothing here allocates more than the headers of the files: a configuration may say any number, and an index may name
any file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from safetensors import SafetensorError, safe_open

from headwise import jsons
from headwise.errors import HeadwiseError
from headwise.strings import shortened
from headwise.validation import quoted

CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
PICKLED = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
_VOCABULARIES = ("tokenizer.json", "tokenizer_config.json", "vocab.json", "vocab.txt", "tekken.json")

LAYERS = 10_000
"""More layers than any model has; a loop over 2**63 of them would not end."""
_LAYER_KEYS = ("num_hidden_layers", "n_layer", "num_layers")
_SIZE_KEYS = (
    "num_attention_heads",
    "n_head",
    "num_key_value_heads",
    "hidden_size",
    "n_embd",
    "intermediate_size",
    "n_inner",
    "ffn_dim",
    "head_dim",
    "vocab_size",
    "max_position_embeddings",
    "n_positions",
    "n_ctx",
    "word_embed_proj_dim",
)


@dataclass(frozen=True, slots=True)
class Tensor:
    """What a header says of one tensor: its shape, and safetensors' name for its type."""

    shape: tuple[int, ...]
    kind: str


def missing_parts(folder: Path) -> list[str]:
    """What a folder lacks to be a model, in words; pickled weights count as weights here."""
    names = [file.name for file in folder.iterdir()]
    lacks = [] if CONFIG in names else [CONFIG]
    if not any(name.endswith((".safetensors", ".safetensors.index.json", *PICKLED)) for name in names):
        lacks.append(f"weights ({WEIGHTS})")
    if not any(name in _VOCABULARIES or name.endswith((".model", ".tiktoken")) for name in names):
        lacks.append("tokenizer (tokenizer.json)")
    return lacks


def incomplete(text: str, lacks: list[str]) -> HeadwiseError:
    """The one line about all that a folder lacks."""
    listed = " and ".join(
        [", ".join(f"no {part}" for part in lacks[:-1]), f"no {lacks[-1]}"][len(lacks) < 2 :]
    )
    return HeadwiseError(f"the folder {text!r} has {listed}: it is not a whole transformers model")


def refuse_absurd_config(path: Path, name: str) -> None:
    """Refuse a config.json that is not JSON or whose sizes no model has, before transformers counts up to them."""
    config = jsons.read(path, "a model's configuration", "get the model again")
    if not isinstance(config, dict):
        raise HeadwiseError(f"the configuration of {name!r} is {quoted(config)}, not an object")
    for part in (config, config.get("text_config")):
        if isinstance(part, dict):
            refuse_absurd_sizes(part, name)


def refuse_absurd_sizes(config: dict[str, Any], name: str) -> None:
    for keys, most in ((_LAYER_KEYS, LAYERS), (_SIZE_KEYS, 2**31 - 1)):
        for key in keys:
            value = config.get(key)
            if isinstance(value, int) and not 1 <= value <= most:
                raise HeadwiseError(
                    f"the configuration of {name!r} says {key} = {quoted(value)}: 1 to {most:,} can be"
                )


def weight_files(find: Callable[[str], Path | None], name: str, chosen: str | None = None) -> list[Path]:
    """The safetensors files that transformers would open; none if there are none of the usual names.

    ``find`` gives the place of a file of the model. ``chosen`` is the configuration's own name for the weights.
    """
    if chosen is not None:
        _refuse_name(chosen, f"the configuration of {name!r}", (".safetensors", ".safetensors.index.json"))
    for file in (WEIGHTS, INDEX) if chosen is None else (chosen,):
        if (path := find(file)) is None:
            continue
        if not file.endswith(".json"):
            return [path]
        found = {shard: find(shard) for shard in _shards(path, name)}
        if lost := [shard for shard, place in found.items() if place is None]:
            more = f" and {len(lost) - 1} more" if len(lost) > 1 else ""
            raise HeadwiseError(f"the weights of {name!r} are not whole: {lost[0]!r}{more} missing")
        return [place for place in found.values() if place is not None]
    return []


def _shards(index: Path, name: str) -> list[str]:
    read = jsons.read(index, "an index of weights", "get the model again")
    places = read.get("weight_map") if isinstance(read, dict) else None
    if not isinstance(places, dict) or not all(isinstance(shard, str) for shard in places.values()):
        raise HeadwiseError(f"{str(index)!r} is not an index of weights (weight_map): get the model again")
    shards = list(dict.fromkeys(places.values()))
    for shard in shards:
        _refuse_name(shard, f"the index of {name!r}", (".safetensors",))
    return shards


def _refuse_name(file: str, who: str, endings: tuple[str, ...]) -> None:
    path = PurePosixPath(file)
    if path.is_absolute() or ".." in path.parts or "\\" in file or "\0" in file or ":" in file:
        raise HeadwiseError(f"{who} names {shortened(file)!r}, which is outside its folder: it is not read")
    if not file.endswith(endings):
        raise HeadwiseError(
            f"{who} names {shortened(file)!r}, which is not safetensors and can run code when opened: it is not read"
        )


def held_tensors(paths: list[Path], name: str) -> dict[str, Tensor]:
    """Shapes and types of all tensors, from the files' headers alone."""
    return {key: tensor for path in paths for key, tensor in _header(path, name)}


def _header(path: Path, name: str) -> Iterator[tuple[str, Tensor]]:
    try:
        with safe_open(path, "pt") as file:
            for key in file.keys():  # noqa: SIM118  (not a mapping)
                tensor = file.get_slice(key)
                yield key, Tensor(tuple(tensor.get_shape()), str(tensor.get_dtype()))
    except (SafetensorError, OSError, ValueError, OverflowError, MemoryError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise HeadwiseError(
            f"the weights of {name!r} cannot be read: {path.name!r} is damaged or cut short ({shortened(reason, 120)})"
        ) from None
