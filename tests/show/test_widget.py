"""The widget of a notebook: it shows the result's own document, and answers what ``explain`` answers."""

from __future__ import annotations

import builtins
from typing import Any

import pytest
from tiny import prompts_of, tiny

import headwise
from headwise.errors import HeadwiseError
from headwise.show import notebook
from headwise.show import widget as widgets
from headwise.show.kit.glossary import glossary
from headwise.show.why.page import drawn
from headwise.why.explain import explain

MODEL, PROMPT = tiny("llama"), prompts_of(9)[0]


def test_a_result_is_shown_as_its_page_shows_it() -> None:
    why, circuit = explain(MODEL, PROMPT), headwise.trace(MODEL, PROMPT)
    shown = headwise.widget(why)
    told = {"glossary": glossary()}
    assert shown.document == drawn(why) | told and not shown.live  # pyright: ignore[reportAttributeAccessIssue]
    assert headwise.widget(circuit).document == circuit.to_json() | told  # pyright: ignore[reportAttributeAccessIssue]


def test_whoever_cannot_run_a_widget_gets_the_table() -> None:
    why, circuit = explain(MODEL, PROMPT), headwise.trace(MODEL, PROMPT)
    for one, plain in ((why, notebook.explanation(why)), (circuit, notebook.circuit(circuit))):
        data, _ = headwise.widget(one)._repr_mimebundle_()  # pyright: ignore[reportGeneralTypeIssues]
        assert data["text/html"] == plain and data["text/plain"] == repr(one)
        assert "application/vnd.jupyter.widget-view+json" in data


def test_a_live_widget_explains_the_cell_that_is_clicked() -> None:
    shown: Any = headwise.widget(MODEL, PROMPT, head="L3H1", query=8, key=2)
    assert shown.live and (shown.document["head"], shown.document["key"]) == ("L3H1", 2)
    shown.asked = {"head": "L2H0", "query": 6, "key": 1, "number": 1}
    again = drawn(explain(MODEL, PROMPT, head="L2H0", query=6, key=1)) | {"glossary": glossary()}
    assert {**shown.document, "seconds": 0} == {**again, "seconds": 0}
    assert shown.said == "" and str(shown.shown.head) == "L2H0"


@pytest.mark.parametrize(
    ("asked", "line"),
    [
        ({"head": "L9H9", "query": 6, "key": 1}, "L9H9 does not exist"),
        ({"head": "L2H0", "query": 6, "key": 99}, "99"),
        ({"head": {"a": 1}, "query": [], "key": None}, "[] is not a position"),
    ],
)
def test_what_cannot_be_explained_is_said_in_one_line(asked: dict[str, Any], line: str) -> None:
    shown: Any = headwise.widget(MODEL, PROMPT)
    before = shown.document
    shown.asked = asked
    assert line in shown.said and "\n" not in shown.said
    assert shown.document == before


def test_a_widget_of_a_result_answers_no_questions() -> None:
    shown: Any = headwise.widget(explain(MODEL, PROMPT))
    before = shown.document
    shown.asked = {"head": "L2H0", "query": 6, "key": 1}
    assert shown.document == before and shown.said == ""


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ((MODEL,), "a widget of a model needs a prompt"),
        ((3,), "3 cannot be shown as a widget"),
        (("why", PROMPT), "'why' cannot be shown as a widget"),
    ],
)
def test_what_is_no_result_is_refused(given: Any, line: str) -> None:
    with pytest.raises(HeadwiseError, match=line):
        headwise.widget(*given)
    with pytest.raises(HeadwiseError, match="Circuit already has its prompt"):
        headwise.widget(headwise.trace(MODEL, PROMPT), PROMPT)  # pyright: ignore[reportCallIssue, reportArgumentType]


def test_without_the_extra_one_line_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def missing(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "anywidget":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", missing)
    monkeypatch.setattr(widgets, "_widget_class", widgets._widget_class.__wrapped__)
    with pytest.raises(
        HeadwiseError, match=r"anywidget is not installed: pip install 'headwise\[notebook\]'"
    ):
        headwise.widget(explain(MODEL, PROMPT))
