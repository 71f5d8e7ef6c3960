"""What the app says is what Python says: prompts, heads, explanations, and jobs that can be stopped."""

from __future__ import annotations

import secrets
import threading
import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from serving import TAB, Served, served
from tiny import tiny
from toy_answers import answer_lines, small_model

from headwise import jsons
from headwise.app.lane import PREFETCH, Lane, Turn
from headwise.app.memory import KeptPrompt, Memory
from headwise.app.patterns import columns_of
from headwise.app.results import ExplanationMade
from headwise.model.forward import Stopped
from headwise.scale.disk import size_text
from headwise.show.why.long_pattern import long_pattern
from headwise.types import Head
from headwise.why.attention import strongest_heads
from headwise.why.explain import explain
from headwise.why.question import PromptReading

JOB = "f" * 16
PROMPT = answer_lines(3)[0]["prompt"]
OTHER = answer_lines(3)[1]["prompt"]


def without_time(document: dict[str, Any]) -> dict[str, Any]:
    return {**document, "seconds": 0}


@pytest.fixture(scope="module")
def prompt(app: Served) -> dict[str, Any]:
    return app.read(PROMPT)


def explained(app: Served, tab: str = TAB, **asked: Any) -> dict[str, Any]:
    after = app.session.events.tab(tab).last
    job = secrets.token_hex(8)
    got = app.ask("POST", "/api/explain", body={"tab": tab, "job": job, **asked})
    assert got.status == 202, got.content
    assert got.data["job"] == job
    told = [(kind, data) for _, kind, data in app.events(tab, after) if data.get("job") == job]
    return {"job": job, "told": told}


# --- prompts and heads ------------------------------------------------------------------------------------------------


def test_a_prompt_is_read_as_in_python(app: Served, prompt: dict[str, Any]) -> None:
    look = strongest_heads(small_model(), PROMPT)
    assert tuple(prompt["tokens"]) == look.tokens
    for told, (token, p) in zip(prompt["answer"], look.answers, strict=False):
        assert told["token"] == token
        assert told["p"] == pytest.approx(p, rel=1e-5)
    typed = app.ask("POST", "/api/tokens", body={"text": PROMPT}).data
    assert typed["tokens"] == prompt["tokens"]
    assert app.ask("POST", "/api/tokens", body={"text": ""}).data["tokens"] == []


def test_a_prompt_is_known_by_its_tokens(app: Served, prompt: dict[str, Any]) -> None:
    again = app.ask("POST", "/api/prompts", body={"tab": TAB, "token_ids": prompt["ids"]}).data
    assert again["id"] == prompt["id"]
    assert app.read(OTHER)["id"] != prompt["id"]
    both = app.ask("POST", "/api/prompts", body={"tab": TAB, "token_ids": prompt["ids"], "text": PROMPT})
    assert both.status == 422 and "give one of them" in both.data["error"]


def test_pictures_rows_and_patterns_are_the_models_own(app: Served, prompt: dict[str, Any]) -> None:
    model, t = small_model(), len(prompt["tokens"])
    seen = model.capture(PROMPT, want=("pattern",)).pattern[0]  # [heads, T, T]
    path = f"/api/prompts/{prompt['id']}"

    def values(got: Any) -> torch.Tensor:
        shape = [int(n) for n in got.headers["x-shape"].split(",")]
        return torch.from_numpy(np.frombuffer(got.content, "u1").reshape(shape).copy()).double()

    def same(got: Any, wanted: torch.Tensor) -> bool:
        return torch.allclose(values(got), wanted.double().sqrt() * 255, atol=0.51, rtol=0)

    assert same(app.ask("GET", f"{path}/thumbs"), seen)
    for at in (1, t - 1):
        assert same(app.ask("GET", f"{path}/row/{at}"), seen[:, at])
        assert same(app.ask("GET", f"{path}/column/{at}"), seen[:, :, at])
    half = np.frombuffer(app.ask("GET", f"{path}/pattern/L1H1").content, "<u2") / 65535
    index = model.heads.index(model.head("L1H1"))
    assert np.allclose(half, seen[index].numpy()[np.tril_indices(t)], atol=1e-5)
    assert app.ask("GET", f"{path}/row/{t}").status == 404
    assert app.ask("GET", f"{path}/pattern/L99H1").status == 422


def test_of_a_long_prompt_a_part_of_the_pattern_is_sent(
    app: Served, prompt: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = f"/api/prompts/{prompt['id']}/pattern/L1H1"
    whole = app.ask("GET", f"{path}?query=9&key=4")
    assert whole.content == app.ask("GET", path).content  # a short one as it is
    monkeypatch.setattr("headwise.app.routes.LONG", len(prompt["tokens"]) - 1)
    got = app.ask("GET", f"{path}?query=9&key=4")
    wanted = long_pattern(PromptReading.of(small_model(), PROMPT).up.stream.call_of(Head(1, 1)), 9, 4)
    assert "x-shape" not in got.headers and got.data == wanted
    for wrong in ("query=9", "key=4", "query=x&key=1", "query=4&key=9", "query=-1&key=0"):
        assert app.ask("GET", f"{path}?{wrong}").status == 422
    assert app.ask("GET", f"{path}?query=999&key=4").status == 404


def test_what_was_read_is_looked_at_while_the_lane_is_busy(app: Served) -> None:
    """Also by token ids, and its heads for the first time."""
    first = app.read(f"{OTHER} the")
    free, busy = threading.Event(), threading.Event()

    def work(_: Turn) -> None:
        busy.set()
        assert free.wait(60)

    app.session.lane.submit(work, lambda *_: None)
    assert busy.wait(20)
    try:
        assert app.session.kept(first["id"]).glance is None
        again = app.ask("POST", "/api/prompts", body={"tab": TAB, "token_ids": first["ids"]}).data
        assert again == app.read(f"{OTHER} the") == first
        path = f"/api/prompts/{first['id']}"
        for part in ("heads", "thumbs", "row/2", "column/2", "pattern/L1H1"):
            assert app.ask("GET", f"{path}/{part}").status == 200
    finally:
        free.set()


@pytest.mark.parametrize("family", ["llama", "mistral", "gemma2"])
def test_a_column_is_that_of_the_patterns_whatever_rows_see_and_are_capped_by(family: str) -> None:
    model = tiny(family)
    read = PromptReading.of(model, [5 + 3 * n % 50 for n in range(12)])
    for key in (0, 3, 11):
        wanted = torch.stack([read.up.stream.whole_pattern(head)[:, key] for head in model.heads])
        found = torch.frombuffer(bytearray(columns_of(read, key)), dtype=torch.uint8).view(wanted.shape)
        assert torch.allclose(found.double(), wanted.double().sqrt() * 255, atol=0.51, rtol=0)


def test_long_prompts_have_small_pictures() -> None:
    from headwise.app.patterns import glance
    from headwise.why.question import ask, find_answer

    model = tiny("llama", settings={"max_position_embeddings": 256})
    read = PromptReading.of(model, [5 + n % 50 for n in range(101)])
    found = find_answer(model, read.token_ids, read.logits, None, None)
    made = glance(read, found, ask(model, read.up, read.tokens, found, None, None, None), side=10)
    assert made.side == 10
    assert len(made.thumbs) == len(model.heads) * 100
    pattern = read.up.stream.whole_pattern("L2H3")
    block = pattern[11:22, 0:11].max().sqrt() * 255
    assert made.thumbs[11 * 100 + 10] == pytest.approx(float(block), abs=0.51)


def test_heads_are_told_with_what_explain_would_choose(app: Served, prompt: dict[str, Any]) -> None:
    told = app.ask("GET", f"/api/prompts/{prompt['id']}/heads").data
    why = explain(small_model(), PROMPT, draws=20)
    chosen = [why.question.cell, *(one.cell for one in why.question.runners_up)]
    assert [(one["head"], one["query"], one["key"]) for one in told["marked"]] == [
        (str(cell.head), cell.query, cell.key) for cell in chosen
    ]
    numbers = told["statistics"]
    count = told["layers"] * told["heads"]
    for name in ("highest", "entropy", "resting", "brings"):
        assert len(numbers[name]) == count
    assert all(0 <= one <= 1 + 1e-6 for name in ("highest", "entropy", "resting") for one in numbers[name])


def test_what_is_no_longer_kept_can_be_read_again() -> None:
    with served(small_model(), room=1) as app:
        app.enter()
        first = app.read(PROMPT)
        app.read(OTHER)  # only one has room
        gone = app.ask("GET", f"/api/prompts/{first['id']}/heads")
        assert gone.status == 410 and "read it again" in gone.data["error"]
        assert app.read(PROMPT)["id"] == first["id"]
        assert app.ask("GET", f"/api/prompts/{first['id']}/heads").status == 200


def test_room_is_counted_in_bytes() -> None:
    model = tiny("llama")
    kept = [KeptPrompt(PromptReading.of(model, [3, 4, 5 + n])) for n in range(3)]
    one = kept[0].size
    assert one > 4 * 3 * model.d_model * model.n_layers
    memory = Memory(int(2.5 * one))
    for n, prompt in enumerate(kept):
        memory.put(str(n), prompt)
    assert [memory.get(str(n)) is not None for n in range(3)] == [False, True, True]


@pytest.mark.parametrize(
    ("error", "wanted"),
    [
        (MemoryError(), ""),
        (
            RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 4096 bytes."),
            " (4096 bytes more were wanted)",
        ),
        (
            RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB."),
            " (2.00 GiB more were wanted)",
        ),
    ],
)
def test_memory_that_does_not_suffice_is_one_line_with_what_did(
    app: Served, prompt: dict[str, Any], monkeypatch: pytest.MonkeyPatch, error: Exception, wanted: str
) -> None:
    def lacking(*_: Any, **__: Any) -> None:
        raise error

    longest = app.session._longest
    assert longest >= len(prompt["tokens"])
    monkeypatch.setattr("headwise.app.session.explain_steps", lacking)
    monkeypatch.setattr("headwise.app.session.PromptReading.of", lacking)
    before = f"one of {longest} tokens was read before"

    def line(tokens: int, left: int) -> str:
        model = app.session.model
        # Every head and MLP at every token, and the scores of every token.
        need = 4 * tokens * (model.n_layers * (model.n_heads + 1) * model.d_model + model.vocabulary)
        said = f"there is not enough memory for this{wanted}: {tokens} tokens need about {size_text(need)} "
        if left >= need:
            return f"{said}beside the weights; give a shorter prompt: {before}"
        fits = f"about {int(left / (need / tokens))} tokens would fit"
        return f"{said}beside the weights, and {size_text(left)} are free; give a shorter prompt: {fits}, {before}"

    tokens, new = len(prompt["tokens"]), "never read before"
    for left in (1 << 40, 30_000):
        monkeypatch.setattr("headwise.app.memory.memory_left", lambda left=left: left)
        (kind, told) = explained(app, prompt=prompt["id"])["told"][-1]
        assert (kind, told["error"]) == ("failed", line(tokens, left))
        got = app.ask("POST", "/api/prompts", body={"tab": TAB, "text": new})
        assert got.status == 507
        assert got.data["error"] == line(len(app.session.model.prompt_ids(new)), left)
    assert app.ask("GET", "/api/state").status == 200  # it goes on


# --- explanations -----------------------------------------------------------------------------------------------------


def test_an_explanation_is_told_part_by_part_and_ends_as_python_says(
    app: Served, prompt: dict[str, Any]
) -> None:
    made = explained(app, prompt=prompt["id"], draws=50)
    kinds = [kind for kind, _ in made["told"]]
    steps = [data["step"] for kind, data in made["told"] if kind == "part"]
    assert steps == ["question", "place", "table", "predicted", "observed", "controls", "consequence"]
    assert kinds[-1] == "done"
    document = made["told"][-1][1]["document"]
    assert without_time(document) == without_time(
        jsons.parse(jsons.dumps(explain(small_model(), PROMPT, draws=50).to_json()))
    )
    known: dict[str, Any] = {}
    for _, data in made["told"][:-1]:
        known |= data["part"]
    assert known.items() <= document.items()


def test_what_is_saved_is_what_was_told(app: Served, prompt: dict[str, Any]) -> None:
    made = explained(app, prompt=prompt["id"], head="L1H1", draws=30)
    path = f"/api/export/{made['job']}"
    result = app.session.results.get(made["job"])
    assert isinstance(result, ExplanationMade)
    why = result.why
    assert app.ask("GET", f"{path}.json").content.decode() == jsons.dumps(why.to_json()) + "\n"
    page = app.ask("GET", f"{path}.html")
    assert page.content.decode() == why.to_html()
    assert page.headers["content-type"] == "application/octet-stream"
    for strange in ("exe", "graphml"):
        refused = app.ask("GET", f"{path}.{strange}")
        assert refused.status == 404 and refused.data["hint"] == "take json, html or py"
    assert app.ask("GET", "/api/export/nothing.json").status == 410


def test_a_question_that_cannot_be_asked_fails_with_the_cores_line(
    app: Served, prompt: dict[str, Any]
) -> None:
    made = explained(app, prompt=prompt["id"], head="L99H0")
    assert made["told"][-1][0] == "failed"
    assert "L99H0 does not exist" in made["told"][-1][1]["error"]
    assert app.ask("POST", "/api/explain", body={"tab": TAB, "job": JOB, "prompt": "0" * 32}).status == 410
    none = app.ask(
        "POST", "/api/explain", body={"tab": TAB, "job": JOB, "prompt": prompt["id"], "features": [0]}
    )
    assert none.status == 422 and "no run folder 0" in none.data["error"]


def test_a_broken_stream_is_taken_up(app: Served, prompt: dict[str, Any]) -> None:
    tab = "feedfeedfeedfeed"
    assert (
        app.ask(
            "POST",
            "/api/explain",
            body={"tab": tab, "job": secrets.token_hex(8), "prompt": prompt["id"], "draws": 20},
        ).status
        == 202
    )
    whole = app.events(tab)
    assert [number for number, _, _ in whole] == list(range(1, len(whole) + 1))
    assert app.events(tab, after=3) == whole[3:]
    assert app.events(tab, after=10**6) == whole  # of a server that is no more


# --- the lane ---------------------------------------------------------------------------------------------------------


def waiting(turn: Turn) -> None:
    while True:
        turn.go_on()
        time.sleep(0.005)


def test_the_lane_does_what_a_person_waits_for_first() -> None:
    lane, done, free = Lane(), [], threading.Event()
    over = [threading.Event() for _ in range(3)]
    lane.submit(lambda _: free.wait(10), lambda *_: None)
    names = ("later", "first", "second")
    turns = [
        lane.submit(lambda _, name=name: done.append(name), lambda *_, i=i: over[i].set(), priority=priority)
        for i, (name, priority) in enumerate(zip(names, (PREFETCH, 0, 0), strict=True))
    ]
    assert [lane.ahead_of(turn) for turn in turns] == [3, 1, 2]
    free.set()
    assert all(event.wait(10) for event in over)
    assert done == ["first", "second", "later"]
    lane.close()


def test_a_newer_request_of_the_same_kind_takes_the_place_of_the_older() -> None:
    lane, ended = Lane(), []
    both = threading.Event()

    def over(result: Any, trouble: BaseException | None) -> None:
        ended.append(trouble or result)
        if len(ended) == 2:
            both.set()

    lane.submit(waiting, over, tab="a", kind="explain")
    other = lane.submit(lambda _: "kept", over, tab="b", kind="explain")
    lane.submit(lambda _: "new", over, tab="a", kind="explain")
    assert both.wait(10)
    assert isinstance(ended[0], Stopped) and ended[1] == "kept" and not other.unwanted.is_set()
    lane.close()


def test_a_job_that_is_stopped_frees_the_lane(app: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the middle of the proof: the next explanation is right, and nobody waits for the old one."""
    from headwise.app import session

    whole = session.explain_steps
    reached = threading.Event()

    def slow(*args: Any, **settings: Any) -> Any:
        for step in whole(*args, **settings):
            yield step
            if step.name == "predicted":
                reached.set()
                time.sleep(0.3)
        raise AssertionError

    prompt, tab = app.read(OTHER), "abadabadabadabad"
    monkeypatch.setattr(session, "explain_steps", slow)
    job = app.ask(
        "POST",
        "/api/explain",
        body={"tab": tab, "job": secrets.token_hex(8), "prompt": prompt["id"], "draws": 20},
    ).data["job"]
    assert reached.wait(20)
    monkeypatch.undo()
    assert app.ask("DELETE", f"/api/jobs/{job}").status == 204
    *_, (_, kind, data) = app.events(tab)
    assert (kind, data["job"]) == ("cancelled", job)
    assert app.ask("DELETE", f"/api/jobs/{job}").status == 404
    made = explained(app, tab, prompt=prompt["id"], draws=20)
    assert made["told"][-1][0] == "done"


def test_readings_with_token_ids_learn_their_text(app: Served) -> None:
    ids = app.read(PROMPT)["ids"]
    kept = app.session.kept(app.read(PROMPT)["id"])
    kept.read = replace(kept.read, prompt=None)
    app.ask("POST", "/api/prompts", body={"tab": TAB, "token_ids": ids})
    assert kept.read.prompt is None
    app.read(PROMPT)
    assert kept.read.prompt == PROMPT
