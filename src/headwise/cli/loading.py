"""How a model is loaded: options of every command that loads one, before or after its name, each defined here once.

They are taken off the command line before the verb reads it, checked before torch is imported, and reach the model
through the one :func:`load` that all verbs call. Workers and clusters load what this process has loaded, as it did.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwise.errors import HeadwiseError
from headwise.strings import shortened, well_formed

if TYPE_CHECKING:
    from headwise.model.model import Model

DTYPES = ("float32", "float64", "bfloat16", "float16")
_BYTES = {"KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_BYTES |= {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_DEVICE = re.compile(r"(cpu|cuda|mps|xpu)(:[0-9]{1,3})?")
_LIMIT = re.compile(
    rf"\s*(cpu|mps|[0-9]{{1,3}})\s*=\s*([0-9]{{1,9}}(?:\.[0-9]{{1,9}})?)\s*({'|'.join(_BYTES)})\s*"
)


@dataclass(frozen=True)
class LoadingOption:
    """One option that says how a model is loaded."""

    parameter: str
    """What ``headwise.load`` calls it."""
    metavar: str
    """What its value is called in help."""
    help: str
    """What it does, in a line."""
    check: Callable[[str], Any]
    """From what was given to what ``headwise.load`` takes; one line if it is wrong."""
    values: tuple[str, ...] = ()
    """Values that a shell can offer."""


@dataclass(frozen=True)
class Loading:
    """How the model of one command is to be loaded."""

    words: tuple[str, ...] = ()
    """The options as they were given: enough for another command to load the same."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """The same as parameters of ``headwise.load``."""


def _dtype(value: str) -> str:
    if value not in DTYPES:
        names = ", ".join(map(repr, DTYPES))
        raise HeadwiseError(f"--dtype: {shortened(value)!r} is not one of {names}")
    return value


def _device(value: str) -> str:
    if _DEVICE.fullmatch(value) is None:
        raise HeadwiseError(
            f"--device: {shortened(value)!r} is not a device: write it as cpu, cuda, cuda:1 or mps"
        )
    return value


def _device_map(value: str) -> str | dict[str, str | int]:
    from importlib.util import find_spec

    if find_spec("accelerate") is None:
        raise HeadwiseError(
            f"--device-map {shortened(value)!r} needs accelerate: install it with `pip install 'headwise[big]'`"
        )
    if value == "auto":
        return value
    if not value.endswith(".json"):
        raise HeadwiseError(
            f"--device-map: {shortened(value)!r} is neither auto nor a .json file of modules and their devices"
        )
    from headwise import jsons

    hint = 'write modules and their devices as {"model.embed_tokens": 0, "model.layers.0": "disk"}'
    found = jsons.read(value, "a device map", hint)
    if not isinstance(found, dict) or not found:
        raise HeadwiseError(f"{shortened(value)!r} is not a device map (no modules in it): {hint}")
    for module, place in found.items():
        number = isinstance(place, int) and not isinstance(place, bool) and 0 <= place < 1000
        named = isinstance(place, str) and (place == "disk" or _DEVICE.fullmatch(place) is not None)
        if not (number or named):
            raise HeadwiseError(
                f"{shortened(value)!r} puts {shortened(module)!r} on {shortened(repr(place))}, which is no device: "
                "give a number, cpu, cuda:1, mps or disk"
            )
    return found


def limits(value: str) -> dict[str | int, int]:
    """The most that each device may hold, in bytes.

    >>> limits("cpu=4GB,0=1.5GiB")
    {'cpu': 4000000000, 0: 1610612736}
    """
    made: dict[str | int, int] = {}
    for part in value.split(","):
        found = _LIMIT.fullmatch(part)
        if found is None:
            raise HeadwiseError(
                f"--max-memory: {shortened(part)!r} is not a device and a size: write them as 0=20GB,cpu=4GB"
            )
        device = int(found[1]) if found[1].isdecimal() else found[1]
        if device in made:
            raise HeadwiseError(f"--max-memory {shortened(value)!r} names {device} twice: give it once")
        made[device] = int(float(found[2]) * _BYTES[found[3]])
    return made


def _offload(value: str) -> str:
    from headwise.files import refuse_unwritable

    # absolute, for workers on a cluster begin elsewhere
    place = Path(well_formed(value, "--offload")).expanduser().absolute()
    if not value or (place.exists() and not place.is_dir()):
        raise HeadwiseError(f"--offload: {shortened(value)!r} is not a folder: name one, or one to be made")
    refuse_unwritable(place / "weights")
    return str(place)


OPTIONS: dict[str, LoadingOption] = {
    "--dtype": LoadingOption(
        "dtype", "TYPE", "float32 (default), float64, bfloat16 or float16.", _dtype, DTYPES
    ),
    "--device": LoadingOption(
        "device", "D", "Where the model goes: cpu, cuda, cuda:1, mps.", _device, ("cpu", "cuda", "mps")
    ),
    "--device-map": LoadingOption(
        "device_map",
        "MAP",
        "Spread it: auto, or a .json file of modules and devices.",
        _device_map,
        ("auto",),
    ),
    "--max-memory": LoadingOption(
        "max_memory", "SIZES", "The most each device may hold when spread: 0=20GB,cpu=4GB.", limits
    ),
    "--offload": LoadingOption(
        "offload_folder", "DIR", "Where weights go that neither devices nor memory can hold.", _offload
    ),
}


def rows(names: Sequence[str] = tuple(OPTIONS)) -> list[tuple[str, str]]:
    """Options with their values, and what each does: what help prints."""
    return [(f"{name} {OPTIONS[name].metavar}", OPTIONS[name].help) for name in names]


def apart(arguments: Sequence[str]) -> tuple[list[str], dict[str, str | None]]:
    """The command line without these options, and what was given for them (None: nothing); after ``--`` all is text.

    >>> apart(["--dtype=float16", "explain", "--device", "cpu", "--", "--dtype"])
    (['explain', '--', '--dtype'], {'--dtype': 'float16', '--device': 'cpu'})
    """
    end = arguments.index("--") if "--" in arguments else len(arguments)
    kept: list[str] = []
    given: dict[str, str | None] = {}
    words = iter(arguments[:end])
    for word in words:
        name, joined, value = word.partition("=")
        if name in OPTIONS:
            given[name] = value if joined else next(words, None)
        else:
            kept.append(word)
    return [*kept, *arguments[end:]], given


def taken(arguments: Sequence[str]) -> tuple[list[str], Loading]:
    """The command line without these options, and what they say; what is wrong with them is refused."""
    kept, given = apart(arguments)
    settings: dict[str, Any] = {}
    words: list[str] = []
    for name, value in given.items():
        option = OPTIONS[name]
        if value is None:
            raise HeadwiseError(f"{name} is without a value: give {name} {option.metavar}")
        settings[option.parameter] = option.check(value)
        # paths must mean the same for a command that begins in another folder
        path = name == "--offload" or (name == "--device-map" and value != "auto")
        words.append(f"{name}={Path(value).expanduser().absolute() if path else value}")
    if "--device" in given and "--device-map" in given:
        raise HeadwiseError("--device and --device-map were both given: leave one of them out")
    for name in ("--max-memory", "--offload"):
        if name in given and "--device-map" not in given:
            raise HeadwiseError(f"{name} is for models that are spread: give --device-map auto with it")
    return kept, Loading(tuple(words), settings)


_ASKED: ContextVar[Loading] = ContextVar("loading", default=Loading())  # noqa: B039  (frozen, and never changed)


@contextmanager
def loading_as(asked: Loading) -> Iterator[None]:
    """Load models like this inside the block."""
    token = _ASKED.set(asked)
    try:
        yield
    finally:
        _ASKED.reset(token)


def asked() -> Loading:
    """How this command's model is to be loaded."""
    return _ASKED.get()


def refuse_loading(because: str, but: Sequence[str] = ()) -> None:
    """Refuse these options where they would do nothing."""
    for name in (word.partition("=")[0] for word in asked().words):
        if name not in but:
            raise HeadwiseError(f"{name} {because}: leave it out")


def load(name: str | Path | None, **given: Any) -> Model:
    """The model of a command, loaded as its options say; what they do not say is as ``given``."""
    from headwise.model.loading.load import load as read

    return read(name, **{**given, **asked().settings})
