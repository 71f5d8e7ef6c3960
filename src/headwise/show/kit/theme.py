"""One look for every figure: a palette that colour-blind readers can tell apart, quiet axes, no background.

Figures carry no colours of their own for text, grid and paper: the page sets them, so the same figure is
right in a light report, a dark report and a notebook.
"""

from __future__ import annotations

from typing import Any

import plotly.graph_objects as go

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C6BB1", "#7F7F7F")
NEUTRAL = "#8A8F98"
SEQUENTIAL = "Viridis"
DIVERGING = "RdBu"
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, Helvetica, Arial, sans-serif"


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
