"""Which language model is asked: known before anything is loaded, and refused in one line where it makes no sense."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from headwise.errors import HeadwiseError
from headwise.naming.llm.chat import CAP, LOOPBACK, host_of
from headwise.strings import in_short, shortened, well_formed

By = Literal["rules", "llm", "both"]
LlmKind = Literal["endpoint", "gguf", "transformers"]
WAYS = ("rules", "llm", "both")
GIVE = "give llm=: the name of a model at base_url=, a .gguf file, or the folder or hub id of a transformers model"


@dataclass(frozen=True)
class LlmChoice:
    """A language model by name: behind an endpoint, in a GGUF file, or one that transformers reads."""

    llm: str
    """Its name, file or folder."""
    base_url: str | None = None
    """The endpoint that it is asked through; without one nothing leaves this machine."""
    cap: int = CAP
    """Tokens that may be sent."""

    @property
    def name(self) -> str:
        """What it is called, wherever its file or folder is.

        >>> LlmChoice("models/tiny.gguf").name, LlmChoice("owner/tiny").name
        ('tiny', 'owner/tiny')
        """
        if self.kind == "gguf":
            return Path(self.llm).stem
        folder = self.base_url is None and Path(self.llm).is_dir()
        return Path(self.llm).absolute().name if folder else self.llm

    @property
    def kind(self) -> LlmKind:
        """
        >>> LlmChoice("m", "http://127.0.0.1:8080/v1").kind, LlmChoice("m.gguf").kind, LlmChoice("smollm2").kind
        ('endpoint', 'gguf', 'transformers')
        """
        if self.base_url is not None:
            return "endpoint"
        return "gguf" if self.llm.endswith(".gguf") else "transformers"

    @property
    def place(self) -> str:
        """The machine that it runs on, without a port, which may be another after a restart.

        >>> LlmChoice("m", "https://example.org:8443/v1").place, LlmChoice("m.gguf").place
        ('example.org', 'this machine')
        """
        return "this machine" if self.base_url is None else str(urlsplit(self.base_url).hostname)

    @property
    def is_local(self) -> bool:
        """Whether nothing leaves this machine."""
        return self.base_url is None or self.place in LOOPBACK


def llm_choice(
    by: str, llm: str | Path | None, base_url: str | None, cap: int | None, *, causal: bool = False
) -> LlmChoice | None:
    """What was chosen; None for rules alone. ``causal`` evidence needs rules.

    >>> llm_choice("rules", None, None, None)
    >>> llm_choice("llm", None, "http://127.0.0.1:8080/v1", None)
    Traceback (most recent call last):
    ...
    headwise.errors.HeadwiseError: by='llm' asks a language model: give llm=: the name of a model at base_url=, a .gguf
    file, or the folder or hub id of a transformers model
    """
    if by not in WAYS:
        raise HeadwiseError(f"by={in_short(by)} is not an explainer: write rules, llm or both")
    if by == "rules":
        for name, given in {"llm": llm, "base_url": base_url, "cap": cap}.items():
            if given is not None:
                raise HeadwiseError(f"{name}= is used only with by=llm or by=both: leave it out")
        return None
    if llm is None or not str(llm).strip():
        raise HeadwiseError(f"by={by!r} asks a language model: {GIVE}")
    if causal and by == "llm":
        raise HeadwiseError("causal= changes texts by rules, and by='llm' has none: give by=both")
    name = well_formed(str(llm), "llm")
    if base_url is not None:
        host_of(base_url)
    elif name.endswith(".gguf") and not Path(name).is_file():
        raise HeadwiseError(f"there is no file {shortened(name)!r}: {GIVE}")
    if cap is not None and cap < 1:
        raise HeadwiseError(f"cap={cap} allows nothing to be sent: give 1 or more")
    return LlmChoice(name, base_url, CAP if cap is None else cap)
