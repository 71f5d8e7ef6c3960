"""The heat map of circuit families: all pairs of circuits in the order of their tree, labels below.

Its size does not grow with the number of prompts: cells are means over blocks, and only the top of the tree is drawn.
"""

from __future__ import annotations

import colorsys
from typing import TYPE_CHECKING, Any

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from headwise.families.cluster import leaf_order
from headwise.show.families.figures import family_colour
from headwise.show.kit.theme import NEUTRAL, PALETTE, SEQUENTIAL, styled
from headwise.strings import whole_number

if TYPE_CHECKING:
    from headwise.families.result import FamiliesResult

CELLS = 400
"""Rows and columns of the heat map at most."""
MERGES = 80
"""Merges of the dendrogram that are drawn, from the top."""
NAMED_VALUES = 12
"""Values of a label that the legend of its strip names; of more than that, each is named under the mouse."""


def colours(count: int) -> list[str]:
    """As many colours as there are values: the palette, or hues around the circle where it is too short."""
    if count <= len(PALETTE):
        return list(PALETTE[:count])
    made = []
    for i in range(count):
        r, g, b = colorsys.hls_to_rgb(i / count, (0.42, 0.55, 0.68)[i % 3], 0.6)
        made.append(f"rgb({round(255 * r)},{round(255 * g)},{round(255 * b)})")
    return made


def drawn_order(found: FamiliesResult) -> np.ndarray:
    """Circuits in the order of the tree; grouped by a label, group by group."""
    order = leaf_order(found.clustering.tree)
    return order if found.grouped_by is None else order[np.argsort(found.labels[order], kind="stable")]


def block_means(distances: np.ndarray, order: np.ndarray, cells: int = CELLS) -> np.ndarray:
    """The matrix in this order, averaged over blocks so that at most ``cells`` rows are left."""
    n = len(order)
    ordered = distances[np.ix_(order, order)]
    if n <= cells:
        return ordered
    starts = (np.arange(cells) * n) // cells
    size = np.diff(np.append(starts, n))
    sums = np.add.reduceat(np.add.reduceat(ordered, starts, 0), starts, 1)
    return sums / (size[:, None] * size)


def heat_map(found: FamiliesResult) -> go.Figure:
    """All pairs of circuits in the order of the tree, with the tree above and labels below."""
    order = drawn_order(found)
    cells = block_means(found.distances, order)
    shown, n = len(cells), len(order)
    strips = (
        {"family": np.array([found.families[f].name for f in found.labels])} if found.n_families > 1 else {}
    )
    strips |= {name: found.groups[name] for name in found.telling}
    tree = found.grouped_by is None
    heights = [0.14] * tree + [0.86] + [0.03] * len(strips)
    figure = make_subplots(len(heights), 1, shared_xaxes=True, row_heights=heights, vertical_spacing=0.008)
    main = 1 + tree
    if tree:
        _draw_tree(figure, found, order, shown / n)
    low = float(np.quantile(cells[~np.eye(shown, dtype=bool)], 0.002)) if shown > 1 else 0.0
    figure.add_trace(
        go.Heatmap(
            z=np.round(100 * cells).astype(np.uint8),
            zmin=round(100 * low),
            zmax=100,
            colorscale=SEQUENTIAL,
            reversescale=True,
            colorbar={
                "title": {"text": "distance"},
                "tickformat": ".0f",
                "ticksuffix": " %",
                "len": 0.6,
                "thickness": 12,
            },
            hovertemplate="distance %{z} %<extra></extra>",
            name="distance",
        ),
        main,
        1,
    )
    at = (np.arange(shown) * n) // shown
    lines = [
        _draw_strip(figure, row, name, values[order][at])
        for row, (name, values) in enumerate(strips.items(), main + 1)
    ]
    below = 24 + 20 * max(lines, default=0)
    figure.update_xaxes(showticklabels=False, showgrid=False, ticks="")
    figure.update_yaxes(showgrid=False)
    figure.update_yaxes(showticklabels=False, ticks="", autorange="reversed", row=main, col=1)
    styled(
        figure,
        height=740 + 24 * len(strips) + below,
        margin={"l": 90, "r": 24, "t": 20, "b": below},
        legend={"orientation": "h", "x": 0, "y": -0.01, "yanchor": "top"},
    )
    figure.update_xaxes(showgrid=False, ticks="", showline=False)
    figure.update_yaxes(showgrid=False)
    return figure


def _draw_strip(figure: go.Figure, row: int, name: str, values: np.ndarray) -> int:
    """One label of every circuit in colour; the lines that its legend takes."""
    names, codes = np.unique(values, return_inverse=True)
    palette = colours(len(names))
    if name == "family":
        numbers = [whole_number(v) for v in names.tolist()]
        palette = [c if v is None else family_colour(v) for v, c in zip(numbers, palette, strict=True)]
    steps: list[list[Any]] = []
    for i, colour in enumerate(palette):
        steps += [[i / len(palette), colour], [(i + 1) / len(palette), colour]]
    figure.add_trace(
        go.Heatmap(
            z=codes[None].astype(np.uint8),
            zmin=-0.5,
            zmax=len(names) - 0.5,
            colorscale=steps,
            showscale=False,
            text=values[None].tolist(),
            hovertemplate="%{fullData.name} %{text}<extra></extra>",
            name=name,
        ),
        row,
        1,
    )
    figure.update_yaxes(tickvals=[0], ticktext=[name], ticks="", row=row, col=1)
    if len(names) > NAMED_VALUES:
        return 0
    for value, colour in zip(names.tolist(), palette, strict=True):
        # A heat map has no legend of its own; points without a place do.
        entry = go.Scatter(
            x=[None],
            y=[None],
            mode="markers",
            marker={"symbol": "square", "size": 11, "color": colour},
            name=value,
            legendgroup=name,
            legendgrouptitle={"text": name},
        )
        figure.add_trace(entry, row, 1)
    return 1 + len(names)


def _draw_tree(figure: go.Figure, found: FamiliesResult, order: np.ndarray, scale: float) -> None:
    """The top of the dendrogram; a subtree that is not drawn is a point in the middle of its circuits."""
    tree, n = found.clustering.tree, len(order)
    place = np.empty(2 * n - 1)
    place[order] = np.arange(n)
    size = np.concatenate((np.ones(n), tree[:, 3]))
    height = np.concatenate((np.zeros(n), tree[:, 2]))
    first = max(n, 2 * n - 1 - MERGES)
    for node, (left, right) in enumerate(tree[:, :2].astype(int), n):
        if node < first:  # the mean place of its leaves
            place[node] = (place[left] * size[left] + place[right] * size[right]) / size[node]
        else:
            place[node] = (place[left] + place[right]) / 2
    x: list[float | None] = []
    y: list[float | None] = []
    floor = float(height[first:].min()) - 0.02
    for node in range(first, 2 * n - 1):
        left, right = tree[node - n, :2].astype(int)
        bottoms = [float(height[c]) if c >= first else floor for c in (left, right)]
        a, b = float(place[left] * scale), float(place[right] * scale)
        h = float(height[node])
        x += [a, a, b, b, None]
        y += [bottoms[0], h, h, bottoms[1], None]
    figure.add_trace(
        go.Scatter(
            x=x,
            y=y,
            mode="lines",
            line={"width": 1, "color": NEUTRAL},
            hoverinfo="skip",
            name="tree",
            showlegend=False,
        ),
        1,
        1,
    )
    figure.update_yaxes(
        title={"text": "distance", "font": {"size": 11}}, nticks=3, tickformat=".2f", row=1, col=1
    )
