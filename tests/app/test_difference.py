"""Two prompts over the wire: the document that Python makes of their difference."""

from __future__ import annotations

from typing import Any

import pytest
from serving import TAB, Served
from toy_answers import answer_lines, small_model

import headwise

HERE, THERE = (line["prompt"] for line in answer_lines(3)[:2])


@pytest.fixture(scope="module")
def both(app: Served) -> tuple[dict[str, Any], dict[str, Any]]:
    return app.read(HERE), app.read(THERE)


def asked(app: Served, both: tuple[dict[str, Any], dict[str, Any]], **more: Any) -> Any:
    here, there = both
    body = {"tab": TAB, "prompt": here["id"], "other": there["id"], "draws": 49, **more}
    return app.ask("POST", "/api/difference", body=body)


@pytest.mark.parametrize(
    ("more", "meant"),
    [
        ({}, {}),
        (
            {"head": "L1H1", "query": 8, "key": 2, "seed": 3, "align": [[2, 1]]},
            {"head": "L1H1", "query": 8, "key": 2, "seed": 3, "align": {2: 1}},
        ),
    ],
)
def test_the_document_is_that_of_python(
    app: Served, both: Any, more: dict[str, Any], meant: dict[str, Any]
) -> None:
    got = asked(app, both, **more)
    found = headwise.explain_difference(small_model(), HERE, THERE, draws=49, **meant)
    document = found.to_json()
    assert got.status == 200
    assert got.data | {"seconds": 0} == document | {"seconds": 0}
    if "align" in more:
        assert [2, 1] in document["alignment"] and found.there.cell.key == 1


@pytest.mark.parametrize(
    ("more", "status", "line"),
    [
        ({"prompt": "0" * 32}, 410, "no longer in memory"),
        ({"other": "0" * 32}, 410, "no longer in memory"),
        ({"other": "nothing"}, 422, "other"),
        ({"head": "L99H0"}, 422, "L99H0"),
        ({"head": "<script>"}, 422, "head"),
        ({"query": 999}, 422, "999"),
        ({"query": 3, "key": 5, "head": "L1H1"}, 422, "5"),
        ({"query": 0, "key": 0, "head": "L1H1"}, 422, "nothing to compare"),
        ({"align": [[1, 1], [1, 2]]}, 422, "twice"),
        ({"align": [[1, 2], [3, 2]]}, 422, "twice"),
        ({"align": [[1]]}, 422, "align"),
        ({"align": [[999, 0]]}, 422, "999"),
        ({"align": [[-1, 0]]}, 422, "align"),
        ({"align": [[n, n] for n in range(401)]}, 422, "align"),
        ({"answer": "not one token at all"}, 422, "answer"),
        ({"wrong": ""}, 422, "wrong"),
        ({"draws": 0}, 422, "draws"),
        ({"seed": -1}, 422, "seed"),
        ({"unknown": 1}, 422, "unknown"),
    ],
)
def test_what_cannot_be_compared_is_one_line(
    app: Served, both: Any, more: dict[str, Any], status: int, line: str
) -> None:
    got = asked(app, both, **more)
    assert got.status == status and line in got.data["error"] and "\n" not in got.data["error"]


def test_prompts_that_nothing_aligns_and_two_bases_are_refused(app: Served, both: Any) -> None:
    here = both[0]
    at = {"head": "L1H1", "query": len(here["tokens"]) - 1, "key": 2}
    short = app.read(" ".join(HERE.split()[-3:]))
    got = asked(app, (here, short), **at)
    assert got.status == 422 and "stands for the key at position 2" in got.data["error"]
    rotated = app.ask("POST", "/api/prompts", body={"tab": TAB, "text": THERE, "basis": "rotated"}).data
    got = asked(app, (here, rotated))
    assert got.status == 422 and "two bases" in got.data["error"]
