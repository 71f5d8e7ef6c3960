"""Plotly figures whose labels are text.

Figures are drawn with the names, tokens and labels as they are. What leaves the project goes through here, so
that no place in the figures' code has to remember that Plotly reads markup. (The axes of 3D scenes are drawn
by another part of Plotly, which does not know entities; no text from outside may go there.)
"""

from __future__ import annotations

import json
from typing import Any

import plotly.graph_objects as go
import plotly.io as pio

from headwise.show.kit.escape import label, template

TEMPLATES = ("hovertemplate", "texttemplate")
"""Texts of our own with places for data; they must hold no data themselves."""


def inert(figure: go.Figure) -> dict[str, Any]:
    """The figure's JSON with every string as text; only our templates may hold tags.

    >>> bar = go.Bar(x=["<b>x</b>"], y=[1.0], hovertemplate="%{x}<extra></extra>")
    >>> inert(go.Figure(bar))["data"]
    [{'hovertemplate': '%{x}<extra></extra>', 'x': ['&lt;b&gt;x&lt;/b&gt;'], 'y': [1.0], 'type': 'bar'}]
    """
    return _plain(json.loads(pio.to_json(figure, validate=False) or "{}"), label)


def _plain(value: Any, escape: Any) -> Any:
    if isinstance(value, str):
        return escape(value)
    if isinstance(value, list):
        return [_plain(item, escape) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item, template if key in TEMPLATES else escape) for key, item in value.items()}
    return value
