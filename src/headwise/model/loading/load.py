"""Read a model and its tokenizer from wherever the user has them, safely, or say in one line why not.

Pickled weights are never opened, remote code runs only if the caller asks for it, and nothing large is read
before the configuration has shown that the model can be studied here.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from headwise.errors import HeadwiseError
from headwise.model.loading import fit, folder
from headwise.model.loading.catalogue import is_known
from headwise.model.loading.half import refuse_if_deadly
from headwise.model.loading.place import ModelPlace, find_file, hub_reachable, place_of
from headwise.model.loading.quiet import quiet_transformers
from headwise.model.loading.trouble import first_line, one_line, pickled_only, runnable
from headwise.strings import shortened

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from headwise.model.model import Model

_DTYPES = {
    "float32": torch.float32,
    "float64": torch.float64,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


@dataclass(frozen=True, eq=False)
class Loaded:
    """An untouched transformers model in evaluation mode, its tokenizer, and where they came from."""

    hf: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    name: str
    source: str


def read(
    name: str | Path | None = None,
    *,
    revision: str | None = None,
    dtype: str | torch.dtype = "float32",
    device: str | torch.device | None = None,
    device_map: str | dict[str, Any] | None = None,
    max_memory: dict[int | str, int | str] | None = None,
    offload_folder: str | Path | None = None,
    trust_remote_code: bool = False,
) -> Loaded:
    """Read a model: the default one, one that was got by name, a ``.gguf`` file, a local folder, or a hub id.

    ``device`` is where the model goes (a CUDA device if there is one, else the CPU); ``device_map="auto"``
    spreads a model larger than one device instead, within ``max_memory``. ``revision`` is a branch, tag or commit of a
    hub repository.
    """
    number = dtype_of(dtype)
    if device_map is None and (max_memory is not None or offload_folder is not None):
        given_alone = "max_memory" if max_memory is not None else "offload_folder"
        raise HeadwiseError(f"{given_alone} is for models that are spread: give device_map='auto' with it")
    target = _device(device, device_map)
    refuse_if_deadly(str(number), target.type)
    place = place_of(name, revision)
    given = _given(place, trust_remote_code=trust_remote_code)
    with quiet_transformers():
        config = _config(place, given)
        from headwise.model.architectures import architecture_of

        architecture_of(config)
        _refuse_incomplete(place, config)
        tokenizer = _tokenizer(place, given)
        _refuse_misfit(place, config, given)
        spread = None
        if device_map is not None:
            if not isinstance(device_map, str):
                fit.refuse_wrong_map(device_map, config, place.name)
            spread = {"device_map": device_map, "max_memory": max_memory, "offload_folder": offload_folder}
        hf = _weights(place, config, number, target, spread, given)
    hf.eval()
    hf.requires_grad_(False)
    return Loaded(hf=hf, tokenizer=tokenizer, name=place.name, source=place.source)


def read_tokenizer(name: str | Path | None = None, *, revision: str | None = None) -> Any:
    """The tokenizer alone, of whatever :func:`read` reads: whether a model can be asked something costs no weights."""
    place = place_of(name, revision)
    with quiet_transformers():
        return _tokenizer(place, _given(place, trust_remote_code=False))


def load(
    name: str | Path | None = None,
    *,
    revision: str | None = None,
    dtype: str | torch.dtype = "float32",
    device: str | torch.device | None = None,
    device_map: str | dict[str, Any] | None = None,
    max_memory: dict[int | str, int | str] | None = None,
    offload_folder: str | Path | None = None,
    trust_remote_code: bool = False,
    check: bool = True,
) -> Model:
    """Load a model ready for study: the default one, a known name, a hub id, a local folder or a ``.gguf`` file.

    Parameters
    ----------
    name:
        A known name, a hub id, a folder with safetensors, or a ``.gguf`` file; None is the default model.
    revision:
        Branch, tag or commit of a hub model.
    dtype:
        The precision to load it in; decompositions are still done in float32 or float64.
    device:
        Where the model goes, such as ``cuda``; default: the CPU.
    device_map:
        How a model that is larger than one device is spread, such as ``auto`` (needs accelerate): over devices, then to
        the CPU's memory, then to disk.
    max_memory:
        With ``device_map``: the most that each device may hold, such as ``{0: "20GiB", "cpu": "40GiB"}``.
    offload_folder:
        Where weights on disk go that cannot be read from the model's own files; most can.
    trust_remote_code:
        Whether a model's own code may run. It can do anything you can.
    check:
        Whether to compare, on a short prompt, what headwise sees with what the model computes, and to refuse the model
        if they differ.

    Returns
    -------
    Model
        The model, ready to be captured, edited and split.
    """
    from headwise.model.check import refuse_if_wrong
    from headwise.model.model import Model

    loaded = read(
        name,
        revision=revision,
        dtype=dtype,
        device=device,
        device_map=device_map,
        max_memory=max_memory,
        offload_folder=offload_folder,
        trust_remote_code=trust_remote_code,
    )
    with runnable(loaded.name):
        model = Model(loaded.hf, loaded.tokenizer, name=loaded.name)
    by_path = name is not None and (isinstance(name, Path) or not is_known(name))
    on_disk = by_path and Path(str(name)).expanduser().exists()
    model.origin = {
        "name": str(Path(str(name)).expanduser().absolute()) if on_disk else name,
        "revision": revision,
        "dtype": str(loaded.hf.dtype).removeprefix("torch."),
        "device": None if device is None else str(device),
        "device_map": device_map,
        "max_memory": max_memory,
        "offload_folder": None if offload_folder is None else str(offload_folder),
        "trust_remote_code": trust_remote_code,
    }
    if check:
        refuse_if_wrong(model)
    return model


def read_config(name: str | Path | None = None, revision: str | None = None) -> tuple[str, Any]:
    """A model's name and configuration, without its weights; ``name`` may be a configuration's file, too."""
    file = Path(str(name)).expanduser()
    if name is not None and file.suffix == ".json":
        if not file.is_file():
            raise HeadwiseError(f"there is no file {shortened(str(name))!r}: give a model's config.json")
        called = file.absolute().parent.name if file.name == folder.CONFIG else file.stem
        folder.refuse_absurd_config(file, called)
        place = ModelPlace(called, str(file), source=str(file.absolute()))
    else:
        place = place_of(name, revision)
    given: dict[str, Any] = {} if place.revision is None else {"revision": place.revision}
    if place.local or not hub_reachable():
        given["local_files_only"] = True
    with quiet_transformers():
        return place.name, _config(place, given)


def dtype_of(dtype: str | torch.dtype) -> torch.dtype:
    """A floating-point type by name or as itself.

    >>> dtype_of("float64"), dtype_of(torch.bfloat16)
    (torch.float64, torch.bfloat16)
    >>> dtype_of("int8")
    Traceback (most recent call last):
    ...
    headwise.errors.HeadwiseError: 'int8' is not a model's dtype: use float32, float64, bfloat16 or float16
    """
    short = str(dtype).removeprefix("torch.")
    if short not in _DTYPES:
        raise HeadwiseError(f"{short!r} is not a model's dtype: use float32, float64, bfloat16 or float16")
    return _DTYPES[short]


def _device(device: str | torch.device | None, device_map: str | dict[str, Any] | None) -> torch.device:
    if device_map is not None:
        if device is not None:
            raise HeadwiseError(f"give device={str(device)!r} or device_map={device_map!r}, not both")
        from importlib.util import find_spec

        if find_spec("accelerate") is None:
            raise HeadwiseError(
                f"device_map={device_map!r} needs accelerate: install it with `pip install 'headwise[big]'`"
            )
        return torch.device("cpu")
    if device is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        chosen = torch.device(device)
        torch.empty(0, device=chosen)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise HeadwiseError(f"the device {str(device)!r} cannot be used here: {first_line(error)}") from error
    return chosen


def _config(place: ModelPlace, given: dict[str, Any]) -> Any:
    from transformers import AutoConfig

    with one_line(place, "configuration"):
        if path := find_file(place, folder.CONFIG, given):
            folder.refuse_absurd_config(path, place.name)
        config = AutoConfig.from_pretrained(place.where, **given)
        folder.refuse_absurd_sizes(config.get_text_config().to_dict(), place.name)
    if getattr(config, "is_encoder_decoder", False):
        raise HeadwiseError(
            f"{place.name!r} is an encoder-decoder ({config.model_type}): headwise reads decoder-only models"
        )
    return config


def _refuse_incomplete(place: ModelPlace, config: Any) -> None:
    """Say all that a folder lacks, and that pickled weights are not opened (on the hub, loading finds out)."""
    chosen = getattr(config, "transformers_weights", None)
    if chosen is not None and not str(chosen).endswith((".safetensors", ".safetensors.index.json")):
        raise pickled_only(place, str(chosen))
    if not place.local:
        return
    if lacks := folder.missing_parts(Path(place.where)):
        raise folder.incomplete(place.where, lacks)
    files = sorted(file.name for file in Path(place.where).iterdir())
    pickled = [file for file in files if file.endswith(folder.PICKLED)]
    if pickled and not any(file.endswith((".safetensors", ".safetensors.index.json")) for file in files):
        raise pickled_only(place, pickled[0])


def _refuse_misfit(place: ModelPlace, config: Any, given: dict[str, Any]) -> None:
    with one_line(place, "weights"):
        chosen = getattr(config, "transformers_weights", None)
        files = folder.weight_files(
            lambda file: find_file(place, file, given), place.name, None if chosen is None else str(chosen)
        )
        if files:
            fit.refuse_misfit(folder.held_tensors(files, place.name), config, place.name)


def _given(place: ModelPlace, *, trust_remote_code: bool) -> dict[str, Any]:
    """What transformers is told with every file of a model that it reads."""
    given: dict[str, Any] = {"trust_remote_code": trust_remote_code}
    if place.revision:
        given["revision"] = place.revision
    # A folder is complete in itself, so no question ever goes to the hub. Without a network, a hub model that
    # was fetched before still loads, and one that was not is refused at once, not after half a minute of
    # retries.
    if place.local or not hub_reachable():
        given["local_files_only"] = True
    return given


def _tokenizer(place: ModelPlace, given: dict[str, Any]) -> Any:
    from transformers import AutoTokenizer

    with one_line(place, "tokenizer"):
        tokenizer: Any = AutoTokenizer.from_pretrained(place.where, **given)
        made = tokenizer("a word")["input_ids"]
    if not made:  # transformers makes an empty tokenizer where the vocabulary is missing
        raise HeadwiseError(
            f"the tokenizer of {place.name!r} makes no tokens of text: its vocabulary (tokenizer.json) is missing"
        )
    return tokenizer


def _weights(
    place: ModelPlace,
    config: Any,
    dtype: torch.dtype,
    device: torch.device,
    spread: dict[str, Any] | None,
    given: dict[str, Any],
) -> Any:
    from transformers import AutoModelForCausalLM

    options: dict[str, Any] = dict(given, config=config, dtype=dtype, use_safetensors=True)
    if spread is not None:
        options |= {name: value for name, value in spread.items() if value is not None}
    with one_line(place, "weights"):
        both: Any = AutoModelForCausalLM.from_pretrained(place.where, output_loading_info=True, **options)
    hf, found = both
    absent = sorted(found["missing_keys"]) + sorted(str(key[0]) for key in found["mismatched_keys"])
    if absent:
        raise fit.gaps(absent, place.name)
    fit.refuse_unplaced(set(found["unexpected_keys"]) - set(hf._tied_weights_keys or ()), place.name)
    fit.refuse_not_finite(hf, place.name)
    # a quantised model is where bitsandbytes has put it
    return hf if spread is not None or getattr(hf, "is_quantized", False) else hf.to(device)
