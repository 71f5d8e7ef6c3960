"""Another model is chosen among those that the app may load, and long prompts are kept on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from serving import TAB, Served, served
from tiny_folders import set_config, write_folder
from toy_answers import answer_lines, small_model

from headwise.app.models import ModelChoices
from headwise.app.session import Gone
from headwise.app.texts import digest_of, kept_texts
from headwise.toy.small_lm import DATA

PROMPT = answer_lines(1)[0]["prompt"]
WORDS = "When Mary and John went to the store"


@pytest.fixture
def other(tmp_path: Path) -> Path:
    return write_folder(tmp_path / "other")


@pytest.fixture
def app(tmp_path: Path, other: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    monkeypatch.setenv("HEADWISE_CACHE", str(tmp_path / "cache"))
    broken = write_folder(tmp_path / "broken")
    set_config(broken, model_type="nothing-known")
    model = small_model()
    choices = ModelChoices(model.name, str(DATA), [str(other), str(broken)])
    with served(model, source=str(DATA), models=choices, studies=tmp_path / "studies") as opened:
        opened.enter()
        yield opened


def chosen(app: Served, name: str, job: str = TAB, after: int = 0) -> tuple[str, str, int]:
    """How a job ended, what it said, and the number of its event."""
    got = app.ask("POST", "/api/model", body={"tab": TAB, "job": job, "name": name})
    assert got.status == 202, got.data
    number, kind, told = app.events(after=after)[-1]
    return kind, told.get("error", ""), number


def test_another_model_is_loaded_and_nothing_of_the_first_is_left(app: Served, other: Path) -> None:
    model, before = small_model(), app.read(PROMPT)
    waiting = app.session.kept(before["id"])
    state = app.ask("GET", "/api/state").data
    assert state["chosen"] == model.name and state["models"][:2] == [model.name, str(other)]
    kind, _, last = chosen(app, str(other))
    assert kind == "done"
    state = app.ask("GET", "/api/state").data
    assert state["chosen"] == str(other) and state["weight_hash"] != model.weight_hash
    assert app.session.shelf.studies.model == str(other) == app.session.source
    assert app.ask("GET", f"/api/prompts/{before['id']}/heads").status == 410
    with pytest.raises(Gone):  # what waited in the lane meanwhile
        app.session._still(waiting)
    assert app.read(WORDS)["id"] != before["id"]
    (_, _, told) = app.events(until=("model",))[-1]  # every tab hears of it
    assert told["model"] == app.session.model.name
    assert chosen(app, model.name, "1" * 16, last)[0] == "done"
    again = app.read(PROMPT)
    assert (again["id"], again["answer"]) == (before["id"], before["answer"])


def test_a_model_that_is_refused_leaves_the_present_one(app: Served, tmp_path: Path) -> None:
    kind, error, _ = chosen(app, str(tmp_path / "broken"))
    assert kind == "failed" and "nothing-known" in error
    assert app.ask("GET", "/api/state").data["chosen"] == small_model().name
    assert app.read(PROMPT)["answer"]


@pytest.mark.parametrize("name", ["gpt2", "/etc", "../other", "smollm2", "https://example.org/model"])
def test_only_models_of_the_list_are_loaded(app: Served, name: str) -> None:
    got = app.ask("POST", "/api/model", body={"tab": TAB, "job": TAB, "name": name})
    assert got.status == 422
    assert repr(name) in got.data["error"] and small_model().name in got.data["error"]


def test_a_long_prompt_is_kept_by_its_digest(app: Served) -> None:
    text = "\u00e9 line\r\nand more " * 900
    got = app.ask("POST", "/api/texts", body={"text": text}).data
    assert got["digest"] == digest_of(text)
    assert app.ask("GET", f"/api/texts/{got['digest']}").data["text"] == text
    (file,) = kept_texts().iterdir()
    file.write_text("another text")  # whoever can write there cannot put words under a digest
    assert app.ask("GET", f"/api/texts/{got['digest']}").status == 404
    assert app.ask("POST", "/api/texts", body={"text": text}).status == 200
    assert app.ask("GET", f"/api/texts/{got['digest']}").data["text"] == text


@pytest.mark.parametrize("digest", ["0" * 64, "0" * 63, "..%2f..%2fetc%2fpasswd", "A" * 64, "x"])
def test_what_was_not_kept_is_not_there(app: Served, digest: str) -> None:
    assert app.ask("GET", f"/api/texts/{digest}").status == 404
