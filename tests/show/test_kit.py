"""What pages and notebook views are made with: text stays text, and a page runs no script but its own."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import cast

import plotly.graph_objects as go
import pytest

import headwise
from headwise.circuits.circuit import Circuit, Edge, Node
from headwise.show.circuits.page import circuit_page, write_circuit_page
from headwise.show.kit.escape import attribute, label, template, text
from headwise.show.kit.figures import inert
from headwise.show.kit.markdown import literal
from headwise.show.kit.report import Figure, Markdown, Report, Section

HOSTILE = '"><img src=x onerror="alert(1)">'
SRC = Path(headwise.__file__).parent


def circuit() -> Circuit:
    return Circuit(
        (Node("embedding", -1, None, 0, 0), Node("head", 0, 1, 1, 0, 0.5), Node("answer", 2, None, 1, 1)),
        (
            Edge("embedding@0", "L0H1@1<-0", "key", 0.5, (1, 2)),
            Edge("L0H1@1<-0", "answer@1", "query", 1.0),
        ),
        tokens=("a", " b"),
        prompt="a b",
        answer=" c",
    )


def scripts_of(page: str) -> list[str]:
    return re.findall(r"<script>(.*?)</script>", page, re.DOTALL)


def policy_of(page: str) -> str:
    found = re.search(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)">', page)
    assert found is not None
    assert page.index("Content-Security-Policy") < page.index("<script")
    return found[1]


def report() -> str:
    return Report("t", [Section("s", [Figure(go.Figure(go.Bar(x=["a"], y=[1])))])]).html()


@pytest.mark.parametrize("page", [circuit_page(circuit()), report(), Report("t", []).html()])
def test_a_page_allows_its_own_scripts_by_digest_and_nothing_else(page: str) -> None:
    policy = dict(part.split(" ", 1) for part in policy_of(page).split("; "))
    digests = [
        f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
        for script in scripts_of(page)
    ]
    assert policy["script-src"].split() == digests != []
    assert policy["default-src"] == policy["base-uri"] == policy["form-action"] == "'none'"
    assert "unsafe-eval" not in policy_of(page)


def test_a_page_that_the_bundle_draws_can_make_no_markup_of_text() -> None:
    assert policy_of(circuit_page(circuit())).endswith("; require-trusted-types-for 'script'")


def test_escaping_leaves_no_way_out() -> None:
    for escaped in (text(HOSTILE), attribute(HOSTILE)[1:-1], label(HOSTILE)):
        assert not set("<>") & set(escaped)
    assert '"' not in attribute(HOSTILE)[1:-1]
    assert text("\x00\x1b\u202e\u2028\ud83d") == r"\x00\x1b\u202e\u2028\ud83d"
    assert label("&lt;") == "&amp;lt;"
    assert template(HOSTILE) == text(HOSTILE)


def test_side_and_channels_of_a_circuit_are_text_in_a_notebook() -> None:
    made = circuit()
    edges = (replace(made.edges[0], side=HOSTILE, channels=(HOSTILE,)), made.edges[1])
    shown = cast(Circuit, replace(made, edges=edges))._repr_html_()
    assert "<img" not in shown
    assert shown.count(text(HOSTILE)) == 2


def test_every_string_of_a_figure_is_text_and_its_numbers_stay() -> None:
    figure = go.Figure(
        go.Heatmap(
            z=[[0.1, None]],
            x=[HOSTILE, "b"],
            y=["c"],
            text=[[HOSTILE, "d"]],
            name=HOSTILE,
            customdata=[[HOSTILE, 1]],
            hovertemplate="%{x}<br>%{text}<extra></extra>",
            colorbar={"title": {"text": HOSTILE}},
        ),
        layout={
            "title": {"text": HOSTILE},
            "annotations": [{"text": HOSTILE}],
            "xaxis": {"ticktext": [HOSTILE]},
        },
    )
    made = inert(figure)
    assert "<" not in json.dumps({**made, "data": [{**made["data"][0], "hovertemplate": ""}]})
    assert made["data"][0]["hovertemplate"] == "%{x}<br>%{text}<extra></extra>"
    assert made["data"][0]["z"] == [[0.1, None]]
    assert json.dumps(made).count(json.dumps(label(HOSTILE))) == 8


def test_data_in_a_text_has_no_marks_of_its_own() -> None:
    odd = "2**3**4 `x` \\ \\*"
    page = Report("t", [Section("", [Markdown(f"**now** {literal(odd)}, `{literal(odd)}`")])]).html()
    assert f"<strong>now</strong> {odd}, <code>{odd}</code>" in page


def test_numbers_that_are_none_leave_a_page_with_valid_data() -> None:
    made = circuit()
    page = circuit_page(replace(made, edges=(replace(made.edges[0], weight=float("nan")), made.edges[1])))
    data = re.search(r'id="headwise-data">(.*?)</script>', page, re.DOTALL)
    assert data is not None
    assert json.loads(data[1], parse_constant=pytest.fail)["edges"][0]["weight"] is None


def test_a_failed_page_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    target = tmp_path / "a.html"
    target.write_text("before")
    monkeypatch.setattr("os.replace", stop)
    for write in (lambda: write_circuit_page(circuit(), target), lambda: Report("t", []).write(target)):
        with pytest.raises(KeyboardInterrupt):
            write()
    assert [path.name for path in tmp_path.iterdir()] == ["a.html"]
    assert target.read_text() == "before"


def test_markup_is_escaped_in_one_place() -> None:
    """Only the kit escapes; nothing else in the project calls the standard library's escape, or writes a page."""
    for file in SRC.rglob("*.py"):
        source = file.read_text(encoding="utf-8")
        if file.parent.name != "kit":
            assert not re.search(r"^(import html|from html import (?!unescape$))", source, re.MULTILINE), file
        if "_repr_html_" in source:
            assert re.search(
                r"def _repr_html_\(self\) -> str:\n +from headwise\.show\.notebook import \w+( as show)?\n",
                source,
            )
    for file in SRC.rglob("*.js"):
        if file.name in ("plotly.min.js", "headwise.js"):
            continue  # not ours, the page's policy holds it; and ours with a library in it (test_web.py)
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b", file.read_text()
        )
