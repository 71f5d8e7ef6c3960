"""Read a model and its tokenizer from wherever the user has them, safely, or say in one line why not.

Pickled weights are never opened, remote code runs only if the caller asks for it, and nothing large is read
before the configuration has shown that the model can be studied here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError

from headwise.errors import HeadwiseError
from headwise.model.loading import store
from headwise.model.loading.catalogue import DEFAULT, is_known, known
from headwise.model.loading.half import refuse_if_deadly
from headwise.model.loading.quiet import quiet_transformers

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from headwise.model.model import Model

_DTYPES = {
    "float32": torch.float32,
    "float64": torch.float64,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}
_PICKLED = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
# What transformers, the hub client and safetensors raise about a model that is not as it should be.
_TROUBLE = (
    OSError,
    ValueError,
    KeyError,
    ImportError,
    AttributeError,
    RuntimeError,
    TypeError,
    SafetensorError,
)
_CONVERT = (
    "convert them once, if you trust them, with: "
    'python -c "from transformers import AutoModelForCausalLM as M; '
    "M.from_pretrained({name!r}, use_safetensors=False).save_pretrained('{folder}')\""
)


@dataclass(frozen=True, eq=False)
class Loaded:
    """An untouched transformers model in evaluation mode, its tokenizer, and where they came from."""

    hf: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    name: str
    source: str


@dataclass(frozen=True)
class _Place:
    """What transformers is to be given: a folder, or a hub id with its revision."""

    name: str
    where: str
    source: str
    revision: str | None = None

    @property
    def local(self) -> bool:
        return self.revision is None


def read(
    name: str | Path | None = None,
    *,
    revision: str | None = None,
    dtype: str | torch.dtype = "float32",
    device: str | torch.device | None = None,
    device_map: str | dict[str, Any] | None = None,
    trust_remote_code: bool = False,
) -> Loaded:
    """Read a model: the default one, one that was got by name, a ``.gguf`` file, a local folder, or a hub id.

    ``device`` is where the model goes (a CUDA device if there is one, else the CPU); ``device_map="auto"``
    spreads a model larger than one device instead. ``revision`` is a branch, tag or commit of a hub
    repository.
    """
    number = dtype_of(dtype)
    target = _device(device, device_map)
    refuse_if_deadly(str(number), target.type)
    place = _place(name, revision)
    given: dict[str, Any] = {"trust_remote_code": trust_remote_code}
    if place.revision:
        given["revision"] = place.revision
    # A folder is complete in itself, so no question ever goes to the hub. Without a network, a hub model that
    # was fetched before still loads, and one that was not is refused at once, not after half a minute of
    # retries.
    if place.local or not _hub_reachable():
        given["local_files_only"] = True

    with quiet_transformers():
        config = _config(place, given)
        _refuse_pickled(place, config)
        from headwise.model.architectures import architecture_of

        architecture_of(config)
        tokenizer = _tokenizer(place, given)
        hf = _weights(place, config, number, target, device_map, given)
    hf.eval()
    hf.requires_grad_(False)
    return Loaded(hf=hf, tokenizer=tokenizer, name=place.name, source=place.source)


def load(
    name: str | Path | None = None,
    *,
    revision: str | None = None,
    dtype: str | torch.dtype = "float32",
    device: str | torch.device | None = None,
    device_map: str | dict[str, Any] | None = None,
    trust_remote_code: bool = False,
    check: bool = True,
) -> Model:
    """Load a model ready for study: the default one, a known name, a hub id, a local folder or a ``.gguf`` file.

    ``check`` compares, on a short prompt, what headwise sees with what the model computes, and refuses the model if
    they differ.
    """
    from headwise.model.check import refuse_if_wrong
    from headwise.model.model import Model

    loaded = read(
        name,
        revision=revision,
        dtype=dtype,
        device=device,
        device_map=device_map,
        trust_remote_code=trust_remote_code,
    )
    model = Model(loaded.hf, loaded.tokenizer, name=loaded.name)
    by_path = name is not None and (isinstance(name, Path) or not is_known(name))
    folder = by_path and Path(str(name)).expanduser().exists()
    model.origin = {
        "name": str(Path(str(name)).expanduser().absolute()) if folder else name,
        "revision": revision,
        "dtype": str(loaded.hf.dtype).removeprefix("torch."),
        "device": None if device is None else str(device),
        "device_map": device_map,
        "trust_remote_code": trust_remote_code,
    }
    if check:
        refuse_if_wrong(model)
    return model


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
        raise HeadwiseError(
            f"the device {str(device)!r} cannot be used here: {_first_line(error)}"
        ) from error
    return chosen


def _place(name: str | Path | None, revision: str | None) -> _Place:
    text = DEFAULT if name is None else str(name)
    path = Path(text).expanduser()
    if isinstance(name, Path) or is_known(text) or path.exists() or _looks_like_path(text):
        if revision is not None:
            raise HeadwiseError(f"revision={revision!r} is for hub models; {text!r} is not one")
        if is_known(text) and not isinstance(name, Path):
            folder = store.ensure(text)
            return _Place(text, str(folder), source=known(text).title)
        return _local(text, path)
    if not re.fullmatch(r"(?:[\w.-]+/)?[\w.-]+", text):
        raise HeadwiseError(
            f"{text!r} is no file or folder here, and not a hub id such as 'gpt2' or 'owner/name'"
        )
    chosen = revision or "main"
    return _Place(text, text, source=f"{text} at {chosen}", revision=chosen)


def _looks_like_path(text: str) -> bool:
    return text.startswith(("/", "./", "../", "~", ".\\")) or text.endswith(".gguf") or "\\" in text


def _local(text: str, path: Path) -> _Place:
    if not path.exists():
        raise HeadwiseError(f"there is no file or folder {text!r}")
    if path.is_file():
        if path.suffix.lower() != ".gguf":
            raise HeadwiseError(f"{text!r} is a file: give a model's folder, a .gguf file or a hub id")
        return _Place(path.stem, str(store.from_gguf(path)), source=str(path.absolute()))
    if not (path / "config.json").is_file():
        raise HeadwiseError(f"the folder {text!r} has no config.json: it is not a transformers model")
    return _Place(path.absolute().name, str(path), source=str(path.absolute()))


def _hub_reachable() -> bool:
    import os
    import socket
    from urllib.parse import urlsplit

    if os.environ.get("HF_HUB_OFFLINE", "").lower() in ("1", "true", "yes", "on"):
        return False  # whoever sets this wants no traffic at all
    if any(os.environ.get(key) for key in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")):
        return True  # a proxy may reach what this machine cannot
    hub = urlsplit(os.environ.get("HF_ENDPOINT") or "https://huggingface.co")
    try:
        socket.create_connection(
            (hub.hostname or "", hub.port or (80 if hub.scheme == "http" else 443)), 5
        ).close()
    except OSError:
        return False
    return True


def _config(place: _Place, given: dict[str, Any]) -> Any:
    from transformers import AutoConfig

    with _one_line(place, "configuration"):
        config = AutoConfig.from_pretrained(place.where, **given)
    if getattr(config, "is_encoder_decoder", False):
        raise HeadwiseError(
            f"{place.name!r} is an encoder-decoder ({config.model_type}): headwise reads decoder-only models"
        )
    return config


def _refuse_pickled(place: _Place, config: Any) -> None:
    """Say so before reading if a folder has pickled weights alone (on the hub, loading finds out)."""
    chosen = getattr(config, "transformers_weights", None)
    if chosen is not None and not str(chosen).endswith((".safetensors", ".safetensors.index.json")):
        raise _pickled(place, str(chosen))
    if not place.local:
        return
    files = sorted(file.name for file in Path(place.where).iterdir())
    if any(file.endswith((".safetensors", ".safetensors.index.json")) for file in files):
        return
    for file in files:
        if file.endswith(_PICKLED):
            raise _pickled(place, file)
    raise HeadwiseError(f"the folder {place.where!r} holds no weights: expected model.safetensors")


def _pickled(place: _Place, file: str) -> HeadwiseError:
    folder = place.name.replace("/", "-") + "-safetensors"
    return HeadwiseError(
        f"{place.name!r} has only pickled weights ({file}), which can run code when opened: "
        + _CONVERT.format(name=place.where, folder=folder)
    )


def _tokenizer(place: _Place, given: dict[str, Any]) -> Any:
    from transformers import AutoTokenizer

    with _one_line(place, "tokenizer"):
        return AutoTokenizer.from_pretrained(place.where, **given)


def _weights(
    place: _Place,
    config: Any,
    dtype: torch.dtype,
    device: torch.device,
    device_map: str | dict[str, Any] | None,
    given: dict[str, Any],
) -> Any:
    from transformers import AutoModelForCausalLM

    options: dict[str, Any] = dict(given, config=config, dtype=dtype, use_safetensors=True)
    if device_map is not None:
        options["device_map"] = device_map
    with _one_line(place, "weights"):
        both: Any = AutoModelForCausalLM.from_pretrained(place.where, output_loading_info=True, **options)
    hf, found = both
    # transformers fills gaps with random numbers and goes on; an explanation of those would be fiction.
    gaps = sorted(found["missing_keys"]) + sorted(str(key[0]) for key in found["mismatched_keys"])
    if gaps:
        more = f" and {len(gaps) - 1} more" if len(gaps) > 1 else ""
        raise HeadwiseError(
            f"the weights of {place.name!r} do not fill the model: {gaps[0]}{more} missing or misshapen"
        )
    return hf if device_map is not None else hf.to(device)


@contextmanager
def _one_line(place: _Place, part: str) -> Iterator[None]:
    """Turn what transformers and the hub raise into one line that says what to do."""
    try:
        yield
    except HeadwiseError:
        raise
    except _TROUBLE as error:
        raise HeadwiseError(_reason(place, part, error)) from error


def _reason(place: _Place, part: str, error: BaseException) -> str:
    from huggingface_hub import errors as hub

    name, chain = place.name, list(_chain(error))
    text = " ".join(str(link) for link in chain)

    def raised(*kinds: str) -> bool:
        types = tuple(kind for kind in (getattr(hub, each, None) for each in kinds) if kind is not None)
        return any(isinstance(link, types) for link in chain)

    if "trust_remote_code" in text:
        return f"{name!r} brings its own Python code: pass trust_remote_code=True if you trust what it does"
    if raised("GatedRepoError"):
        return f"{name!r} is gated: ask for access on its hub page, then log in with `hf auth login`"
    if raised("RevisionNotFoundError"):
        return f"{name!r} has no revision {place.revision!r} on the hub: check the branch, tag or commit"
    if raised("RepositoryNotFoundError"):
        return (
            f"there is no model {name!r} on the hub, or it is private: check the name, or run `hf auth login`"
        )
    if not place.local and (raised("OfflineModeIsEnabled", "LocalEntryNotFoundError") or _no_network(chain)):
        return (
            f"{name!r} is no folder here and the hub cannot be reached: check the network and HF_HUB_OFFLINE"
            ", or use a local folder, a .gguf file or the default model"
        )
    if part == "weights" and not place.local and "safetensors" in text:
        return str(_pickled(place, "no safetensors file"))
    return f"the {part} of {name!r} cannot be read: {_first_line(error)}"


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _no_network(chain: list[BaseException]) -> bool:
    """Whether a connection failed, whichever HTTP library the hub client is built on."""
    names = {kind.__name__ for link in chain for kind in type(link).__mro__}
    return bool(
        names
        & {"ConnectError", "ConnectTimeout", "ConnectionError", "ProxyError", "TransportError", "gaierror"}
    )


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
