"""Contrastive QK features: covariance, rank, subspaces, swaps and attribution, on tensors alone.

The package is also a function: ``headwise.contrast(model, "binding")`` runs a whole study, see
:func:`headwise.contrast.study.contrast`.
"""

import sys
from types import ModuleType
from typing import Any

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


class _Study(ModuleType):
    """This package, which can also be called; the study's own modules are imported when that happens."""

    def __call__(self, *given: Any, **options: Any) -> Any:
        from headwise.contrast.study import contrast

        return contrast(*given, **options)


sys.modules[__name__].__class__ = _Study

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
