"""headwise: why does this attention head attend here?

The public names are imported when they are first used, so that ``import headwise`` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headwise.bases.cell import Channels as Channels
    from headwise.circuits.circuit import Circuit as Circuit
    from headwise.circuits.faithfulness import faithfulness as faithfulness
    from headwise.circuits.firing import trace_firing as trace_firing
    from headwise.circuits.interventions import intervene as intervene
    from headwise.circuits.trace import trace as trace
    from headwise.contrast.bank import FeatureBank as FeatureBank
    from headwise.contrast.study import contrast as contrast
    from headwise.errors import HeadwiseError as HeadwiseError
    from headwise.families.study import find_families as find_families
    from headwise.model.edits import AddVectors as AddVectors
    from headwise.model.edits import RemoveWithin as RemoveWithin
    from headwise.model.edits import SetVectors as SetVectors
    from headwise.model.edits import SwapWithin as SwapWithin
    from headwise.model.loading.load import load as load
    from headwise.model.model import Model as Model
    from headwise.sinks.study import find_sinks as find_sinks
    from headwise.sparsity.study import measure_sparsity as measure_sparsity
    from headwise.survey.collect import trace_many as trace_many
    from headwise.survey.records import CircuitRun as CircuitRun
    from headwise.types import Cell as Cell
    from headwise.types import Component as Component
    from headwise.types import Estimate as Estimate
    from headwise.types import Head as Head
    from headwise.types import Removed as Removed
    from headwise.types import Signal as Signal
    from headwise.types import Subspace as Subspace
    from headwise.why.explain import Explanation as Explanation
    from headwise.why.explain import explain as explain

__version__ = "0.1.0"

_HOMES = {
    "explain": "headwise.why.explain",
    "Explanation": "headwise.why.explain",
    "Channels": "headwise.bases.cell",
    "Circuit": "headwise.circuits.circuit",
    "faithfulness": "headwise.circuits.faithfulness",
    "find_families": "headwise.families.study",
    "intervene": "headwise.circuits.interventions",
    "trace": "headwise.circuits.trace",
    "trace_firing": "headwise.circuits.firing",
    "trace_many": "headwise.survey.collect",
    "CircuitRun": "headwise.survey.records",
    "load": "headwise.model.loading.load",
    "Model": "headwise.model.model",
    "AddVectors": "headwise.model.edits",
    "RemoveWithin": "headwise.model.edits",
    "SetVectors": "headwise.model.edits",
    "SwapWithin": "headwise.model.edits",
    "Cell": "headwise.types",
    "Component": "headwise.types",
    "Estimate": "headwise.types",
    "Head": "headwise.types",
    "Removed": "headwise.types",
    "Signal": "headwise.types",
    "Subspace": "headwise.types",
    "HeadwiseError": "headwise.errors",
    "FeatureBank": "headwise.contrast.bank",
    "contrast": "headwise.contrast",
    "find_sinks": "headwise.sinks.study",
    "measure_sparsity": "headwise.sparsity.study",
}

__all__ = [
    "AddVectors",
    "Cell",
    "Channels",
    "Circuit",
    "CircuitRun",
    "Component",
    "Estimate",
    "Explanation",
    "FeatureBank",
    "Head",
    "HeadwiseError",
    "Model",
    "RemoveWithin",
    "Removed",
    "SetVectors",
    "Signal",
    "Subspace",
    "SwapWithin",
    "__version__",
    "contrast",
    "explain",
    "faithfulness",
    "find_families",
    "find_sinks",
    "intervene",
    "load",
    "measure_sparsity",
    "trace",
    "trace_firing",
    "trace_many",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'headwise' has no attribute {name!r}")
    home = importlib.import_module(_HOMES[name])
    # A room that is a public name itself can be called; it must be the module, whoever imported it first.
    return home if _HOMES[name] == f"headwise.{name}" else getattr(home, name)


def __dir__() -> list[str]:
    return __all__
