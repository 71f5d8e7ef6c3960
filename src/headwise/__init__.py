"""headwise: why does this attention head attend here?

The public names are imported when they are first used, so that ``import headwise`` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headwise.bases.basis import Basis as Basis
    from headwise.bases.calibrate import calibrate as calibrate
    from headwise.bases.calibration import Calibration as Calibration
    from headwise.basis_names import BasisName as BasisName
    from headwise.circuits.circuit import Circuit as Circuit
    from headwise.circuits.faithfulness import faithfulness as faithfulness
    from headwise.circuits.interventions import intervene as intervene
    from headwise.circuits.trace import trace as trace
    from headwise.contrast.bank import FeatureBank as FeatureBank
    from headwise.contrast.covariance import ContrastiveCovariance as ContrastiveCovariance
    from headwise.contrast.result import FeaturesResult as FeaturesResult
    from headwise.contrast.roles import HeadRoles as HeadRoles
    from headwise.contrast.roles import head_roles as head_roles
    from headwise.contrast.study import find_features as find_features
    from headwise.contrast.unlabelled.result import UnlabelledResult as UnlabelledResult
    from headwise.errors import HeadwiseError as HeadwiseError
    from headwise.families.result import FamiliesResult as FamiliesResult
    from headwise.families.study import find_families as find_families
    from headwise.model.edits import AddVectors as AddVectors
    from headwise.model.edits import RemoveWithin as RemoveWithin
    from headwise.model.edits import SetOutput as SetOutput
    from headwise.model.edits import SetVectors as SetVectors
    from headwise.model.edits import Silence as Silence
    from headwise.model.edits import SwapWithin as SwapWithin
    from headwise.model.loading.load import load as load
    from headwise.model.model import Model as Model
    from headwise.naming.result import NamesResult as NamesResult
    from headwise.naming.run import find_names as find_names
    from headwise.portraits.portrait import HeadPortrait as HeadPortrait
    from headwise.portraits.result import Atlas as Atlas
    from headwise.portraits.study import atlas as atlas
    from headwise.portraits.study import head_portrait as head_portrait
    from headwise.progress import Progress as Progress
    from headwise.research.reproduce import Reproduced as Reproduced
    from headwise.research.reproduce import reproduce as reproduce
    from headwise.scale.cluster import RayCluster as RayCluster
    from headwise.show.widget import widget as widget
    from headwise.sinks.result import SinksResult as SinksResult
    from headwise.sinks.study import find_sinks as find_sinks
    from headwise.sparsity.result import SparsityResult as SparsityResult
    from headwise.sparsity.study import find_sparsity as find_sparsity
    from headwise.survey.collect import trace_many as trace_many
    from headwise.survey.records import CircuitRun as CircuitRun
    from headwise.types import Cell as Cell
    from headwise.types import Claim as Claim
    from headwise.types import Component as Component
    from headwise.types import Estimate as Estimate
    from headwise.types import Head as Head
    from headwise.types import Removed as Removed
    from headwise.types import Signal as Signal
    from headwise.types import Subspace as Subspace
    from headwise.why.explain import explain as explain
    from headwise.why.explanation import Explanation as Explanation
    from headwise.why.head_effects import intervene_heads as intervene_heads
    from headwise.why.many.result import ExplanationsResult as ExplanationsResult
    from headwise.why.many.study import explain_many as explain_many
    from headwise.why.pair.explain import explain_difference as explain_difference
    from headwise.why.pair.result import PromptDifference as PromptDifference
    from headwise.why.row import RowExplanation as RowExplanation
    from headwise.why.row import explain_row as explain_row
    from headwise.why.vocabulary import HeadVocabulary as HeadVocabulary
    from headwise.why.vocabulary import head_vocabulary as head_vocabulary

__version__ = "0.1.0"

_NAMES = {
    "bases.basis": "Basis",
    "bases.calibrate": "calibrate",
    "bases.calibration": "Calibration",
    "basis_names": "BasisName",
    "circuits.circuit": "Circuit",
    "circuits.faithfulness": "faithfulness",
    "circuits.interventions": "intervene",
    "circuits.trace": "trace",
    "contrast.bank": "FeatureBank",
    "contrast.covariance": "ContrastiveCovariance",
    "contrast.result": "FeaturesResult",
    "contrast.roles": "HeadRoles head_roles",
    "contrast.study": "find_features",
    "contrast.unlabelled.result": "UnlabelledResult",
    "errors": "HeadwiseError",
    "families.result": "FamiliesResult",
    "families.study": "find_families",
    "model.edits": "AddVectors RemoveWithin SetOutput SetVectors Silence SwapWithin",
    "model.loading.load": "load",
    "model.model": "Model",
    "naming.result": "NamesResult",
    "naming.run": "find_names",
    "portraits.portrait": "HeadPortrait",
    "portraits.result": "Atlas",
    "portraits.study": "atlas head_portrait",
    "progress": "Progress",
    "research.reproduce": "Reproduced reproduce",
    "scale.cluster": "RayCluster",
    "show.widget": "widget",
    "sinks.result": "SinksResult",
    "sinks.study": "find_sinks",
    "sparsity.result": "SparsityResult",
    "sparsity.study": "find_sparsity",
    "survey.collect": "trace_many",
    "survey.records": "CircuitRun",
    "types": "Cell Claim Component Estimate Head Removed Signal Subspace",
    "why.explain": "explain",
    "why.explanation": "Explanation",
    "why.head_effects": "intervene_heads",
    "why.many.result": "ExplanationsResult",
    "why.many.study": "explain_many",
    "why.pair.explain": "explain_difference",
    "why.pair.result": "PromptDifference",
    "why.row": "RowExplanation explain_row",
    "why.vocabulary": "HeadVocabulary head_vocabulary",
}
"""Where the public names live; the block above says the same to type checkers, and a test compares the two."""

_HOMES = {name: f"headwise.{home}" for home, names in _NAMES.items() for name in names.split()}

__all__ = sorted(["__version__", *_HOMES])  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'headwise' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
