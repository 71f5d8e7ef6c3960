"""Place or content? Whether a head reads a token for what it is, for where it is, or for both together.

Per row, with k̄ the mean content and R̄ the mean rotation of the visible keys, each logit is (docs/method/why.md)

    μ = scale · q·R̄k̄       content_t = scale · q·R̄k_t − μ       place_t = scale · q·R_t k̄ − μ     interaction: the rest

and the parts are weighted with the gradient of the log-odds, so that they sum to it. *Level* is μ·Σg: all logits
together, which count only under a soft-cap. Keys are taken before rotation; nothing larger than the row is built. Where
positions have learned vectors instead of a rotation, what these wrote into the keys is the place part.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import torch
from torch import Tensor

from headwise.model.reading import Rotary, side_maps
from headwise.tracing.table import LogOddsTable
from headwise.tracing.writes import PromptWrites


@dataclass(frozen=True)
class PlaceSplit:
    """Four parts of a cell's log-odds. Each has a sign and may exceed the total: they are no percentages."""

    content: float
    place: float
    interaction: float
    level: float

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
