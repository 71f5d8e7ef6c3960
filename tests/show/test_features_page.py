"""The report of a study of features: small enough, and figures that stay readable whatever was found."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from features_page import made_up_features

from headwise.contrast.result import FeaturesResult
from headwise.show.contrast import figures, ranks
from headwise.show.contrast.report import features_report


@pytest.fixture(scope="module")
def study() -> FeaturesResult:
    return made_up_features(heads=9, features=13)


def drawn(figure: Any) -> dict[str, Any]:
    return figure.to_dict()


@pytest.mark.slow
def test_nine_heads_of_thirteen_categories_fit_in_a_page_and_fold(study: FeaturesResult) -> None:
    page = features_report(study).html()
    assert len(page.encode()) < 2_000_000
    assert page.count("<details class=fold") == 9


def test_the_axis_of_singular_values_ends_with_what_is_drawn(study: FeaturesResult) -> None:
    """Resampled prompts repeat: the interval of the last singular value may lie at a rounding error of zero."""
    spectra = tuple(replace(r, low=1e-15, high=1e-14) if r.index == 20 else r for r in study.spectra)
    head = study.chosen[0]
    layout = drawn(ranks.singular_values(replace(study, spectra=spectra), head))["layout"]
    smallest = min(min(r.sigma, r.null) for r in spectra if r.head == head)
    low, high = layout["yaxis"]["range"]
    assert 10**low > smallest / 2
    assert high > low
    assert high - low < 2  # labels of every power of ten have room


def test_shares_set_the_axis_and_not_their_intervals(study: FeaturesResult) -> None:
    wild = replace(
        study, features=tuple(replace(f, share_low=-80.0, share_high=80.0) for f in study.features)
    )
    low, high = drawn(figures.share_bars(wild))["layout"]["yaxis"]["range"]
    assert -0.5 < low < 0
    assert 1 < high < 1.5


def test_many_angles_are_a_matrix_and_few_are_lines(study: FeaturesResult) -> None:
    many = drawn(ranks.angles(study, study.chosen[0]))["data"]
    assert [trace["type"] for trace in many] == ["heatmap", "heatmap"]
    z = many[0]["z"]
    assert len(z) == len(z[0]) == 13
    assert all(z[i][j] == z[j][i] is not None for i in range(13) for j in range(13))
    few = made_up_features(heads=1, features=3)
    assert {t["type"] for t in drawn(ranks.angles(few, few.chosen[0]))["data"]} == {"scatter"}


@pytest.mark.slow
def test_a_rank_that_cannot_grow_is_not_drawn(study: FeaturesResult) -> None:
    assert ranks.growing(study) == []
    assert "so\nthere is nothing to vary" in features_report(study).html()
    varied = made_up_features(heads=2, features=3, values=4)
    names = [t["name"] for t in drawn(ranks.rank_growth(varied))["data"] if t.get("showlegend")]
    assert names == ["the design's bound", *varied.chosen]
