"""Bases of heads' QK forms: the channels in which a logit, and who wrote it, is told."""

from headwise.bases.relative import channel_logits, channels_needed, relative_attention, sparsity
from headwise.bases.singular import QKSVD, qk_svd, rotated

__all__ = [
    "QKSVD",
    "channel_logits",
    "channels_needed",
    "qk_svd",
    "relative_attention",
    "rotated",
    "sparsity",
]
