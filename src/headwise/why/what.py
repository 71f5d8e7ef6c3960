"""What made the score: the logit against its rivals, by channel and by named feature."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from headwise.bases.relative import channels_needed, relative, sparsity
from headwise.contrast.attribution import query_split
from headwise.contrast.bank import BankFeature
from headwise.tracing.writes import PromptWrites
from headwise.types import Cell

RIVALS = 5


@dataclass(frozen=True)
class ChannelPart:
    """One channel's part of the relative logit."""

    channel: int
    value: float
    logit: float


@dataclass(frozen=True)
class FeaturePart:
    """One named feature's part of the relative logit (Shapley over the features, so that no order is chosen)."""

    name: str
    rank: int
    value: float
    logit: float


@dataclass(frozen=True)
class Rival:
    """Another key, why it lost: the channels in which the winner's logit is larger."""

    key: int
    attention: float
    gap: float
    channels: tuple[ChannelPart, ...]


@dataclass(frozen=True)
class What:
    """What in the query and the key made the score.

    ``logit`` is scale · q·k before a soft-cap; ``relative`` is the logit less the mean of the other visible ones
    (Eq. W1). Channels sum to ``relative``; features and ``unexplained`` sum to it too.
    """

    attention: float
    logit: float
    relative: float
    channels: tuple[ChannelPart, ...]
    channels_needed: int
    sparsity: float
    features: tuple[FeaturePart, ...]
    unexplained: float
    rivals: tuple[Rival, ...]
    error: float
    """How far the channels' sum is from the model's own logit."""

    @property
    def unexplained_share(self) -> float:
        return self.unexplained / self.relative if self.relative else float("nan")


def what(up: PromptWrites, cell: Cell, features: Sequence[BankFeature] = ()) -> What:
    """Split the cell's logit, and its lead over the other keys, by channel and by feature."""
    head, d, s = cell
    q = up.q[head.layer, head.index, d].double().cpu()
    keys = up.k[head.layer, head.index // up.group].double().cpu()
    visible = up.visible(head.layer)[d].cpu()
    scale = float(up.scale[head.layer])
    logits = keys @ q * scale
    pattern = up.stream.whole_pattern(head, up.prompt, rows=[d])[0].double().cpu()

    query_map, key_map = (x.cpu() for x in up.maps_at(head, d))
    by_channel = scale * (q @ query_map) * (keys @ key_map.mT)
    logit = by_channel[s]
    lead = relative(by_channel, s, visible)
    order = lead.abs().argsort(descending=True).tolist()

    feature_parts: tuple[FeaturePart, ...] = ()
    if features:
        names = {feature.name: feature.query for feature in features}
        pieces = query_split(names, "shapley") @ q
        rows = scale * (keys @ pieces.mT)
        parts = relative(rows, s, visible)
        feature_parts = tuple(
            FeaturePart(feature.name, feature.rank, float(parts[i]), float(rows[s, i]))
            for i, feature in enumerate(features)
        )
    total = float(lead.sum())
    rivals = pattern.masked_fill(~visible, -1.0)
    rivals[s] = -1.0
    number = min(RIVALS, int(visible.sum()) - 1)
    return What(
        attention=float(pattern[s]),
        logit=float(logits[s]),
        relative=total,
        channels=tuple(ChannelPart(c, float(lead[c]), float(logit[c])) for c in order),
        channels_needed=int(channels_needed(lead)),
        sparsity=float(sparsity(lead)),
        features=feature_parts,
        unexplained=total - sum(part.value for part in feature_parts),
        rivals=tuple(_rival(key, pattern, by_channel, s) for key in rivals.topk(number).indices.tolist()),
        error=abs(float(logit.sum() - logits[s])),
    )


def _rival(key: int, pattern: Tensor, by_channel: Tensor, s: int) -> Rival:
    gap = by_channel[s] - by_channel[key]
    top = gap.argsort(descending=True)[:3].tolist()
    parts = tuple(ChannelPart(c, float(gap[c]), float(by_channel[key, c])) for c in top)
    return Rival(key, float(pattern[key]), float(gap.sum()), parts)
