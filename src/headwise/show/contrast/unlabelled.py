"""Features without labels: tables for the terminal, and one offline page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import plotly.graph_objects as go
from rich.console import Group, RenderableType
from rich.text import Text

from headwise.show.kit.markdown import Prose, literal
from headwise.show.kit.report import Block, Figure, Markdown, Report, Section, Table
from headwise.show.kit.table import TableColumn, TableColumns
from headwise.show.kit.terminal import quoted, table
from headwise.show.kit.theme import NEUTRAL, PALETTE, styled

if TYPE_CHECKING:
    from headwise.contrast.unlabelled.cells import CellInText
    from headwise.contrast.unlabelled.pairs import FeaturePair
    from headwise.contrast.unlabelled.result import (
        UnlabelledFeature,
        UnlabelledHead,
        UnlabelledResult,
    )

PROSE = Prose.read("contrast/unlabelled.md")
SHOWN = 2
"""Cells of a feature that the terminal shows."""


def cell_line(cell: CellInText) -> str:
    """The text around a cell, [key] and {query} marked, line breaks visible."""
    marks = {cell.key: ("[", "]"), cell.query: ("{", "}")}
    if cell.key == cell.query:
        marks = {cell.key: ("[{", "}]")}
    tokens = [_marked(token, *marks.get(i, ("", ""))) for i, token in enumerate(_spaced(cell.tokens))]
    return f"{cell.attention:.2f} → {cell.without:.2f}  {''.join(tokens).strip()}"


def _marked(token: str, before: str, after: str) -> str:
    """Marks around a token, after the space that it begins with."""
    return f" {before}{token[1:]}{after}" if token.startswith(" ") else f"{before}{token}{after}"


def _spaced(tokens: Sequence[str]) -> list[str]:
    """Tokens as they are read one after the other: line breaks visible, and spaces where no token brings its own.

    >>> _spaced(["two", "\\nlines"]), _spaced(["whole", "words"])
    (['two', '⏎lines'], ['whole', ' words'])
    """
    words = not any(token[:1].isspace() for token in tokens)
    plain = [token.replace("\n", "⏎") for token in tokens]
    return [f" {token}" if words and place else token for place, token in enumerate(plain)]


def unlabelled_tables(found: UnlabelledResult) -> RenderableType:
    """Heads, features with two cells each, and pairs that seem to do the same."""
    heads = [
        (
            one.head,
            str(one.cells),
            f"{one.rank} ({one.rank_energy}, {one.rank_null})",
            str(one.identified),
            f"{one.explained:.2f}",
            f"{one.principal:.2f}",
            f"{one.placebo:.2f}",
        )
        for one in found.heads
    ]
    columns = ("head", "cells", "rank (99 %, placebo)", "axes", "explained", "principal", "placebo")
    parts: list[RenderableType] = [
        Text(f"{found.corpus} in {found.model}: features without labels", style="bold"),
        Text(
            f"{found.texts} texts, {found.held_out} of them held out; first tokens and {found.sinks} sinks left out"
        ),
        Text(),
        table(columns, heads),
    ]
    for head in found.heads:
        parts += [Text(), _features_table(found.of(head.head), head.head)]
        for one in found.of(head.head):
            parts.append(Text(f"{one.name}: keys {_words(one.keys)}; queries {_words(one.queries)}"))
            parts += [Text(f"  {cell_line(cell)}") for cell in one.cells[:SHOWN]]
    parts += [
        Text(),
        Text("[key] and {query}; attention with → without the feature"),
    ]
    parts += [Text(pair.sentence) for pair in found.pairs]
    if found.warnings:
        parts += [Text(), Text("Beware:"), *(Text(f"  {line}") for line in found.warnings)]
    return Group(*parts)


def _words(tokens: tuple[str, ...]) -> str:
    return " ".join(quoted(token) for token in tokens)


def _features_table(features: list[UnlabelledFeature], head: str) -> RenderableType:
    rows = [
        (
            one.name,
            str(one.rank),
            f"{one.share:.2f}",
            f"{one.swap.mean:.2f}",
            f"{one.null_share:.2f}",
            f"{one.claim.q:.3f}",
            f"{one.alignment:+.2f}",
            f"{one.halves:.2f}",
            f"{one.seeds:.2f}",
            one.verdict,
        )
        for one in features
    ]
    names = ("feature", "rank", "attention", "swap", "placebo", "q", "alignment", "halves", "starts", "")
    return table(names, rows, title=f"Features of {head}")


# --- the page --------------------------------------------------------------------------------------------------------


def spectrum(head: UnlabelledHead) -> go.Figure:
    """Singular values of ΔC beside the placebos'."""
    figure = go.Figure()
    largest = max(head.sigma[0], 1e-30)
    places = list(range(1, len(head.sigma) + 1))
    for values, name, colour in (
        (head.sigma, "ΔC", PALETTE[0]),
        (head.null_sigma, "placebo, 99 %", NEUTRAL),
    ):
        figure.add_scatter(
            x=places,
            y=[value / largest for value in values],
            mode="lines+markers",
            marker={"size": 5},
            line={"color": colour, "width": 2},
            name=name,
        )
    figure.add_vline(x=head.rank + 0.5, line={"dash": "dash", "color": NEUTRAL, "width": 1})
    return styled(
        figure,
        height=300,
        xaxis={"title": "direction"},
        yaxis={"title": "over the largest", "type": "log"},
    )


def _features(features: list[UnlabelledFeature]) -> Table:
    columns: TableColumns[UnlabelledFeature] = {
        "feature": lambda one: one.name,
        "rank": lambda one: one.rank,
        TableColumn(name="attention", format=".2f"): lambda one: one.share,
        TableColumn(name="swap", format=".2f"): lambda one: one.swap.mean,
        TableColumn(name="low", format=".2f"): lambda one: one.swap.low,
        TableColumn(name="high", format=".2f"): lambda one: one.swap.high,
        TableColumn(name="placebo", format=".2f"): lambda one: one.null_share,
        TableColumn(name="q", format=".3f"): lambda one: one.claim.q,
        TableColumn(name="alignment", format="+.2f"): lambda one: one.alignment,
        TableColumn(name="halves", format=".2f"): lambda one: one.halves,
        TableColumn(name="starts", format=".2f"): lambda one: one.seeds,
        "verdict": lambda one: one.verdict,
        "keys": lambda one: _words(one.keys),
        "queries": lambda one: _words(one.queries),
    }
    return Table.of(features, columns, PROSE("features table"))


def _cell_item(cell: CellInText) -> str:
    """One cell as an item of a list: the key in bold, the query as code."""
    words = []
    for place, token in enumerate(_spaced(cell.tokens)):
        said = literal(token.strip() or "␣")
        space = " " if token[:1].isspace() else ""
        if place == cell.key:
            said = f"**{said}**"
        if place == cell.query:
            said = f"`{literal(token.strip() or '␣')}`" if place != cell.key else f"**{said} (itself)**"
        words.append(space + said)
    return f"- {cell.attention:.2f} → {cell.without:.2f} … {''.join(words).strip()} …"


def _head_section(found: UnlabelledResult, head: UnlabelledHead) -> Section:
    features = found.of(head.head)
    supported = sum(one.claim.supported for one in features)
    blocks = [_features(features), Figure(spectrum(head), PROSE("spectrum figure")), Markdown(PROSE("cells"))]
    for one in features:
        title = f"**{literal(one.name)}**, {one.verdict}: {one.share:.0%} of the attention"
        blocks += [Markdown(title), Markdown("\n".join(_cell_item(cell) for cell in one.cells))]
    note = f"{len(features)} features, {supported} supported, {head.explained:.0%} explained"
    return Section(head.head, blocks, fold=len(found.heads) > 1, note=note)


def _pairs_section(found: UnlabelledResult) -> Section:
    if not found.pairs:
        return Section("Features that seem alike", [Markdown(PROSE("no pairs"))])
    columns: TableColumns[FeaturePair] = {
        "head": lambda one: one.head,
        "one": lambda one: one.first,
        "other": lambda one: one.second,
        TableColumn(name="cells shared", format=".2f"): lambda one: one.overlap,
        TableColumn(name="chance", format=".2f"): lambda one: one.chance,
        TableColumn(name="swaps, nats", format="+.2f"): lambda one: one.swaps and one.swaps.difference,
        TableColumn(name="q, swaps", format=".3f"): lambda one: one.swaps and one.swaps.claim.q,
        TableColumn(name="writers", format="+.2f"): lambda one: one.writers and one.writers.difference,
        TableColumn(name="q, writers", format=".3f"): lambda one: one.writers and one.writers.claim.q,
        "told apart by": lambda one: " and ".join(one.by) or "nothing",
    }
    blocks: list[Block] = [Table.of(found.pairs, columns, PROSE("pairs"))]
    for pair in found.pairs:
        blocks.append(
            Markdown(f"**{literal(pair.head)}**: {literal(pair.sentence)}. {PROSE('disagreement')}")
        )
        for name, cells in ((pair.first, pair.only_first), (pair.second, pair.only_second)):
            lines = [_cell_item(cell) for cell in cells] or ["- none"]
            blocks.append(Markdown(f"{literal(name)} alone:\n\n" + "\n".join(lines)))
    return Section("Features that seem alike", blocks)


def unlabelled_report(found: UnlabelledResult) -> Report:
    """Heads, each with its features and their strongest cells, and pairs that seem alike."""
    columns: TableColumns[UnlabelledHead] = {
        "head": lambda one: one.head,
        "rows": lambda one: one.rows,
        "cells": lambda one: one.cells,
        "held out": lambda one: one.held_out,
        "rank": lambda one: one.rank,
        "99 %": lambda one: one.rank_energy,
        "above placebo": lambda one: one.rank_null,
        "axes": lambda one: one.identified,
        TableColumn(name="explained", format=".2f"): lambda one: one.explained,
        TableColumn(name="principal", format=".2f"): lambda one: one.principal,
        TableColumn(name="placebo", format=".2f"): lambda one: one.placebo,
    }
    warnings = (
        [Markdown("\n".join(f"- {literal(line)}" for line in found.warnings))] if found.warnings else []
    )
    about = PROSE("how", max_rank=found.config["max_rank"])
    return Report(
        f"{found.corpus}: features without labels",
        [
            Section(
                "Heads",
                [Markdown(about), Table.of(found.heads, columns, PROSE("heads table")), *warnings],
            ),
            *(_head_section(found, head) for head in found.heads),
            _pairs_section(found),
        ],
        subtitle=PROSE(
            "subtitle",
            model=found.model,
            corpus=found.corpus,
            texts=found.texts,
            held_out=found.held_out,
            sinks=found.sinks,
        ),
        facts={
            "heads": str(len(found.heads)),
            "features": str(len(found.features)),
            "supported": str(sum(one.claim.supported for one in found.features)),
            "not told apart": f"{sum(not pair.told_apart for pair in found.pairs)} of {len(found.pairs)} pairs",
        },
    )
