"""Contrastive QK features: which directions of a head's queries and keys carry a feature, and does it attend by them?

The maths, on tensors alone and exported here: ``covariance`` (ΔC), ``rank`` (how many dimensions), ``subspaces``
(where), ``swaps`` (exchange a feature of two keys), ``attribution`` (a row of logits by feature).

The study around it, a file per stage: ``heads`` (which heads do the task), ``collect`` (queries and keys of labelled
prompts), ``fit`` (ranks and subspaces), ``swap_tests`` → ``measured`` (every edit on held-out prompts),
``edited_passes`` (the same in the running model), ``tables`` → ``rows`` (means with intervals), ``result``; ``study``
runs them one after another.
"""

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
    principal_angles,
    principal_components,
    principal_cosines,
    random_subspaces,
    superposition_index,
    union,
)
from headwise.contrast.swaps import Edited, SwapRows, SwapTest, dose_response, edit_rows, swap_keys, swap_test

__all__ = [
    "Attribution",
    "ContrastiveCovariance",
    "Edited",
    "Feature",
    "RankReport",
    "SwapRows",
    "SwapTest",
    "attribute",
    "distinct_queries",
    "dose_response",
    "edit_rows",
    "energy_rank",
    "feature",
    "mean_difference",
    "null_rank",
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
