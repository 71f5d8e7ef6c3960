"""Run folders: what was named on the command line, and nothing around it."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from known import names_folder
from serving import TAB, served
from toy_answers import small_model

from headwise.app.runs import Run
from headwise.errors import HeadwiseError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "run"
    made.mkdir()
    (made / "report.html").write_text("<p>a report</p>")
    (made / "table.parquet").write_bytes(b"x")
    (tmp_path / "secret.html").write_text("secret")
    (made / "link.html").symlink_to(tmp_path / "secret.html")
    (made / "loop.html").symlink_to(made / "loop.html")
    (made / "folder.html").mkdir()
    return made


def test_only_pages_that_are_really_in_the_folder_are_given(folder: Path) -> None:
    run = Run.named(folder)
    assert run.pages == ("report.html",)
    for name in (
        "link.html",
        "loop.html",
        "folder.html",
        "table.parquet",
        "../secret.html",
        "..",
        "",
        "/etc/passwd",
        "a\0.html",
        "report.html/",
        "./report.html",
    ):
        assert run.page(name) is None, name
    assert run.kind is None


def test_what_is_no_folder_is_refused(folder: Path) -> None:
    for wrong in (folder / "report.html", folder / "missing", "a\0b"):
        with pytest.raises(HeadwiseError, match="run folder"):
            Run.named(wrong)


def test_an_atlas_is_listed_by_its_index_which_leads_to_the_heads(tmp_path: Path) -> None:
    for name in ("report.html", "L0H0.html", "L12H3.html"):
        (tmp_path / name).write_text("<p>page</p>")
    run = Run.named(tmp_path)
    assert run.pages == ("report.html",)
    assert run.page("L12H3.html") == (tmp_path / "L12H3.html").resolve()


def test_saved_pages_are_given_without_any_rights(folder: Path) -> None:
    with served(small_model(), (folder,)) as app:
        app.enter()
        (entry,) = app.ask("GET", "/api/state").data["runs"]
        assert entry == {"index": 0, "name": "run", "kind": None, "pages": ["report.html"], "fits": False}
        page = app.ask("GET", "/api/runs/0/report.html")
        assert page.status == 200 and page.content == b"<p>a report</p>"
        policy = page.headers["content-security-policy"]
        assert policy.startswith("sandbox allow-scripts; default-src 'none'")
        assert "allow-same-origin" not in policy and "connect-src" not in policy
        for path in ("0/link.html", "0/..%2fsecret.html", "0/%2e%2e", "0/loop.html", "0/table.parquet"):
            assert app.ask("GET", f"/api/runs/{path}").status == 404, path
        assert app.ask("GET", "/api/runs/1/report.html").status == 422
        assert app.ask("GET", "/api/runs/0/report.html", {"cookie": None}).status == 401


def test_every_page_hears_of_a_run_that_is_finished_meanwhile(tmp_path: Path) -> None:
    model, folder = small_model(), tmp_path / "later"
    folder.mkdir()
    with served(model, (folder,), studies=tmp_path / "studies") as app:
        app.enter()
        (entry,) = app.ask("GET", "/api/state").data["runs"]
        assert entry["kind"] is None and not entry["fits"]
        heard: list[str] = []
        reading = threading.Thread(
            target=lambda: heard.extend(kind for _, kind, _ in app.events(until=("runs",)))
        )
        reading.start()
        while not app.session.events.listening(TAB):
            time.sleep(0.01)
        names_folder(folder, model, {"L1H1": "named"})
        reading.join(20)
        assert heard == ["runs"]
        (entry,) = app.ask("GET", "/api/state").data["runs"]
        assert entry["kind"] == "names" and entry["fits"]
