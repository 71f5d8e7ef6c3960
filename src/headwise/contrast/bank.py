"""A feature bank: named subspaces of heads in one safetensors file, tied to the model they were found in."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from headwise.errors import HeadwiseError
from headwise.files import write_bytes
from headwise.types import Head, Subspace

if TYPE_CHECKING:
    from headwise.model.model import Model

FILE = "features.safetensors"
SCHEMA = 1


@dataclass(frozen=True, eq=False, kw_only=True)
class BankFeature:
    """One feature of one head. ``parts`` names the features that a union was made of."""

    name: str
    head: Head
    query: Subspace
    key: Subspace
    sigma: torch.Tensor
    rank_energy: int
    rank_null: int
    parts: tuple[str, ...] = ()

    @property
    def rank(self) -> int:
        return self.key.rank

    def __repr__(self) -> str:
        return f"BankFeature({self.head} {self.name!r}, rank={self.rank})"


@dataclass(frozen=True, eq=False)
class FeatureBank:
    """Features of one task in one model.

    >>> axis = Subspace(torch.eye(3)[:, :1])
    >>> big = BankFeature(
    ...     name="big", head=Head(0, 1), query=axis, key=axis, sigma=torch.ones(1), rank_energy=1, rank_null=1
    ... )
    >>> FeatureBank("toy", "abc", "size", (big,)).of("L0H1")
    [BankFeature(L0H1 'big', rank=1)]
    """

    model: str
    weight_hash: str
    task: str
    features: tuple[BankFeature, ...]

    def __iter__(self) -> Iterator[BankFeature]:
        return iter(self.features)

    def __len__(self) -> int:
        return len(self.features)

    @property
    def heads(self) -> tuple[Head, ...]:
        """The heads that have features, in the bank's order."""
        return tuple(dict.fromkeys(f.head for f in self.features))

    def of(self, head: Head | str, *, unions: bool = True) -> list[BankFeature]:
        """A head's features; without ``unions`` only those that were fitted themselves."""
        wanted = Head.parse(head)
        found = [f for f in self.features if f.head == wanted and (unions or not f.parts)]
        if not found:
            known = ", ".join(map(str, self.heads))
            raise HeadwiseError(f"{wanted} has no features in this bank; it has those of {known}")
        return found

    def get(self, head: Head | str, name: str) -> BankFeature:
        """One feature by head and name."""
        found = {f.name: f for f in self.of(head)}
        if name not in found:
            raise HeadwiseError(f"{Head.parse(head)} has no feature {name!r}; it has {', '.join(found)}")
        return found[name]

    def require(self, model: Model) -> FeatureBank:
        """This bank, if it was made with this very model; a subspace means nothing in another one."""
        if model.weight_hash != self.weight_hash:
            raise HeadwiseError(
                f"these features belong to {self.model!r} (weights {self.weight_hash[:8]}), not to "
                f"{model.name!r} ({model.weight_hash[:8]}): "
                f"fit them again with `headwise features {self.task} --model …`"
            )
        return self

    def save(self, path: str | Path) -> Path:
        """Write one safetensors file (``features.safetensors`` where ``path`` is a folder)."""
        return write_bytes(_file(path), self.to_bytes())

    def to_bytes(self) -> bytes:
        """The file's content; the same features give the same bytes."""
        from safetensors.torch import save

        record: list[dict[str, Any]] = []
        tensors: dict[str, torch.Tensor] = {}
        for number, f in enumerate(self.features):
            record.append(
                {
                    "name": f.name,
                    "head": str(f.head),
                    "rank": f.rank,
                    "rank_energy": f.rank_energy,
                    "rank_null": f.rank_null,
                    "parts": list(f.parts),
                }
            )
            for part, value in (("query", f.query.basis), ("key", f.key.basis), ("sigma", f.sigma)):
                tensors[f"{number}.{part}"] = value.double().cpu().contiguous()
        header = {"schema": SCHEMA, "model": self.model, "weight_hash": self.weight_hash, "task": self.task}
        return save(tensors, {"headwise": json.dumps({**header, "features": record}, sort_keys=True)})

    @classmethod
    def load(cls, path: str | Path) -> FeatureBank:
        """Read a bank from its file or the folder of the run that made it."""
        from safetensors import SafetensorError, safe_open

        path = _file(path)
        if not path.is_file():
            raise HeadwiseError(f"there are no features at {str(path)!r}: make them with `headwise features`")
        try:
            with safe_open(path, "pt") as opened:
                record = json.loads((opened.metadata() or {})["headwise"])
                tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
            if record["schema"] != SCHEMA:
                raise HeadwiseError(
                    f"{str(path)!r} is a feature bank of schema {record['schema']}, not {SCHEMA}"
                )
            features = tuple(
                BankFeature(
                    name=f["name"],
                    head=Head.parse(f["head"]),
                    query=Subspace(tensors[f"{number}.query"]),
                    key=Subspace(tensors[f"{number}.key"]),
                    sigma=tensors[f"{number}.sigma"],
                    rank_energy=f["rank_energy"],
                    rank_null=f["rank_null"],
                    parts=tuple(f["parts"]),
                )
                for number, f in enumerate(record["features"])
            )
        except (SafetensorError, KeyError, ValueError, TypeError):
            raise HeadwiseError(
                f"{str(path)!r} is not a feature bank: make one with `headwise features`"
            ) from None
        return cls(record["model"], record["weight_hash"], record["task"], features)

    def __repr__(self) -> str:
        heads: Sequence[str] = [
            f"{h} ({', '.join(f'{f.name} {f.rank}' for f in self.of(h))})" for h in self.heads
        ]
        return f"FeatureBank({self.task!r} in {self.model!r}: {'; '.join(heads)})"


def _file(path: str | Path) -> Path:
    path = Path(path)
    return path / FILE if path.is_dir() or path.suffix != ".safetensors" else path
