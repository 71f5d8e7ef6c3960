"""A study of features with made-up numbers, as large as a report has to bear."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
import torch

from headwise.contrast.bank import BankFeature, FeatureBank
from headwise.contrast.fit import OTHER_HALF
from headwise.contrast.measured import Gallery
from headwise.contrast.result import FeaturesResult
from headwise.contrast.rows import (
    UNTOUCHED,
    AlignmentRow,
    AngleRow,
    AttributionRow,
    CurveRow,
    DoseRow,
    DrawRow,
    FeatureRow,
    GrowthRow,
    HeadRow,
    SpectrumRow,
    SwapRow,
)
from headwise.types import Head, Subspace

Row = TypeVar("Row")
DIMS, TOKENS, PROMPTS = 64, 110, 24
CONTROLS = ("principal components", "mean difference", "query", "both sides", "ablate keys", "ablate query")
WHOLE = {
    "rank",
    "rank_energy",
    "rank_null",
    "rank_interaction",
    "rank_low",
    "rank_high",
    "bound",
    "rank_prompts",
}
WHOLE |= {"values", "prompts", "clusters", "against_draws", "classes"}
TEXT = {"against": "placebo", "group": "all features", "by": "category"}


def made_up_features(*, heads: int, features: int, values: int = 1) -> FeaturesResult:
    """Every head with every feature, of rank 1, and the union of all; queries take ``values`` values."""
    rng = np.random.default_rng(0)
    names = [f"category {i}" for i in range(features)]
    every = [*names, "category"]
    where = [Head(10 + i, i % 9) for i in range(heads)]

    def row(kind: type[Row], **given: Any) -> Row:
        """A row with numbers for all that is not given."""
        missing = [name for name in kind.__annotations__ if name not in given]
        filled: dict[str, Any] = {
            name: 1 if name in WHOLE else float(rng.uniform(0.1, 0.9)) for name in missing
        }
        filled |= {name: TEXT[name] for name in missing if name in TEXT}
        filled |= {name: filled[name] > 0.5 for name in ("supported", "chosen") if name in filled}
        return kind(**given, **filled)

    def over(kind: type[Row], of: list[str], **columns: list[Any]) -> tuple[Row, ...]:
        """A row per head, feature and value of one more column."""
        ((column, places),) = columns.items()
        return tuple(
            row(kind, head=str(head), name=name, **{column: place})
            for head in where
            for name in of
            for place in places
        )

    one = Subspace(torch.eye(DIMS)[:, :1])
    two = Subspace(torch.eye(DIMS)[:, : min(features, 9)])
    bank = tuple(
        BankFeature(
            name=name,
            head=head,
            query=two if name == "category" else one,
            key=two if name == "category" else one,
            sigma=torch.ones(1),
            rank_energy=1,
            rank_null=1,
            parts=tuple(names) if name == "category" else (),
        )
        for head in where
        for name in every
    )
    found = [
        row(FeatureRow, head=str(f.head), name=f.name, union=bool(f.parts), saturated=True, rank=f.rank)
        for f in bank
    ]
    pairs = [(a, b) for i, a in enumerate(names) for b in [OTHER_HALF, *names[i + 1 :]]]
    labels = [[names[(i + j) % features] for j in range(20)] for i in range(PROMPTS)]
    ends = [
        row(SwapRow, head=str(h), name="", condition=condition)
        for h in where
        for condition in ("none", "full")
    ]
    return FeaturesResult(
        task="filter",
        model="made-up",
        rule="ratio",
        heads=tuple(row(HeadRow, head=str(h), chosen=True) for h in where),
        features=tuple(found),
        swaps=(*ends, *over(SwapRow, every, condition=[UNTOUCHED, "swap", *CONTROLS])),
        draws=over(DrawRow, every, draw=list(range(100))),
        doses=over(DoseRow, every, dose=[0.0, 0.25, 0.5, 0.75, 1.0]),
        curves=over(CurveRow, names, rank=list(range(1, 10))),
        spectra=over(SpectrumRow, names, index=list(range(1, 21))),
        angles=tuple(
            row(AngleRow, head=str(h), first=a, second=b, side=side, index=1)
            for h in where
            for a, b in pairs
            for side in ("query", "key")
        ),
        alignment=over(AlignmentRow, every, measure=["retrieval", "correlation"]),
        shapes=(),
        growth=tuple(
            row(GrowthRow, head=str(h), name=n, varies="category", values=v, prompts=9, rank_energy=1)
            for h in where
            for n in names
            for v in range(1, values + 1)
        ),
        answers=(),
        attribution=tuple(
            row(AttributionRow, head=str(h), method="sequential", position=t, token=f" word{t}", feature=name)
            for h in where
            for t in range(TOKENS)
            for name in [*names, "residual", "total"]
        ),
        warnings=(),
        bank=FeatureBank("made-up", "0", "filter", bank),
        gallery=Gallery(
            torch.randn(heads, PROMPTS, DIMS, generator=torch.Generator().manual_seed(0)),
            torch.randn(heads, PROMPTS, 20, DIMS, generator=torch.Generator().manual_seed(1)),
            query={"category": [names[i % features] for i in range(PROMPTS)]},
            keys={"category": labels},
            colours=dict.fromkeys(every, "category"),
        ),
        config={"settings": {"prompts": 2000}},
    )
