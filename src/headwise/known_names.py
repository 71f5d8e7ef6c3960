"""Names that a run of ``headwise name`` gave, as everything that shows them looks them up.

A name is never shown bare: with its words go the verdict of its test, its accuracy on texts that the search did not
see, and the place of its evidence on the page of the run. Names are found by what they are about, written as
``headwise name`` writes it: ``L23H3``, ``L23H3 key MLP18``, ``L23H3 key ch2 MLP18 ++``, ``L23H3 feature colour``.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable
from urllib.parse import quote

from pydantic import ConfigDict

from headwise import jsons
from headwise.basis_names import BasisKind, BasisName, Frame
from headwise.errors import HeadwiseError
from headwise.scale.manifest import AGAIN, BasisShape, read_finished
from headwise.strings import counted, in_short, shortened
from headwise.types import Component, Estimate, Head, Side, Signal
from headwise.validation import Index, Row, Sha256, Shape, check, require_schema

KIND = "names"
SCHEMA = 1
DOCUMENT = "names.json"
PAGE = "names.html"
MAKE = "headwise name SOURCE --out DIR"
NameVerdicts = Literal["named", "beyond chance", "no name", "too rare"]
GIVE = f"give the folder that `{MAKE}` made"


@dataclass(frozen=True, kw_only=True)
class KnownName:
    """What one head, writer, signal, channel, feature or sink is called, and how the name fared."""

    signal: str
    """What the name is about, as ``headwise name`` writes it: ``L23H3 key MLP18``."""
    level: str
    """Which kind of thing that is: ``head``, ``sink``, ``writer``, ``signal``, ``channel`` or ``feature``."""
    text: str | None
    """The name in words; None where the verdict grants none."""
    verdict: str
    """``named``, ``beyond chance``, ``no name`` or ``too rare``."""
    accuracy: Estimate | None
    """Balanced accuracy on texts that the search did not see; None where nothing was tested."""
    q: float
    """Of the test among all subjects of the run."""
    flags: tuple[str, ...]
    """What to know about it: ``positional``, ``corpus-bound``, ``the channel's``."""
    by: str
    """Who gave the name."""
    evidence: str
    """Where the evidence is, from the run's folder on: ``names.html#L23H3_key_MLP18``."""

    @property
    def said(self) -> str:
        """The name with its verdict and accuracy, as one phrase.

        >>> name = KnownName(signal="L2H1", level="head", text="the source is a comma", verdict="named",
        ...                  accuracy=Estimate(0.81, 0.7, 0.9, 80, 80), q=0.0, flags=(), by="rules", evidence="")
        >>> name.said
        'the source is a comma (named, accuracy 0.81)'
        >>> replace(name, text=None, verdict="too rare", accuracy=None).said
        'too rare'
        """
        numbers = self.verdict + ("" if self.accuracy is None else f", accuracy {self.accuracy.mean:.2f}")
        return self.verdict if self.text is None else f"{self.text} ({numbers})"

    def to_json(self) -> dict[str, Any]:
        """All but what it is about, which is its key."""
        a = self.accuracy
        return {
            "level": self.level,
            "text": self.text,
            "verdict": self.verdict,
            "accuracy": None if a is None else {"mean": a.mean, "low": a.low, "high": a.high},
            "q": self.q,
            "flags": list(self.flags),
            "by": self.by,
            "evidence": self.evidence,
        }


@runtime_checkable
class NamesDocument(Protocol):
    """Whatever gives a document of names: a ``NamesResult``."""

    def to_json(self) -> dict[str, Any]:
        """The document."""
        ...


@dataclass(frozen=True, eq=False)
class KnownNames:
    """The names of one model, by what they are about."""

    model: str
    """The model's name."""
    weight_hash: str
    """The digest of its weights: names of another model are refused."""
    basis: BasisName
    """What the channels in these names are channels of."""
    corpus: str
    """The texts that names were found and tested on."""
    folder: str | None
    """The run's folder, as it was given; None for a result that is in memory alone."""
    by_signal: Mapping[str, KnownName]
    """Every subject of the run, those without a name among them."""
    other_basis: int = 0
    """Names of channels and signals that were left out: they were found in another basis."""

    @classmethod
    def load(cls, folder: str | Path) -> KnownNames:
        """The names of a finished run, whose document is held against its digest."""
        path = Path(folder)
        read_finished(path, KIND, MAKE).hold_against(path, [DOCUMENT])
        found = jsons.read(path / DOCUMENT, "a document of names", AGAIN)
        return cls._of_document(found, repr(str(path / DOCUMENT)), str(folder), (path / PAGE).is_file())

    @classmethod
    def of(cls, given: NamesLike) -> KnownNames:
        """Names as they are given: a folder, a result, or themselves."""
        if isinstance(given, KnownNames):
            return given
        if isinstance(given, str | os.PathLike):
            return cls.load(os.fspath(given))
        if isinstance(given, NamesDocument):
            return cls._of_document(given.to_json(), "these names", None, False)
        raise HeadwiseError(f"names={in_short(given)} are no names: {GIVE}, or its result")

    @classmethod
    def _of_document(cls, document: Any, where: str, folder: str | None, page: bool) -> KnownNames:
        if isinstance(document, dict):
            require_schema(document.get("schema"), (SCHEMA,), where, AGAIN)
        found = check(_Document, document, where, AGAIN)
        of = found.settings
        names = [one.known(f"{PAGE}#{anchor(one.signal)}" if page else DOCUMENT) for one in found.signals]
        return cls(
            found.model,
            found.weight_hash,
            BasisName(of.basis, of.frame, of.basis_hash),
            of.corpus,
            folder,
            {name.signal: name for name in names},
        )

    def fit(self, model: str, weight_hash: str, basis: BasisName | None = None) -> KnownNames:
        """These names for a result of that model; names of channels stay only where the basis is the result's, too."""
        if weight_hash != self.weight_hash:
            where = "these names" if self.folder is None else f"the names in {shortened(self.folder)!r}"
            raise HeadwiseError(
                f"{where} are of {shortened(self.model)!r} (weights {self.weight_hash[:12]}), not of {model!r} "
                f"(weights {weight_hash[:12]}): name what this model has with `{MAKE}`"
            )
        if basis is None or basis == self.basis:
            return self
        kept = {key: one for key, one in self.by_signal.items() if one.level not in ("channel", "signal")}
        return replace(self, by_signal=kept, other_basis=len(self.by_signal) - len(kept))

    def __len__(self) -> int:
        return len(self.by_signal)

    def get(self, signal: str) -> KnownName | None:
        """What something is called, as ``headwise name`` writes it; None if the run did not ask for it."""
        return self.by_signal.get(signal)

    def chosen(self, signals: Iterable[str]) -> dict[str, KnownName]:
        """Those of some subjects that the run asked for, each once, in this order."""
        return {one: self.by_signal[one] for one in dict.fromkeys(signals) if one in self.by_signal}

    def to_json(self, signals: Iterable[str]) -> dict[str, Any]:
        """The names of some subjects as other documents hold them."""
        return {
            "run": self.folder,
            "corpus": self.corpus,
            "basis": self.basis.to_json(),
            "other_basis": self.other_basis,
            "signals": {signal: one.to_json() for signal, one in self.chosen(signals).items()},
        }

    def link(self, beside: Path | None = None) -> str | None:
        """The run's folder as an address, from a page in the folder ``beside`` on; None where nothing was saved."""
        if self.folder is None:
            return None
        if beside is not None:
            try:
                return quote(Path(os.path.relpath(self.folder, beside)).as_posix())
            except ValueError:  # on another drive
                pass
        return Path(self.folder).resolve().as_uri()

    @property
    def note(self) -> str | None:
        """What a reader must know where names were left out."""
        if not self.other_basis:
            return None
        return (
            f"{counted(self.other_basis, 'name')} of channels and signals left out: found in another basis "
            f"({self.basis})"
        )

    def __repr__(self) -> str:
        named = sum(one.verdict == "named" for one in self.by_signal.values())
        return f"KnownNames({self.model!r}: {named} of {counted(len(self), 'subject')} named)"


NamesLike = KnownNames | NamesDocument | str | Path
"""Names as they are given: the folder of a run, its result, or names that were read already."""


# --- what a name is about, as it is written --------------------------------------------------------------------------


def writer_id(head: Head, side: Side, writer: Component) -> str:
    """All that a writer puts into a head's query or keys, whatever token it read.

    >>> writer_id(Head(9, 6), "key", Component("head", 3, 1, source=7))
    'L9H6 key L3H1'
    """
    return f"{head} {side} {writer.name}"


def channel_id(head: Head, channels: Sequence[int], pole: str) -> str:
    """Channels of a head, whoever writes into them; the first one leads.

    >>> channel_id(Head(9, 6), (17, 5, 3), "++")
    'L9H6 ch17+3+5 ++'
    """
    return f"{head} ch{'+'.join(map(str, leading(channels)))} {pole}"


def signal_id(signal: Signal, strengths: Sequence[float]) -> str:
    """What a writer puts into some channels of one side, with the pole of what it wrote.

    >>> signal_id(Signal(Head(9, 6), "key", Component("mlp", 2), (17, 3)), (-0.5, 2.0))
    'L9H6 key ch17+3 MLP2 --'
    """
    channels = "+".join(map(str, leading(signal.channels)))
    return f"{signal.head} {signal.side} ch{channels} {signal.writer.name} {pole_of(strengths)}"


def feature_id(head: Head, name: str) -> str:
    """A feature of a bank."""
    return f"{head} feature {name}"


def sink_id(head: Head) -> str:
    """How much of a head's attention goes to the first token."""
    return f"{head} sink"


def leading(channels: Sequence[int]) -> tuple[int, ...]:
    """The channel of the first removal leads; of the others the order says nothing."""
    return (*channels[:1], *sorted(channels[1:]))


def pole_of(strengths: Sequence[float]) -> Literal["++", "--"]:
    """A traced signal helps the attention, so its pole attracts; what was written says which of the two it is."""
    return "--" if strengths and strengths[0] < 0 else "++"


def anchor(signal: str) -> str:
    """Where a subject's evidence is on the page of its run: nothing in it needs quoting in an address.

    >>> anchor("L23H3 key ch2 MLP18 ++"), anchor("L2H1 feature a_b <c>")
    ('L23H3_key_ch2_MLP18_++', 'L2H1_feature_a%5Fb_%3Cc%3E')
    """
    return "_".join(quote(part, safe="+").replace("_", "%5F") for part in signal.split(" "))


# --- names inside another document, as :meth:`KnownNames.to_json` writes them -----------------------------------------


class _Accuracy(Shape):
    mean: float
    low: float
    high: float


class NameShape(Shape):
    """One name of a file."""

    level: str
    text: str | None
    verdict: NameVerdicts
    accuracy: _Accuracy | None
    q: float
    flags: Row[str]
    by: str
    evidence: str


class NamesShape(Shape):
    """The names of a file."""

    run: str | None
    corpus: str
    basis: BasisShape
    other_basis: Index
    signals: dict[str, NameShape]

    def known(self, model: str, weight_hash: str) -> KnownNames:
        """The names themselves, of the model that the file is of."""
        found = {
            signal: KnownName(
                signal=signal,
                level=one.level,
                text=one.text,
                verdict=one.verdict,
                accuracy=None if (a := one.accuracy) is None else Estimate(a.mean, a.low, a.high, 0, 0),
                q=one.q,
                flags=one.flags,
                by=one.by,
                evidence=one.evidence,
            )
            for signal, one in self.signals.items()
        }
        return KnownNames(model, weight_hash, self.basis.name, self.corpus, self.run, found, self.other_basis)


# --- the document that a run wrote -----------------------------------------------------------------------------------


class _Known(Shape):
    """A part of a document of which only some fields are needed."""

    model_config = ConfigDict(extra="ignore")


class _Interval(_Known):
    mean: float
    low: float
    high: float
    n: int


class _NameText(_Known):
    text: str


class _NameEntry(_Known):
    signal: str
    level: str
    name: _NameText | None
    verdict: NameVerdicts
    q: float
    balanced_accuracy: _Interval | None
    flags: Row[str]
    by: str

    def known(self, evidence: str) -> KnownName:
        a, held = self.balanced_accuracy, self.verdict in ("named", "beyond chance")
        return KnownName(
            signal=self.signal,
            level=self.level,
            text=self.name.text if held and self.name is not None else None,
            verdict=self.verdict,
            accuracy=None if a is None else Estimate(a.mean, a.low, a.high, a.n, a.n),
            q=self.q,
            flags=self.flags,
            by=self.by,
            evidence=evidence,
        )


class _Settings(_Known):
    basis: BasisKind
    frame: Frame
    basis_hash: str
    corpus: str


class _Document(_Known):
    kind: Literal["names"]
    model: str
    weight_hash: Sha256
    settings: _Settings
    signals: Row[_NameEntry]
