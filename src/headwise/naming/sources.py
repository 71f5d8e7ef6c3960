"""Where the subjects of a naming run come from: heads and signals by name, circuits, families, or a feature bank.

A signal that occurs in a thousand circuits is one subject. Subjects of circuits are ordered by the attention that their
removal took, summed over all occurrences, so that the first ones are the strongest.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwise.bases.basis import Bases
from headwise.basis_names import BasisKind, BasisName
from headwise.errors import HeadwiseError
from headwise.known_names import leading, pole_of
from headwise.naming.signals import Subject
from headwise.strings import counted, shortened
from headwise.types import Component, Head, HeadLike

if TYPE_CHECKING:
    from headwise.circuits.circuit import Circuit
    from headwise.contrast.bank import BankFeature
    from headwise.model.model import Model

SourceLike = str | Path | HeadLike | Subject | Sequence["HeadLike | Subject"]
GIVE = "give a head (L23H3), heads separated by commas, all, a circuit file, a run folder or a feature bank"


@dataclass(frozen=True, eq=False)
class Subjects:
    """What is to be named, each once."""

    subjects: tuple[Subject, ...]
    """In the order of the source; those of circuits strongest first."""
    basis: BasisName
    """What the channels among them are channels of."""
    occurrences: tuple[int, ...] = ()
    """How often each occurs in the source's circuits; empty where it has none."""
    unstable: int = 0
    """Signals that were left out: a channel of theirs is another one when other texts are measured."""
    features: tuple[tuple[tuple[Head, str], BankFeature], ...] = field(default=(), repr=False)

    def __len__(self) -> int:
        return len(self.subjects)

    def first(self, top: int | None) -> Subjects:
        """The first so many."""
        if top is None or top >= len(self):
            return self
        return replace(self, subjects=self.subjects[:top], occurrences=self.occurrences[:top])


def read_source(
    model: Model, source: SourceLike, *, basis: BasisKind = "singular", top: int | None = None
) -> Subjects:
    """The subjects of a source; those of another model are refused.

    ``basis`` numbers the channels of subjects that are written by hand; circuits say their own.
    """
    if isinstance(source, Path) or (isinstance(source, str) and _is_path(source)):
        return _of_path(model, Path(source), top)
    if source == "all":
        return _checked(model, Subjects(tuple(map(Subject, model.heads)), Bases.of(model, basis).name), top)
    found = [one for part in _parts(source) for one in _subject(part).poles()]
    return _checked(model, Subjects(tuple(dict.fromkeys(found)), Bases.of(model, basis).name), top)


def signals_of(circuits: Iterable[Circuit]) -> tuple[tuple[Subject, ...], tuple[int, ...]]:
    """The distinct signals of some circuits with their poles, strongest first, and how often each occurs."""
    weights: dict[Subject, float] = {}
    counts: dict[Subject, int] = {}
    for circuit in circuits:
        for edge in circuit.edges:
            if not edge.channels:
                continue
            target, source = circuit.by_id[edge.target], circuit.by_id[edge.source]
            channels = edge.channels
            signal = Subject(
                target.cell.head,
                edge.side,
                replace(source.component, source=-1),
                leading(channels),
                pole_of(edge.strengths),
            )
            weights[signal] = weights.get(signal, 0.0) + edge.weight
            counts[signal] = counts.get(signal, 0) + 1
    ordered = sorted(weights, key=lambda one: (-weights[one], str(one)))
    return tuple(ordered), tuple(counts[one] for one in ordered)


def _is_path(text: str) -> bool:
    if "/" in text or Path(text).suffix in (".json", ".safetensors"):
        return True
    try:
        return Path(text).exists()
    except OSError:  # longer than any file's name: a list of many subjects
        return False


def _parts(source: Any) -> list[Any]:
    if isinstance(source, str):
        parts = [part.strip() for part in source.split(",") if part.strip()]
    elif isinstance(source, Head | Subject) or (isinstance(source, tuple) and len(source) == 2):
        parts = [source]
    else:
        parts = list(source) if isinstance(source, Iterable) else [source]
    if not parts:
        raise HeadwiseError(f"there is nothing to name: {GIVE}")
    return parts


def _subject(part: Any) -> Subject:
    if isinstance(part, Subject):
        return part
    return Subject.parse(part) if isinstance(part, str) else Subject(Head.parse(part))


def _of_path(model: Model, path: Path, top: int | None) -> Subjects:
    """Subjects of a file or folder, by what it holds."""
    name = shortened(str(path))
    if not path.exists():
        raise HeadwiseError(f"there is no {name!r}: {GIVE}")
    if path.is_file() and path.suffix == ".safetensors":
        return _of_bank(model, path, top)
    if path.is_file():
        from headwise.circuits.files import load

        circuit = load(path, model)
        return _of_circuits(model, [circuit], circuit.basis, f"the circuit {name!r}", top)
    from headwise.scale.manifest import FILE, quoted_kind, read_manifest

    if not (path / FILE).is_file():
        raise HeadwiseError(f"the folder {name!r} holds no run: {GIVE}")
    kind = read_manifest(path)
    if kind.kind == "circuits":
        return _of_run(model, path, top)
    if kind.kind == "families":
        from headwise.families.result import FamiliesResult

        return _of_run(model, FamiliesResult.load(path).run, top)
    if kind.kind in ("features", "unlabelled"):
        return _of_bank(model, path, top)
    raise HeadwiseError(
        f"{name!r} holds a run of another kind ({quoted_kind(kind)}): give one of circuits, families or features"
    )


def _of_run(model: Model, run: Any, top: int | None) -> Subjects:
    from headwise.survey.records import CircuitRun

    found = CircuitRun.load(run) if isinstance(run, Path) else run
    place = shortened(str(found.paths[0]))
    again = "trace it again with this model"
    model.require(found.config.get("weight_hash"), repr(place), of=str(found.config.get("model")), do=again)
    circuits = (found.circuit(prompt) for prompt in found.traced)
    return _of_circuits(model, circuits, found.basis, f"the run {place!r}", top)


def _of_circuits(
    model: Model, circuits: Iterable[Circuit], basis: BasisName, what: str, top: int | None
) -> Subjects:
    bases = Bases.named(model, basis, what)
    subjects, counts = signals_of(circuits)
    if not subjects:
        raise HeadwiseError(f"{what} has no signals: no edge of it has channels, so there is nothing to name")
    kept = [i for i, one in enumerate(subjects) if _stable(bases, one)]
    if not kept:
        raise HeadwiseError(f"{what} has no signal in channels that stay the same with other texts")
    return _checked(
        model,
        Subjects(
            tuple(subjects[i] for i in kept),
            bases.name,
            tuple(counts[i] for i in kept),
            unstable=len(subjects) - len(kept),
        ),
        top,
    )


def _of_bank(model: Model, path: Path, top: int | None) -> Subjects:
    from headwise.contrast.bank import FeatureBank

    bank = FeatureBank.load(path).require(model)
    features = tuple(((one.head, one.name), one) for one in bank)
    subjects = tuple(Subject(head, feature=name) for (head, name), _ in features)
    return _checked(model, Subjects(subjects, Bases.of(model).name, features=features), top)


def _stable(bases: Bases, subject: Subject) -> bool:
    stable = bases.head(subject.head).stable
    return all(bool(stable[channel]) for channel in subject.channels)


def _checked(model: Model, found: Subjects, top: int | None) -> Subjects:
    """The first subjects, if the model has what they name."""
    chosen = found.first(top)
    bases: Bases | None = None
    for subject in chosen.subjects:
        model.head(subject.head)
        _check_writer(model, subject)
        if not subject.channels:
            continue
        if max(subject.channels) >= model.d_head:
            raise HeadwiseError(
                f"{subject} does not exist: a head of {model.name!r} has channels 0 to {model.d_head - 1}"
            )
        bases = bases or Bases.named(model, found.basis)
        if not _stable(bases, subject):
            raise HeadwiseError(
                f"{subject} cannot be named: with other texts its channel is another one; "
                f"name the whole writer ('{subject.head} key MLP0') or use the singular basis"
            )
    return chosen


def _check_writer(model: Model, subject: Subject) -> None:
    writer: Component | None = subject.writer
    if writer is None:
        return
    if writer.kind == "head":
        model.head(writer.head)
    from headwise.naming.activation import writers_of

    assert subject.side is not None
    if writer not in writers_of(model, subject.head, subject.side):
        raise HeadwiseError(
            f"{subject} does not exist: {model.name!r} has no {writer} that writes into {subject.head}; "
            f"its writers are the embedding and {counted(subject.head.layer, 'layer')} of heads and MLPs below it"
        )
