"""The first look at a prompt: who attends where, with the tokens that heads rest on left out and counted."""

from __future__ import annotations

import json

import pytest
import torch
from tiny import tiny

from headwise.cli.main import main
from headwise.errors import HeadwiseError
from headwise.model.model import Model
from headwise.types import Head
from headwise.why.attention import SINK, sinks_of, strongest_heads

IDS = [5, 9, 7, 3, 9, 11, 2]


@pytest.fixture(scope="module")
def model() -> Model:
    return tiny("gpt2")


@pytest.fixture(scope="module")
def row(model: Model) -> torch.Tensor:
    """What every head gives every token from the last one [heads, tokens]."""
    return model.capture(IDS, queries=-1, want="pattern").pattern[0, :, 0]


def test_named_tokens_are_shown_with_their_strongest_heads(model: Model, row: torch.Tensor) -> None:
    look = strongest_heads(model, IDS, to=[0, "-2", 5], top=3)
    assert [(place.position, place.token) for place in look.places] == [(0, "5"), (5, "11")]
    for place in look.places:
        best = row[:, place.position].topk(3)
        assert [head for head, _ in place.heads] == [model.heads[i] for i in best.indices.tolist()]
        assert [share for _, share in place.heads] == pytest.approx(best.values.tolist(), abs=1e-6)
    assert look.hidden == () and look.hidden_cells == 0
    assert (look.query, look.query_token, look.prompt) == (6, "2", None)


def test_sinks_are_left_out_and_counted(model: Model, row: torch.Tensor) -> None:
    look = strongest_heads(model, IDS)
    hidden = [s.position for s in look.hidden]
    assert hidden == sinks_of(row, 6) and hidden[0] == 0
    assert not set(hidden) & {place.position for place in look.places}
    peaks = row.argmax(1).tolist()
    assert [s.cells for s in look.hidden] == [peaks.count(position) for position in hidden]
    assert look.hidden_cells == sum(s.cells for s in look.hidden) > 0
    best = [p for p in row.max(0).values.argsort(descending=True).tolist() if p not in hidden]
    assert [place.position for place in look.places] == best[:3]


def test_sinks_are_shown_when_asked_for(model: Model, row: torch.Tensor) -> None:
    look = strongest_heads(model, IDS, sinks=True)
    assert [place.position for place in look.places] == row.max(0).values.topk(3).indices.tolist()
    assert look.hidden == ()


def test_what_is_a_sink_in_a_row() -> None:
    row = torch.zeros(4, 6)
    row[:, 3], row[:, 5] = SINK, 0.6
    assert sinks_of(row, 5) == [0, 3]  # a token that attends to itself does not rest
    row[0, 3] -= 0.01
    assert sinks_of(row, 5) == [0]
    assert sinks_of(row[:, :2], 1) == sinks_of(row[:, :1], 0) == []
    two = strongest_heads(tiny("gpt2"), IDS[:2])
    assert {place.position for place in two.places} == {0, 1} and two.hidden == ()


def test_columns_after_the_query_are_no_places(model: Model) -> None:
    look = strongest_heads(model, IDS, query=2)
    assert {place.position for place in look.places} == {1, 2} - {s.position for s in look.hidden}
    with pytest.raises(
        HeadwiseError, match=r"^key '3' \(3\) comes after query '7' \(2\), which cannot see it$"
    ):
        strongest_heads(model, IDS, query=2, to=[3])


def test_the_command_says_how_many_cells_it_hid(
    model: Model, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("headwise.model.loading.load.load", lambda *_, **__: model)
    monkeypatch.setattr(model, "prompt_ids", lambda prompt: IDS)
    look = strongest_heads(model, IDS)
    assert main(["attention", "text"]) == 0
    said = capsys.readouterr().out
    assert f"{look.hidden_cells} cells hidden: heads whose strongest attention rests on '5' (0)" in said
    assert "--sinks shows them" in said
    assert main(["attention", "text", "--sinks"]) == 0
    assert "hidden" not in capsys.readouterr().out
    assert main(["attention", "text", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["hidden"] == [
        {"position": s.position, "token": s.token, "cells": s.cells} for s in look.hidden
    ]
    assert document["tokens"] == [str(one) for one in IDS]
    assert Head.parse(document["places"][0]["heads"][0]["head"]) in model.heads
