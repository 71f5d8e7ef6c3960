"""Figures and page of the alignment study, as in the talk."""

from __future__ import annotations

from typing import Any

import plotly.graph_objects as go
import torch
from plotly.subplots import make_subplots

from headwise.show.kit.markdown import Prose
from headwise.show.kit.report import Figure, Report, Section, Table
from headwise.show.kit.theme import AT_RIGHT, DIVERGING, NEUTRAL, PALETTE, SEQUENTIAL, styled
from headwise.show.toy.alignment_motion import motion_answer, motion_sections
from headwise.strings import percent
from headwise.toy.alignment import AlignmentRun, sweep_field
from headwise.toy.alignment_motion import AlignmentMotion
from headwise.toy.alignment_study import by_value, study_variant, summarise

PROSE = Prose.read("toy/alignment.md")
ALIGNED = 0.95
"""A pair lies along a singular pair if both cosines are at least this."""


def cosine_maps(run: AlignmentRun, variant: int = 0, limit: int = 40) -> go.Figure:
    """|cos| of every feature with every singular vector, query side and key side."""
    u, _, v = run.head(variant)
    unit = torch.nn.functional.normalize(run.features(variant), dim=0)
    figure = make_subplots(
        1,
        2,
        subplot_titles=["left singular vectors (query)", "right singular vectors (key)"],
        horizontal_spacing=0.08,
    )
    for column, basis in enumerate((u, v), 1):
        cosines = (unit.mT @ basis).abs()[:limit, :limit]
        figure.add_trace(
            go.Heatmap(
                z=cosines.tolist(),
                x=[f"{'uv'[column - 1]}{k}" for k in range(cosines.shape[1])],
                y=[f"w{i}" for i in range(cosines.shape[0])],
                zmin=0,
                zmax=1,
                colorscale=SEQUENTIAL,
                showscale=column == 2,
                colorbar={"title": "|cos|", "thickness": 12},
            ),
            1,
            column,
        )
    figure.update_yaxes(autorange="reversed", showgrid=False)
    figure.update_xaxes(showgrid=False)
    return styled(figure, height=480)


def spectrum(records: list[dict[str, Any]], limit: int = 30) -> go.Figure:
    """Singular values of Ω, one line per seed."""
    figure = go.Figure()
    for r in records:
        values = r["spectrum"][:limit]
        figure.add_trace(
            go.Scatter(x=list(range(len(values))), y=values, mode="lines+markers", name=f"seed {r['seed']}")
        )
    return styled(figure, height=360, xaxis_title="index", yaxis_title="singular value")


def gram(run: AlignmentRun, variant: int = 0) -> go.Figure:
    """Cosines between feature directions: antipodal pairs without a head, an orthogonal pair with one."""
    unit = torch.nn.functional.normalize(run.features(variant), dim=0)
    names = [f"w{i}" for i in range(unit.shape[1])]
    figure = go.Figure(
        go.Heatmap(
            z=(unit.mT @ unit).tolist(),
            x=names,
            y=names,
            zmin=-1,
            zmax=1,
            zmid=0,
            colorscale=DIVERGING,
            colorbar={"title": "cos", "thickness": 12},
        )
    )
    figure.update_yaxes(autorange="reversed", showgrid=False, scaleanchor="x")
    figure.update_xaxes(showgrid=False, constrain="domain")
    return styled(figure, height=520)


def course(run: AlignmentRun, variant: int = 0) -> go.Figure:
    """Alignment of every pair over training (with one channel, and as a singular pair), the logit the head gives
    it, and the attention loss, on one axis.
    """
    figure = make_subplots(
        4, 1, shared_xaxes=True, row_heights=[0.27, 0.27, 0.27, 0.19], vertical_spacing=0.04
    )
    steps = [h["step"] for h in run.history]
    targets = run.setups[variant].targets
    for pair, (i, j, logit) in enumerate(targets):
        share = pair / max(1, len(targets) - 1)
        colour = f"hsl({220 - 200 * share:.0f},65%,{45 + 8 * share:.0f}%)"
        for row, kind in ((1, "cosines"), (2, "relations"), (3, "strengths")):
            figure.add_trace(
                go.Scatter(
                    x=steps,
                    y=[h[kind][variant][pair] for h in run.history],
                    name=f"w{i}→w{j}, target {logit:g}",
                    legendgroup=str(pair),
                    showlegend=row == 1,
                    line={"color": colour, "width": 1.6},
                ),
                row,
                1,
            )
    loss = [h["attention"][variant] for h in run.history]
    figure.add_trace(go.Scatter(x=steps, y=loss, name="attention loss", line={"color": NEUTRAL}), 4, 1)
    figure.update_yaxes(title="|cos|, one channel", range=[0, 1.03], row=1, col=1)
    figure.update_yaxes(title="singular relation", range=[0, 1.03], row=2, col=1)
    figure.update_yaxes(title="logit of the pair", row=3, col=1)
    figure.update_yaxes(title="loss", type="log", row=4, col=1)
    figure.update_xaxes(title="step", row=4, col=1)
    legend = {**AT_RIGHT, "font": {"size": 10}}
    return styled(figure, height=820, legend=legend, margin={"l": 60, "r": 170, "t": 30, "b": 50})


def attended_plane(run: AlignmentRun, variant: int = 0) -> go.Figure:
    """Every feature inside the plane of the attended pair: the pair at its rim, all others at its centre."""
    i, j, _ = run.setups[variant].targets[0]
    w = run.features(variant)
    basis = torch.linalg.qr(w[:, [i, j]]).Q
    inside = (basis.mT @ w).mT
    others = [f for f in range(w.shape[1]) if f not in (i, j)]
    figure = go.Figure()
    for name, index, colour in (("attended", [i, j], PALETTE[1]), ("others", others, PALETTE[0])):
        figure.add_trace(
            go.Scatter(
                x=inside[index, 0].tolist(),
                y=inside[index, 1].tolist(),
                text=[f"w{f}" for f in index],
                mode="markers+text" if name == "attended" else "markers",
                textposition="top center",
                marker={"size": 9, "color": colour},
                name=name,
            )
        )
    figure.update_yaxes(scaleanchor="x")
    return styled(
        figure,
        height=420,
        xaxis_title="along the query feature",
        yaxis_title="orthogonal to it, in the plane",
    )


SETTINGS = {
    "probability": "probability that a feature is active",
    "lambda": "weight λ of the attention loss",
    "features": "features N",
    "head": "head dimensions H",
    "sources": "sources attended over",
    "interference": "interference with planted features",
}


def sweep_figure(records: list[dict[str, Any]], name: str) -> go.Figure:
    """Against one setting, mean over seeds and every seed: alignment, and the logit that the pair reached."""
    field = sweep_field(name)
    values = sorted({r[field] for r in records})
    figure = make_subplots(1, 2, horizontal_spacing=0.11)
    drawn = (
        ("query side", 1, PALETTE[0], lambda r: r["pairs"][0]["cos_query"]),
        ("key side", 1, PALETTE[1], lambda r: r["pairs"][0]["cos_key"]),
        ("logit", 2, PALETTE[2], lambda r: r["logits"][0]),
    )
    for label, column, colour, read in drawn:
        by = {v: [read(r) for r in records if r[field] == v] for v in values}
        figure.add_trace(
            go.Scatter(
                x=[v for v in values for _ in by[v]],
                y=[c for v in values for c in by[v]],
                mode="markers",
                name=f"{label}, each seed",
                showlegend=False,
                marker={"color": colour, "size": 7, "opacity": 0.45},
            ),
            1,
            column,
        )
        means = [sum(by[v]) / len(by[v]) for v in values]
        figure.add_trace(
            go.Scatter(x=values, y=means, mode="lines", name=label, line={"color": colour}), 1, column
        )
    target = records[0]["pairs"][0]["target"]
    dashed = {"color": NEUTRAL, "dash": "dash", "width": 1.5}
    ends = [values[0], values[-1]]
    figure.add_trace(
        go.Scatter(x=ends, y=[target, target], mode="lines", name="target logit", line=dashed), 1, 2
    )
    low = min(min(r["pairs"][0]["cos_query"], r["pairs"][0]["cos_key"]) for r in records)
    figure.update_yaxes(title="|cos|", range=[min(0.95, low - 0.02), 1.005], row=1, col=1)
    top = max(target, *(r["logits"][0] for r in records))
    figure.update_yaxes(title="logit of the pair", range=[0, 1.08 * top], row=1, col=2)
    figure.update_xaxes(
        title=SETTINGS[field],
        type="linear" if field in ("features", "interference") else "log",
        tickvals=values,
        ticktext=[f"{v:g}" for v in values],
        minor={"showgrid": False, "ticks": ""},
    )
    return styled(figure, height=360)


def alignment_report(
    run: AlignmentRun, case: str, sweep: str | None = None, motion: AlignmentMotion | None = None
) -> Report:
    """The page of one case or sweep."""
    records = [study_variant(run, v) for v in range(len(run.setups))]
    summary = summarise(records, run.history[-1]["step"])
    sections: list[Section] = []
    if sweep:
        field = sweep_field(sweep)
        values = by_value(records, field)
        note = PROSE("sweep figure", seeds=values[0]["seeds"])
        sections.append(
            Section(
                f"Against the {SETTINGS[field]}",
                [
                    Figure(sweep_figure(records, sweep), note),
                    _sweep_table(values, field),
                ],
            )
        )
    else:
        seeds = [records[0]] if len(records) == 1 else records
        sections += [
            Section(
                "Features and singular vectors",
                [
                    Figure(cosine_maps(run), PROSE("maps figure")),
                    Figure(spectrum(seeds), PROSE("spectrum figure")),
                ],
            ),
            Section("Geometry", [Figure(gram(run), PROSE("gram figure"))]),
        ]
        if run.setups[0].targets:
            if len(run.setups[0].targets) == 1:
                plane = Figure(attended_plane(run), PROSE("plane figure"))
                sections[-1] = Section("Geometry", [*sections[-1].blocks, plane])
            sections.append(Section("Over training", [Figure(course(run), PROSE("course figure"))]))
        if motion is not None:
            sections += motion_sections(run, motion)
    if records[0]["pairs"]:
        field = sweep_field(sweep) if sweep else None
        sections.append(Section("Pairs", [_pairs(records, field)]))
    title = "Do singular vectors align with features?"
    said = [answer(summary, records), PROSE("interference" if sweep == "interference" else case)]
    if motion is not None:
        said.append(motion_answer(motion))
    return Report(title, sections, "\n\n".join(said), _facts(summary))


def _sweep_table(values: list[dict[str, Any]], field: str) -> Table:
    """A row per value; of planted features also how isotropic their tokens are, and what follows from that."""
    shown = SWEPT | PLANTED if field == "interference" else SWEPT
    note = PROSE("sweep table")
    if field == "interference":
        note = f"{note} {PROSE('planted table')}"
    return Table((field, *shown.values()), [(v[field], *(v[key] for key in shown)) for v in values], note)


PLANTED = {
    "condition": "condition of Σ",
    "theorem_cosine": "|cos| of w and Σ⁻¹w",
    "least_cosine": "least possible",
}
"""What is known of planted features beside that."""
SWEPT = {
    "seeds": "seeds",
    "smallest_cosine": "|cos|, smallest",
    "mean_cosine": "mean",
    "second_to_first_singular_value": "σ2 / σ1",
    "mean_logit": "mean logit",
    "others_inside": "in the plane",
    "closed_form_cosine": "closed form",
    "last_arrival": "aligned by",
}
"""What is known of one value of a sweep, and what it is called on the page."""
PAIR = {
    "query": "query feature",
    "key": "key feature",
    "target": "target logit",
    "channel": "channel",
    "sigma": "σ",
    "cos_query": "|cos|, query side",
    "cos_key": "|cos|, key side",
    "relation": "relation",
}
"""The same of one pair of features."""


def _pairs(records: list[dict[str, Any]], field: str | None) -> Table:
    """Every attended pair of every seed, and of every value of what was swept."""
    swept = (field,) if field else ()
    rows = [
        (*(r[name] for name in swept), r["seed"], *(p[key] for key in PAIR))
        for r in records
        for p in r["pairs"]
    ]
    return Table((*swept, "seed", *PAIR.values()), rows, PROSE("pairs table"))


def answer(summary: dict[str, Any], records: list[dict[str, Any]]) -> str:
    """Whether singular vectors align with features, in a line."""
    n = sum(len(r["pairs"]) for r in records)
    if not n:
        return PROSE("nothing attended", largest=summary["largest_cosine_any_feature"])
    share = summary["share_above_0.95"]
    said = "yes" if share == 1 else "mostly" if share >= 0.5 else "no"
    return PROSE(
        said,
        n=n,
        share=share,
        level=ALIGNED,
        smallest=summary["smallest_cosine"],
        mean=summary["mean_cosine"],
    )


FACTS = {
    "smallest_cosine": "smallest |cos| of a pair",
    "share_above_0.95": "pairs with |cos| ≥ 0.95",
    "closed_form_cosine": "|cos| with the closed form",
    "others_inside": "other features in the pair's plane",
    "others_inside_by_chance": "the same by chance",
}
"""The few numbers at the top; the run's JSON has all of them."""


def _facts(summary: dict[str, Any]) -> dict[str, str]:
    shown = {key: name for key, name in FACTS.items() if isinstance(summary.get(key), float)}
    return {
        name: percent(summary[key]) if key.startswith("share") else f"{summary[key]:.3f}"
        for key, name in shown.items()
    }
