"""Contrastive QK features: covariance, rank, subspaces, swaps and attribution, on tensors alone."""

from headwise.contrast.attribution import Attribution, attribute, query_split
from headwise.contrast.covariance import ContrastiveCovariance
from headwise.contrast.rank import (
    RankReport,
    distinct_queries,
    energy_rank,
    null_rank,
    rank_report,
    rank_reports,
    salience_split,
    stable_rank,
)
from headwise.contrast.subspaces import (
    Feature,
    feature,
    mean_difference,
    overlap,
    principal_angles,
    principal_components,
    principal_cosines,
    random_subspaces,
    superposition_index,
    union,
)
from headwise.contrast.swaps import Edited, Rows, SwapTest, dose_response, edit_rows, swap_keys, swap_test

__all__ = [
    "Attribution",
    "ContrastiveCovariance",
    "Edited",
    "Feature",
    "RankReport",
    "Rows",
    "SwapTest",
    "attribute",
    "distinct_queries",
    "dose_response",
    "edit_rows",
    "energy_rank",
    "feature",
    "mean_difference",
    "null_rank",
    "overlap",
    "principal_angles",
    "principal_components",
    "principal_cosines",
    "query_split",
    "random_subspaces",
    "rank_report",
    "rank_reports",
    "salience_split",
    "stable_rank",
    "superposition_index",
    "swap_keys",
    "swap_test",
    "union",
]
