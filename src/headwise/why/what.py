"""What made the score: the log-odds by channel and by named feature, by place and content, and the keys that lost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import torch
from torch import Tensor

from headwise.bases.relative import channels_needed, relative, sparsity
from headwise.contrast.attribution import query_split
from headwise.contrast.bank import BankFeature, FeatureBank, features_of
from headwise.model.reading import Rotary, side_maps
from headwise.tracing.mlps import SignedTotals
from headwise.tracing.table import LogOddsTable
from headwise.tracing.writes import PromptWrites
from headwise.types import Cell
from headwise.why.attention import sinks_of

RIVALS = 5
SHOWN = 8
"""Channels that go by their number; all others are one block."""


@dataclass(frozen=True)
class ChannelPart:
    """One channel's part of the log-odds, and of the logit itself."""

    channel: int
    """Its number."""
    log_odds: float
    """Its part of the log-odds."""
    logit: float
    """Its part of the logit."""
    stable: bool
    """Whether the channel stays what it is with other texts, so that its number means something."""
    name: str | None = None
    """What it is called, if it has a name."""
    pole: str = ""
    """The signs of the query's coordinate, and of the key's above the mean of the other keys: ``++``, ``--``, …"""


@dataclass(frozen=True)
class FeaturePart:
    """One named feature's part of the log-odds (Shapley over the features, so that no order is chosen)."""

    name: str
    """The feature's name."""
    rank: int
    """How many dimensions of the query it takes."""
    value: float
    """Its part of the log-odds."""
    logit: float
    """Its part of the logit."""


@dataclass(frozen=True)
class RivalChannel:
    """By how much the winner's logit is larger in one channel."""

    channel: int
    """Its number."""
    value: float
    """The winner's logit in it less the rival's."""


@dataclass(frozen=True)
class Rival:
    """Another key, why it lost: the channels in which the winner's logit is larger."""

    key: int
    """The position of the other key."""
    attention: float
    """What it gets."""
    gap: float
    """By how much its logit is smaller; below 0 it is ahead."""
    channels: tuple[RivalChannel, ...]
    """The channels in which the winner is ahead most."""


@dataclass(frozen=True)
class What:
    """What in the query and the key made the score.

    ``log_odds`` is log(A / (1 − A)) + log(keys − 1): channels sum to it, features and ``unexplained`` sum to it too.
    ``logit`` is scale · q·k before a soft-cap; ``relative`` is the logit less the mean of the other visible ones.
    """

    attention: float
    """The cell's softmax weight."""
    log_odds: float
    """log(A / (1 − A)) + log(keys − 1): what all parts sum to."""
    keys: int
    """How many keys the row sees."""
    logit: float
    """scale · q·k, before a soft-cap."""
    relative: float
    """The logit less the mean of the other visible ones."""
    channels: tuple[ChannelPart, ...]
    """Every channel, the largest part first, whatever its sign."""
    channels_needed: int
    """How many channels rebuild the relative logit to 10 %."""
    sparsity: float
    """Of the relative logit over channels: 1 ÷ channels if one does it all, 1 if all are equal."""
    by_channel: SignedTotals
    """All that helps and all that hinders among the channels."""
    features: tuple[FeaturePart, ...]
    """The parts of named features, if a bank was given."""
    unexplained: float
    """The log-odds less what the features make."""
    rivals: tuple[Rival, ...]
    """The strongest other keys."""
    error: float
    """How far the channels' and the writers' sums are from the log-odds, at most."""
    tolerance: float
    """How far they may be, in the model's precision."""

    @property
    def unexplained_share(self) -> float:
        return self.unexplained / self.log_odds if self.log_odds else 0.0

    @property
    def shown(self) -> tuple[ChannelPart, ...]:
        """The channels that have a column of their own in the table."""
        return self.channels[:SHOWN]

    @property
    def numbers(self) -> list[int]:
        """The numbers of these channels."""
        return [part.channel for part in self.shown]

    @property
    def numbered(self) -> list[int]:
        """The channels that stay what they are with other texts: the others are never shown by number."""
        return sorted(part.channel for part in self.channels if part.stable)


def what(up: PromptWrites, table: LogOddsTable, features: Sequence[BankFeature] = ()) -> What:
    """Split the cell's log-odds by channel and by feature."""
    (head, d, s), scale = table.cell, float(up.scale[table.cell.head.layer])
    visible, pattern = table.visible, table.pattern
    by_channel = table.by_channel  # [T, K]
    parts = table.what
    order = parts.abs().argsort(descending=True, stable=True).tolist()
    stable = table.basis.stable.tolist()
    lead = relative(by_channel, s, visible)
    poles = _poles(table.query.searched.chunk.a[0], lead)
    feature_parts: tuple[FeaturePart, ...] = ()
    if features:
        q = up.q[head.layer, head.index, d].double()
        keys = up.k[head.layer, head.index // up.group].double()
        pieces = query_split({feature.name: feature.query for feature in features}, "shapley").to(q) @ q
        rows = scale * (keys @ pieces.mT)  # [T, features]
        values, logits = (table.gradient @ rows).tolist(), rows[s].tolist()
        feature_parts = tuple(
            FeaturePart(feature.name, feature.rank, value, logit)
            for feature, value, logit in zip(features, values, logits, strict=True)
        )
    rivals = pattern.masked_fill(~visible, -1.0)
    rivals[s] = -1.0
    number = min(RIVALS, table.keys - 1)
    logit = by_channel[s].tolist()
    return What(
        attention=table.attention,
        log_odds=table.total,
        keys=table.keys,
        logit=float(table.logits[s]),
        relative=float(lead.sum()),
        channels=tuple(
            ChannelPart(c, float(parts[c]), logit[c], bool(stable[c]), pole=poles[c]) for c in order
        ),
        channels_needed=int(channels_needed(lead)),
        sparsity=float(sparsity(lead)),
        by_channel=SignedTotals.of(parts),
        features=feature_parts,
        unexplained=table.total - sum(part.value for part in feature_parts),
        rivals=tuple(_rival(key, pattern, by_channel, s) for key in rivals.topk(number).indices.tolist()),
        error=table.error,
        tolerance=table.tolerance,
    )


def _poles(query: Tensor, lead: Tensor) -> list[str]:
    """Signs of both factors by channel: of the query's coordinate, and of the centred key's; their product leads."""
    signs = zip((query >= 0).tolist(), (lead * query >= 0).tolist(), strict=True)
    return [("+" if a else "-") + ("+" if b else "-") for a, b in signs]


def features_here(banks: Sequence[FeatureBank], up: PromptWrites, cell: Cell) -> list[BankFeature]:
    """The head's features in some banks, as they are for the cell's query."""
    rotary = up.stream.rotary(cell.head.layer, up.prompt)
    here = None if rotary is None else rotary.at_positions([cell.query])
    return [feature.at(here) for feature in features_of(banks, cell.head)]


def swap_partner(up: PromptWrites, table: LogOddsTable, made: What) -> int | None:
    """The strongest rival with which a feature is swapped. Never a sink: what heads rest on is no other case of it."""
    rows = [up.stream.pattern(layer, table.cell.query, up.prompt) for layer in range(up.n_layers)]
    sinks = sinks_of(torch.cat(rows), table.cell.query)
    return next((rival.key for rival in made.rivals if rival.key not in sinks), None)


def _rival(key: int, pattern: Tensor, by_channel: Tensor, s: int) -> Rival:
    gap = by_channel[s] - by_channel[key]
    top = gap.argsort(descending=True)[:3].tolist()
    parts = tuple(RivalChannel(c, float(gap[c])) for c in top)
    return Rival(key, float(pattern[key]), float(gap.sum()), parts)


# --- place or content ------------------------------------------------------------------------------------------------
#
# Per row, with k̄ the mean content and R̄ the mean rotation of the visible keys, each logit is (docs/method/why.md)
#
#     μ = scale · q·R̄k̄       content_t = scale · q·R̄k_t − μ       place_t = scale · q·R_t k̄ − μ    interaction: the rest
#
# and the parts are weighted with the gradient of the log-odds, so that they sum to it. *Level* is μ·Σg: all logits
# together, which count only under a soft-cap. Keys are taken before rotation; nothing larger than the row is built.
# Where positions have learned vectors instead of a rotation, what these wrote into the keys is the place part.


@dataclass(frozen=True)
class PlaceSplit:
    """Four parts of a cell's log-odds. Each has a sign and may exceed the total: they are no percentages."""

    content: float
    """What the token is, wherever it is."""
    place: float
    """Where it is, whatever it is."""
    interaction: float
    """What only both together make."""
    level: float
    """All logits together; 0 without a soft-cap."""

    @property
    def total(self) -> float:
        return self.content + self.place + self.interaction + self.level

    @property
    def reason(self) -> str:
        """The part that helps most, of content, place and interaction; ``nothing`` where none helps."""
        parts = {"content": self.content, "place": self.place, "interaction": self.interaction}
        name = max(parts, key=lambda part: parts[part])
        return name if parts[name] > 0 else "nothing"

    def to_json(self) -> dict[str, float]:
        return asdict(self)


def place_split(up: PromptWrites, table: LogOddsTable) -> PlaceSplit:
    """Split the log-odds of a cell into content, place, what both do together, and level."""
    (head, d, _), layer = table.cell, table.cell.head.layer
    q = float(up.scale[layer]) * up.q[layer, head.index, d].double()
    keys = up.k[layer, head.index // up.group].double()
    rotary = up.stream.rotary(layer, up.prompt)
    if rotary is not None:
        return split_rotated(q, keys, rotary, table.visible, table.gradient)
    return split_added(q, keys, _learned(up, table), table.visible, table.gradient)


def split_rotated(q: Tensor, keys: Tensor, rotary: Rotary, visible: Tensor, g: Tensor) -> PlaceSplit:
    """The parts for a rotated query [d_head] (scale included) and rotated keys [T, d_head], weighted with g [T]."""
    before = rotary.undo(keys[None, None])[0, 0]
    mean_turn = Rotary(*(x[:, visible].double().mean(1, keepdim=True) for x in (rotary.cos, rotary.sin)))
    mean_key = before[visible].mean(0)
    level = mean_turn.turn(mean_key[None, None, None])[0, 0, 0] @ q
    content = mean_turn.turn(before[None, None])[0, 0] @ q - level
    place = rotary.turn(mean_key.expand_as(before)[None, None])[0, 0] @ q - level
    return _weighted(content, place, keys @ q, level, g)


def split_added(q: Tensor, keys: Tensor, added: Tensor, visible: Tensor, g: Tensor) -> PlaceSplit:
    """The same where positions added their own vectors ``added`` [T, d_head] to the keys."""
    level = keys[visible].mean(0) @ q
    place = (added - added[visible].mean(0)) @ q
    content = keys @ q - level - place
    return _weighted(content, place, keys @ q, level, g)


def _weighted(content: Tensor, place: Tensor, logits: Tensor, level: Tensor, g: Tensor) -> PlaceSplit:
    rest = logits - content - place - level
    weighted = (float(g @ part) for part in (content, place, rest))
    return PlaceSplit(*weighted, level=float(level * g.sum()))


def _learned(up: PromptWrites, table: LogOddsTable) -> Tensor:
    """What the positions' own vectors made of the keys [T, d_head]; zero for a model that knows no positions."""
    layer, index = table.cell.head.layer, table.cell.head.index // up.group
    model = up.stream.model
    vectors = model.anatomy.learned_positions(up.tokens)
    if vectors is None:
        return torch.zeros(up.tokens, model.d_head, dtype=torch.float64, device=up.device)
    scalar = up.stream.scalars(layer, "key").stream[up.prompt, up.span, index].double()
    return (vectors.double() @ side_maps(model, layer, "key", torch.float64).matrix[index].mT) * scalar[
        :, None
    ]
