"""Figures and tables of how pairs align: who moves first, what the loss does, and what holds over seeds."""

from __future__ import annotations

from itertools import pairwise

import plotly.graph_objects as go
import torch

from headwise.show.kit.markdown import Prose
from headwise.show.kit.report import Figure, Section, Table
from headwise.show.kit.table import TableColumn
from headwise.show.kit.theme import NEUTRAL, PALETTE, styled
from headwise.toy.alignment import AlignmentRun
from headwise.toy.alignment_motion import AlignmentMotion
from headwise.toy.alignment_path import Course, speeds

PROSE = Prose.read("toy/alignment_motion.md")
CLAIMS = {
    "singular_first": "singular vectors move first",
    "features_follow": "features turn towards them",
    "loss_falls": "a pair's attention loss falls as the pair aligns",
    "vectors_compensate": "singular vectors go on turning to hold the loss",
}
"""What each claim is called on the page and in the terminal."""
DRAWN = {
    "u": ("u", PALETTE[0], "solid"),
    "v": ("v", PALETTE[0], "dot"),
    "w query": ("w of the query", PALETTE[1], "solid"),
    "w key": ("w of the key", PALETTE[1], "dot"),
    "others": ("unattended features", NEUTRAL, "dash"),
}
"""How each kind of direction is drawn."""


def motion_sections(run: AlignmentRun, motion: AlignmentMotion) -> list[Section]:
    """What a page says of a run's events."""
    blocks = [
        Figure(speed_figure(run, motion), PROSE("speeds figure")),
        _claims_table(motion),
        _events_table(motion),
    ]
    loss = [Figure(loss_figure(motion), PROSE("loss figure")), _held_table(motion)]
    return [Section("Who moves first", blocks), Section("Attention loss as pairs align", loss)]


def motion_answer(motion: AlignmentMotion) -> str:
    """Who moved first and what the loss did, in one paragraph."""
    lag, share = motion.estimates["lag"], motion.estimates["lag_share"]
    closed = {name: motion.estimates[f"closed_by_{name}"].mean for name in ("singular", "feature")}
    first = motion.claims["singular_first"].supported
    follow = "features_follow" in motion.claims and motion.claims["features_follow"].supported
    said = PROSE(
        "first" if first else "not first", lag=lag.mean, low=lag.low, high=lag.high, share=share.mean
    )
    turned = PROSE("follow" if follow else "do not follow", **closed)
    return f"{said} {turned}"


def motion_lines(motion: AlignmentMotion) -> list[str]:
    """The claims in the terminal, each with its null."""
    lines = []
    for name, found in motion.estimates.items():
        interval = f"  [{found.low:.4g}, {found.high:.4g}]" if found.ci else ""
        lines.append(f"{name.replace('_', ' '):>34}  {found.mean:.4g}{interval}")
    for name, claim in motion.claims.items():
        said = "yes" if claim.supported else "not shown"
        lines.append(f"{CLAIMS[name]}: {said} (p {claim.p:.3g}, q {claim.q:.3g}, against {claim.null})")
    return lines


def speed_figure(run: AlignmentRun, motion: AlignmentMotion) -> go.Figure:
    """Angular speeds, all events laid over one another."""
    figure = go.Figure()
    for name, (places, values) in speed_curves(run, motion).items():
        label, colour, dash = DRAWN[name]
        figure.add_trace(
            go.Scatter(x=places, y=values, name=label, mode="lines", line={"color": colour, "dash": dash})
        )
    figure.add_vline(x=1, line={"color": NEUTRAL, "width": 1})
    figure.update_xaxes(type="log", tickvals=[1 / 16, 1 / 4, 1, 4], ticktext=["1/16", "1/4", "1", "4"])
    figure.update_yaxes(type="log", dtick=1, exponentformat="power")
    return styled(
        figure, height=380, xaxis_title="step over the step of alignment", yaxis_title="degrees per step"
    )


def loss_figure(motion: AlignmentMotion) -> go.Figure:
    """Every event's own attention loss as a share of its start, against the step over the event's step."""
    figure = go.Figure()
    points: list[tuple[float, float]] = []
    for e in motion.events:
        if not e.step:
            continue
        curve = motion.losses[e.seed][:, motion.pairs.index((e.query, e.key))]
        share = (curve / curve[0].clamp_min(1e-12)).tolist()
        mine = [(s / e.step, y) for s, y in zip(motion.steps, share, strict=True) if s]
        points += mine
        inside = [(x, y) for x, y in mine if 1 / 32 <= x <= 8]
        figure.add_trace(
            go.Scatter(
                x=[x for x, _ in inside],
                y=[y for _, y in inside],
                mode="lines",
                name=f"w{e.query}→w{e.key}, seed {e.seed}",
                showlegend=False,
                opacity=0.3 if len(motion.pairs) > 1 else 0.6,
                line={"color": PALETTE[0], "width": 1},
            )
        )
    places, medians = _binned(points)
    figure.add_trace(
        go.Scatter(x=places, y=medians, name="median of all events", line={"color": PALETTE[1], "width": 3})
    )
    figure.add_vline(x=1, line={"color": NEUTRAL, "width": 1})
    figure.update_xaxes(type="log", tickvals=[1 / 16, 1 / 4, 1, 4], ticktext=["1/16", "1/4", "1", "4"])
    return styled(
        figure,
        height=380,
        xaxis_title="step over the step of alignment",
        yaxis_title="the pair's attention loss, share of its start",
        yaxis_rangemode="tozero",
    )


def _claims_table(motion: AlignmentMotion) -> Table:
    rows = [
        (CLAIMS[name], "yes" if c.supported else "not shown", c.p, c.q, c.null, c.draws)
        for name, c in motion.claims.items()
    ]
    return Table(("claim", "holds", "p", "q", "null", "draws"), rows, PROSE("claims table"))


def _events_table(motion: AlignmentMotion) -> Table:
    rows = [
        (
            e.seed,
            f"w{e.query}\u00a0→\u00a0w{e.key}",
            e.target,
            e.step,
            *(x for t in e.turns for x in (t.singular_half, t.feature_half)),
            sum(t.closed_by_singular for t in e.turns) / 2,
            sum(t.closed_by_feature for t in e.turns) / 2,
            before,
            after,
        )
        for e, (before, after) in zip(motion.events, motion.drops, strict=True)
    ]
    columns = (
        "seed",
        "pair",
        "target logit",
        "aligned at",
        "u half-way",
        "w, query",
        "v half-way",
        "w, key",
        TableColumn(name="closed by u, v", format=".3f"),
        TableColumn(name="by w", format=".3f"),
        "loss before",
        "after",
    )
    return Table(columns, rows, PROSE("events table"))


def _held_table(motion: AlignmentMotion) -> Table:
    rows = [(h.seed, h.step, *h.inside, *h.loss, h.largest_loss, h.loss_of_old_vectors) for h in motion.held]
    columns = (
        "seed",
        "from step",
        "others inside",
        "at the end",
        "loss",
        "at the end",
        "largest between",
        "with the old vectors",
    )
    return Table(columns, rows, PROSE("held table"))


def speed_curves(run: AlignmentRun, motion: AlignmentMotion) -> dict[str, tuple[list[float], list[float]]]:
    """Angular speeds against the step over the event's step: medians over all events.

    ``u``, ``v``, ``w query``, ``w key`` and ``others`` (unattended features), each as (places, degrees per step).
    """
    gathered: dict[str, list[tuple[float, float]]] = {}
    courses = {s.seed: Course.of(run, v) for v, s in enumerate(run.setups)}
    attended = {f for pair in run.setups[0].targets for f in pair[:2]}
    others = [f for f in range(run.setups[0].features) if f not in attended]
    for e in motion.events:
        if not e.step:
            continue
        course = courses[e.seed]
        u, v = course.read(e.query, e.key, e.end)
        tracks = {
            "u": [u],
            "v": [v],
            "w query": [course.features[:, :, e.query]],
            "w key": [course.features[:, :, e.key]],
            "others": [course.features[:, :, f] for f in others],
        }
        places = [(a + b) / 2 / e.step for a, b in pairwise(course.steps)]
        for name, of in tracks.items():
            if not of:
                continue
            mean = torch.stack([speeds(track, course.steps) for track in of]).mean(0)
            gathered.setdefault(name, []).extend(zip(places, mean.tolist(), strict=True))
    return {name: _binned(points) for name, points in gathered.items()}


def _binned(points: list[tuple[float, float]]) -> tuple[list[float], list[float]]:
    """Medians in bins of equal ratio, from a thirty-second of the event's step to eight times it."""
    edges = [2 ** (x / 2) for x in range(-10, 7)]
    places, values = [], []
    for low, high in pairwise(edges):
        inside = [value for place, value in points if low <= place < high]
        if inside:
            places.append((low * high) ** 0.5)
            values.append(float(torch.tensor(inside).median()))
    return places, values
