"""A basis of a head's QK form: two maps with G_d G_s = 1, which split every logit of the head into channels.

A query's coordinates are a = q G_d, a key's b = G_s k, and Σ_k a_k b_k = q·k for *any* q and k: biases and RoPE act
before the coordinates are taken. In the *query's frame* (A1) the query is read as it is before rotation and keys as the
query sees them, so that coordinates do not change when the whole prompt moves:

    a = (R_d⁻¹ q̃_d)ᵀ G_d          b_t = G_s R_dᵀ k̃_t          Σ_k a_k b_tk = q̃_d·k̃_t

Which is the same as multiplying rotated queries and keys with R_d⁻ᵀ G_d and G_s R_dᵀ (:meth:`Basis.seen_from`). In the
*absolute* frame, that of the published tracer, rotated queries and keys are multiplied with G_d and G_s themselves.
"""

from __future__ import annotations

import hashlib
import weakref
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from headwise.bases.balanced import FEW, TOO_FEW, balanced_maps
from headwise.bases.singular import QKSVD, one_thread, qk_svd, rotated
from headwise.bases.stability import STABLE
from headwise.basis_names import BasisKind, BasisName, Frame
from headwise.errors import HeadwiseError
from headwise.model.reading import Rotary, side_maps
from headwise.randomness import keyed
from headwise.strings import in_short
from headwise.types import Head, HeadLike, Side

if TYPE_CHECKING:
    from headwise.bases.calibration import Calibration
    from headwise.model.model import Model

KINDS: tuple[BasisKind, ...] = ("singular", "balanced", "rotated")
FRAMES: tuple[Frame, ...] = ("query", "absolute")


@dataclass(frozen=True, eq=False, kw_only=True)
class Basis:
    """Bases of heads' QK forms, in float64: of one head, or of all heads of a layer along a leading axis (``*``)."""

    name: BasisName
    """Kind, frame and hash."""
    energies: Tensor
    """[*, d_head]: singular values, or how strongly queries and keys meet in each channel (balanced)."""
    query_map: Tensor
    """[*, d_head, d_head]: G_d; a query's coordinates are q @ query_map."""
    key_map: Tensor
    """[*, d_head, d_head]: G_s; a key's coordinates are key_map @ k, and query_map @ key_map is the identity."""
    query_units: Tensor
    """[*, d_head]: a signal's strength is its query coordinate over this."""
    key_units: Tensor
    """[*, d_head]: the same for key coordinates."""
    rank: Tensor
    """[*]: channels that are not null; channels from ``rank`` on carry only what biases put outside Ω's range."""
    halves: Tensor
    """[*, d_head]: agreement of two halves of the texts on each channel; 1 where no text was used."""
    across: Tensor
    """[*, d_head]: agreement of one kind of text with the others; 1 where no text was used."""
    cells: Tensor | None = None
    """[*]: attended cells that a balanced basis was measured on; NaN for a head that fell back to ``singular``."""

    @classmethod
    def of(
        cls,
        model: Model,
        head: HeadLike,
        *,
        kind: BasisKind = "singular",
        frame: Frame = "query",
        calibration: Calibration | None = None,
    ) -> Basis:
        """The basis of one head.

        Parameters
        ----------
        model:
            A loaded model.
        head:
            The head, such as ``L9H6``.
        kind:
            ``singular``, ``balanced`` (which needs a calibration) or ``rotated``, the control.
        frame:
            ``query``: coordinates that do not move with the prompt; ``absolute``: those of the published tracer.
        calibration:
            The model's moments, for a balanced basis; default: those that ``headwise calibrate`` has stored.

        Returns
        -------
        Basis
            Of the head alone: its tensors have no leading axis.
        """
        wanted = model.head(head)
        chosen = Bases.of(model, kind, frame=frame, calibration=calibration)
        return chosen.layer(wanted.layer).at(wanted.index)

    def at(self, index: int) -> Basis:
        """Of a layer's bases, that of one head."""
        names = ("energies", "query_map", "key_map", "query_units", "key_units", "rank", "halves", "across")
        cells = None if self.cells is None else self.cells[index]
        return replace(self, **{name: getattr(self, name)[index] for name in names}, cells=cells)

    @property
    def stable(self) -> Tensor:
        """[*, d_head]: channels that stay what they are with other texts. Only these go by a number or a name."""
        return torch.minimum(self.halves, self.across.nan_to_num(0.0)) >= STABLE

    @property
    def fell_back(self) -> Tensor:
        """[*]: heads of a balanced basis with too few attended cells, which have the singular one instead."""
        return torch.zeros_like(self.rank, dtype=torch.bool) if self.cells is None else self.cells.isnan()

    @property
    def few(self) -> Tensor:
        """[*]: heads of a balanced basis that was measured on few cells, and therefore shrunk more."""
        if self.cells is None:
            return torch.zeros_like(self.rank, dtype=torch.bool)
        return self.cells < FEW * self.query_map.shape[-1]

    @property
    def condition(self) -> Tensor:
        """[*]: largest over smallest energy of a channel that is not null."""
        null = torch.arange(self.energies.shape[-1]) >= self.rank[..., None]
        smallest = self.energies.masked_fill(null, torch.inf).amin(-1)
        return self.energies.amax(-1) / smallest

    def units(self, side: Side) -> Tensor:
        """[*, d_head]: what a side's coordinates are divided by to be strengths."""
        return self.query_units if side == "query" else self.key_units

    def split(self, q: Tensor, k: Tensor) -> Tensor:
        """q·k over channels: q [..., d_head] and k [..., d_head] give [..., channels].

        In the query's frame q is the query before rotation and k a key as it sees it; for vectors as the model
        multiplies them see :meth:`seen_from`.
        """
        return (q.to(self.query_map) @ self.query_map) * (k.to(self.key_map) @ self.key_map.mT)

    def seen_from(self, rotary: Rotary | None) -> Basis:
        """The same basis for rotated vectors, as the query at one position multiplies them.

        ``rotary`` is the rotation at that position: one for all heads, or one per head of the leading axis.
        """
        if rotary is None or self.name.frame == "absolute":
            return self
        query_map, key_map = turned_maps(
            rotary, *(x if x.ndim == 3 else x[None] for x in (self.query_map, self.key_map))
        )
        return replace(
            self, query_map=query_map.view_as(self.query_map), key_map=key_map.view_as(self.key_map)
        )

    def rotated(self, generator: torch.Generator) -> Basis:
        """The rotation control of one head: the same logits, split along directions that are nothing special."""
        svd = QKSVD(self.energies, self.query_map, self.key_map, self.query_map, self.key_map, self.rank)
        turned = rotated(svd, generator)
        return replace(
            self,
            name=replace(self.name, kind="rotated"),
            query_map=turned.query_map,
            key_map=turned.key_map,
            query_units=torch.ones_like(self.energies),
            key_units=torch.ones_like(self.energies),
        )

    def __repr__(self) -> str:
        heads = "" if self.rank.ndim == 0 else f"{self.rank.numel()} heads, "
        return f"Basis({self.name}, {heads}{self.energies.shape[-1]} channels)"


def turned_maps(rotary: Rotary, query_map: Tensor, key_map: Tensor) -> tuple[Tensor, Tensor]:
    """R_d⁻ᵀ G_d and G_s R_dᵀ: maps [n, d_head, channels] and [n, channels, d_head] at n positions (or one for all)."""
    # Rotations act on [1, heads, columns, d_head]: the n maps are the columns, channels the heads.
    turned = rotary.inverse_transposed(query_map.permute(2, 0, 1)[None])[0].permute(1, 2, 0)
    return turned, rotary.turn(key_map.permute(1, 0, 2)[None])[0].permute(1, 0, 2)


def directions(model: Model, head: Head, basis: Basis, side: Side) -> Tensor:
    """[d_model, channels]: what each channel of one head reads in the stream, after the norm's scalar, per unit of
    strength. For the singular basis these are u_k and v_k; a null channel has none."""
    maps = side_maps(model, head.layer, side, torch.float64).matrix
    if side == "query":
        read = maps[head.index].cpu().mT @ basis.query_map
    else:
        read = maps[head.index // model.anatomy.group].cpu().mT @ basis.key_map.mT
    return read / basis.units(side) * (torch.arange(read.shape[-1]) < basis.rank)


# --- the bases of a whole model --------------------------------------------------------------------------------------


_known: weakref.WeakKeyDictionary[Model, dict[tuple[str, int], Basis]] = weakref.WeakKeyDictionary()
"""By basis (without its frame) and layer, as long as the model lives."""


@dataclass(frozen=True, eq=False)
class Bases:
    """The choice of a basis for all heads of a model; layers are worked out when they are first asked for."""

    model: Model
    name: BasisName
    calibration: Calibration | None = None

    @classmethod
    def of(
        cls,
        model: Model,
        kind: BasisKind = "singular",
        *,
        frame: Frame = "query",
        calibration: Calibration | None = None,
    ) -> Bases:
        """Choose a basis by kind and frame; a balanced one takes the model's stored moments unless some are given."""
        if kind not in KINDS:
            raise HeadwiseError(
                f"basis {in_short(kind)} is not a basis: write 'singular', 'balanced' or 'rotated'"
            )
        if frame not in FRAMES:
            raise HeadwiseError(f"frame {in_short(frame)} is not a frame: write 'query' or 'absolute'")
        if kind != "balanced":
            return cls(model, BasisName(kind, frame, _hash(model.weight_hash, kind)))
        if frame == "absolute":
            raise HeadwiseError(
                "a balanced basis is measured in the query's frame: choose frame 'query', or basis 'singular'"
            )
        if calibration is None:
            from headwise.bases.calibration import stored

            calibration = stored(model)
        model.require(
            calibration.weight_hash,
            "this calibration",
            of=calibration.model,
            do="calibrate this model itself",
        )
        name = BasisName(kind, frame, _hash(model.weight_hash, kind, calibration.digest, calibration.texts))
        return cls(model, name, calibration)

    @classmethod
    def named(cls, model: Model, name: BasisName, what: str = "this result") -> Bases:
        """The basis that a result was made in; refused where the model or its stored moments are other ones."""
        chosen = cls.of(model, name.kind, frame=name.frame)
        if name.hash and chosen.name.hash != name.hash:
            raise HeadwiseError(
                f"{what} was made in another basis ({name}, {name.hash}) than {model.name!r} has here "
                f"({chosen.name.hash}): its channel numbers mean other channels, so make it again"
            )
        return chosen

    def layer(self, layer: int) -> Basis:
        """The bases of every head of a layer as one batch [heads, …]."""
        known = _known.setdefault(self.model, {})
        place = (self.name.hash, layer)
        if place not in known:
            known[place] = self._made(layer)
        # The frame decides how maps are used, not what they are.
        return replace(known[place], name=self.name)

    def head(self, head: Head) -> Basis:
        """The basis of one head."""
        return self.layer(head.layer).at(head.index)

    def _made(self, layer: int) -> Basis:
        model = self.model
        query = side_maps(model, layer, "query", torch.float64).matrix.cpu()
        key = side_maps(model, layer, "key", torch.float64).matrix.cpu()
        svd = qk_svd(query, key.repeat_interleave(model.anatomy.group, dim=0))
        ones = torch.ones_like(svd.sigma)
        # A null channel has no σ: its coordinate is as large as it is.
        units = torch.where(svd.sigma > 0, svd.sigma, ones)
        basis = Basis(
            name=self.name,
            energies=svd.sigma,
            query_map=svd.query_map,
            key_map=svd.key_map,
            query_units=units,
            key_units=ones,
            rank=svd.rank,
            halves=ones,
            across=ones,
        )
        if self.name.kind == "rotated":
            turned = [
                basis.at(i).rotated(keyed(0, "rotation", f"L{layer}H{i}", 0)) for i in range(model.n_heads)
            ]
            query_map, key_map = (
                torch.stack([getattr(one, name) for one in turned]) for name in ("query_map", "key_map")
            )
            return replace(basis, query_map=query_map, key_map=key_map, query_units=ones, key_units=ones)
        if self.calibration is None:
            return basis
        with one_thread():
            return _invertible(_balanced(basis, self.calibration, layer), layer)


def _balanced(singular: Basis, calibration: Calibration, layer: int) -> Basis:
    """The balanced bases of a layer's heads. Null channels stay as they are; a head of too few cells keeps its singular
    basis."""
    moments = calibration.moments.at(layer)
    made = {
        name: getattr(singular, name).clone()
        for name in ("energies", "query_map", "key_map", "query_units", "key_units", "halves", "across")
    }
    cells = moments.cells.clone().double()
    for index in range(len(cells)):
        rank = int(singular.rank[index])
        if cells[index] < TOO_FEW * singular.query_map.shape[-1] or rank < 2:
            cells[index] = torch.nan
            continue
        query_map, key_map = singular.query_map[index, :, :rank], singular.key_map[index, :rank]
        seen = (
            moments.at(index).seen_through(query_map, key_map)
            if rank < len(singular.energies[index])
            else None
        )
        found = balanced_maps(moments.at(index) if seen is None else seen)
        made["query_map"][index, :, :rank] = found.query_map if seen is None else query_map @ found.query_map
        made["key_map"][index, :rank] = found.key_map if seen is None else found.key_map @ key_map
        made["energies"][index, :rank] = found.energies
        for name in ("query_units", "key_units"):
            made[name][index, :rank] = found.energies.sqrt()
        # Stability was measured for heads of full rank; nothing is known of other heads' channels.
        known = 1.0 if seen is None else 0.0
        made["halves"][index] = known * calibration.halves[layer, index]
        made["across"][index] = known * calibration.across[layer, index]
    return replace(singular, **made, cells=cells)


def _invertible(basis: Basis, layer: int) -> Basis:
    """Refuse maps that do not give every logit back: moments can be as degenerate as the texts they are from."""
    product = basis.query_map @ basis.key_map - torch.eye(basis.query_map.shape[-1])
    worst = product.abs().amax((-2, -1)).nan_to_num(torch.inf)
    if float(worst.max()) > 1e-6:
        raise HeadwiseError(
            f"the moments of L{layer}H{int(worst.argmax())} give no basis that can be inverted: "
            "calibrate the model on more texts, or choose the basis 'singular'"
        )
    return basis


def singular_name(weight_hash: str, frame: Frame) -> BasisName:
    """The name of a model's singular basis, where its weights alone are known."""
    return BasisName("singular", frame, _hash(weight_hash, "singular"))


def _hash(*parts: object) -> str:
    """Sixteen hexadecimal digits that name a basis."""
    return hashlib.sha256("/".join(map(str, parts)).encode()).hexdigest()[:16]
