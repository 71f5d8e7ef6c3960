"""What a study of features without labels found: heads, features with their cells, pairs, and a feature bank."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwise.contrast.bank import FILE as BANK
from headwise.contrast.bank import FeatureBank
from headwise.contrast.unlabelled.cells import CellInText
from headwise.contrast.unlabelled.pairs import FeaturePair
from headwise.strings import counted
from headwise.types import Claim, Estimate

if TYPE_CHECKING:
    from pandas import DataFrame  # pyright: ignore[reportMissingImports]

    from headwise.scale.folder import RunFolder

KIND = "unlabelled"
MAKE = "headwise features --out DIR"


@dataclass(frozen=True, kw_only=True)
class UnlabelledHead:
    """One head: its span, and how much of its attention the span explains on held-out texts."""

    head: str
    """The head, such as ``L18H6``."""
    changes: float
    """Attention that changes with the text, which heads are chosen by."""
    rows: int
    """Rows of attention that the span was fitted on."""
    cells: int
    """Attended cells among them."""
    held_out: int
    """Attended cells of the held-out texts."""
    rank_energy: int
    """The smallest rank that reaches 99 % of the energy of ΔC."""
    rank_null: int
    """Directions above the placebo."""
    rank: int
    """Dimensions of the span."""
    identified: int
    """Axes of it that the data fix."""
    explained: float
    """Share of the choice among keys that the span explains on held-out texts."""
    principal: float
    """The same of as many principal components of the attended keys."""
    placebo: float
    """The same of spans that the placebos gave, on average."""
    sigma: tuple[float, ...]
    """Singular values of ΔC."""
    null_sigma: tuple[float, ...]
    """What each must exceed: a quantile of the placebos."""


@dataclass(frozen=True, kw_only=True)
class UnlabelledFeature:
    """One feature of one head. All numbers are of held-out texts, but for its stability."""

    head: str
    """The head, such as ``L18H6``."""
    name: str
    """``f1``, ``f2`` … by their share of the attention; ``rest`` for axes of which the span alone is known."""
    rank: int
    """Its dimensions."""
    known: bool
    """Whether it is a feature of its own; the rest is not."""
    share: float
    """Share of the attention on attended cells that goes with it."""
    alignment: float
    """Correlation between what the query asks for and what the attended key has, over cells."""
    halves: float
    """How well it is found again in the other half of the texts: a correlation."""
    seeds: float
    """The same with other starts of the fit."""
    swap: Estimate
    """What exchanging it between the attended key and another one moves, as a share of exchanging whole keys."""
    null_share: float
    """The mean share of the placebos: spans of attention dealt anew."""
    claim: Claim
    """Whether it is a feature of its own whose swap moves more than the placebos'."""
    keys: tuple[str, ...]
    """The commonest keys of its strongest cells."""
    queries: tuple[str, ...]
    """The commonest queries."""
    cells: tuple[CellInText, ...]
    """Its strongest cells."""

    @property
    def verdict(self) -> str:
        """What may be said of it, in a word or two."""
        if not self.known:
            return "span only"
        return "supported" if self.claim.supported else "not supported"

    def to_json(self) -> dict[str, Any]:
        """Plain numbers and lists."""
        plain = {name: value for name, value in asdict(self).items() if name != "claim"}
        return {**plain, "swap": self.swap.to_json(), **self.claim.to_json()}

    def to_row(self) -> dict[str, Any]:
        """One row of a table."""
        row = {name: value for name, value in self.to_json().items() if name not in ("cells", "swap")}
        words = {name: " ".join(row[name]) for name in ("keys", "queries")}
        return {
            **row,
            **words,
            "swap": self.swap.mean,
            "swap_low": self.swap.low,
            "swap_high": self.swap.high,
        }


@dataclass(frozen=True, eq=False, kw_only=True)
class UnlabelledResult:
    """Everything ``headwise features --corpus`` found."""

    model: str
    """The model's name."""
    weight_hash: str
    """The digest of the model's weights."""
    corpus: str
    """The corpus's name."""
    texts: int
    """Texts that were read."""
    held_out: int
    """Texts of these that fitted nothing."""
    sinks: int
    """Tokens besides the first of each text that were left out because heads rest on them."""
    heads: tuple[UnlabelledHead, ...]
    """One entry per head."""
    features: tuple[UnlabelledFeature, ...]
    """The features of all heads, each head's by their share of its attention."""
    pairs: tuple[FeaturePair, ...]
    """Features of one head that seem to do the same."""
    warnings: tuple[str, ...]
    """Lines a reader should see."""
    bank: FeatureBank
    """The features' subspaces, for explanations and swaps."""
    config: dict[str, Any]
    """What was asked, as the manifest has it."""
    seconds: float = 0.0
    """How long it took."""

    def of(self, head: str) -> list[UnlabelledFeature]:
        """The features of one head."""
        return [one for one in self.features if one.head == head]

    def to_json(self) -> dict[str, Any]:
        """One document of the whole study."""
        return {
            "model": self.model,
            "weight_hash": self.weight_hash,
            "corpus": self.corpus,
            "texts": self.texts,
            "held_out": self.held_out,
            "sinks": self.sinks,
            "corrected_over": f"the {len(self.features)} swaps of all features of this run",
            "heads": [asdict(one) for one in self.heads],
            "features": [one.to_json() for one in self.features],
            "pairs": [one.to_json() for one in self.pairs],
            "warnings": list(self.warnings),
            "seconds": round(self.seconds, 1),
        }

    def to_pandas(self) -> dict[str, DataFrame]:
        """Tables by name; needs the extra ``headwise[pandas]``."""
        from headwise.frames import frame

        cells = [
            {"head": one.head, "name": one.name, **asdict(cell), "tokens": "".join(cell.tokens)}
            for one in self.features
            for cell in one.cells
        ]
        return {
            "heads": frame([asdict(one) for one in self.heads]),
            "features": frame([one.to_row() for one in self.features]),
            "cells": frame(cells),
            "pairs": frame([one.to_json() for one in self.pairs]),
        }

    def save(self, folder: str | Path) -> Path:
        """Write a run folder: the document, the feature bank, and the whole result for :meth:`load`."""
        from headwise.scale.study import save_result

        return save_result(self, folder, KIND, self.config)

    def write(self, folder: RunFolder) -> None:
        """Write everything into an open folder, which is finished with that."""
        from headwise.scale.results import write_result

        folder.write_bytes(BANK, self.bank.to_bytes())
        kept = replace(self, seconds=0.0)
        write_result(folder, self.to_json(), kept, more=(BANK,), without=("bank",))

    @classmethod
    def load(cls, folder: str | Path) -> UnlabelledResult:
        """Read a finished run, every file of it held against its digest."""
        from headwise.scale.results import held_manifest, read_value

        held_manifest(folder, KIND, MAKE)
        return read_value(cls, folder, bank=FeatureBank.load(folder))

    def __repr__(self) -> str:
        supported = sum(one.claim.supported for one in self.features)
        return (
            f"UnlabelledResult({self.corpus!r} in {self.model!r}: {counted(len(self.features), 'feature')} of "
            f"{counted(len(self.heads), 'head')}, {supported} supported)"
        )

    def _repr_html_(self) -> str:
        from headwise.show.notebook import unlabelled_result

        return unlabelled_result(self)
