"""What a run folder says of itself: what was asked, by which versions, and the digest of every file it made.

The manifest carries a digest of its own. A run is finished when its manifest lists the run's files, so that it is
written last; every file is held against its digest when the run is read.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, JsonValue, StringConstraints

from headwise import jsons
from headwise.basis_names import BasisKind, BasisName, Frame
from headwise.errors import HeadwiseError
from headwise.files import sha256_of
from headwise.strings import printable, shortened
from headwise.validation import Sha256, Shape, ShortText, check, require_schema

if TYPE_CHECKING:
    from headwise.model.model import Model

FILE = "manifest.json"
SCHEMA = 2
READ = (1, 2)
"""Schema 1 was the same without digests."""

AGAIN = "make the run again in a fresh folder"
_FileName = Annotated[str, StringConstraints(pattern=r"\A[\w-][\w.-]*(/[\w-][\w.-]*)*\z")]


class ModelShape(Shape):
    """What a run's tables can name in the model: layers, heads, channels and tokens count from 0 to these."""

    layers: Annotated[int, Field(ge=1, le=10_000)]
    heads: Annotated[int, Field(ge=1, le=10_000)]
    d_head: Annotated[int, Field(ge=1, le=1_000_000)]
    vocabulary: Annotated[int, Field(ge=1)]

    @classmethod
    def of(cls, model: Model) -> ModelShape:
        vocabulary = model.hf.get_input_embeddings().weight.shape[0]
        return cls(layers=model.n_layers, heads=model.n_heads, d_head=model.d_head, vocabulary=vocabulary)

    @property
    def names(self) -> list[str]:
        """Every head, layer by layer."""
        return [f"L{layer}H{head}" for layer in range(self.layers) for head in range(self.heads)]


class Manifest(Shape):
    """One run. ``files`` is None until the run is finished, and always in schema 1."""

    schema_: int = Field(alias="schema")
    kind: ShortText
    config: dict[str, JsonValue]
    versions: dict[ShortText, str]
    files: dict[_FileName, Sha256] | None = None
    sha256: Sha256 | None = None

    @classmethod
    def of(
        cls,
        kind: str,
        config: Mapping[str, Any],
        versions: Mapping[str, str],
        files: Mapping[str, str] | None = None,
    ) -> Manifest:
        # Tuples and the like become what a reader of the file will see.
        plain = jsons.parse(jsons.dumps(config))
        record = {"schema": SCHEMA, "kind": kind, "config": plain, "versions": dict(versions)}
        if files is not None:
            record["files"] = dict(sorted(files.items()))
        return check(cls, record | {"sha256": _digest(record)}, FILE)

    @property
    def stamp(self) -> str:
        """A digest of what was asked and of the versions: what unfinished work depends on."""
        return _digest({"kind": self.kind, "config": self.config, "versions": self.versions})

    def to_json(self) -> dict[str, Any]:
        """What the file says."""
        return self.model_dump(by_alias=True, exclude_none=True) | {"config": self.config}

    def asks(self, kind: str, config: Mapping[str, Any]) -> bool:
        """Whether this is the run of that kind and configuration, made as this version makes it."""
        return self.schema_ == SCHEMA and self.kind == kind and self.config == config

    def hold_against(self, path: Path, names: Iterable[str]) -> None:
        """Hold a run's files against their digests."""
        for name in names:
            try:
                sound = self.files is None or self.files.get(name) == sha256_of(path / name)
            except OSError:
                sound = False
            if not sound:
                raise damaged(path / name)


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, allow_nan=False).encode()).hexdigest()


def damaged(file: Path, reason: object = None) -> HeadwiseError:
    """The one line about a file that cannot be what the run wrote."""
    how = "missing, damaged or of another run" if reason is None else f"damaged or of another run ({reason})"
    return HeadwiseError(f"{str(file)!r} is {how}: make the run again")


def read_manifest(path: Path) -> Manifest:
    """The manifest of a folder that has one."""
    file = path / FILE
    found = jsons.read(file, "a run's manifest", AGAIN)
    schema = found.get("schema") if isinstance(found, dict) else None
    if isinstance(schema, int):
        require_schema(schema, READ, repr(str(file)), AGAIN)
    manifest = check(Manifest, found, f"{str(file)!r} is not a run's manifest", AGAIN)
    rest = {key: value for key, value in found.items() if key != "sha256"}
    digests = (manifest.files, manifest.sha256)
    if digests != (None, None) if manifest.schema_ == 1 else manifest.sha256 != _digest(rest):
        raise HeadwiseError(f"{str(file)!r} does not have the digest that it states: {AGAIN}")
    return manifest


def read_finished(path: Path, kind: str, make: str, last: str | None = None) -> Manifest:
    """The manifest of a finished run of that kind; ``make`` is the command that makes one.

    ``last`` is the file that was written last in runs of schema 1.
    """
    name, hint = str(path), f"make it with `{make}`"
    try:
        if not path.exists():
            raise HeadwiseError(f"there is no folder {name!r}: {hint}")
        if not path.is_dir():
            raise HeadwiseError(f"{name!r} is not a folder: give the folder that `{make}` made")
        if not any(path.iterdir()):
            raise HeadwiseError(f"the folder {name!r} is empty and holds no finished run: {hint}")
        if not (path / FILE).exists():
            raise HeadwiseError(
                f"the folder {name!r} has no manifest.json, so it holds no finished run: {hint}"
            )
    except (OSError, ValueError) as error:
        raise HeadwiseError(f"cannot read {name!r}: {getattr(error, 'strerror', None) or error}") from None
    found = read_manifest(path)
    if found.kind != kind:
        raise HeadwiseError(f"{name!r} holds a run of another kind ({quoted_kind(found)}): {hint}")
    if found.schema_ == 1 and last is None:
        raise HeadwiseError(
            f"the run in {name!r} was made by an older version, without digests: make it again"
        )
    old = found.schema_ == 1 and last is not None and (path / last).is_file()
    if found.files is None and not old:
        raise HeadwiseError(f"the run in {name!r} is not finished: run the same command again to continue it")
    return found


def quoted_kind(manifest: Manifest) -> str:
    """A run's kind for a message; it comes from a file, and may be anything."""
    return shortened(printable(manifest.kind))


class BasisShape(Shape):
    """Which channels a file speaks of."""

    kind: BasisKind
    frame: Frame
    hash: Annotated[str, Field(pattern=r"^([0-9a-f]{16})?$")]

    @property
    def name(self) -> BasisName:
        return BasisName(self.kind, self.frame, self.hash)
