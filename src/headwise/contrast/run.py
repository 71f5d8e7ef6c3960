"""What a contrastive study found, as plain records and a feature bank; saved to and read from a run
folder.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from headwise.contrast.bank import FeatureBank
from headwise.errors import HeadwiseError
from headwise.runs import RunFolder

Record = dict[str, Any]

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
        """Write tables, bank, vectors and the JSON document; the same run gives the same bytes in the
        tables.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        for name in TABLES:
            rows = getattr(self, name)
            target = folder.path / f"{name}.parquet"
            if rows:
                beside = target.with_name(f".{target.name}.part")
                pq.write_table(pa.Table.from_pylist(rows), beside, compression="zstd")
                beside.replace(target)
        self.bank.save(folder.path)
        folder.write_tensors("vectors.safetensors", self.vectors, self.labels)
        about = {"task": self.task, "model": self.model, "rule": self.rule, "settings": self.settings}
        # The last file: a folder that has it is complete.
        folder.write_json("run.json", {"schema": 1, **about, **self.document()})

    @classmethod
    def load(cls, path: str | Path) -> ContrastRun:
        """Read a finished run from its folder."""
        import pyarrow.parquet as pq

        path = Path(path)
        try:
            record = json.loads((path / "run.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            raise HeadwiseError(
                f"{str(path)!r} holds no finished run: make it with `headwise contrast`"
            ) from None
        tables = {}
        for name in TABLES:
            file = path / f"{name}.parquet"
            tables[name] = pq.read_table(file).to_pylist() if file.exists() else []
        from safetensors import safe_open

        with safe_open(path / "vectors.safetensors", "pt") as opened:
            vectors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
            labels = json.loads((opened.metadata() or {}).get("record", "{}"))
        return cls(
            record["task"], record["model"], record["rule"], **tables, warnings=record["warnings"],
            bank=FeatureBank.load(path), vectors=vectors, labels=labels, seconds=record["seconds"],
            settings=record["settings"],
        )  # fmt: skip

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
