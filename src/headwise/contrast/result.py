"""What a study of features found: typed tables and a feature bank, saved to and read from a run folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwise.contrast.bank import FILE as BANK
from headwise.contrast.bank import FeatureBank
from headwise.contrast.measured import Gallery
from headwise.contrast.rows import (
    ROWS,
    UNTOUCHED,
    AlignmentRow,
    AngleRow,
    AnswerRow,
    AttributionRow,
    CurveRow,
    DoseRow,
    DrawRow,
    FeatureRow,
    GrowthRow,
    HeadRow,
    ShapeRow,
    SpectrumRow,
    SwapRow,
    where,
)
from headwise.frames import frame
from headwise.known_names import feature_id
from headwise.scale.folder import RunFolder
from headwise.scale.study import save_result
from headwise.tasks.labelled.types import HeadRule

if TYPE_CHECKING:
    from pandas import DataFrame  # pyright: ignore[reportMissingImports]

    from headwise.contrast.geometry import FoundShape

KIND = "features"
DOCUMENT, VECTORS = f"{KIND}.json", "vectors.safetensors"
FILES = (*(f"{table}.parquet" for table in ROWS), BANK, VECTORS, DOCUMENT)
"""All that a finished run consists of, besides its manifest."""


@dataclass(frozen=True, eq=False, kw_only=True)
class FeaturesResult:
    """A whole study. Every table is a tuple of rows, and one parquet file in the run folder."""

    task: str
    """The task's name."""
    model: str
    """The model's name."""
    rule: HeadRule
    """What heads are ranked by: ``accuracy`` or ``ratio``."""
    heads: tuple[HeadRow, ...]
    """Every head of the model with its scores, best first."""
    features: tuple[FeatureRow, ...]
    """The fitted features and unions, with ranks and swaps."""
    swaps: tuple[SwapRow, ...]
    """Every edit and control."""
    draws: tuple[DrawRow, ...]
    """Subspaces that mean nothing: placebos, those of the keys' covariance, and uniform ones."""
    doses: tuple[DoseRow, ...]
    """Swaps made in part."""
    spectra: tuple[SpectrumRow, ...]
    """Singular values of ΔC, with intervals and null."""
    curves: tuple[CurveRow, ...]
    """Shares of held-out logits by rank, beside placebos: what ranks were chosen by."""
    angles: tuple[AngleRow, ...]
    """Principal angles between features, and between the halves of each."""
    alignment: tuple[AlignmentRow, ...]
    """How well query clusters match key clusters inside each feature."""
    shapes: tuple[ShapeRow, ...]
    """What classes that have an order lie on: the tests of each feature."""
    growth: tuple[GrowthRow, ...]
    """Ranks with some of the query values only."""
    answers: tuple[AnswerRow, ...]
    """The edited forward passes, if asked for."""
    attribution: tuple[AttributionRow, ...]
    """One test prompt's logits by feature."""
    warnings: tuple[str, ...]
    """What to beware of."""
    bank: FeatureBank
    """The features as subspaces of each head's query and key space."""
    gallery: Gallery
    """Queries and keys of some test prompts, for pictures."""
    config: Mapping[str, Any]
    """What was asked, as the manifest has it."""
    seconds: float = 0.0
    """How long it took."""

    @property
    def subjects(self) -> list[str]:
        """What of it may have a name: its features, then their heads, as ``headwise name`` takes them."""
        features = [feature_id(one.head, one.name) for one in self.bank]
        return [*features, *dict.fromkeys(str(one.head) for one in self.bank)]

    @property
    def settings(self) -> Mapping[str, Any]:
        """The task's options."""
        return self.config["settings"]

    @property
    def chosen(self) -> list[str]:
        """The heads that were studied."""
        return [str(h) for h in self.bank.heads]

    @property
    def found_shapes(self) -> list[FoundShape]:
        """What classes that have an order lie on, per feature and side."""
        from headwise.contrast.geometry import shapes

        return shapes(self.shapes)

    def to_json(self) -> dict[str, Any]:
        """One document: heads with their scores, features with their swaps, what to beware of."""
        found: dict[str, Any] = {
            "heads": [
                {
                    "head": h.head,
                    "score": h.score,
                    "ci": [h.low, h.high] if h.clusters > 1 else None,
                    "test_score": h.test_score,
                    **h.claim.to_json(),
                }
                for h in self.heads
            ],
            "features": [f.to_json() for f in self.features],
            "alignment": [a.to_json() for a in self.alignment],
            "shapes": [shape.to_json() for shape in self.found_shapes],
            "warnings": list(self.warnings),
            "seconds": round(self.seconds, 1),
        }
        return {**found, "through_model": [asdict(a) for a in self.answers]} if self.answers else found

    def to_pandas(self) -> dict[str, DataFrame]:
        """Every table as a DataFrame, by name; needs the extra ``headwise[pandas]``."""
        columns = {table: [field.name for field in fields(row)] for table, row in ROWS.items()}
        return {table: frame(records, columns[table]) for table, records in self._records().items()}

    def _records(self) -> dict[str, list[dict[str, Any]]]:
        return {table: [asdict(row) for row in getattr(self, table)] for table in ROWS}

    # --- files ---

    def save(self, folder: str | Path) -> Path:
        """Write a run folder: the very files that the study itself writes."""
        return save_result(self, folder, KIND, self.config)

    def write(self, folder: RunFolder) -> None:
        """Write tables, bank, vectors and the document; the same run gives the same bytes."""
        from headwise.contrast.schema import TABLES
        from headwise.scale.tables import table_bytes, table_of

        for name, records in self._records().items():
            folder.write_bytes(f"{name}.parquet", table_bytes(table_of(TABLES[name], records)))
        folder.write_bytes(BANK, self.bank.to_bytes())
        folder.write_tensors(VECTORS, {"q": self.gallery.q, "k": self.gallery.k}, self.gallery.labels)
        about = {"task": self.task, "model": self.model, "rule": self.rule, "settings": self.settings}
        # The time it took is no result: the same command writes the same bytes.
        timeless = {key: value for key, value in self.to_json().items() if key != "seconds"}
        folder.write_json(DOCUMENT, {"schema": 4, **about, **timeless})
        folder.finish(*FILES)

    @classmethod
    def load(cls, folder: str | Path) -> FeaturesResult:
        """Read a finished run, every file of it held against its digest and checked."""
        from headwise.contrast.reading import read_result

        return read_result(Path(folder))

    # --- for people ---

    def summary(self) -> list[tuple[str, ...]]:
        """A table of the features: header, then one row per feature."""
        rows = [
            (
                "head",
                "feature",
                "rank",
                "99 %",
                "original",
                "target",
                "share",
                "placebo",
                "p",
                "q",
                "supported",
            )
        ]
        for f in self.features:
            clean = self.untouched(f)
            rows.append(
                (
                    f.head,
                    f.name,
                    str(f.rank),
                    str(f.rank_energy),
                    f"{clean.original:.2f} → {f.original:.2f}",
                    f"{clean.target:.2f} → {f.target:.2f}",
                    f"{f.share_of_full:.2f}",
                    f"{f.placebo_share:.2f}",
                    f"{f.p_value:.3f}",
                    f"{f.q_value:.3f}",
                    "yes" if f.supported else "no",
                )
            )
        return rows

    def untouched(self, feature: FeatureRow) -> SwapRow:
        """The attention before anything is swapped, on the prompts that a feature is tested on."""
        (row,) = where(self.swaps, head=feature.head, name=feature.name, condition=UNTOUCHED)
        return row

    def __repr__(self) -> str:
        widths = [max(map(len, column)) for column in zip(*self.summary(), strict=True)]
        lines = [
            "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in self.summary()
        ]
        best = ", ".join(f"{h.head} {h.score:.2f}" for h in self.heads[:5])
        return "\n".join([f"{self.task} in {self.model}: best heads {best}", "", *lines])

    def _repr_html_(self) -> str:
        from headwise.show.notebook import features_result

        return features_result(self)
