"""Plans beside what was measured: the page has the numbers that follow from the file, and nothing else is off."""

from __future__ import annotations

import json
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headwise.model.sizes import ModelSizes
from headwise.planning.plan import command_cost
from headwise.planning.probe import MachinePace
from headwise.planning.work import CONTRAST, WORK

DOCS = Path(__file__).parents[2] / "docs"
MEASURED = json.loads((DOCS / "results" / "data" / "plan.json").read_text())
WITHIN = 0.3
ROWS = {one.command: one for one in WORK}
NOT_MEASURED = {"families", "name (500 signals)"}
OFF = {("other", "sinks")}
"""What is known to be off, and in bold on the page."""


def planned(kind: dict[str, Any], row: dict[str, Any]) -> float:
    """Seconds of a run by the paces around it."""
    paces = [
        MachinePace(**pace | {"products": tuple((int(n), rate) for n, rate in pace["products"])})
        for pace in kind["paces"][row["pace"] : row["pace"] + 2]
    ]
    work = ROWS[row["row"]]
    if work.command == "features TASK":
        work = replace(work, passes=work.passes + CONTRAST * (row["contrasts"] - 3))
    sizes = ModelSizes(**kind["sizes"])
    costs = [command_cost(sizes, one, work, row["prompts"], row["tokens"], available=1) for one in paces]
    return statistics.fmean(cost.seconds for cost in costs)


def shares(name: str) -> dict[str, float]:
    kind = MEASURED[name]
    return {row["row"]: planned(kind, row) / statistics.median(row["seconds"]) - 1 for row in kind["rows"]}


def test_every_row_was_measured() -> None:
    for name in MEASURED:
        assert {row["row"] for row in MEASURED[name]["rows"]} == set(ROWS) - NOT_MEASURED


@pytest.mark.parametrize("name", sorted(MEASURED))
def test_time_is_planned_within_a_third_but_for_what_the_page_says(name: str) -> None:
    off = {row for row, share in shares(name).items() if abs(share) > WITHIN}
    assert off == {row for kind, row in OFF if kind == name}


def test_the_page_has_what_follows_from_the_file() -> None:
    page = (DOCS / "guides" / "plan.md").read_text()
    by_kind = {name: shares(name) for name in MEASURED}
    for row in by_kind["small"]:
        cells = []
        for name in ("small", "other"):
            said = f"{round(100 * by_kind[name][row]):+d} %".replace("-", "−").replace("+0", "0")
            cells.append(f"**{said}**" if (name, row) in OFF else said)
        assert f"| {row} | {' | '.join(cells)} |" in page
