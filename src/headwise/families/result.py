"""What an analysis of families found: values, one JSON document, and tables."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from headwise import jsons
from headwise.claims import claim
from headwise.errors import HeadwiseError
from headwise.families.agreement import LabelAgreement
from headwise.families.averaging import Averaging
from headwise.families.causal_test import CausalTest
from headwise.families.causality import CONTROLS
from headwise.families.cluster import Clustering
from headwise.families.compare import HeadComparison
from headwise.families.distance import jaccard
from headwise.families.incidence import Incidence
from headwise.families.null import NullTest, largest_p
from headwise.scale.folder import RunFolder
from headwise.scale.manifest import AGAIN
from headwise.scale.results import held_manifest, read_value, write_result
from headwise.scale.tables import table_bytes
from headwise.strings import counted
from headwise.survey.records import CircuitRun
from headwise.types import Claim
from headwise.validation import Shape, check

if TYPE_CHECKING:
    from pandas import DataFrame  # pyright: ignore[reportMissingImports]

    from headwise.families.named import NamedFamilies
    from headwise.known_names import NamesLike

KIND = "families"
MAKE = "headwise families RUN --out DIR"
RUNS = "runs.json"
CORE = 0.5
"""A feature that at least this share of a family's circuits hold belongs to its core."""
FEW_VALUES = 20
"""A label of more values is not drawn: its colours could not be told apart."""
PRUNED = 0.1
"""The union of a family's circuits is kept from this share up."""


@dataclass(frozen=True, kw_only=True)
class Family:
    """One family. ``representative`` and all other prompts are numbers of the run."""

    family: int
    """Its number, from 0."""
    name: str
    """Its number, or the value of the label where prompts are grouped by one."""
    size: int
    """How many circuits it has."""
    share: float
    """Of all circuits."""
    strays: int
    """Prompts that joined it because it is nearest."""
    representative: int
    """The prompt whose circuit is nearest to all others, by number."""
    prompt: str
    """That prompt's text."""
    labels: dict[str, dict[str, int]]
    """How many prompts have each value of each label."""
    features: float
    """Mean features of a circuit."""
    edges: float
    """Mean edges of a circuit, those from embeddings and into the answer included."""
    core: int
    """Features that at least half of its circuits hold."""
    union: int
    """Features that at least a tenth of them hold."""
    distance: float
    """Mean distance of two members."""
    difference: float
    """Mean logit difference of answer and wrong."""
    top_is_answer: float
    """Share of prompts whose most likely token is the answer."""


@dataclass(frozen=True, eq=False, kw_only=True)
class FamiliesResult:
    """Families of the circuits of one run, and the evidence for them."""

    run: CircuitRun
    """The circuits that were compared."""
    settings: dict[str, Any]
    """What was asked: distance, label, sample, seed."""
    incidence: Incidence
    """What distances are taken by; row i is prompt ``incidence.prompts[i]``."""
    signals: Incidence
    """The same circuits by signal."""
    distances: np.ndarray
    """[rows, rows]: the distance of every two circuits, from 0 to 1."""
    clustering: Clustering
    """The tree, and its cuts with stability and separation."""
    null: NullTest | None
    """The same of data that are one family; None where the tree has no cut."""
    within: NullTest | None
    """Gaps inside wordings, against every wording as one family; None where prompts have no wording."""
    shuffle: NullTest | None
    """The same of circuits with shuffled edges; None where the tree has no cut."""
    labels: np.ndarray
    """[rows]: the family of each circuit."""
    groups: Mapping[str, np.ndarray]
    """Usable labels: name → the value of each row."""
    families: list[Family]
    """The families: of a clustering the largest first, of a label in the order of its values."""
    agreements: list[LabelAgreement]
    """How well each label agrees with the families."""
    accuracy: list[dict[str, Any]]
    """By value of each label: prompts, those in no family and why, those compared, and the share answered right."""
    silent: tuple[int, ...]
    """Traced prompts whose circuits hold no signal, only edges into the answer: they are in no family."""
    within_wordings: dict[str, Claim]
    """For each label that varies within wordings: that circuits of one wording differ by it."""
    heads: list[HeadComparison]
    """Every head that two families share: whether it does the same in both."""
    causality: list[CausalTest]
    """What removing one family's own signals does in its prompts and in another's."""
    averaging: Averaging
    """How much the averaged circuit varies from sample to sample, and those of the families."""
    silhouettes: np.ndarray
    """[rows]: how much nearer each circuit is to its own family than to the next."""
    seconds: float = 0.0
    """How long it took."""

    @property
    def n_families(self) -> int:
        """How many families there are."""
        return len(self.families)

    @cached_property
    def counts(self) -> dict[str, int]:
        """Prompts by how their tracing ended: ``traced``, ``wrong``, ``empty`` and ``failed``."""
        status = self.run.prompts.column("status").to_pylist()
        return {name: status.count(name) for name in ("traced", "wrong", "empty", "failed")}

    @property
    def representatives(self) -> list[int]:
        """Rows of the families' representatives."""
        row = {int(p): i for i, p in enumerate(self.incidence.prompts)}
        return [row[f.representative] for f in self.families]

    @property
    def grouped_by(self) -> str | None:
        """The label whose values were treated as the families, or None where the clustering decided."""
        return self.settings["by"]

    @property
    def telling(self) -> list[str]:
        """The labels worth showing: of few values, those that agree best with the families first."""
        few = [a.label for a in self.agreements if a.values <= FEW_VALUES and a.label != self.grouped_by]
        return few[:3]

    @property
    def tested(self) -> int | None:
        """The number of families whose numbers are reported: the chosen one, or where there are none the tightest."""
        cut = self.clustering.choose(self.p_values)
        known = self.clustering.silhouette
        return cut if cut > 1 else max(known, key=lambda k: known[k], default=None)

    @cached_property
    def p_values(self) -> dict[int, float]:
        """By number of families: against one family, and where prompts have wordings the larger of that and theirs."""
        return largest_p(self.null, self.within)

    @property
    def claim(self) -> Claim | None:
        """That the circuits fall into more than one family; None where the tree has no cut."""
        if self.null is None or self.tested is None:
            return None
        null = "one family that varies continuously"
        if self.within is not None:
            null = f"the closer of: {null}; every wording one such family"
        group = "this test alone, all numbers of families allowed for"
        alone = claim(self.p_values[self.tested], null=null, draws=len(self.null.null), group=group)
        return replace(alone, supported=self.clustering.choose(self.p_values) > 1)

    @cached_property
    def cuts(self) -> list[dict[str, Any]]:
        """One row for every number of families."""
        c, p = self.clustering, self.p_values
        one = self.null.p_values if self.null else {}
        inside = self.within.p_values if self.within else {}
        shuffled = self.shuffle.p_values if self.shuffle else {}
        chosen = c.choose(p)
        return [
            {
                "families": k,
                "silhouette": c.silhouette[k],
                "stability": c.stability[k],
                "stability_low": c.stability_low[k],
                "separation": self.null.observed[k] if self.null else None,
                "p_value": p.get(k),
                "p_value_one_family": one.get(k),
                "p_value_within": inside.get(k),
                "p_value_shuffle": shuffled.get(k),
                "smallest": int(cut.sizes.min()),
                "strays": int(cut.strays.sum()),
                "chosen": k == chosen,
            }
            for k, cut in c.cuts.items()
        ]

    def to_json(self) -> dict[str, Any]:
        """Everything but the prompts, as plain values."""
        k = self.tested
        at: dict[str, Any] = next((cut for cut in self.cuts if cut["families"] == k), {})
        config = self.run.config
        return {
            "model": config["model"],
            "task": config["task"],
            "n_prompts": len(self.run),
            **{f"n_{name}": count for name, count in self.counts.items()},
            "n_silent": len(self.silent),
            "n_compared": len(self.labels),
            "distance": self.settings["distance"],
            "grouped_by": self.grouped_by,
            "n_families": self.clustering.choose(self.p_values),
            "silhouette": at.get("silhouette"),
            "stability": at.get("stability"),
            "separation": at.get("separation"),
            "p_value": at.get("p_value"),
            "p_value_one_family": at.get("p_value_one_family"),
            "p_value_within": at.get("p_value_within"),
            "p_value_shuffle": at.get("p_value_shuffle"),
            "claim": self.claim and self.claim.to_json(),
            "within_wordings": {name: one.to_json() for name, one in self.within_wordings.items()},
            "null": None
            if self.null is None
            else {"prompts": self.null.prompts, "draws": len(self.null.null)},
            "ami": {a.label: a.ami.mean for a in self.agreements},
            "labels": [a.to_json() for a in self.agreements],
            "accuracy": self.accuracy,
            "cuts": self.cuts,
            "families": [asdict(f) for f in self.families],
            "averaging": self.averaging.to_json(),
            "heads": [h.to_json() for h in self.heads],
            "causality": [t.to_json() for t in self.causality],
            "seconds": round(self.seconds, 1),
        }

    def union(self, pruned: float = PRUNED) -> list[dict[str, Any]]:
        """The union of each family's circuits: features held by at least ``pruned`` of them, with that share."""
        rows = []
        for family, representative in zip(self.families, self.representatives, strict=True):
            share = self.signals.frequency(np.flatnonzero(self.labels == family.family))
            held = set(self.signals.of(representative))
            order = np.flatnonzero(share >= max(pruned, 1e-9))
            for i in order[np.argsort(-share[order], kind="stable")].tolist():
                feature = self.signals.features[i]
                row = {"family": family.family, **feature._asdict()}
                rows.append({**row, "share": float(share[i]), "in_representative": feature in held})
        return rows

    def members(self) -> list[dict[str, Any]]:
        """One row per circuit."""
        cut = self.clustering.cuts.get(len(self.families)) if self.grouped_by is None else None
        strays = np.zeros(len(self.labels), dtype=bool) if cut is None else cut.strays
        sizes = self.signals.sizes
        return [
            {
                "prompt": int(p),
                "family": int(self.labels[i]),
                "stray": bool(strays[i]),
                "features": int(sizes[i]),
                "silhouette": float(self.silhouettes[i]),
            }
            for i, p in enumerate(self.incidence.prompts)
        ]

    @property
    def tables(self) -> dict[str, list[dict[str, Any]]]:
        """Every table by name, as flat rows."""
        effects = [
            {**test.to_row(), "measured_in": where, **effect.to_row()}
            for test in self.causality
            for where, effect in test.effects.items()
            if effect is not None
        ]
        return {
            "members": self.members(),
            "union": self.union(),
            "cuts": self.cuts,
            "heads": [h.to_row() for h in self.heads],
            "causality": effects,
        }

    def to_pandas(self) -> dict[str, DataFrame]:
        """Every table as a DataFrame, by name; needs the extra ``headwise[pandas]``."""
        from headwise.frames import frame

        families = [{k: v for k, v in asdict(f).items() if k != "labels"} for f in self.families]
        return {name: frame(rows) for name, rows in {"families": families, **self.tables}.items()}

    def with_names(self, names: NamesLike) -> NamedFamilies:
        """What the families do differently in words, and each family's circuit with named edges.

        Parameters
        ----------
        names:
            The folder that ``headwise name`` made, or a :class:`NamesResult`; names of another model are refused.

        Returns
        -------
        NamedFamilies
            Paragraphs made from tests, the differences behind them, and the aggregated, pruned circuits.
        """
        from headwise.families.named import named_families

        return named_families(self, names)

    # --- files ---

    @property
    def config(self) -> dict[str, Any]:
        """What was asked, as the manifest has it."""
        asked, of = self.settings, self.run.config
        return {
            "model": of["model"],
            "weight_hash": of["weight_hash"],
            "task": of["task"],
            "runs": len(self.run.paths),
            "prompts": len(self.run),
            "distance": asked["distance"],
            "by": asked["by"],
            "seed": asked["seed"],
            "causality": {"prompts": asked["sample"], "controls": CONTROLS} if asked["causality"] else None,
        }

    def save(self, folder: str | Path) -> Path:
        """Write a run folder: document, tables, and the result for :meth:`load`. An older analysis there gives way.

        The circuits themselves are not copied: the folder remembers where their runs are.
        """
        with RunFolder(folder, KIND, self.config, gives_way=True) as opened:
            self.write(opened)
        return Path(folder)

    def write(self, folder: RunFolder) -> None:
        """Write everything into an open folder, which is finished with that."""
        tables = self.tables
        # An empty table has no columns; what an earlier analysis left in its place must not be taken for one.
        for name in tables:
            folder.place(f"{name}.parquet").unlink(missing_ok=True)
        written = {f"{name}.parquet": rows for name, rows in tables.items() if rows}
        for name, rows in written.items():
            folder.write_bytes(name, table_bytes(pa.Table.from_pylist(rows)))
        folder.write_json(RUNS, [os.path.relpath(path, folder.path) for path in self.run.paths])
        value, more = replace(self, seconds=0.0), (RUNS, *written)
        write_result(folder, self.to_json(), value, more=more, without=("run", "distances"))

    @classmethod
    def load(cls, folder: str | Path, *runs: str | Path) -> FamiliesResult:
        """Read a finished analysis, every file held against its digest; ``runs`` where circuits were moved."""
        path = Path(folder)
        manifest = held_manifest(path, KIND, MAKE)
        if not runs:
            places = check(
                _Runs, {"runs": jsons.read(path / RUNS, "a list of runs", AGAIN)}, repr(str(path / RUNS))
            )
            runs = tuple(path / place for place in places.runs)
        run = CircuitRun.load(*runs)
        found = read_value(cls, path, run=run, distances=np.zeros((0, 0)))
        found = replace(found, distances=jaccard(found.incidence.matrix))
        if found.config != manifest.config:
            raise HeadwiseError(
                f"the circuits in {str(runs[0])!r} are not those that {str(path)!r} is about: give the runs that are"
            )
        return found

    def __repr__(self) -> str:
        found = self.to_json()
        how = f"by {self.grouped_by}" if self.grouped_by else "by clustering"
        return (
            f"FamiliesResult({found['task']!r} in {found['model']!r}: {counted(found['n_compared'], 'circuit')}, "
            f"{counted(self.n_families, 'family', 'families')} {how}, p {found['p_value']})"
        )

    def _repr_html_(self) -> str:
        from headwise.show.notebook import families_result

        return families_result(self)


class _Runs(Shape):
    """``runs.json``: where the circuits are, from the folder on."""

    runs: list[str]
