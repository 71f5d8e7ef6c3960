"""What a contrastive study found, as plain records and a feature bank; saved to and read from a run
folder.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from headwise.contrast.bank import FILE as BANK
from headwise.contrast.bank import FeatureBank
from headwise.scale.folder import RunFolder

Record = dict[str, Any]

KIND = "contrast"
DOCUMENT, VECTORS = "run.json", "vectors.safetensors"
TABLES = (
    "heads",
    "features",
    "swaps",
    "draws",
    "doses",
    "spectra",
    "angles",
    "growth",
    "answers",
    "attribution",
)
FILES = (*(f"{table}.parquet" for table in TABLES), BANK, VECTORS, DOCUMENT)
"""All that a finished run consists of, besides its manifest."""


@dataclass(frozen=True, eq=False)
class ContrastRun:
    """A whole study. Every table is a list of flat records, and one parquet file in the run folder.

    ``heads`` every head with its scores; ``features`` the fitted features and unions with ranks and swap;
    ``swaps`` every condition; ``draws`` the random subspaces; ``doses``, ``spectra``, ``angles``, ``growth``
    what the pictures show; ``answers`` the edited forward passes, if asked for; ``attribution`` an example
    prompt.
    """

    task: str
    model: str
    rule: str
    heads: list[Record]
    features: list[Record]
    swaps: list[Record]
    draws: list[Record]
    doses: list[Record]
    spectra: list[Record]
    angles: list[Record]
    growth: list[Record]
    answers: list[Record]
    attribution: list[Record]
    warnings: list[str]
    bank: FeatureBank
    vectors: dict[str, Tensor]
    """Queries and labelled keys of some test prompts, for pictures: ``q`` [h, n, d], ``k`` [h, n, K, d]."""
    labels: dict[str, Any]
    """``query`` and ``keys``: group → labels of these vectors; ``colours``: feature → group."""
    seconds: float = 0.0
    settings: dict[str, Any] = field(default_factory=dict)

    def document(self) -> Record:
        """What ``headwise contrast --json`` prints."""
        swap = ("original", "target", "share_of_full", "percentile", "p_value")
        found: Record = {
            "heads": [
                {"head": h["head"], "score": h["score"], "ci": [h["low"], h["high"]], "q_value": h["q_value"]}
                for h in self.heads
            ],
            "features": [
                {
                    "name": f["name"],
                    "head": f["head"],
                    "rank_energy": f["rank_energy"],
                    "rank_null": f["rank_null"],
                    "saturated": f["saturated"],
                    "interaction_share": f["interaction_share"],
                    "swap": {key: f[key] for key in swap},
                }
                for f in self.features
            ],
            "warnings": list(self.warnings),
            "seconds": round(self.seconds, 1),
        }
        return {**found, "through_model": self.answers} if self.answers else found

    @property
    def chosen(self) -> list[str]:
        """The heads that were studied."""
        return [str(h) for h in self.bank.heads]

    def of(self, table: str, **where: Any) -> list[Record]:
        """Rows of a table whose columns have the given values."""
        return [r for r in getattr(self, table) if all(r[key] == value for key, value in where.items())]

    # --- files ---

    def save(self, folder: RunFolder) -> None:
        """Write tables, bank, vectors and the JSON document; the same run gives the same bytes."""
        from headwise.contrast.schema import TABLES as COLUMNS
        from headwise.scale.tables import table_bytes, table_of

        for name in TABLES:
            folder.write_bytes(f"{name}.parquet", table_bytes(table_of(COLUMNS[name], getattr(self, name))))
        folder.write_bytes(BANK, self.bank.to_bytes())
        folder.write_tensors(VECTORS, self.vectors, self.labels)
        about = {"task": self.task, "model": self.model, "rule": self.rule, "settings": self.settings}
        # The time it took is no result: the same command writes the same bytes.
        timeless = {key: value for key, value in self.document().items() if key != "seconds"}
        folder.write_json(DOCUMENT, {"schema": 2, **about, **timeless})
        folder.finish(*FILES)

    @classmethod
    def load(cls, path: str | Path) -> ContrastRun:
        """Read a finished run from its folder, every file of it held against its digest and checked."""
        from headwise.contrast.reading import read_run

        return read_run(Path(path))

    # --- for people ---

    def summary(self) -> list[tuple[str, ...]]:
        """A table of the features: header, then one row a feature."""
        rows = [
            ("head", "feature", "rank", "null", "saturated", "original", "target", "share", "percentile", "p")
        ]
        for f in self.features:
            clean = next(s for s in self.swaps if s["head"] == f["head"] and s["condition"] == "none")
            rows.append(
                (
                    f["head"], f["name"], str(f["rank_energy"]), str(f["rank_null"]),
                    "yes" if f["saturated"] else "no",
                    f"{clean['original']:.2f} → {f['original']:.2f}",
                    f"{clean['target']:.2f} → {f['target']:.2f}",
                    f"{f['share_of_full']:.2f}", f"{f['percentile']:.0f}", f"{f['p_value']:.3f}",
                )
            )  # fmt: skip
        return rows

    def __repr__(self) -> str:
        widths = [max(map(len, column)) for column in zip(*self.summary(), strict=True)]
        lines = [
            "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in self.summary()
        ]
        best = ", ".join(f"{h['head']} {h['score']:.2f}" for h in self.heads[:5])
        return "\n".join([f"{self.task} in {self.model}: best heads {best}", "", *lines])

    def _repr_html_(self) -> str:
        from headwise.show.notebook import contrast_run

        return contrast_run(self)


def gallery_labels(examples: Sequence[Any], colours: dict[str, str]) -> dict[str, Any]:
    """The labels of the gallery's queries and keys, by group."""
    groups = sorted({g for e in examples for g in e.groups})
    key_groups = sorted({g for e in examples for g in e.key_groups})
    return {
        "query": {g: [e.groups.get(g, "") for e in examples] for g in groups},
        "keys": {g: [list(e.key_groups.get(g, ())) for e in examples] for g in key_groups},
        "colours": colours,
    }


def pad_keys(keys: Sequence[Tensor]) -> Tensor:
    """Keys [h, K_i, d] of several prompts as [h, n, K, d], zero where a prompt has fewer."""
    width = max(k.shape[1] for k in keys)
    out = keys[0].new_zeros(keys[0].shape[0], len(keys), width, keys[0].shape[2])
    for i, k in enumerate(keys):
        out[:, i, : k.shape[1]] = k
    return out.to(torch.float32)
