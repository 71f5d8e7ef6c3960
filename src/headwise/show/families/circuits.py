"""Two representative circuits side by side, head by head, with what differs in colour."""

from __future__ import annotations

from typing import TYPE_CHECKING

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from headwise.show.families.figures import family_colour
from headwise.show.kit.theme import NEUTRAL, styled
from headwise.types import Head

if TYPE_CHECKING:
    from headwise.circuits.circuit import Circuit
    from headwise.families.result import FamiliesResult

HEAVIEST = 60
"""Edges of a representative that are drawn."""

Pair = tuple[str, str]


def heaviest_edges(circuit: Circuit) -> dict[Pair, float]:
    """Edges between components with token positions and sides dropped, heaviest first; as the distance sees them."""
    weight: dict[Pair, float] = {}
    for edge in circuit.edges:
        source = circuit.by_id[edge.source]
        if edge.channels and source.kind in ("head", "mlp"):
            pair = source.name, circuit.by_id[edge.target].name
            weight[pair] = weight.get(pair, 0.0) + edge.weight
    return dict(sorted(weight.items(), key=lambda item: (-item[1], item[0])))


def side_by_side(found: FamiliesResult, first: int, second: int) -> go.Figure:
    """Layers upwards, heads across, MLPs at the right; shared edges grey, those of one circuit alone coloured."""
    families = [found.families[first], found.families[second]]
    circuits = [heaviest_edges(found.run.circuit(f.representative)) for f in families]
    heads = [Head.parse(n) for c in circuits for pair in c for n in pair if not n.startswith("MLP")]
    right = max((h.index for h in heads), default=0) + 1
    titles = [f"family {f.name}: prompt {f.representative}" for f in families]
    figure = make_subplots(1, 2, shared_yaxes=True, subplot_titles=titles, horizontal_spacing=0.03)
    for column, (family, mine, theirs) in enumerate(zip(families, circuits, circuits[::-1], strict=True), 1):
        drawn = list(mine)[:HEAVIEST]
        shared = [pair for pair in drawn if pair in theirs]
        alone = [pair for pair in drawn if pair not in theirs]
        colour = family_colour(family.family)
        for pairs, shade, width, name in (
            (shared, "rgba(138,143,152,0.55)", 1.2, "in both"),
            (alone, colour, 1.6, f"only in family {family.name}"),
        ):
            x: list[float | None] = []
            y: list[float | None] = []
            for source, target in pairs:
                (a, b), (c, d) = _place(source, right), _place(target, right)
                x += [a, c, None]
                y += [b, d, None]
            figure.add_trace(
                go.Scatter(
                    x=x,
                    y=y,
                    mode="lines",
                    line={"color": shade, "width": width},
                    name=name,
                    hoverinfo="skip",
                    showlegend=name != "in both" or column == 1,
                    legendgroup=name,
                ),
                1,
                column,
            )
        others = {n for pair in theirs for n in pair}
        for node_names, shade, name in (
            (sorted({n for p in drawn for n in p} & others), NEUTRAL, "in both"),
            (sorted({n for p in drawn for n in p} - others), colour, f"only in family {family.name}"),
        ):
            places = [_place(n, right) for n in node_names]
            figure.add_trace(
                go.Scatter(
                    x=[p[0] for p in places],
                    y=[p[1] for p in places],
                    mode="markers",
                    text=node_names,
                    hovertemplate="%{text}<extra></extra>",
                    marker={"size": 8, "color": shade},
                    name=name,
                    legendgroup=name,
                    showlegend=False,
                ),
                1,
                column,
            )
    styled(figure, height=640, margin={"l": 56, "r": 24, "t": 84, "b": 52})
    figure.update_layout(legend={"y": 1.06})
    ticks = list(range(right + 1))
    figure.update_xaxes(tickvals=ticks, ticktext=[*map(str, ticks[:-1]), "MLP"], title="head", showgrid=False)
    figure.update_yaxes(title="layer", row=1, col=1)
    return figure


def _place(name: str, right: int) -> tuple[float, float]:
    if name.startswith("MLP"):
        return right, int(name[3:]) + 0.5  # an MLP writes after the heads of its layer
    head = Head.parse(name)
    return head.index, head.layer
