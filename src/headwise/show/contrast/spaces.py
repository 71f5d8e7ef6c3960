"""Pictures of query and key spaces: what lies in a feature's subspace, by principal components or UMAP."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import plotly.graph_objects as go
import torch
from plotly.subplots import make_subplots
from torch import Tensor

from headwise.errors import HeadwiseError
from headwise.randomness import keyed
from headwise.show.kit.theme import AT_RIGHT, NEUTRAL, PALETTE, VEIL, styled
from headwise.strings import natural, percent

if TYPE_CHECKING:
    from headwise.contrast.result import FeaturesResult

WIDE = (*PALETTE, "#b15928", "#1b7837", "#762a83", "#f46d43", "#4575b4", "#a6761d", "#e7298a", "#666666")
KEYS, QUERIES = 120, 40
"""Keys and queries in a picture: more would hide each other, and make a page large."""
MARKS: dict[str, dict[str, Any]] = {
    # Plotly's own dots of six pixels, seen through.
    "keys": {"opacity": 0.6},
    # Open, so that they do not hide the keys that they are looking for.
    "queries": {"symbol": "diamond-open", "size": 10, "line": {"width": 2}},
}


def points(run: FeaturesResult, head: str, group: str) -> tuple[Tensor, list[str], Tensor, list[str]]:
    """Queries [n, d] and keys [m, d] of a head with their labels of ``group``, of so many prompts as can be drawn.

    A prompt has one query and many keys, so that keys are drawn from those of all prompts whose queries are shown:
    the keys of the first few would leave whole classes without a query.
    """
    place = run.chosen.index(head)
    q, k = run.gallery.q[place, :QUERIES].double(), run.gallery.k[place, :QUERIES].double()
    labels = run.gallery.query.get(group, [""] * len(q))[:QUERIES]
    names = run.gallery.keys.get(group, [])[:QUERIES]
    found = [(k[i, j], name) for i, row in enumerate(names) for j, name in enumerate(row)]
    drawn = torch.randperm(len(found), generator=keyed(0, "keys of a picture"))[:KEYS].sort().values.tolist()
    keys = [found[at][0] for at in drawn]
    shown = torch.stack(keys) if keys else k.flatten(0, 1)[:0]
    return q, list(labels), shown, [found[at][1] for at in drawn]


def _colour(run: FeaturesResult, name: str) -> str:
    """The group that a feature's picture is coloured by."""
    return str(run.gallery.colours.get(name, "set"))


def _scatter(xy: np.ndarray, labels: list[str], order: list[str], name: str, legend: bool) -> list[Any]:
    # To a few thousandths of the picture: finer than a pixel, and shorter.
    xy = xy.round(3 - int(np.floor(np.log10(np.abs(xy).max(initial=1e-300)))))
    traces = []
    for number, value in enumerate(order):
        rows = [i for i, label in enumerate(labels) if label == value]
        if rows:
            traces.append(
                go.Scatter(
                    x=xy[rows, 0],
                    y=xy[rows, 1],
                    mode="markers",
                    marker=MARKS[name] | {"color": WIDE[number % len(WIDE)]},
                    name=value,
                    legendgroup=value,
                    showlegend=legend,
                    hoverinfo="name",
                )
            )
    return traces


def _sides(figure: go.Figure) -> None:
    """Say in the legend which marks are keys and which are queries."""
    for name, symbol in (("keys", "circle"), ("queries", "diamond-open")):
        mark = {**MARKS[name], "symbol": symbol, "color": NEUTRAL, "opacity": 1}
        figure.add_scatter(x=[None], y=[None], mode="markers", marker=mark, name=name)


def _order(labels: list[str], most: int = 16) -> list[str]:
    return sorted(set(labels), key=natural)[:most]


def _components(x: Tensor) -> tuple[np.ndarray, np.ndarray]:
    centred = x - x.mean(0)
    _, sigma, right = torch.linalg.svd(centred, full_matrices=False)
    share = sigma.square() / sigma.square().sum().clamp_min(1e-300)
    # The sign of a component is arbitrary: fix it, so that the same run gives the same picture.
    right = right * right.gather(1, right.abs().argmax(1, keepdim=True)).sign()
    return (centred @ right[:3].mT).numpy(), share[:3].numpy()


def subspace_pca(run: FeaturesResult, head: str, name: str | None, *, group: str | None = None) -> go.Figure:
    """Keys and queries inside a feature's subspaces, by principal components of both stacked (Figures 6a, 8).

    With ``name`` None the vectors are not projected (Figure 17). Left PC 1 and 2, right PC 2 and 3.
    """
    group = group or _colour(run, name or next(iter(run.gallery.colours)))
    q, q_labels, k, k_labels = points(run, head, group)
    if name is not None:
        item = run.bank.get(head, name)
        q, k = item.query.project(q), item.key.project(k)
        if item.rank < 2:
            return _line(q, q_labels, k, k_labels, head, name, item)
    values, share = _components(torch.cat([k, q]))
    if values.shape[1] < 3:
        values = np.pad(values, ((0, 0), (0, 3 - values.shape[1])))
        share = np.pad(share, (0, 3 - len(share)))
    order = _order([*k_labels, *q_labels])
    figure = make_subplots(1, 2, horizontal_spacing=0.09)
    for column, (a, b) in enumerate(((0, 1), (1, 2)), 1):
        keys, queries = values[: len(k)][:, [a, b]], values[len(k) :][:, [a, b]]
        for trace in _scatter(keys, k_labels, order, "keys", column == 1):
            figure.add_trace(trace, 1, column)
        for trace in _scatter(queries, q_labels, order, "queries", False):
            figure.add_trace(trace, 1, column)
        figure.update_xaxes(title=f"PC {a + 1} ({percent(share[a])})", row=1, col=column)
        figure.update_yaxes(title=f"PC {b + 1} ({percent(share[b])})", row=1, col=column)
    _sides(figure)
    where = "all of the head's space" if name is None else f"subspace of {name}"
    return styled(
        figure,
        height=480,
        title={"text": f"{head}, {where}: keys ●, queries ◆, by {group}", "font": {"size": 14}},
        legend={**AT_RIGHT, "itemsizing": "constant"},
        margin={"l": 60, "r": 24, "t": 56, "b": 56},
    )


def _line(
    q: Tensor, q_labels: list[str], k: Tensor, k_labels: list[str], head: str, name: str, item: Any
) -> go.Figure:
    """A feature of one dimension: coordinates of keys and queries along it."""
    figure = go.Figure()
    for vectors, labels, side, basis in (
        (k, k_labels, "keys", item.key),
        (q, q_labels, "queries", item.query),
    ):
        along = (vectors @ basis.basis.to(vectors))[:, 0].numpy()
        for number, value in enumerate(_order(labels)):
            rows = [i for i, label in enumerate(labels) if label == value]
            figure.add_box(
                x=along[rows],
                # One place for the whole box, not one per point.
                y0=f"{side}: {value}",
                orientation="h",
                name=value,
                showlegend=False,
                marker={"color": WIDE[number % len(WIDE)]},
                boxpoints=False,
            )
    return styled(
        figure,
        height=420,
        xaxis={"title": f"{head}: coordinate along {name}"},
        yaxis={"dtick": 1, "tickfont": {"size": 9}},
        margin={"l": 130, "r": 24, "t": 32, "b": 56},
    )


def subspace_umap(
    run: FeaturesResult, head: str, name: str, *, group: str | None = None, seed: int = 0
) -> go.Figure:
    """Keys inside a feature's subspace, by UMAP (Figure 8). Needs the extra ``headwise[umap]``."""
    try:
        import umap
    except ImportError:
        raise HeadwiseError("UMAP is not installed: pip install 'headwise[umap]'") from None
    group = group or _colour(run, name)
    q, q_labels, k, k_labels = points(run, head, group)
    item = run.bank.get(head, name)
    both = torch.cat([item.key.project(k), item.query.project(q)]).float().numpy()
    values = umap.UMAP(
        n_components=2, random_state=seed % 2**32, n_jobs=1, n_neighbors=min(15, len(both) - 1)
    ).fit_transform(both)
    order = _order([*k_labels, *q_labels])
    figure = go.Figure()
    for trace in _scatter(np.asarray(values)[: len(k)], k_labels, order, "keys", True):
        figure.add_trace(trace)
    for trace in _scatter(np.asarray(values)[len(k) :], q_labels, order, "queries", False):
        figure.add_trace(trace)
    _sides(figure)
    return styled(
        figure,
        height=480,
        title={
            "text": f"{head}, subspace of {name} by UMAP: keys ●, queries ◆, by {group}",
            "font": {"size": 14},
        },
        xaxis={"title": "UMAP 1"},
        yaxis={"title": "UMAP 2"},
        legend={**AT_RIGHT, "itemsizing": "constant"},
        margin={"l": 60, "r": 24, "t": 56, "b": 56},
    )


def keys_pca(run: FeaturesResult, head: str, name: str, *, group: str | None = None) -> go.Figure:
    """Keys alone inside a feature's subspace, first two components, each group's mean named (Figure 6b)."""
    group = group or _colour(run, name)
    _, _, k, k_labels = points(run, head, group)
    values, share = _components(run.bank.get(head, name).key.project(k))
    order = _order(k_labels, 24)
    figure = go.Figure(_scatter(values, k_labels, order, "keys", False))
    for number, value in enumerate(order):
        rows = [i for i, label in enumerate(k_labels) if label == value]
        centre = values[rows].mean(0)
        figure.add_annotation(
            x=centre[0],
            y=centre[1] if len(centre) > 1 else 0,
            text=value,
            showarrow=False,
            font={"color": WIDE[number % len(WIDE)], "size": 13, "weight": 700},
            bgcolor=VEIL,
        )
    return styled(
        figure,
        height=500,
        xaxis={"title": f"PC 1 ({percent(share[0])})"},
        yaxis={"title": f"PC 2 ({percent(share[1] if len(share) > 1 else 0)})"},
        title={"text": f"{head}: keys in the subspace of {name}", "font": {"size": 14}},
    )
