"""The channels of a head (the SVD of its QK form), and a logit or a relative attention split over them.

Ω = W_Q W_Kᵀ = Σ_k u_k σ_k v_kᵀ has rank at most d_head, and is never built. With W_Q = Q₁R₁ and
W_K = Q₂R₂ (QR) and the small SVD R₁R₂ᵀ = U'ΣV'ᵀ, the singular vectors are U = Q₁U' and V = Q₂V'. In head space the maps
G_d = R₁⁻¹U'Σ and G_s = V'ᵀR₂⁻ᵀ satisfy G_d G_s = 1, so a query's coordinates a = q G_d and a key's b = G_s k give the
logit as Σ_k a_k b_k for *any* q and k: biases and RoPE act before the coordinates are taken (docs: tracing §1).
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from headwise.bases.relative import channels_needed, relative, sparsity
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
    """The head whose channels these are."""
    sigma: Tensor
    """[d_head]: singular values, largest first."""
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
        svd = QKSVD(
            self.sigma,
            self.query_directions,
            self.key_directions,
            self.query_map,
            self.key_map,
            torch.tensor(self.rank),
        )
        turned = rotated(svd, generator)
        return Channels(
            self.head,
            turned.sigma,
            turned.query_directions,
            turned.key_directions,
            turned.query_map,
            turned.key_map,
            self.rank,
        )

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


def split_cell(
    model: Model,
    prompt: Prompt,
    head: HeadLike,
    query: int,
    key: int,
    *,
    seed: int = 0,
    cache: str | Path | None = None,
    start: int = 0,
) -> ChannelSplit:
    """Split one cell's logit and relative attention over the head's channels.

    RA(d, s) = A'_ds − mean over the other visible keys j of A'_dj; it is linear in the keys, so it splits alike.
    """
    wanted = model.head(head)
    got = model.capture(
        model.prompt_ids(prompt),
        heads=[wanted],
        queries=[query],
        want=("q", "k", "scores", "pattern"),
        start=start,
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


# --- singular pairs of bilinear forms ---


RANK_TOLERANCE = 1e-10
"""Singular values below this share of the largest count as zero (all of it is computed in float64)."""


@dataclass(frozen=True, eq=False)
class QKSVD:
    """The singular pairs of some heads' QK forms (any leading batch shape ``*``), largest first, in float64."""

    sigma: Tensor
    """[*, d_head] singular values; zero for null channels."""
    query_directions: Tensor
    """[*, d_model, d_head]: u_k in the columns, as the stream is read after the norm's scalar."""
    key_directions: Tensor
    """[*, d_model, d_head]: v_k in the columns."""
    query_map: Tensor
    """[*, d_head, d_head]: G_d. A query's coordinates are q @ G_d (σ included)."""
    key_map: Tensor
    """[*, d_head, d_head]: G_s. A key's coordinates are G_s @ k."""
    rank: Tensor
    """[*] channels that are not null. Channels from ``rank`` on are null: they carry no part of Ω, only what biases
    put outside its range, so that the sum over channels stays exact."""


def qk_svd(query: Tensor, key: Tensor) -> QKSVD:
    """Channels of heads with query maps [*, d_head, d_model] and key maps [*, d_head, d_model].

    >>> g = torch.Generator().manual_seed(0)
    >>> W_Q, W_K = (torch.randn(4, 12, generator=g, dtype=torch.float64) for _ in range(2))
    >>> svd = qk_svd(W_Q, W_K)
    >>> omega = svd.query_directions @ svd.sigma.diag() @ svd.key_directions.mT
    >>> torch.allclose(omega, W_Q.mT @ W_K), torch.allclose(svd.query_map @ svd.key_map, torch.eye(4).double())
    (True, True)
    """
    with one_thread():
        return _qk_svd(query.double(), key.double())


@contextmanager
def one_thread() -> Iterator[None]:
    """Many small factorisations: threads that wait for one another cost more than they bring (10 to 50 times)."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _qk_svd(query: Tensor, key: Tensor) -> QKSVD:
    q1, r1 = torch.linalg.qr(query.mT)
    q2, r2 = torch.linalg.qr(key.mT)
    u, sigma, vt = torch.linalg.svd(r1 @ r2.mT)
    query_directions, key_directions = q1 @ u, q2 @ vt.mT
    # A singular pair is defined up to a common sign: let the largest entry of u_k be positive on every machine.
    largest = query_directions.abs().argmax(-2, keepdim=True)
    sign = torch.where(query_directions.gather(-2, largest) < 0, -1.0, 1.0).to(sigma.dtype)
    u, vt = u * sign, vt * sign.mT
    # Where queries and keys never meet, all of R₁R₂ᵀ is rounding, the largest singular value too.
    rounding = torch.finfo(sigma.dtype).eps * sigma.shape[-1] * r1.norm(dim=(-2, -1)) * r2.norm(dim=(-2, -1))
    rank = (sigma > torch.maximum(RANK_TOLERANCE * sigma[..., :1], rounding[..., None])).sum(-1)
    query_map = torch.linalg.solve_triangular(r1, u, upper=True) * sigma[..., None, :]
    key_map = torch.linalg.solve_triangular(r2, vt.mT, upper=True).mT
    for at in (rank < sigma.shape[-1]).nonzero().tolist():
        head = tuple(at)
        query_map[head], key_map[head] = _completed(
            r1[head], r2[head], u[head], sigma[head], vt[head], int(rank[head])
        )
    kept = torch.arange(sigma.shape[-1], device=sigma.device) < rank[..., None]
    return QKSVD(sigma * kept, query_directions * sign, key_directions * sign, query_map, key_map, rank)


def _completed(
    r1: Tensor, r2: Tensor, u: Tensor, sigma: Tensor, vt: Tensor, rank: int
) -> tuple[Tensor, Tensor]:
    """G_d and G_s of one head whose rank is below d_head: ``rank`` singular channels, then the null ones.

    R₁ or R₂ has no inverse, but none is needed: g_k = R₂ᵀv'_k and h_k = R₁ᵀu'_k / σ_k are the columns of G_d and the
    rows of G_s of any head, h_j·g_k = u'_jᵀ R₁R₂ᵀ v'_k / σ_j = δ_jk. A query's channels are its products with the g, a
    key's those with the h. Without biases queries lie in A = range R₁ᵀ and keys in B = range R₂ᵀ. A null channel is
    zero for all of them if its h is orthogonal to B or its g to A, and so each gets one such vector:

    * some queries meet no key: A ∩ B⊥ = R₁ᵀ · span(u'_k, k ≥ rank). An orthonormal basis E of it gives rows of G_s;
    * where no query points, A⊥: an orthonormal basis N of it gives columns of G_d.

    E is orthogonal to every g (they lie in B), N to every h and to E (they lie in A). So their
    partners can be written down, with P = Σ_k g_k h_kᵀ: (1 − P)E for E, and (1 − Pᵀ)N less its part along E for N.
    Together these are dual bases of head space: G_d G_s = 1. E and N follow the axes of head space, not the vectors
    that a factorisation happens to return.
    """
    g = r2.mT @ vt[:rank].mT
    h = u[:, :rank].mT @ r1 / sigma[:rank, None]
    idle, size, _ = torch.linalg.svd(r1.mT @ u[:, rank:], full_matrices=False)
    unmet = _along_axes(idle[:, size > RANK_TOLERANCE * torch.linalg.matrix_norm(r1, 2)])
    reached = torch.cat((h.mT, unmet), 1)
    unreached = _along_axes(torch.linalg.qr(reached, mode="complete")[0][:, reached.shape[1] :])
    unmet_partner = unmet - g @ (h @ unmet)
    unreached_partner = unreached - h.mT @ (g.mT @ unreached)
    unreached_partner = unreached_partner - unmet @ (unmet_partner.mT @ unreached)
    return torch.cat((g, unmet_partner, unreached), 1), torch.cat((h, unmet.mT, unreached_partner.mT), 0)


def _along_axes(basis: Tensor) -> Tensor:
    """The orthonormal basis of the same space [d_head, n] that follows the axes of head space, whatever basis is given.

    Gram–Schmidt over the axes' projections: each time the first axis whose rest is nearly as long as the longest.
    """
    seen = basis.mT
    rest, picked = seen, []
    for _ in range(basis.shape[1]):
        length = rest.norm(dim=0)
        # Not simply the longest: where several are equal, rounding would decide.
        axis = int((length > 0.7 * length.max()).nonzero()[0])
        picked.append(axis)
        along = rest[:, axis] / length[axis]
        rest = rest - along[:, None] * (along @ rest)
    turn, triangle = torch.linalg.qr(seen[:, picked])
    return basis @ (turn * triangle.diagonal().sign())


def rotated(svd: QKSVD, generator: torch.Generator) -> QKSVD:
    """The control (docs/method/tracing.md §1): turn U√Σ and V√Σ by one random orthogonal matrix.

    Every logit stays what it was, but the new directions are no longer the singular ones.
    """
    width = svd.sigma.shape[-1]
    turn, _ = torch.linalg.qr(torch.randn(width, width, generator=generator, dtype=svd.sigma.dtype))
    root = svd.sigma.clamp(min=0).sqrt()
    safe = torch.where(root > 0, root, torch.ones_like(root))
    # a/√σ and b·√σ are the coordinates along U√Σ and V√Σ; null channels have no σ to share out.
    return QKSVD(
        svd.sigma,
        (svd.query_directions * root[..., None, :]) @ turn,
        (svd.key_directions * root[..., None, :]) @ turn,
        (svd.query_map / safe[..., None, :]) @ turn,
        turn.mT @ (svd.key_map * safe[..., :, None]),
        svd.rank,
    )
