"""What many prompts' tables say together: how often and how much each writer, channel and path takes part."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwise.strings import counted
from headwise.types import Estimate, Head

if TYPE_CHECKING:
    from pandas import DataFrame  # pyright: ignore[reportMissingImports]

    from headwise.scale.folder import RunFolder

KIND = "explanations"
MAKE = "headwise explain --task TASK --out DIR"


@dataclass(frozen=True, eq=False, kw_only=True)
class MeanWriter:
    """One writer's part of the log-odds over all prompts, on one side."""

    side: str
    """The side that it wrote into: ``query`` or ``key``."""
    writer: str
    """Who wrote, whatever token it read; ``others`` is all others together."""
    log_odds: Estimate
    """How much: its part, over all prompts."""
    often: Estimate
    """How often it takes part: the share of prompts in which it brings at least 0.1 of the log-odds."""
    against: Estimate
    """How often it works against it: the share in which it takes as much."""
    cause: Estimate
    """How often it is among the whole writers without which the attention falls."""
    reads: dict[str, float]
    """A head's mean part by the token it read: the ``key``'s, the ``query``'s own, the ``first``, any ``other``."""
    count: int = 1
    """How many writers the row is for."""

    def to_json(self) -> dict[str, Any]:
        estimates = {
            name: getattr(self, name).to_json() for name in ("log_odds", "often", "against", "cause")
        }
        return {
            "side": self.side,
            "writer": self.writer,
            "count": self.count,
            **estimates,
            "reads": self.reads,
        }


@dataclass(frozen=True, eq=False, kw_only=True)
class MeanChannel:
    """One channel's part of the log-odds over all prompts."""

    channel: int
    """Its number."""
    stable: bool
    """Whether the channel stays what it is with other texts, so that its number means something."""
    log_odds: Estimate
    """How much: its part, over all prompts."""
    often: Estimate
    """How often it takes part, as for writers."""

    def to_json(self) -> dict[str, Any]:
        return {
            "channel": self.channel,
            "stable": self.stable,
            "log_odds": self.log_odds.to_json(),
            "often": self.often.to_json(),
        }


@dataclass(frozen=True, eq=False, kw_only=True)
class MeanPath:
    """What one writer brought through an MLP, over all prompts."""

    side: str
    """The side that the MLP wrote into."""
    mlp: str
    """The MLP."""
    writer: str
    """What it had read, whatever token a head read; ``constants`` are its own."""
    log_odds: Estimate
    """Its share of the MLP's part, over all prompts."""
    often: Estimate
    """How often it takes part, as for writers."""

    def to_json(self) -> dict[str, Any]:
        return {
            "side": self.side,
            "mlp": self.mlp,
            "writer": self.writer,
            "log_odds": self.log_odds.to_json(),
            "often": self.often.to_json(),
        }


@dataclass(frozen=True, eq=False, kw_only=True)
class LabelledMeans:
    """The prompts with one value of a label."""

    label: str
    """The label's name."""
    value: str
    """Its value."""
    prompts: int
    """How many prompts have it."""
    attention: Estimate
    """The cell's attention in them."""
    log_odds: Estimate
    """The number that is explained, in them."""
    writers: tuple[MeanWriter, ...]
    """The strongest writers of all prompts, in these."""

    def to_json(self) -> dict[str, Any]:
        return {
            "label": self.label,
            "value": self.value,
            "prompts": self.prompts,
            "attention": self.attention.to_json(),
            "log_odds": self.log_odds.to_json(),
            "writers": [one.to_json() for one in self.writers],
        }


@dataclass(frozen=True, eq=False, kw_only=True)
class ExplanationsResult:
    """One head's explanation over many prompts."""

    model: str
    """The model's name."""
    weight_hash: str
    """The digest of the model's weights."""
    task: str
    """The task's name."""
    config: dict[str, Any]
    """What was asked, as the manifest has it."""
    head: Head
    """The head that attends."""
    chosen_because: str
    """How it was chosen."""
    prompts: int
    """How many prompts were explained."""
    clusters: str
    """What belongs together in the intervals: ``wording``, ``name``, ``pair`` or ``prompt``."""
    attends: Estimate
    """The share of prompts in which the cell gets more than an even share."""
    attention: Estimate
    """The cell's attention."""
    log_odds: Estimate
    """log(A / (1 − A)) + log(keys − 1): what all parts sum to."""
    place: dict[str, Estimate]
    """Its parts: ``content``, ``place`` and ``interaction``."""
    right: Estimate
    """The share of prompts in which the model prefers the right answer."""
    keys: tuple[tuple[str, int], ...]
    """The tokens that it reads, and in how many prompts, most often first."""
    writers: tuple[MeanWriter, ...]
    """Each side's writers, the largest part first, then all others together."""
    channels: tuple[MeanChannel, ...]
    """Channels, the largest part first."""
    paths: tuple[MeanPath, ...]
    """What the strongest MLPs had read, the largest share first."""
    labels: tuple[LabelledMeans, ...]
    """The same by the prompts' labels, where they have some."""
    basis: dict[str, Any]
    """What the channels are channels of."""
    error: float
    """How far the sums over writers are from the log-odds, at most."""
    notes: tuple[str, ...]
    """Lines a reader should see."""
    seconds: float = 0.0
    """How long it took."""

    def writer(self, name: str, side: str) -> MeanWriter | None:
        """One writer's row, if it is among the strongest."""
        return next((one for one in self.writers if (one.writer, one.side) == (name, side)), None)

    @property
    def sentence(self) -> str:
        """What a person would say, made from the numbers."""
        from headwise.why.many.sentence import sentence

        return sentence(self)

    def to_json(self) -> dict[str, Any]:
        """One document of the whole study."""
        return {
            "model": self.model,
            "weight_hash": self.weight_hash,
            "basis": self.basis,
            "task": self.task,
            "settings": {name: self.config[name] for name in ("prompts", "query", "key", "seed")},
            "head": str(self.head),
            "chosen_because": self.chosen_because,
            "prompts": self.prompts,
            "clusters": self.clusters,
            "attends": self.attends.to_json(),
            "attention": self.attention.to_json(),
            "log_odds": self.log_odds.to_json(),
            "place": {name: one.to_json() for name, one in self.place.items()},
            "right": self.right.to_json(),
            "keys": [{"token": token, "prompts": number} for token, number in self.keys],
            "writers": [one.to_json() for one in self.writers],
            "channels": [one.to_json() for one in self.channels],
            "paths": [one.to_json() for one in self.paths],
            "labels": [one.to_json() for one in self.labels],
            "error": self.error,
            "notes": list(self.notes),
            "sentence": self.sentence,
            "seconds": round(self.seconds, 1),
        }

    def to_pandas(self) -> dict[str, DataFrame]:
        """Tables by name; needs the extra ``headwise[pandas]``."""
        from headwise.frames import frame

        def flat(one: dict[str, Any]) -> dict[str, Any]:
            row: dict[str, Any] = {}
            for name, value in one.items():
                if isinstance(value, dict) and "mean" in value:
                    low, high = value["ci"] or (None, None)
                    row |= {name: value["mean"], f"{name}_low": low, f"{name}_high": high}
                elif not isinstance(value, dict | list):
                    row[name] = value
            return row

        tables = {
            "writers": self.writers,
            "channels": self.channels,
            "paths": self.paths,
            "labels": self.labels,
        }
        return {name: frame([flat(one.to_json()) for one in some]) for name, some in tables.items()}

    def save(self, folder: str | Path) -> Path:
        """Write a run folder: the document, and the whole result for :meth:`load`."""
        from headwise.scale.study import save_result

        return save_result(self, folder, KIND, self.config)

    def write(self, folder: RunFolder) -> None:
        """Write everything into an open folder, which is finished with that."""
        from headwise.scale.results import write_result

        write_result(folder, self.to_json(), replace(self, seconds=0.0))

    @classmethod
    def load(cls, folder: str | Path) -> ExplanationsResult:
        """Read a finished run, every file of it held against its digest."""
        from headwise.scale.results import load_result

        return load_result(cls, folder, KIND, MAKE)

    def to_html(self) -> str:
        """One self-contained page."""
        from headwise.show.why.many import explanations_report

        return explanations_report(self).html()

    def save_html(self, path: str | Path) -> Path:
        """Write the page; a reader never sees half of it."""
        from headwise.show.why.many import explanations_report

        return explanations_report(self).write(path)

    def __repr__(self) -> str:
        return f"ExplanationsResult({self.head}, {counted(self.prompts, 'prompt')} of {self.task!r}: {self.sentence})"

    def _repr_html_(self) -> str:
        from headwise.show.notebook import explanations_result

        return explanations_result(self)
