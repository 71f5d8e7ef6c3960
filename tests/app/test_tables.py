"""Tables of run folders: in pages, chosen and ordered, and nothing in them but text and numbers."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from serving import served
from toy_answers import small_model

from headwise.app import tables
from headwise.app.runs import Run
from headwise.app.tables import PAGE, table_page, tables_of
from headwise.errors import HeadwiseError
from headwise.scale.manifest import Manifest
from headwise.survey.schema import COLUMNS

HOSTILE = "</td><script>alert(1)</script>"
COUNT = 130


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run of circuits as tables, with texts that somebody made up."""
    made = tmp_path / "run"
    made.mkdir()
    manifest = Manifest.of("circuits", {"model": HOSTILE}, {}, {})
    (made / "manifest.json").write_text(json.dumps(manifest.to_json()))
    prompts = pa.table(
        {
            "prompt": list(range(COUNT)),
            "text": [HOSTILE if i == 3 else f"prompt {i}" for i in range(COUNT)],
            "answer": ["a"] * COUNT,
            "wrong": [None] * COUNT,
        }
    )
    firings = pa.table(
        {
            "prompt": [3, 7, 500],
            "layer": [1, 2, 0],
            "head": [0, 3, 1],
            "query": [5, 4, 2],
            "key": [2, 1, 0],
            "attention": [0.5, 0.25, float("nan")],
        }
    )
    pq.write_table(prompts, made / "prompts.parquet", row_group_size=40)
    pq.write_table(firings, made / "firings.parquet")
    (made / "broken.parquet").write_bytes(b"PAR1 not really PAR1")
    (tmp_path / "outside.parquet").write_bytes((made / "firings.parquet").read_bytes())
    (made / "link.parquet").symlink_to(tmp_path / "outside.parquet")
    about = {"firings.parquet": {"attention": {"meaning": COLUMNS["firings"]["attention"].meaning}}}
    (made / "schema.json").write_text(json.dumps(about))
    (made / "circuits.json").write_text(
        json.dumps(
            {"heads": [{"head": "L1H2", "share": 0.5, "of": [1, 2]}, {"head": HOSTILE}], "n": 5, "empty": []}
        )
    )
    return made


def test_tables_are_those_that_can_be_read_and_are_really_there(folder: Path) -> None:
    found = {one.name: one.rows for one in tables_of(Run(folder))}
    assert found == {"prompts": COUNT, "firings": 3, "heads": 2}


def test_a_table_comes_in_pages(folder: Path) -> None:
    run = Run(folder)
    first, last = table_page(run, "prompts"), table_page(run, "prompts", start=100)
    assert [one.cells[0] for one in first.rows] == list(range(PAGE))
    assert [one.cells[0] for one in last.rows] == list(range(100, COUNT))
    assert (last.total, last.matching) == (COUNT, COUNT)
    assert table_page(run, "prompts", start=10**9).rows == ()


def test_rows_are_chosen_and_ordered(folder: Path) -> None:
    run = Run(folder)
    found = table_page(run, "prompts", words="prompt>=10 prompt<13", sort="prompt", down=True)
    assert [one.cells[0] for one in found.rows] == [12, 11, 10]
    assert table_page(run, "prompts", words="ALERT(1)").matching == 1
    assert table_page(run, "prompts", words="answer=A text<5").matching == 0
    ordered = table_page(run, "firings", sort="attention")
    assert [one.cells[0] for one in ordered.rows][:2] == [7, 3]
    assert ordered.rows[-1].cells[-1] == "nan"


def test_rows_lead_to_their_prompt_and_cell(folder: Path) -> None:
    run = Run(folder)
    rows = table_page(run, "firings").rows
    assert rows[0].place == {"p": HOSTILE, "a": "a", "h": "L1H0", "q": "5", "k": "2", "c": "3"}
    assert rows[1].place["p"] == "prompt 7"
    assert rows[2].place == {"h": "L0H1"}  # there is no prompt 500
    assert table_page(run, "heads").rows[0].place == {"h": "L1H2"}
    assert table_page(run, "heads").rows[1].place == {}
    assert table_page(run, "prompts").rows[1].place == {"p": "prompt 1", "a": "a", "c": "1"}


def test_what_a_column_means_is_said(folder: Path) -> None:
    columns = {one.name: one for one in table_page(Run(folder), "firings").columns}
    assert columns["attention"].meaning == "how much it attends"
    assert columns["attention"].number and columns["key"].meaning == ""


@pytest.mark.parametrize("name", ["broken", "link", "nothing", "../outside", HOSTILE])
def test_what_is_no_table_is_one_line(folder: Path, name: str) -> None:
    with pytest.raises(HeadwiseError, match="there is no table"):
        table_page(Run(folder), name)
    with pytest.raises(HeadwiseError, match="no column"):
        table_page(Run(folder), "firings", sort=name)


def test_tables_over_the_wire(folder: Path) -> None:
    with served(small_model(), (folder,), studies=folder.parent / "none") as app:
        app.enter()
        (run,) = app.ask("GET", "/api/runs").data["runs"]
        assert run["model"] == HOSTILE and run["study"] is None and run["finished"]
        assert not (folder.parent / "none").exists()  # looking makes no folder
        got = app.ask("GET", "/api/runs/0/tables/firings?sort=attention&down=1&words=prompt%3C100").data
        assert [one["cells"][0] for one in got["rows"]] == [3, 7]
        for path in (
            "0/tables/nothing",
            "9/tables/firings",
            "0/tables/firings?sort=x",
            "0/tables/firings?start=-1",
            "0/circuits/0",
        ):
            assert app.ask("GET", f"/api/runs/{path}").status == 422, path
        assert app.ask("GET", "/api/runs/0/tables/firings", {"cookie": None}).status == 401


def test_a_document_is_read_once_as_long_as_nothing_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "manifest.json").write_text(json.dumps(Manifest.of("sinks", {}, {}, {}).to_json()))
    document = tmp_path / "sinks.json"
    document.write_text(json.dumps({"heads": [{"head": "L1H2"}]}))
    read: list[Path] = []
    plain = tables.jsons.read

    def noted(path: Path, *more: str) -> object:
        read.append(path)
        return plain(path, *more)

    monkeypatch.setattr(tables.jsons, "read", noted)
    run = Run.named(tmp_path)
    for _ in range(3):
        assert [(one.name, one.rows) for one in tables_of(run)] == [("heads", 1)]
    assert read.count(document) == 1
    document.write_text(json.dumps({"heads": [{"head": "L1H2"}, {"head": "L1H3"}]}))
    assert [(one.name, one.rows) for one in tables_of(run)] == [("heads", 2)]


def test_estimates_and_claims_are_read_sorted_and_tested_by_their_numbers(tmp_path: Path) -> None:
    made = tmp_path / "run"
    made.mkdir()
    manifest = Manifest.of("explanations", {}, {}, {})
    (made / "manifest.json").write_text(json.dumps(manifest.to_json()))
    rows = [
        {
            "writer": name,
            "schema": 1,
            "log_odds": {"mean": mean, "ci": ci, "n": 6, "clusters": 6},
            "claim": {"null": "n", "draws": 9, "p": q, "q": q, "group": "g", "supported": q <= 0.05},
            "ends": [mean, 2 * mean],
        }
        for name, mean, ci, q in (
            ("a", 0.250001, [0.1, 0.40000000000000002], 0.04),
            ("b", 11.5, None, 0.3),
            ("c", -2.0, [-3.0, -1.0], 0.001),
        )
    ]
    (made / "explanations.json").write_text(json.dumps({"writers": rows}))
    seen = table_page(Run(made), "writers", sort="log_odds", down=True)
    assert [column.name for column in seen.columns] == ["writer", "log_odds", "claim", "ends"]
    assert [row.cells for row in seen.rows] == [
        ("b", "11.5", "not supported (q 0.3)", "11.5, 23"),
        ("a", "0.25 (0.1 to 0.4)", "supported (q 0.04)", "0.25, 0.5"),
        ("c", "-2 (-3 to -1)", "supported (q 0.001)", "-2, -4"),
    ]
    assert [row.cells[0] for row in table_page(Run(made), "writers", words="log_odds<1").rows] == ["a", "c"]
    assert [row.cells[0] for row in table_page(Run(made), "writers", sort="claim").rows] == ["c", "a", "b"]
