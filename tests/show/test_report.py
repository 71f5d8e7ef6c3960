"""Reports: one file, nothing loaded from outside, everything escaped, the numbers behind the figures."""

import json
import re

import numpy as np
import plotly.graph_objects as go
import pytest

from headwise.errors import HeadwiseError
from headwise.show.kit.escape import label
from headwise.show.kit.figures import figure_table
from headwise.show.kit.report import Figure, Markdown, Report, Section, Table

NASTY = "<script>alert('x')</script> & </script>"


def page(*blocks):
    return Report(NASTY, [Section(NASTY, list(blocks))], subtitle=NASTY, facts={NASTY: NASTY}).html()


def test_everything_is_escaped():
    figure = go.Figure(go.Bar(x=[NASTY], y=[1.0], name=NASTY))
    text = page(Markdown(NASTY), Table([NASTY], [[NASTY]], NASTY), Figure(figure, NASTY))
    assert "<script>alert" not in text
    assert text.count("&lt;script&gt;alert") >= 8
    spec = re.search(r'class="spec" data-for="f0">(.*?)</script>', text, re.S)
    assert spec
    assert json.loads(spec[1])["data"][0]["name"] == label(NASTY)


def test_plotly_is_inlined_once_and_only_if_needed():
    one = go.Figure(go.Scatter(x=[1], y=[2]))
    with_figures, without = page(Figure(one), Figure(one)), page(Markdown("x"))
    assert len(with_figures) < 1_200_000
    assert len(without) < 20_000
    assert with_figures.count("<!doctype html>") == 1
    assert not re.search(r'<(script|link|img)[^>]+(src|href)="(?!#|data:,")', with_figures)


def test_figure_tables_hold_the_traces():
    figure = go.Figure(
        [go.Scatter(x=[1, 2], y=np.array([3.0, 4.0]), name="a"), go.Bar(x=["p"], y=[5], name="b")]
    )
    table = figure_table(figure)
    assert list(table.columns) == ["series", "x", "y"]
    assert [tuple(r) for r in table.rows] == [("a", 1, 3.0), ("a", 2, 4.0), ("b", "p", 5)]
    heat = figure_table(
        go.Figure(go.Heatmap(z=np.array([[1.0, 2.0], [3.0, 4.0]]), x=["l", "r"], y=["t", "b"]))
    )
    assert [tuple(r) for r in heat.rows] == [
        ("l", "t", 1.0),
        ("r", "t", 2.0),
        ("l", "b", 3.0),
        ("r", "b", 4.0),
    ]


def test_long_tables_say_what_they_leave_out():
    assert "5 more rows are not shown" in page(Table(["n"], [[i] for i in range(1005)]))


def test_writing(tmp_path):
    path = Report("t", [Section("s", [Markdown("**bold** `code`")])]).write(tmp_path / "deep" / "r.html")
    assert "<strong>bold</strong> <code>code</code>" in path.read_text()
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(HeadwiseError, match="cannot be written"):
        Report("t", []).write(blocked / "r.html")


def test_a_cloud_of_points_has_no_table_of_them():
    few, many = (go.Figure(go.Scatter(x=list(range(n)), y=list(range(n)))) for n in (10, 500))
    assert "<summary>Numbers</summary>" in page(Figure(few))
    assert "<summary>Numbers</summary>" not in page(Figure(many))
    assert "<summary>Numbers</summary>" in page(Figure(many, table=Table(["n"], [[500]])))
