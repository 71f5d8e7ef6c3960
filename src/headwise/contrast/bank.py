"""A feature bank: named subspaces of heads in one safetensors file, tied to the model they were found in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import torch
from pydantic import Field, StringConstraints

from headwise.basis_names import Frame
from headwise.errors import HeadwiseError, WrongField
from headwise.files import write_bytes
from headwise.scale import tensors as sealed
from headwise.strings import printable, shortened
from headwise.types import Head, Subspace
from headwise.validation import Index, Row, Sha256, Shape, check, quoted, require_schema

if TYPE_CHECKING:
    from headwise.model.model import Model
    from headwise.model.reading import Rotary

FILE = "features.safetensors"
SCHEMA = 1
AGAIN = "make it with `headwise features`"


@dataclass(frozen=True, eq=False, kw_only=True)
class BankFeature:
    """One feature of one head. ``parts`` names the features that a union was made of."""

    name: str
    """The feature's name."""
    head: Head
    """The head it was found in."""
    query: Subspace
    """Its subspace of the head's query space."""
    key: Subspace
    """Its subspace of the head's key space."""
    sigma: torch.Tensor
    """[rank]: the singular values of ΔC that belong to it."""
    rank_energy: int
    """The rank by the energy rule."""
    rank_null: int
    """The rank above the null."""
    parts: tuple[str, ...] = ()
    """The features that a union was made of; empty for a single one."""
    frame: Frame = "absolute"
    """Of which vectors its subspaces are: as the head multiplies them, or as the query sees them (before rotation)."""
    supported: bool | None = None
    """Whether its swaps moved the attention beyond what means nothing; None if that was not tested."""

    @property
    def rank(self) -> int:
        """Its number of dimensions."""
        return self.key.rank

    def at(self, rotary: Rotary | None) -> BankFeature:
        """The feature for one query: its subspaces turned to the position of that query, if they are in its frame.

        ``rotary`` is the rotation at that single position; None for a model without one.
        """
        if self.frame == "absolute" or rotary is None:
            return replace(self, frame="absolute")
        turned = [
            Subspace.spanned_by(rotary.double().turn(side.basis.double().mT[None, :, None])[0, :, 0].mT)
            for side in (self.query, self.key)
        ]
        return replace(self, query=turned[0], key=turned[1], frame="absolute")

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
    """The model's name."""
    weight_hash: str
    """The digest of the model's weights: another model's bank is refused."""
    task: str
    """The task whose features these are."""
    features: tuple[BankFeature, ...]
    """One entry per head and feature."""

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

    def usable(self, head: Head | str) -> list[BankFeature]:
        """A head's fitted features without those whose swaps did no more than subspaces that mean nothing."""
        every = self.of(head, unions=False)
        found = [f for f in every if f.supported is not False]
        if not found:
            names = ", ".join(quoted(f.name) for f in every)
            raise HeadwiseError(
                f"no feature of {Head.parse(head)} in this bank is supported by its swaps ({names}): ask for "
                "unsupported ones to use them anyway"
            )
        return found

    def with_unsupported(self) -> FeatureBank:
        """The same features, all of them usable whatever their swaps say."""
        return replace(self, features=tuple(replace(f, supported=None) for f in self.features))

    def get(self, head: Head | str, name: str) -> BankFeature:
        """One feature by head and name."""
        found = {f.name: f for f in self.of(head)}
        if name not in found:
            raise HeadwiseError(f"{Head.parse(head)} has no feature {name!r}; it has {', '.join(found)}")
        return found[name]

    def require(self, model: Model) -> FeatureBank:
        """This bank, if it was made with this very model; a subspace means nothing in another one."""
        again = f"fit it again with `headwise features {shortened(printable(self.task))} --model …`"
        model.require(self.weight_hash, "this bank of features", of=self.model, do=again)
        for one in self.features:
            model.head(one.head)
            if one.key.d_head != model.d_head:
                raise HeadwiseError(
                    f"the feature {quoted(one.name)} has {one.key.d_head} dimensions, but a head of {model.name!r} "
                    f"has {model.d_head}: {AGAIN}"
                )
        return self

    def save(self, path: str | Path) -> Path:
        """Write one safetensors file (``features.safetensors`` where ``path`` is a folder)."""
        return write_bytes(_file(path), self.to_bytes())

    def to_bytes(self) -> bytes:
        """The file's content, with a digest of all of it; the same features give the same bytes."""
        record: list[dict[str, Any]] = []
        tensors: dict[str, torch.Tensor] = {}
        for number, f in enumerate(self.features):
            # Files of before have no frame: theirs is the absolute one.
            frame = {} if f.frame == "absolute" else {"frame": f.frame}
            record.append(
                {
                    "name": f.name,
                    "head": str(f.head),
                    "rank": f.rank,
                    "rank_energy": f.rank_energy,
                    "rank_null": f.rank_null,
                    "parts": list(f.parts),
                    **frame,
                    "supported": f.supported,
                }
            )
            for part, value in (("query", f.query.basis), ("key", f.key.basis), ("sigma", f.sigma)):
                tensors[f"{number}.{part}"] = value.double().clone()  # sides may be one tensor
        header = {"schema": SCHEMA, "model": self.model, "weight_hash": self.weight_hash, "task": self.task}
        return sealed.to_bytes(tensors, {**header, "features": record})

    @classmethod
    def load(cls, path: str | Path) -> FeatureBank:
        """Read a bank from its file or the folder of the run that made it."""
        path = _file(path)
        if not path.is_file():
            raise HeadwiseError(f"there are no features at {str(path)!r}: make them with `headwise features`")
        where = f"the feature bank {str(path)!r}"
        record, tensors = _opened(path)
        if isinstance(record, dict):
            require_schema(record.get("schema"), (SCHEMA,), where, AGAIN)
        about = check(_BankShape, record, where, AGAIN)
        expected = {f"{n}.{part}" for n in range(len(about.features)) for part in ("query", "key", "sigma")}
        if set(tensors) != expected:
            one = min(set(tensors) ^ expected)
            raise HeadwiseError(
                f"{where}: the tensor {quoted(one)} is {'missing' if one in expected else 'unknown'}: {AGAIN}"
            )
        try:
            features = tuple(_feature(f, number, tensors) for number, f in enumerate(about.features))
            _require_one_space(features)
        except HeadwiseError as error:
            raise HeadwiseError(f"{where}: {error}: {AGAIN}") from None
        return cls(about.model, about.weight_hash, about.task, features)

    def __repr__(self) -> str:
        heads: Sequence[str] = [
            f"{h} ({', '.join(f'{f.name} {f.rank}' for f in self.of(h))})" for h in self.heads
        ]
        return f"FeatureBank({self.task!r} in {self.model!r}: {'; '.join(heads)})"


def _file(path: str | Path) -> Path:
    path = Path(path)
    return path / FILE if path.is_dir() or path.suffix != ".safetensors" else path


FeatureName = Annotated[str, StringConstraints(min_length=1, max_length=10_000)]
"""A feature's name, or those of several joined: as long as the names that a task may give them."""


class _FeatureShape(Shape):
    name: FeatureName
    head: str
    rank: Index
    rank_energy: Index
    rank_null: Index
    parts: Row[FeatureName]
    frame: Frame = "absolute"
    supported: bool | None = None


class _BankShape(Shape):
    schema_: Literal[1] = Field(alias="schema")
    model: str
    weight_hash: Sha256
    task: str
    features: Row[_FeatureShape]


def _opened(path: Path) -> tuple[Any, dict[str, torch.Tensor]]:
    """The record and the tensors of a file, which may be any file at all."""
    try:
        tensors, record = sealed.from_bytes(path.read_bytes())
    except OSError as error:
        raise HeadwiseError(f"cannot read {str(path)!r}: {error.strerror or error}") from None
    except sealed.Damaged as error:
        raise HeadwiseError(f"{str(path)!r} is not a feature bank, or damaged ({error}): {AGAIN}") from None
    return record, tensors


def _feature(shape: _FeatureShape, number: int, tensors: Mapping[str, torch.Tensor]) -> BankFeature:
    query, key, sigma = (tensors[f"{number}.{part}"] for part in ("query", "key", "sigma"))
    for part, value, axes in (("query", query, 2), ("key", key, 2), ("sigma", sigma, 1)):
        if value.dtype != torch.float64 or value.ndim != axes or not bool(value.isfinite().all()):
            raise HeadwiseError(f"features[{number}].{part} is not a finite tensor of {axes} axes in float64")
    made = BankFeature(
        name=shape.name,
        head=Head.parse(shape.head),
        query=Subspace(query),
        key=Subspace(key),
        sigma=sigma,
        rank_energy=shape.rank_energy,
        rank_null=shape.rank_null,
        parts=shape.parts,
        frame=shape.frame,
        supported=shape.supported,
    )
    if made.rank != shape.rank:
        raise HeadwiseError(f"features[{number}].key has rank {made.rank}, but the record says {shape.rank}")
    if bool((sigma < 0).any()):
        raise HeadwiseError(f"features[{number}].sigma holds a negative singular value")
    return made


def _require_one_space(features: Sequence[BankFeature]) -> None:
    """All features are of heads of one model, and each has a name of its own in its head."""
    seen: set[tuple[Head, str]] = set()
    for one in features:
        if {one.query.d_head, one.key.d_head} != {features[0].key.d_head}:
            raise HeadwiseError(
                f"{one.head} {quoted(one.name)} has another number of dimensions than the first"
            )
        if (one.head, one.name) in seen:
            raise HeadwiseError(f"{one.head} {quoted(one.name)} is listed twice")
        seen.add((one.head, one.name))


# --- some banks, for one head ----------------------------------------------------------------------------------------

MAX_FEATURES = 10


def banks_of(
    given: FeatureBank | str | Path | Sequence[FeatureBank | str | Path], model: Model
) -> list[FeatureBank]:
    """Banks, or their folders; those of another model are refused."""
    some = [given] if isinstance(given, (str, Path, FeatureBank)) else given
    return [(one if isinstance(one, FeatureBank) else FeatureBank.load(one)).require(model) for one in some]


def features_of(banks: Sequence[FeatureBank], head: Head) -> list[BankFeature]:
    """The head's own features of all banks; unions are left out, since they repeat what they are made of, and so are
    features that their swaps do not support."""
    chosen: dict[str, BankFeature] = {}
    for bank in banks:
        if head not in bank.heads:
            continue
        for feature in bank.usable(head):
            name = feature.name if feature.name not in chosen else f"{bank.task}: {feature.name}"
            chosen[name] = feature if name == feature.name else replace(feature, name=name)
    if banks and not chosen:
        heads = list(dict.fromkeys(str(h) for bank in banks for h in bank.heads))
        raise WrongField(
            f"{head} has no features in the bank; it has those of {', '.join(heads)}: ask about one of these heads",
            "head",
            heads,
        )
    if len(chosen) > MAX_FEATURES:
        raise HeadwiseError(
            f"{len(chosen)} features of {head} were given: at most {MAX_FEATURES} share one logit"
        )
    return list(chosen.values())
