"""A row of attention logits as a sum of named features and a residual (Eqs. C8–C10).

Logits are linear in the query, so a split of q is a split of every logit. Each method is a set of matrices
M_f that depend on the subspaces alone: q_f = M_f q, and the residual is what they leave.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import factorial
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from headwise.contrast.rows import AttributionRow
from headwise.errors import HeadwiseError
from headwise.types import Head, HeadLike, Subspace, head_list

if TYPE_CHECKING:
    from headwise.contrast.bank import FeatureBank
    from headwise.model.model import Model
    from headwise.tokens import Prompt

Method = Literal["sequential", "shapley"]

MAX_SHAPLEY = 10
"""More features have too many subsets to go through."""
FEW = 8
"""Up to so many features a prompt is split by ``shapley`` too."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Attribution:
    """Logits by feature. ``...`` are the leading axes of q; T keys; F features; float64.

    parts [..., F, T], residual [..., T], total [..., T] (the model's logits before soft-cap): parts and
    residual sum to the total. Masked keys hold 0 everywhere.
    """

    names: tuple[str, ...]
    method: Method
    parts: Tensor
    residual: Tensor
    total: Tensor
    mask: Tensor

    def centred(self) -> tuple[Tensor, Tensor, Tensor]:
        """Parts, residual and total minus their mean over visible keys: all that a softmax can see."""
        parts = _centre(self.parts, self.mask[..., None, :])
        return parts, _centre(self.residual, self.mask), _centre(self.total, self.mask)

    def shares(self) -> dict[str, Tensor]:
        """Each feature's share of the centred logit variation, Σ_t part·total / Σ_t total², and the
        residual's.

        [...] each; they sum to one. A share is negative where a feature works against the row.
        """
        parts, residual, total = self.centred()
        stacked = torch.cat([parts, residual[..., None, :]], -2)
        energy = total.square().sum(-1, keepdim=True).clamp_min(torch.finfo(total.dtype).tiny)
        value = (stacked * total[..., None, :]).sum(-1) / energy
        return dict(zip((*self.names, "residual"), value.unbind(-1), strict=True))

    def explained(self) -> Tensor:
        """1 − ‖centred residual‖² / ‖centred total‖²  [...]; negative where the features point the wrong way."""
        _, residual, total = self.centred()
        energy = total.square().sum(-1).clamp_min(torch.finfo(total.dtype).tiny)
        return 1 - residual.square().sum(-1) / energy

    def __repr__(self) -> str:
        return f"Attribution({', '.join(self.names)}; {self.method}, logits {list(self.total.shape)})"


def _centre(x: Tensor, mask: Tensor) -> Tensor:
    mean = (x * mask).sum(-1, keepdim=True) / mask.sum(-1, keepdim=True).clamp_min(1)
    return (x - mean) * mask


def query_split(features: Mapping[str, Subspace], method: Method = "sequential") -> Tensor:
    """The matrices M_f [F, d_head, d_head] with q_f = M_f q.

    ``sequential`` projects in the given order, the overlap counting towards the first (Eqs. C8–C9).
    ``shapley`` averages over all orders, each feature entering as the growth of the projection onto the
    union: no order to choose, exact by enumerating the subsets.

    >>> axes = torch.eye(2, dtype=torch.float64)
    >>> both = {"a": Subspace(axes[:, :1]), "b": Subspace(axes[:, :1])}
    >>> query_split(both)[:, 0, 0].tolist(), query_split(both, "shapley")[:, 0, 0].round(decimals=9).tolist()
    ([1.0, 0.0], [0.5, 0.5])
    """
    if not features:
        raise HeadwiseError("attribution needs at least one feature")
    sizes = sorted({s.d_head for s in features.values()})
    if len(sizes) > 1:
        raise HeadwiseError(f"features of d_head {sizes} belong to different heads and cannot share a logit")
    bases = [s.basis.double() for s in features.values()]
    eye = torch.eye(sizes[0], dtype=torch.float64, device=bases[0].device)
    if method == "sequential":
        left, split = eye, []
        for basis in bases:
            split.append(basis @ (basis.mT @ left))
            left = left - split[-1]
        return torch.stack(split)
    if method != "shapley":
        raise HeadwiseError(f"method {method!r} is not known: write 'sequential' or 'shapley'")
    count = len(bases)
    if count > MAX_SHAPLEY:
        raise HeadwiseError(
            f"{count} features have 2^{count} subsets: give at most {MAX_SHAPLEY} or use 'sequential'"
        )

    def onto(members: tuple[int, ...]) -> Tensor:
        if not members:
            return torch.zeros_like(eye)
        return _projector(torch.cat([bases[i] for i in members], 1))

    unions = {s: onto(s) for size in range(count + 1) for s in combinations(range(count), size)}
    split = torch.zeros(count, *eye.shape, dtype=eye.dtype, device=eye.device)
    for members, projector in unions.items():
        if len(members) == count:
            continue
        weight = factorial(len(members)) * factorial(count - len(members) - 1) / factorial(count)
        for i in set(range(count)) - set(members):
            split[i] += weight * (unions[tuple(sorted((*members, i)))] - projector)
    return split


def _projector(vectors: Tensor) -> Tensor:
    basis = Subspace.spanned_by(vectors).basis
    return basis @ basis.mT


def attribute(
    q: Tensor,
    keys: Tensor,
    features: Mapping[str, Subspace],
    *,
    scale: float,
    mask: Tensor | None = None,
    method: Method = "sequential",
) -> Attribution:
    """Split scale · K q by the features' *query* subspaces: q [..., d_head], keys [..., T, d_head], mask
    [..., T].

    >>> q, keys = torch.tensor([1.0, 2.0]), torch.tensor([[1.0, 0.0], [1.0, 1.0]])
    >>> found = attribute(q, keys, {"first": Subspace(torch.eye(2)[:, :1])}, scale=0.5)
    >>> found.parts.tolist(), found.residual.tolist(), found.total.tolist()
    ([[0.5, 0.5]], [0.0, 1.0], [0.5, 1.5])
    """
    q, keys = q.double(), keys.double()
    split = query_split(features, method).to(q.device)
    pieces = torch.einsum("fde,...e->...fd", split, q)
    rest = q - pieces.sum(-2)
    visible = (
        torch.ones(keys.shape[:-1], dtype=torch.bool, device=q.device)
        if mask is None
        else mask.to(q.device).bool()
    )
    visible = visible.expand(keys.shape[:-1])
    zero = ~visible
    return Attribution(
        names=tuple(features),
        method=method,
        parts=(scale * pieces @ keys.mT).masked_fill(zero[..., None, :], 0.0),
        residual=(scale * (keys @ rest[..., None])[..., 0]).masked_fill(zero, 0.0),
        total=(scale * (keys @ q[..., None])[..., 0]).masked_fill(zero, 0.0),
        mask=visible,
    )


def attribute_prompt(
    model: Model,
    prompt: Prompt,
    bank: FeatureBank,
    *,
    heads: HeadLike | Sequence[HeadLike] | None = None,
    query: int = -1,
    start: int = 0,
) -> dict[Head, dict[Method, Attribution]]:
    """A prompt's logits at one query, split by the bank's fitted features in each head.

    Both splits per head: ``sequential`` in the order of rising rank (an overlap counts towards the smaller feature,
    as published), and ``shapley``, which needs no order. Features that their swaps do not support take no part.
    """
    if heads is None:
        # without a head that was asked for, those that have something to show
        able = [h for h in bank.heads if any(f.supported is not False and not f.parts for f in bank.of(h))]
        chosen = able or list(bank.heads)
    else:
        chosen = [Head.parse(h) for h in head_list(heads)]
    features = {h: sorted(bank.usable(h), key=lambda f: f.rank) for h in chosen}
    seen = model.capture(model.prompt_ids(prompt), heads=chosen, queries=query, want=("q", "k"), start=start)
    if any(f.frame == "query" for some in features.values() for f in some):
        from headwise.contrast.unlabelled.collect import rotation_of

        turns = rotation_of(model, model.prompt_ids(prompt), query, start)
        features = {h: [f.at(turns.get(h.layer)) for f in some] for h, some in features.items()}
    found: dict[Head, dict[Method, Attribution]] = {}
    for place, head in enumerate(chosen):
        named = {f.name: f.query for f in features[head]}
        methods: tuple[Method, ...] = ("sequential", "shapley") if len(named) <= FEW else ("sequential",)
        found[head] = {
            method: attribute(
                seen.q[0, place, 0],
                seen.k[0, place],
                named,
                scale=float(seen.scale[place]),
                mask=seen.visible[0, place, 0],
                method=method,
            )
            for method in methods
        }
    return found


def attribution_rows(
    model: Model,
    prompt: Prompt,
    bank: FeatureBank,
    *,
    heads: HeadLike | Sequence[HeadLike] | None = None,
    query: int = -1,
    start: int = 0,
    placebos: Sequence[FeatureBank] = (),
) -> list[AttributionRow]:
    """:func:`attribute_prompt` as rows, one per head, method, feature and token.

    ``placebos`` are banks of the same heads and ranks that mean nothing: what they explain is the null value of what
    the features explain.
    """
    tokens = model.tokens(prompt)
    found = attribute_prompt(model, prompt, bank, heads=heads, query=query, start=start)
    drawn = [attribute_prompt(model, prompt, one, heads=heads, query=query, start=start) for one in placebos]
    return [
        row
        for head, splits in found.items()
        for split in splits.values()
        for row in _rows(head, split, tokens, [float(one[head][split.method].explained()) for one in drawn])
    ]


def _rows(
    head: Head, split: Attribution, tokens: Sequence[str], drawn: Sequence[float]
) -> list[AttributionRow]:
    null = torch.tensor(drawn, dtype=torch.float64)
    centred = split.centred()
    names = (*split.names, "residual", "total")
    whole = (*split.parts, split.residual, split.total)
    parts = (*centred[0], centred[1], centred[2])
    explained = float(split.explained())
    visible: list[int] = split.mask.nonzero().flatten().tolist()
    return [
        AttributionRow(
            head=str(head),
            method=split.method,
            position=position,
            token=tokens[position],
            feature=name,
            logit=float(values[position]),
            centred=float(shares[position]),
            explained=explained,
            explained_null=float(null.mean()) if drawn else None,
            explained_high=float(null.quantile(0.95)) if drawn else None,
        )
        for name, values, shares in zip(names, whole, parts, strict=True)
        for position in visible
    ]
