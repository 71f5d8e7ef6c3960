"""The channels of a head, and a logit or a relative attention split over them."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from headwise.bases.relative import channels_needed, relative, sparsity
from headwise.bases.singular import QKSVD, qk_svd, rotated
from headwise.errors import HeadwiseError
from headwise.files import write_bytes
from headwise.model.reading import side_maps
from headwise.randomness import keyed
from headwise.scale import tensors as sealed
from headwise.tokens import Prompt
from headwise.types import Cell, Head, HeadLike

if TYPE_CHECKING:
    from headwise.model.model import Model

_FIELDS = ("sigma", "query_map", "key_map", "rank")


@dataclass(frozen=True, eq=False)
class Channels:
    """The singular pairs of one head's QK form, largest first (float64).

    Channel k joins one direction of the query's stream with one of the key's: the head's logit is
    scale · Σ_k a_k b_k with a = q @ query_map and b = key_map @ k.
    """

    head: Head
    sigma: Tensor
    """[d_head]"""
    query_directions: Tensor
    """[d_model, d_head]: u_k in the columns (residual space, after the norm's scalar, its gain folded in)."""
    key_directions: Tensor
    """[d_model, d_head]: v_k in the columns."""
    query_map: Tensor
    """[d_head, d_head]: G_d."""
    key_map: Tensor
    """[d_head, d_head]: G_s; query_map @ key_map is the identity."""
    rank: int
    """Channels that are not null; channels from ``rank`` on carry only what biases put outside Ω's range."""

    @classmethod
    def of(cls, model: Model, head: Head | str, *, cache: str | Path | None = None) -> Channels:
        """The channels of one head; all heads of its layer are found together and remembered for the model.

        ``cache`` names a folder in which they are kept on disk under the hash of the model's weights.
        """
        wanted = model.head(head)
        found = layer_channels(model, wanted.layer, cache=cache)
        sigma, query_map, key_map, rank = (getattr(found, name)[wanted.index] for name in _FIELDS)
        query = side_maps(model, wanted.layer, "query", torch.float64).matrix[wanted.index].cpu()
        keys = side_maps(model, wanted.layer, "key", torch.float64).matrix
        key = keys[wanted.index // model.anatomy.group].cpu()
        # UΣ = W_Q G_d and V = W_K G_sᵀ: the directions need not be kept. A null channel has none.
        real = torch.arange(sigma.numel()) < rank
        u = query.mT @ query_map / torch.where(real, sigma, torch.ones_like(sigma)) * real
        v = key.mT @ key_map.mT * real
        return cls(wanted, sigma, u, v, query_map, key_map, int(rank))

    @property
    def condition(self) -> float:
        """Largest over smallest non-null singular value."""
        return float(self.sigma[0] / self.sigma[self.rank - 1]) if self.rank else float("inf")

    @property
    def has_null(self) -> bool:
        """Whether the head is rank-deficient, so that the last channels are null."""
        return self.rank < self.sigma.numel()

    def split(self, q: Tensor, k: Tensor) -> Tensor:
        """q·k over channels: q [..., d_head] and k [..., d_head] give [..., channels]."""
        a = q.to(self.query_map.dtype) @ self.query_map
        b = k.to(self.key_map.dtype) @ self.key_map.mT
        return a * b

    def rotated(self, generator: torch.Generator) -> Channels:
        """The rotation control: the same logits, split along directions that are not singular."""
        svd = QKSVD(self.sigma, self.query_directions, self.key_directions, self.query_map, self.key_map,
                    torch.tensor(self.rank))  # fmt: skip
        turned = rotated(svd, generator)
        return Channels(self.head, turned.sigma, turned.query_directions, turned.key_directions, turned.query_map,
                        turned.key_map, self.rank)  # fmt: skip

    def __repr__(self) -> str:
        top = ", ".join(f"{value:.3g}" for value in self.sigma[:3].tolist())
        null = f", {self.sigma.numel() - self.rank} null" if self.has_null else ""
        return (
            f"Channels({self.head}, {self.rank} channels{null}, σ {top}, …, condition {self.condition:.3g})"
        )


@dataclass(frozen=True, eq=False)
class ChannelSplit:
    """One cell of a head's pattern over channels: its logit and its relative attention."""

    cell: Cell
    logit: Tensor
    """[channels]: sums to the pre-cap logit A'_ds."""
    relative: Tensor
    """[channels]: sums to RA(d, s), the logit less the mean of the other visible logits."""
    control: Tensor
    """[channels]: the relative attention along rotated directions; the same sum."""
    attention: float
    error: float
    """How far the channels' sum is from the model's own logit."""

    @property
    def sparsity(self) -> float:
        return float(sparsity(self.relative))

    @property
    def control_sparsity(self) -> float:
        return float(sparsity(self.control))

    @property
    def channels_needed(self) -> int:
        """How many channels rebuild the relative attention to 10 %."""
        return int(channels_needed(self.relative))

    @property
    def control_channels_needed(self) -> int:
        return int(channels_needed(self.control))


def split_cell(model: Model, prompt: Prompt, head: HeadLike, query: int, key: int, *, seed: int = 0,
               cache: str | Path | None = None) -> ChannelSplit:  # fmt: skip
    """Split one cell's logit and relative attention over the head's channels.

    RA(d, s) = A'_ds − mean over the other visible keys j of A'_dj; it is linear in the keys, so it splits alike.
    """
    wanted = model.head(head)
    got = model.capture(
        model.prompt_ids(prompt), heads=[wanted], queries=[query], want=("q", "k", "scores", "pattern")
    )
    length = len(got.token_ids[0])
    if not -length <= key < length:
        raise HeadwiseError(
            f"key position {key} is outside the prompt, which has {length} tokens (0 to {length - 1})"
        )
    d, s = query % length, key % length
    seen = got.visible[0, 0, 0]
    if not bool(seen[s]):
        why = "lies after the query" if s > d else f"is outside the window of {wanted}"
        raise HeadwiseError(f"key position {s} {why}: {wanted} at position {d} cannot attend there")
    channels = Channels.of(model, wanted, cache=cache)
    scale = float(got.scale[0])
    q, k = got.q[0, 0, 0].double().cpu(), got.k[0, 0].double().cpu()
    key_vector = relative(k, s, seen.cpu())
    turned = channels.rotated(keyed(seed, "rotation", str(wanted), 0))
    logit = channels.split(q, k[s]) * scale
    by_channel = channels.split(q, key_vector) * scale
    control = turned.split(q, key_vector) * scale
    error = abs(float(logit.sum()) - scale * float(q @ k[s]))
    return ChannelSplit(Cell(wanted, d, s), logit, by_channel, control, float(got.pattern[0, 0, 0, s]), error)


# --- all heads of a layer, found once per model ------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class LayerChannels:
    """What the tracer needs of every head of a layer: see :class:`Channels` (leading axis: heads)."""

    sigma: Tensor
    query_map: Tensor
    key_map: Tensor
    rank: Tensor


_known: weakref.WeakKeyDictionary[Model, dict[int, LayerChannels]] = weakref.WeakKeyDictionary()


def layer_channels(model: Model, layer: int, *, cache: str | Path | None = None) -> LayerChannels:
    """The channels of every head of a layer as one batch [heads, …], remembered as long as the model lives."""
    known = _known.setdefault(model, {})
    if layer not in known:
        file = None if cache is None else Path(cache) / model.weight_hash[:16] / f"layer-{layer}.safetensors"
        found = None if file is None else _remembered(file, model)
        if found is not None:
            known[layer] = found
        else:
            query = side_maps(model, layer, "query", torch.float64).matrix
            key = side_maps(model, layer, "key", torch.float64).matrix
            svd = qk_svd(query.cpu(), key.repeat_interleave(model.anatomy.group, dim=0).cpu())
            known[layer] = LayerChannels(svd.sigma, svd.query_map, svd.key_map, svd.rank)
            if file is not None:
                write_bytes(file, sealed.to_bytes({name: getattr(svd, name) for name in _FIELDS}))
    return known[layer]


def _remembered(file: Path, model: Model) -> LayerChannels | None:
    """What an earlier process has kept; None where there is nothing, or nothing that fits: it is computed again."""
    try:
        found, _ = sealed.from_bytes(file.read_bytes())
    except (OSError, sealed.Damaged):
        return None
    heads = all(value.shape[:1] == (model.n_heads,) for value in found.values())
    return LayerChannels(**found) if set(found) == set(_FIELDS) and heads else None
