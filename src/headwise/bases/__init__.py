"""Channels: the singular pairs of a head's QK form, relative attention and its sparsity."""

from headwise.bases.cell import QKSVD, qk_svd, rotated
from headwise.bases.relative import channel_logits, channels_needed, relative_attention, sparsity

__all__ = [
    "QKSVD",
    "channel_logits",
    "channels_needed",
    "qk_svd",
    "relative_attention",
    "rotated",
    "sparsity",
]
