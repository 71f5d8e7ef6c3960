"""Put the numbers of a work's studies into the pages of docs/results that stand on them.

    python tools/make_results.py RUN [RUN ...]     read folders of `headwise reproduce`, keep what the pages need
    python tools/make_results.py                   write the pages' blocks from the kept numbers

Of every study that one of RUN holds, what its command printed is kept in docs/results/data, less what no page shows.
Prose is written by hand between the blocks; a test holds the pages against the kept numbers.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from result_blocks import DATA, PAGES, Blocks, filled
from result_circuits import CIRCUITS, kept_task
from result_contrasts import BINDING, FILTER, kept_contrast
from result_families import FAMILIES, kept_families
from result_sinks import SINKS, kept_sinks
from result_sparsity import SPARSITY, kept_sparsity
from result_toys import TOYS, kept_toy


@dataclass(frozen=True)
class ResultPage:
    """A page of docs/results, and what it stands on."""

    studies: tuple[str, ...]
    """Names of studies in the folder of a work; one that ends in a hyphen is the beginning of several names."""
    kept: Callable[[dict[str, Any], Path], dict[str, Any]]
    """What is kept of what such a study printed, and of its folder."""
    blocks: Blocks
    """How its tables are made from what was kept."""
    whole: bool = True
    """Whether every number of its prose is of these studies, too."""

    def stands_on(self, study: str) -> bool:
        return any(study == one or (one.endswith("-") and study.startswith(one)) for one in self.studies)


RESULTS = {
    "sinks": ResultPage(("sinks",), kept_sinks, SINKS),
    "sparsity": ResultPage(("sparsity",), kept_sparsity, SPARSITY),
    "ioi-families": ResultPage(("circuits", "families", "orders"), kept_families, FAMILIES),
    "ioi-circuit": ResultPage(("circuits", "circuits-", "effects-"), kept_task, CIRCUITS, whole=False),
    "binding": ResultPage(("binding", "jitter"), kept_contrast, BINDING),
    "filter": ResultPage(("filter", "filter-13"), kept_contrast, FILTER),
    "toys": ResultPage(("alignment-", "sweep-", "training", "payload-"), kept_toy, TOYS, whole=False),
}


def keep(run: Path) -> None:
    """Keep what the finished studies of a run printed."""
    printed = {file.stem: json.loads(file.read_text("utf-8")) for file in sorted(run.glob("*.json"))}
    for name, page in RESULTS.items():
        found = {
            study: page.kept(one["document"], run / study)
            for study, one in printed.items()
            if page.stands_on(study) and "document" in one
        }
        if found:
            file = DATA / f"{name}.json"
            before = json.loads(file.read_text("utf-8")) if file.exists() else {}
            file.write_text(json.dumps(before | found, indent=1, ensure_ascii=False) + "\n", "utf-8")


def made_page(name: str) -> str:
    """A page with its blocks made from the kept numbers."""
    data = json.loads((DATA / f"{name}.json").read_text("utf-8"))
    return filled((PAGES / f"{name}.md").read_text("utf-8"), data, RESULTS[name].blocks)


def main(*runs: str) -> None:
    for run in runs:
        keep(Path(run))
    for name in RESULTS:
        (PAGES / f"{name}.md").write_text(made_page(name), "utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
