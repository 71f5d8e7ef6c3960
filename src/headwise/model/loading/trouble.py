"""One line for each reason for which a model cannot be read, whoever found it and whatever they raised."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager

from headwise.errors import HeadwiseError
from headwise.model.loading.place import ModelPlace
from headwise.strings import shortened


@contextmanager
def one_line(place: ModelPlace, part: str) -> Iterator[None]:
    """Turn what transformers and the hub raise into one line that says what to do."""
    try:
        yield
    except HeadwiseError:
        raise
    except Exception as error:  # transformers, the hub, safetensors and tokenizers raise a dozen kinds
        raise HeadwiseError(reason_of(place, part, error)) from error
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # how Rust says that a file broke it
            raise
        raise HeadwiseError(reason_of(place, part, error)) from error


@contextmanager
def runnable(name: str) -> Iterator[None]:
    """One line if a model that was read cannot be run: its sizes do not go together."""
    try:
        yield
    except HeadwiseError:
        raise
    except Exception as error:
        raise HeadwiseError(f"{name!r} cannot be run: {first_line(error)}") from error


def reason_of(place: ModelPlace, part: str, error: BaseException) -> str:
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
            f"{name!r} is not a folder here, and the hub cannot be reached: check the network and HF_HUB_OFFLINE"
            ", or use a local folder, a .gguf file or the default model"
        )
    if part == "weights" and not place.local and "safetensors" in text:
        return str(pickled_only(place, "no safetensors file"))
    return f"the {part} of {name!r} cannot be read: {first_line(error)}"


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


def first_line(error: BaseException) -> str:
    """What an exception says, in one line of bounded length; some say nothing but their kind."""
    text = str(error).strip()
    if (
        isinstance(error, KeyError | IndexError | ZeroDivisionError | RecursionError | MemoryError)
        or not text
    ):
        text = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return shortened(" ".join(text.split()), 300)


def pickled_only(place: ModelPlace, file: str) -> HeadwiseError:
    target = re.sub(r"[^\w.-]+", "-", place.name).strip("-.") + "-safetensors"
    code = (
        "from transformers import AutoModelForCausalLM as M; "
        f"M.from_pretrained({place.where!r}, use_safetensors=False).save_pretrained({target!r})"
    )
    return HeadwiseError(
        f"{place.name!r} has only pickled weights ({file}), which can run code when opened: convert them once, if you "
        f"trust them, with: python -c {shlex.quote(code)}"
    )
