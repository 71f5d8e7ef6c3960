"""Plotly figures whose labels are text, and the numbers that they hold.

Figures are drawn with the names, tokens and labels as they are. What leaves the project goes through here, so
that no place in the figures' code has to remember that Plotly reads markup.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from itertools import zip_longest
from typing import Any

import numpy as np
import plotly.graph_objects as go
import plotly.io as pio

from headwise.show.kit.escape import label, template
from headwise.show.kit.table import Entry, Table

TEMPLATES = ("hovertemplate", "texttemplate")
"""Texts of our own with places for data; they must hold no data themselves."""
POINTS = 100
"""A figure of more points has no table of them on its page: nobody reads it, and the run's own tables have them."""
FIGURES = 5
"""Significant figures of a number in a figure: more than any screen has pixels."""


def inert(figure: go.Figure) -> dict[str, Any]:
    """The figure's JSON with every string as text; only our templates may hold tags.

    >>> bar = go.Bar(x=["<b>x</b>"], y=[1.0], hovertemplate="%{x}<extra></extra>")
    >>> inert(go.Figure(bar))["data"]
    [{'hovertemplate': '%{x}<extra></extra>', 'x': ['&lt;b&gt;x&lt;/b&gt;'], 'y': [1.0], 'type': 'bar'}]
    """
    return _plain(_document(figure), label)


def _document(figure: go.Figure) -> dict[str, Any]:
    return json.loads(pio.to_json(figure, validate=False) or "{}")


def _plain(value: Any, escape: Any) -> Any:
    if isinstance(value, str):
        return escape(value)
    if isinstance(value, float):
        return float(f"{value:.{FIGURES}g}")
    if isinstance(value, list):
        return [_plain(item, escape) for item in value]
    if isinstance(value, dict):
        if "bdata" in value and not str(value.get("dtype")).startswith(("u", "i")):
            return _plain(_array(value).tolist(), escape)
        return {key: _plain(item, template if key in TEMPLATES else escape) for key, item in value.items()}
    return value


def figure_table(figure: go.Figure) -> Table:
    """The numbers that a figure's traces hold: one row per point, cell of a heat map, or bar."""
    axes = ("x", "y", "z", "text")
    rows: list[tuple[Entry, ...]] = []
    used: set[str] = set()
    for trace in _document(figure).get("data", []):
        columns = {a: _column(trace.get(a)) for a in axes}
        if columns["z"] and isinstance(columns["z"][0], list):
            columns = _unfold(columns)
        elif isinstance(trace.get("text"), str):
            columns["text"] = []
        used |= {a for a, v in columns.items() if v}
        name = str(trace.get("name") or "")
        rows += [
            (name, *point)
            for point in zip_longest(*(columns[a] for a in axes))
            if any(v is not None for v in point)
        ]
    keep = [0, *(i + 1 for i, a in enumerate(axes) if a in used)]
    if all(not r[0] for r in rows):
        keep = keep[1:]
    names = ("series", *axes)
    return Table([names[i] for i in keep], [tuple(r[i] for i in keep) for r in rows])


def _array(value: dict[str, Any]) -> np.ndarray:
    """A typed array, which Plotly holds as base64."""
    array = np.frombuffer(base64.b64decode(value["bdata"]), dtype=np.dtype(value["dtype"]))
    return array.reshape([int(n) for n in str(value["shape"]).split(",")]) if "shape" in value else array


def _column(value: Any) -> list[Any]:
    """A trace's column as a list."""
    if isinstance(value, dict) and "bdata" in value:
        return _array(value).tolist()
    return list(value) if isinstance(value, Iterable) and not isinstance(value, str) else []


def _unfold(columns: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """A heat map's matrix as one row per cell."""
    grid = columns["z"]
    out: dict[str, list[Any]] = {"x": [], "y": [], "z": [], "text": []}
    for i, row in enumerate(grid):
        for j, value in enumerate(row):
            out["x"].append(columns["x"][j] if columns["x"] else j)
            out["y"].append(columns["y"][i] if columns["y"] else i)
            out["z"].append(value)
            if columns["text"]:
                out["text"].append(columns["text"][i][j])
    return out
