"""Features without labels: a head's own attention says which of its keys go with which of its queries.

``attention_rows`` (what one head attends to) → ``self_contrast`` (the span in which it does so, its rank against
placebo) → ``axes`` (independent axes inside that span) → ``groups`` (axes that act together).
"""

from headwise.contrast.unlabelled.attention_rows import AttendedCells, AttentionRows
from headwise.contrast.unlabelled.axes import IndependentAxes
from headwise.contrast.unlabelled.groups import dependence, grouped
from headwise.contrast.unlabelled.self_contrast import SelfContrast

__all__ = ["AttendedCells", "AttentionRows", "IndependentAxes", "SelfContrast", "dependence", "grouped"]
