"""Figures of reports in light and dark: legends, marks and labels that can be read on both."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest
import torch

from headwise.show.contrast import spaces
from headwise.show.kit.figures import inert
from headwise.show.kit.theme import DARK, NEUTRAL, ON_POINTS, PALETTE, PAPER, WHISKER
from headwise.show.toy import payload
from headwise.show.toy.training import training_course
from headwise.sparsity.nulls import NULLS
from headwise.toy.sparse_attention import Point


def legend_of(figure: go.Figure) -> list[dict[str, Any]]:
    """The traces with a line in the legend."""
    return [t for t in inert(figure)["data"] if t.get("showlegend", True)]


def contrast(colour: str, paper: str) -> float:
    """The contrast of two colours as the web's guidelines define it (1 to 21)."""

    def light(hexadecimal: str) -> float:
        parts = np.array([int(hexadecimal[i : i + 2], 16) / 255 for i in (1, 3, 5)])
        linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
        return float(linear @ [0.2126, 0.7152, 0.0722])

    high, low = sorted((light(colour), light(paper)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("discrete", [True, False])
def test_the_legend_of_a_cloud_has_marks_of_its_own_colour(discrete: bool) -> None:
    """A mark coloured by a scale has none, and the browser draws it black, on dark paper too."""
    points = torch.randn(16, 3, generator=torch.Generator().manual_seed(0))
    value = torch.tensor([[(i >> b & 1) * 2.0 - 1 for b in range(3)] for i in range(16)])
    figure = payload.cloud(points, torch.arange(16) % 2 == 0, value, [0.5, 0.3, 0.2], discrete=discrete)
    marks = {t["name"]: t["marker"] for t in legend_of(figure) if t["mode"] == "markers"}
    assert {name: (mark["symbol"], mark["color"]) for name, mark in marks.items()} == {
        "queries": ("circle", NEUTRAL),
        "keys": ("diamond", NEUTRAL),
    }


@pytest.mark.parametrize("paper", [PAPER, DARK[PAPER]])
def test_marks_stand_out_from_light_and_dark_paper(paper: str) -> None:
    dark = paper != PAPER
    marks = [*PALETTE, WHISKER, NEUTRAL]
    shown = [DARK.get(colour, colour) if dark else colour for colour in marks]
    for colour in [*shown, *(colour for _, colour in ON_POINTS)]:
        assert contrast(colour, paper) > 2.2, colour


def test_losses_have_ticks_of_their_own() -> None:
    """Overlaid axes share their ticks unless they are told otherwise, and losses then read 3.273, 3.529, 3.785."""
    head = {"attention": 0.5, "on_other_name": 0.1, "sparsity": 0.3, "rotated": 0.4, "channels_needed": 3.0}
    head |= dict.fromkeys(NULLS, 0.35)
    points = [Point(f"step-{s}", s, 0.5, {"L0H0": head}) for s in (0, 9, 99)]
    layout = training_course(points, [[1, 4.3], [99, 3.1]]).to_dict()["layout"]
    (overlay,) = [axis for name, axis in layout.items() if name.startswith("yaxis") and "overlaying" in axis]
    assert overlay["tickmode"] == "auto"
    assert [layout["xaxis"]["tickvals"][i] for i in range(4)] == [1, 2, 5, 10]
    # One line per head, beside the figure: ten lines below it would lie on the axis's title.
    figure = training_course(points, [[1, 4.3], [99, 3.1]])
    assert [trace["name"] for trace in legend_of(figure)] == ["task accuracy", "loss", "L0H0"]
    assert layout["legend"]["x"] > 1


def test_a_picture_shows_queries_of_every_class_and_keys_with_their_own_labels() -> None:
    """25 keys a prompt: the keys of the first four prompts would leave a class without a query."""
    classes, prompts, width = 5, 60, 25
    which = torch.arange(prompts * width).reshape(prompts, width) % classes
    names = [[f"c{int(c)}" for c in row] for row in which]
    run = SimpleNamespace(
        chosen=["L0H0"],
        gallery=SimpleNamespace(
            q=torch.arange(prompts).float()[None, :, None].expand(1, prompts, 3),
            k=which.float()[None, :, :, None].expand(1, prompts, width, 3),
            query={"class": [f"c{i % classes}" for i in range(prompts)]},
            keys={"class": names},
        ),
    )
    q, q_labels, k, k_labels = spaces.points(run, "L0H0", "class")  # pyright: ignore[reportArgumentType]
    assert (len(q), len(k)) == (len(q_labels), len(k_labels)) == (spaces.QUERIES, spaces.KEYS)
    assert set(q_labels) == set(k_labels) == {f"c{c}" for c in range(classes)}
    assert [f"c{int(one)}" for one in k[:, 0]] == k_labels
    assert [f"c{int(one) % classes}" for one in q[:, 0]] == q_labels
