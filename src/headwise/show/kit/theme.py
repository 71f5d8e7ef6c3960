"""One look for every figure: a palette that colour-blind readers can tell apart, quiet axes, no background.

Figures are drawn in the colours of a light page. The page sets text, grid and paper itself, and where it is
dark it replaces the colours below by their lighter twins, so that the same figure is right in a light report, a
dark report and a notebook.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C6BB1", "#7F7F7F")
NEUTRAL = "#8A8F98"
FAINT = "rgba(138,143,152,0.5)"
"""Controls, and what is in both of two things: there, but not the point."""
INK = "#1B1F24"
PAPER = "#FFFFFF"
VEIL = "rgba(255,255,255,0.8)"
"""Behind words that lie on points."""
WHISKER = "#4A505A"
"""Ends of intervals: they must be seen on a bar and beside it."""
_PALETTE_ON_DARK = ("#4BA3DB", "#F0894A", "#2FBF95", "#DB93B9", "#EFB540", "#7CC6F0", "#AD94CC", "#A3A3A3")
DARK = {
    **dict(zip(PALETTE, _PALETTE_ON_DARK, strict=True)),
    INK: "#E6E9ED",
    PAPER: "#14171B",
    VEIL: "rgba(20,23,27,0.8)",
    WHISKER: "#C5CAD3",
}
"""What each colour becomes on a dark page."""
SEQUENTIAL = "Viridis"
ON_POINTS = [[0, "#7D6FD6"], [0.25, "#3D8BCB"], [0.5, "#2BA58C"], [0.75, "#93AC2F"], [1, "#E09A12"]]
"""A sequential scale for single points: neither end is lost on light paper or on dark."""
DIVERGING = "RdBu"
STEPS = [first * 10**power for power in range(6) for first in (1, 2, 5)]
"""Ticks of a logarithmic axis of counts; Plotly's own have no room for more than their first digits."""
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, Helvetica, Arial, sans-serif"
AT_RIGHT = {"orientation": "v", "x": 1.02, "xanchor": "left", "y": 1, "yanchor": "top"}
"""A long legend."""


def styled(figure: go.Figure, *, height: int = 420, **layout: Any) -> go.Figure:
    """Give a figure the house look; ``layout`` goes to ``update_layout`` last."""
    figure.update_layout(
        template="none",
        height=height,
        font={"family": FONT, "size": 13},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        colorway=list(PALETTE),
        margin={"l": 60, "r": 24, "t": 48, "b": 56},
        legend={"orientation": "h", "yanchor": "bottom", "y": 1.02, "x": 0},
        # A name that is cut could end inside an entity.
        hoverlabel={"font": {"family": FONT}, "namelength": -1},
    )
    grid = {"gridcolor": "rgba(128,128,128,0.22)", "zeroline": False, "automargin": True}
    figure.update_xaxes(**grid)
    figure.update_yaxes(**grid)
    figure.update_layout(**layout)
    return figure


def between(values: Sequence[float], low: Sequence[float], high: Sequence[float]) -> dict[str, Any]:
    """Error bars from the ends of intervals."""
    return {
        "type": "data",
        # as many digits as a picture can show
        "array": [float(f"{max(0.0, end - v):.4g}") for v, end in zip(values, high, strict=True)],
        "arrayminus": [float(f"{max(0.0, v - end):.4g}") for v, end in zip(values, low, strict=True)],
        "thickness": 1.2,
        "color": WHISKER,
    }
