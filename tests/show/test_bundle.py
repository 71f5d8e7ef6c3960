"""The part of plotly.js that reports carry: the bytes that ``tools/plotly`` builds, and every trace that is drawn."""

from __future__ import annotations

import ast
import hashlib
import json
import re
from pathlib import Path

import plotly.graph_objects as go
import pytest
from plotly.basedatatypes import BaseTraceType
from plotly.offline import get_plotlyjs_version

import headwise
from headwise.show.kit.page import part
from headwise.show.kit.report import PLOTLY, TRACES, Figure, Report, Section

SHOW = Path(headwise.__file__).parent / "show"
TOOL = Path(__file__).parents[2] / "tools" / "plotly"
SHA256 = "622b02bc89e7737d33d5980bb268cca8d21a8b189e4db1ee51236719a6dccf91"
KINDS = {
    name.lower()
    for name in dir(go)
    if isinstance(getattr(go, name), type) and issubclass(getattr(go, name), BaseTraceType)
}


def drawn() -> set[str]:
    """Every kind of trace that the pictures' source makes."""
    found: set[str] = set()
    for file in SHOW.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and getattr(node.value, "id", "") == "go":
                found.add(node.attr.lower())
            elif isinstance(node, ast.Attribute) and node.attr.startswith("add_"):
                found.add(node.attr.removeprefix("add_"))
    return found & KINDS


def test_the_bundle_is_the_one_that_the_tool_builds() -> None:
    made = part(PLOTLY)
    assert hashlib.sha256(made.encode()).hexdigest() == SHA256
    assert len(made.encode()) < 1_500_000
    version = json.loads((TOOL / "package.json").read_text())["devDependencies"]["plotly.js"]
    assert made.startswith(f"/*! plotly.js {version}, traces {', '.join(TRACES)};")
    # Figures are made by the Python package for the plotly.js that it brings.
    assert version.split(".")[0] == get_plotlyjs_version().split(".")[0]
    assert "Permission is hereby granted, free of charge" in (SHOW / "kit" / "plotly.LICENSE").read_text()


def test_the_bundle_needs_neither_eval_nor_the_network_and_cannot_end_its_element() -> None:
    made = part(PLOTLY)
    assert not re.search(r"\beval\(|new Function\(|importScripts", made)
    assert "</script" not in made.lower()


def test_every_picture_is_made_of_traces_that_the_bundle_has() -> None:
    assert drawn() == set(TRACES)


def test_a_figure_that_the_bundle_cannot_draw_is_refused() -> None:
    pie = Report("t", [Section("s", [Figure(go.Figure(go.Pie(values=[1, 2])))])])
    with pytest.raises(ValueError, match="pie"):
        pie.html()
