"""Channels that change with the texts of a basis are one block: no terminal gives them a number."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from rich.console import Console, RenderableType
from tiny import prompts_of, tiny

import headwise
from headwise.bases.cell import split_cell
from headwise.basis_names import BasisName
from headwise.show.circuits.terminal import circuit_summary
from headwise.show.why.parts import what_in_full, who_in_full
from headwise.show.why.terminal import explanation

IDS = prompts_of(11)[0]


def _printed(made: RenderableType) -> str:
    out = Console(file=io.StringIO(), width=160)
    out.print(made)
    assert isinstance(out.file, io.StringIO)
    return out.file.getvalue()


def test_an_explanation_gives_numbers_to_stable_channels_alone() -> None:
    model = tiny("llama", torch.float64)
    why = headwise.explain(model, IDS, head="L3H1", query=-1)
    kept = why.what.channels[0].channel
    unstable = tuple(replace(part, stable=part.channel == kept) for part in why.what.channels)
    why = replace(why, what=replace(why.what, channels=unstable))
    split = split_cell(model, IDS, "L3H1", why.query, why.key)
    whole = _printed(what_in_full(why, split, 50))
    rows = [line.split()[0] for line in whole.splitlines() if re.match(r" *(\d+|other) ", line)]
    assert rows == [str(kept), "other"]
    assert f"other: {len(unstable) - 1} channels that change with the texts of the basis" in whole
    rest = sum(part.log_odds for part in unstable if not part.stable)
    assert f"{rest:+.3f}" in whole
    signals = [k for side in why.who.signals.values() for one in side.signals for k in one.channels]
    assert any(k != kept for k in signals)
    assert _printed(who_in_full(why, 50)).count("other") >= sum(k != kept for k in signals)


@pytest.mark.parametrize("kind", ["singular", "balanced"])
def test_a_circuit_in_a_balanced_basis_counts_channels(kind: str) -> None:
    circuit = headwise.trace(tiny("llama"), IDS)
    edge = next(edge for edge in circuit.edges if edge.channels)
    circuit = replace(circuit, edges=(replace(edge, channels=(7, 31)),), basis=BasisName(kind, "query", "x"))  # pyright: ignore[reportArgumentType]
    for shown in (_printed(circuit_summary(circuit, 10)), circuit._repr_html_()):
        assert ("7, 31" in shown) == (kind == "singular")
        assert ("2 unnumbered" in shown) == (kind == "balanced")


@pytest.mark.parametrize("kind", ["singular", "balanced"])
def test_graph_editors_are_told_how_many_channels_where_numbers_mean_nothing(
    kind: str, tmp_path: Path
) -> None:
    circuit = headwise.trace(tiny("llama"), IDS)
    edge = next(edge for edge in circuit.edges if edge.channels)
    circuit = replace(circuit, edges=(replace(edge, channels=(7, 31)),), basis=BasisName(kind, "query", "x"))  # pyright: ignore[reportArgumentType]
    circuit.to_graphml(tmp_path / "c.graphml")
    said = (tmp_path / "c.graphml").read_text(encoding="utf-8")
    assert (">7 31<" in said) == (kind == "singular")
    assert (">2 unnumbered<" in said) == (kind == "balanced")


def test_the_document_says_which_channels_go_by_number() -> None:
    why = headwise.explain(tiny("llama", torch.float64), IDS, head="L3H1", query=-1, vocabulary=True)
    assert why.to_json()["numbered"] is None
    kept = why.what.channels[0].channel
    parts = tuple(replace(part, stable=part.channel == kept) for part in why.what.channels)
    why = replace(why, what=replace(why.what, channels=parts))
    assert why.to_json()["numbered"] == [kept]
    assert why.vocabulary is not None and len(why.vocabulary.channels) > 1
    assert set(re.findall(r"ch (\d+)", _printed(explanation(why)))) == {str(kept)}
