"""What flows through every head of a model: its moments over a corpus, kept under the weights' hash and the corpus's
digest.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from headwise.bases.balanced import FEW, TOO_FEW, HeadMoments
from headwise.bases.stability import STABLE
from headwise.errors import HeadwiseError
from headwise.files import write_bytes
from headwise.model.loading.store import cache_folder
from headwise.scale import tensors as sealed

if TYPE_CHECKING:
    from headwise.model.model import Model

SCHEMA = 1
HELD = frozenset(("cells", "query_mean", "query", "key", "halves", "across", "outputs"))


@dataclass(frozen=True, eq=False, kw_only=True)
class Calibration:
    """What flows through every head of one model, over one corpus. L layers, H heads."""

    model: str
    """The model's name."""
    weight_hash: str
    """The digest of the model's weights."""
    corpus: str
    """The corpus's name."""
    digest: str
    """SHA-256 of the corpus's texts."""
    texts: int
    """How many texts were read."""
    kinds: tuple[str, ...]
    """The kinds of text among them, such as prose and code."""
    moments: HeadMoments
    """[L, H, …]: first and second moments of queries and keys over attended cells."""
    halves: Tensor
    """[L, H, d_head]: agreement of the two halves of the texts on each channel of the balanced basis."""
    across: Tensor
    """[L, H, d_head]: agreement of one kind of text with the others; NaN where there is only one kind."""
    outputs: Tensor
    """[L, H, d_head]: what each head writes on average over all tokens, before the output projection."""

    @property
    def stability(self) -> Tensor:
        """[L, H, d_head]: the smaller of both; a channel of only one kind of text is not known to be stable."""
        return torch.minimum(self.halves, self.across.nan_to_num(0.0))

    def to_json(self) -> dict[str, Any]:
        """What was measured on what, and how far its channels can be trusted."""
        cells, width = self.moments.cells, self.moments.query.shape[-1]
        return {
            "model": self.model,
            "weight_hash": self.weight_hash,
            "corpus": {
                "name": self.corpus,
                "digest": self.digest,
                "texts": self.texts,
                "kinds": list(self.kinds),
            },
            "heads": cells.numel(),
            "cells": {
                "median": float(cells.median()),
                "few": int(((cells < FEW * width) & (cells >= TOO_FEW * width)).sum()),
                "too_few": int((cells < TOO_FEW * width).sum()),
            },
            "stable_channels": {
                "median": float((self.stability >= STABLE).sum(-1).double().median()),
                "of": width,
            },
        }

    def to_bytes(self) -> bytes:
        """The file's content; the same calibration gives the same bytes."""
        record = {
            "schema": SCHEMA,
            "kind": "headwise-moments",
            "model": self.model,
            "weight_hash": self.weight_hash,
            "corpus": self.corpus,
            "digest": self.digest,
            "texts": self.texts,
            "kinds": list(self.kinds),
        }
        m = self.moments
        held = {"cells": m.cells, "query_mean": m.query_mean, "query": m.query, "key": m.key}
        held |= {"halves": self.halves, "across": self.across, "outputs": self.outputs}
        return sealed.to_bytes({name: value.float() for name, value in held.items()}, record)

    @classmethod
    def load(cls, path: str | Path, model: Model) -> Calibration:
        """Read moments from a file; those of another model are refused."""
        again = "make them again with `headwise calibrate`"
        try:
            found, record = sealed.from_bytes(Path(path).read_bytes())
        except OSError as error:
            raise HeadwiseError(f"cannot read the moments {str(path)!r}: {error.strerror or error}") from None
        except sealed.Damaged as error:
            raise HeadwiseError(f"{str(path)!r} does not hold a model's moments ({error}): {again}") from None
        if (
            not isinstance(record, dict)
            or record.get("kind") != "headwise-moments"
            or record.get("schema") != SCHEMA
            or set(found) != HELD
        ):
            raise HeadwiseError(f"{str(path)!r} does not hold moments of this version: {again}")
        model.require(record.get("weight_hash"), str(path), of=str(record.get("model")), do=again)
        held = {name: value.double() for name, value in found.items()}
        shape = (model.n_layers, model.n_heads, model.d_head, model.d_head)
        if held["query"].shape != shape or held["key"].shape != shape:
            raise HeadwiseError(
                f"{str(path)!r} holds moments of other shapes than {model.name!r} has: {again}"
            )
        if not all(bool(held[name].isfinite().all()) for name in HELD - {"across"}):
            raise HeadwiseError(f"{str(path)!r} holds numbers that are not finite: {again}")
        return cls(
            model=record["model"],
            weight_hash=record["weight_hash"],
            corpus=record["corpus"],
            digest=record["digest"],
            texts=record["texts"],
            kinds=tuple(record["kinds"]),
            moments=HeadMoments(held["cells"], held["query_mean"], held["query"], held["key"]),
            halves=held["halves"],
            across=held["across"],
            outputs=held["outputs"],
        )


# --- where they are kept ---------------------------------------------------------------------------------------------


def moments_folder() -> Path:
    """Where moments are kept: beside the models."""
    return cache_folder() / "moments"


def store(calibration: Calibration, folder: str | Path | None = None) -> Path:
    """Keep moments in a folder, as those of this model and corpus and as the newest of this model."""
    folder = moments_folder() if folder is None else Path(folder)
    name = f"{calibration.weight_hash[:16]}-{calibration.digest[:16]}.safetensors"
    content = calibration.to_bytes()
    write_bytes(folder / f"{calibration.weight_hash[:16]}.safetensors", content)
    return write_bytes(folder / name, content)


def stored(model: Model) -> Calibration:
    """The moments of a model that were stored last."""
    path = moments_folder() / f"{model.weight_hash[:16]}.safetensors"
    if not path.is_file():
        raise HeadwiseError(
            f"there are no moments of {model.name!r}, which a balanced basis needs: "
            "make them with `headwise calibrate`, or choose the basis 'singular'"
        )
    return Calibration.load(path, model)
