"""An explanation whose tab is closed goes on, is offered, and is heard by the next tab that asks the same."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from serving import Served
from toy_answers import answer_lines, small_model

from headwise.app import session
from headwise.errors import WrongField
from headwise.why.explain import explain

PROMPT = answer_lines(3)[0]["prompt"]
STEPS = ["question", "place", "table", "predicted", "observed", "controls", "consequence"]


@contextmanager
def listening(app: Served, tab: str) -> Iterator[None]:
    """A tab that is open, and then closed."""
    connection = http.client.HTTPConnection("127.0.0.1", app.port, timeout=60)
    headers = {"Host": f"127.0.0.1:{app.port}", "Sec-Fetch-Site": "same-origin", "Cookie": app.cookie}
    connection.request("GET", f"/api/events?tab={tab}", headers=headers)
    stream = connection.getresponse()
    stream.readline()
    until(lambda: app.session.events.listening(tab))
    yield
    stream.close()
    connection.close()
    until(lambda: not app.session.events.listening(tab))


def until(holds: Any) -> None:
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def left(app: Served) -> list[dict[str, Any]]:
    return app.ask("GET", "/api/jobs").data["jobs"]


def begun(app: Served, tab: str, job: str, **more: Any) -> dict[str, Any]:
    asked = {"tab": tab, "job": job, "prompt": PROMPTS[app.port], "head": "L1H1", "draws": 19, **more}
    got = app.ask("POST", "/api/explain", body={"address": f"/cell?tab={tab}", **asked})
    assert got.status == 202, got.content
    return got.data


PROMPTS: dict[int, str] = {}
"""The prompt's id by the app's port: to read it takes a turn in the lane, which may be waiting."""


@pytest.fixture(scope="module", autouse=True)
def _read(app: Served) -> None:
    PROMPTS[app.port] = app.read(PROMPT)["id"]


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> tuple[threading.Event, threading.Event]:
    """An explanation that has reached its table, and goes on when it may."""
    reached, free = threading.Event(), threading.Event()
    whole = session.explain_steps

    def waiting(*given: Any, **settings: Any) -> Any:
        steps = whole(*given, **settings)
        while True:
            try:
                step = next(steps)
            except StopIteration as finished:
                return finished.value
            yield step
            if step.name == "table":
                reached.set()
                assert free.wait(20)

    monkeypatch.setattr(session, "explain_steps", waiting)
    return reached, free


def test_what_a_closed_tab_has_left_is_offered_when_it_is_done(app: Served) -> None:
    seed, first, second = 1, "a" * 16, "b" * 16
    with listening(app, first):
        free = threading.Event()
        app.session.lane.submit(lambda _: free.wait(20), lambda *_: None)
        begun(app, first, "1" * 16, seed=seed)
        assert left(app) == []  # its tab is there
    (offered,) = left(app)
    assert offered["job"] == "1" * 16 and not offered["done"] and offered["address"] == f"/cell?tab={first}"
    free.set()
    until(lambda: left(app)[0]["done"])
    assert "L1H1 from" in left(app)[0]["about"]
    begun(app, second, "2" * 16, seed=seed)
    told = [(kind, data) for _, kind, data in app.events(second) if data.get("job") == "2" * 16]
    assert [data["step"] for kind, data in told if kind == "part"] == STEPS
    wanted = explain(small_model(), PROMPT, head="L1H1", draws=19, seed=seed).sentence
    assert told[-1][0] == "done" and told[-1][1]["document"]["sentence"] == wanted
    assert app.ask("GET", f"/api/export/{'2' * 16}.json").data["sentence"] == wanted
    assert left(app) == []


def test_another_tab_joins_what_is_under_way(app: Served, gate: tuple[threading.Event, ...]) -> None:
    reached, free = gate
    with listening(app, "c" * 16):
        begun(app, "c" * 16, "3" * 16, seed=2)
        assert reached.wait(20)
    reached.clear()
    begun(app, "d" * 16, "4" * 16, seed=2)
    free.set()
    told = [data for _, kind, data in app.events("d" * 16) if kind == "part"]
    assert [data["step"] for data in told] == STEPS and {data["job"] for data in told} == {"4" * 16}
    assert not reached.is_set()  # it was explained once


def test_nobody_takes_what_a_tab_still_waits_for(app: Served, gate: tuple[threading.Event, ...]) -> None:
    """Neither of one that listens, nor of one that has asked and is about to listen."""
    _, free = gate
    free.set()
    begun(app, "e" * 16, "5" * 16, seed=3)
    begun(app, "f" * 16, "6" * 16, seed=3)
    for tab, job in (("e" * 16, "5" * 16), ("f" * 16, "6" * 16)):
        assert [data["job"] for _, kind, data in app.events(tab) if kind == "done"] == [job]
    assert left(app) == []


def test_what_is_offered_can_be_stopped_and_let_go(app: Served, gate: tuple[threading.Event, ...]) -> None:
    reached, free = gate
    with listening(app, "1" * 16):
        begun(app, "1" * 16, "7" * 16, seed=5)
        assert reached.wait(20)
    assert app.ask("DELETE", f"/api/jobs/{'7' * 16}").status == 204
    free.set()
    until(lambda: left(app) == [])
    assert app.ask("GET", f"/api/export/{'7' * 16}.json").status == 410
    reached.clear()
    free.clear()
    with listening(app, "2" * 16):
        begun(app, "2" * 16, "8" * 16, seed=6)
        assert reached.wait(20)
    free.set()
    until(lambda: [one["done"] for one in left(app)] == [True])
    assert app.ask("DELETE", f"/api/jobs/{'8' * 16}").status == 204
    assert left(app) == []
    assert app.ask("DELETE", f"/api/jobs/{'8' * 16}").status == 404


def test_a_tab_that_comes_back_hears_what_it_has_missed(
    app: Served, gate: tuple[threading.Event, ...]
) -> None:
    reached, free = gate
    with listening(app, "3" * 16):
        begun(app, "3" * 16, "9" * 16, seed=7)
        assert reached.wait(20)
    free.set()
    until(lambda: [one["done"] for one in left(app)] == [True])
    assert [kind for _, kind, _ in app.events("3" * 16)][-1] == "done"
    assert left(app) == []


def test_what_failed_is_offered_with_its_error_and_said_where_it_was_asked(
    app: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached, free = threading.Event(), threading.Event()
    whole = session.explain_steps

    def failing(*given: Any, **settings: Any) -> Any:
        yield next(whole(*given, **settings))
        reached.set()
        assert free.wait(20)
        raise WrongField("this cannot be explained", "key", ["3"])

    monkeypatch.setattr(session, "explain_steps", failing)
    with listening(app, "4" * 16):
        begun(app, "4" * 16, "a1" * 8, seed=8)
        assert reached.wait(20)
    free.set()
    until(lambda: [one["error"] for one in left(app)] == ["this cannot be explained"])
    (offered,) = left(app)
    assert not offered["done"] and "L1H1 from" in offered["about"]
    begun(app, "5" * 16, "a2" * 8, seed=8)  # whoever opens it hears what the first would have heard
    told = [(kind, data) for _, kind, data in app.events("5" * 16) if data.get("job") == "a2" * 8]
    assert [data["step"] for kind, data in told if kind == "part"] == STEPS[:1]
    wanted = {"job": "a2" * 8, "error": "this cannot be explained", "where": "key", "choices": ["3"]}
    assert told[-1] == ("failed", wanted) and left(app) == []
    reached.clear()
    free.clear()
    with listening(app, "6" * 16):
        begun(app, "6" * 16, "a3" * 8, seed=9)
        assert reached.wait(20)
    free.set()
    until(lambda: [one["error"] for one in left(app)] == ["this cannot be explained"])
    assert app.ask("DELETE", f"/api/jobs/{'a3' * 8}").status == 204
    assert left(app) == []
    begun(app, "7" * 16, "a4" * 8, seed=10)  # a tab that is there has heard it
    assert app.events("7" * 16)[-1][1] == "failed" and left(app) == []


# --- a cell as a person writes it -------------------------------------------------------------------------------------


def test_a_cell_is_named_by_tokens_and_what_is_not_clear_is_offered(app: Served) -> None:
    prompt = app.read("after zoe met quinn at the park , zoe gave a book to")
    tokens = [one.strip() for one in prompt["tokens"]]
    twice = [i for i, one in enumerate(tokens) if one == "zoe"]
    assert len(twice) == 2

    def named(**cell: str) -> Any:
        return app.ask("POST", "/api/cell", body={"prompt": prompt["id"], **cell})

    got = named(head=" L1H1", query="-1", key="quinn").data
    assert got == {"head": "L1H1", "query": len(tokens) - 1, "key": tokens.index("quinn")}
    assert named().data == {"head": None, "query": None, "key": None}
    unclear = named(key="zoe")
    assert unclear.status == 422 and unclear.data["where"] == "key"
    assert unclear.data["choices"] == [str(one) for one in twice]
    assert (
        unclear.data["error"] == f"key 'zoe' occurs at positions {twice[0]} and {twice[1]}: pass one of them"
    )
    assert named(query="4", key="zoe").data["key"] == twice[0]  # the other comes after it
    for where, given, line in (
        ("head", "L99H0", "L99H0 does not exist"),
        ("head", "x", "'x'"),
        ("query", "99", "outside the prompt"),
        ("key", "nobody", "is not in the prompt"),
    ):
        refused = named(**{where: given})
        assert refused.status == 422 and line in refused.data["error"] and refused.data["where"] == where
