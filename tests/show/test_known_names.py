"""Names of sinks and of features, in the terminal and in reports: with verdict, accuracy and the place of evidence."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from features_page import made_up_features
from known import TEXT, names_folder, names_known
from planted_sink import plant_sink, planted_prompts
from rich.console import Console, RenderableType
from tiny import tiny

from headwise.known_names import KnownNames
from headwise.show.contrast.terminal import run_tables
from headwise.show.naming.blocks import names_blocks
from headwise.show.sinks.report import sinks_report
from headwise.show.sinks.terminal import sinks_tables
from headwise.sinks.result import SinksResult
from headwise.sinks.study import find_sinks


def printed(made: RenderableType) -> str:
    out = Console(file=io.StringIO(), width=220)
    out.print(made)
    assert isinstance(out.file, io.StringIO)
    return out.file.getvalue()


@pytest.fixture(scope="module")
def sinks() -> SinksResult:
    return find_sinks(plant_sink(), planted_prompts(4), traced=4, proved=1)


def test_what_makes_heads_rest_has_its_name(sinks: SinksResult, tmp_path: Path) -> None:
    first = f"{sinks.parked[0]} sink"
    assert sinks.subjects[0] == first
    known = KnownNames.load(names_folder(tmp_path / "names", plant_sink(), {first: "named", "L0H0": "named"}))
    said = printed(sinks_tables(sinks, known))
    rows = [line for line in said.splitlines() if TEXT in line]
    assert len(rows) == 1 and first in rows[0] and "named" in rows[0] and "0.81 (0.75 to 0.88)" in rows[0]
    assert "names.html (wikipedia-excerpt)" in said
    page = sinks_report(sinks, known).html()
    assert TEXT in page and f"names.html#{sinks.parked[0]}_sink" in page
    assert TEXT not in sinks_report(sinks).html()


def test_the_features_of_a_bank_have_theirs() -> None:
    run = made_up_features(heads=2, features=2)
    feature = run.subjects[0]
    assert " feature " in feature and run.subjects[-1] == str(run.bank.features[-1].head)
    said = printed(run_tables(run, names_known(tiny("llama"), {feature: "beyond chance"})))
    assert any(TEXT in line and feature in line and "beyond chance" in line for line in said.splitlines())


def test_nothing_that_was_asked_for_is_told() -> None:
    known = names_known(tiny("llama"), {"L0H0": "named"})
    [block] = names_blocks(known, ["L9H9 sink"])
    assert "Nothing here is among the 1 subjects" in block.body  # pyright: ignore[reportAttributeAccessIssue]
