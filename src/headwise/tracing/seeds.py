"""Where a circuit starts: the components at the last position that carry the answer (docs/method/tracing.md §4, §6)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from headwise.arguments import count, share
from headwise.model.attend import soft_cap
from headwise.tracing.causes import nodes
from headwise.tracing.writes import PromptWrites
from headwise.types import Component

if TYPE_CHECKING:
    from headwise.model.model import Model

COVER = 0.8
"""Of all that heads bring for the answer, how much seeds hold."""
LEAST = 0.05
"""Of the answer's lead, below which nothing is a seed."""
PROBABILITY_SHARE = 0.8
"""Probability seeds are removed until this share of the log-likelihood gain is gone."""


@dataclass(frozen=True)
class Seed:
    """One component that carries the answer, and its share of it."""

    component: Component
    weight: float
    reading: Tensor | None = field(default=None, compare=False, repr=False)
    """For an MLP, how the answer reads it: a vector of the stream whose product with what it wrote is the weight."""


@dataclass(frozen=True, eq=False)
class Readout:
    """How the last position becomes logits, with the final norm's scalar frozen."""

    scale: Tensor
    gain: Tensor | None
    shift: Tensor | None
    centred: bool
    unembedding: Tensor
    """[vocabulary, d_model]"""
    bias: Tensor | None
    cap: float | None

    @classmethod
    def of(cls, model: Model, final: Tensor) -> Readout:
        """``final`` [..., d_model] is the stream before the final norm at the positions that answer."""
        norm = model.anatomy.final_norm()
        weight, bias = model.anatomy.unembedding_weights()
        cap = model.anatomy.final_softcap
        if norm is None:
            return cls(final.new_ones(1), None, None, False, weight, bias, cap)
        gain, shift = norm.gain.to(final.dtype), None if norm.shift is None else norm.shift.to(final.dtype)
        return cls(norm.scale(final), gain, shift, norm.centred, weight, bias, cap)

    def pull(self, direction: Tensor) -> Tensor:
        """The direction [d_model] of the final stream that moves the logits along an unembedding direction."""
        direction = direction * self.scale if self.gain is None else direction * self.gain * self.scale
        return direction - direction.mean() if self.centred else direction

    def push(self, parts: Tensor) -> Tensor:
        """What parts [..., d_model] of the final stream add to the logits [..., vocabulary]."""
        if self.centred:
            parts = parts - parts.mean(-1, keepdim=True)
        parts = parts * self.scale if self.gain is None else parts * self.scale * self.gain
        return parts @ self.unembedding.to(parts.dtype).mT

    def constant(self) -> Tensor:
        """Logits [vocabulary] of a stream that is zero: biases only."""
        total = self.unembedding.new_zeros(self.unembedding.shape[0], dtype=self.scale.dtype)
        if self.shift is not None:
            total = total + self.unembedding.to(total.dtype) @ self.shift
        return total if self.bias is None else total + self.bias.to(total.dtype)

    def logits(self, final: Tensor) -> Tensor:
        """The model's logits [..., vocabulary] of whole streams [..., d_model]."""
        return soft_cap(self.push(final) + self.constant(), self.cap)


def answer_shares(up: PromptWrites, answer: int, wrong: int | None) -> Tensor:
    """What every component brings, at the last position, to answer − wrong (or the mean token): [components]."""
    return _along(up, answer_direction(up, answer, wrong)).double()


def answer_direction(up: PromptWrites, answer: int, wrong: int | None) -> Tensor:
    """The direction [d_model] of the stream at the last position that leads to answer − wrong (or the mean token)."""
    readout = _readout(up)
    weight = readout.unembedding
    direction = weight[answer].to(up.dtype)
    direction = direction - (weight.to(up.dtype).mean(0) if wrong is None else weight[wrong].to(up.dtype))
    return readout.pull(direction)


def chosen_seeds(up: PromptWrites, answer: int, wrong: int | None) -> tuple[list[Seed], float]:
    """Seeds along W_U[answer] − W_U[wrong] (or W_U[answer], centred), and the total that all components bring.

    What heads bring from single tokens, largest first, until :data:`COVER` of all that heads bring for the answer, but
    nothing below :data:`LEAST` of the total: shares of both signs cancel, so that the last of these 80 % would be some
    hundred parts of next to nothing. A head that brings that much in all, but from no single token, enters with the
    token that it takes most from, so that there is a seed wherever a head carries :data:`LEAST` of the total. The
    embedding, MLPs and biases enter where they bring that much. None where the total is not positive: the model does
    not predict the answer.
    """
    direction = answer_direction(up, answer, wrong)
    shares = _along(up, direction).double()
    total = float(shares.sum())
    if total <= 0:
        return [], total
    least, n = LEAST * total, up.n_carried(up.n_layers)
    by_token = shares[:n]
    order = by_token.argsort(descending=True, stable=True)
    ordered = by_token[order]
    positive = ordered.clamp(min=0)
    before = positive.cumsum(0) - positive
    wanted = set(order[(ordered >= least) & (before < COVER * positive.sum())].tolist())
    whole = by_token.view(-1, up.tokens)
    for head in (whole.sum(1) >= least).nonzero()[:, 0].tolist():
        places = range(head * up.tokens, (head + 1) * up.tokens)
        if wanted.isdisjoint(places):
            wanted.add(places[int(whole[head].argmax())])
    wanted.update((n + (shares[n:] >= least).nonzero()[:, 0]).tolist())
    listed = sorted(wanted, key=lambda i: (-float(shares[i]), i))
    return [_seed(up, i, float(shares[i]), direction) for i in listed], total


def published_seeds(up: PromptWrites, answer: int, wrong: int | None) -> tuple[list[Seed], float]:
    """The published rule for the same shares.

    The cutoff is the share at which the running sum of shares, largest first, exceeds the total, but at most half of
    the total. No seeds where the total is not positive: the model does not predict the answer.
    """
    direction = answer_direction(up, answer, wrong)
    shares = _along(up, direction).double()
    total = float(shares.sum())
    if total <= 0:
        return [], total
    ordered = shares.sort(descending=True).values
    over = ordered.cumsum(0) > total
    # Where all shares are positive the running sum reaches the total only at its end.
    cutoff = ordered[int(over.to(torch.uint8).argmax())] if bool(over.any()) else ordered[-1]
    cutoff = min(float(cutoff), total / 2)
    chosen = (shares >= cutoff).nonzero()[:, 0]
    chosen = chosen[shares[chosen].argsort(descending=True, stable=True)]
    return [_seed(up, i, float(shares[i]), direction) for i in chosen.tolist()], total


def probability_seeds(up: PromptWrites, answers: Sequence[int]) -> tuple[list[Seed], float]:
    """Seeds by integrated gradients of Σ_t q*_t log softmax(logits)_t, removed until 80 % of the gain is destroyed.

    q* are the model's own probabilities of the ``answers``, normalised; the path starts at the bias-only logits.
    A seed's weight is the log-likelihood its removal took.
    """
    readout = _readout(up)
    base = readout.constant()
    whole = readout.push(last_of(up))
    chosen = torch.tensor(list(answers), device=base.device)
    target = torch.softmax(soft_cap(base + whole, readout.cap)[chosen], 0)

    def likelihood(logits: Tensor) -> Tensor:
        return torch.log_softmax(soft_cap(logits, readout.cap).double(), -1)[..., chosen] @ target.double()

    g = _likelihood_gradient(readout, base, whole, chosen, target, nodes("gauss"))
    direction = readout.pull(readout.unembedding.to(g.dtype).mT @ g)
    shares = _along(up, direction)
    order = shares.argsort(descending=True)
    clean = likelihood(base + whole)
    gain = float(clean - likelihood(base))
    if gain <= 0:
        return [], gain
    seeds: list[Seed] = []
    left, before = base + whole, float(clean)
    for start in range(0, len(order), 32):
        indices = order[start : start + 32].tolist()
        removed = readout.push(torch.stack([_write(up, i) for i in indices])).cumsum(0)
        values = likelihood(left - removed).tolist()
        for i, value in zip(indices, values, strict=True):
            scaled = direction * ((before - value) / float(shares[i]))
            seeds.append(_seed(up, i, before - value, scaled))
            before = value
            if float(clean) - value >= PROBABILITY_SHARE * gain:
                return seeds, gain
        left = left - removed[-1]
    return [], gain


def likelihood_shares(up: PromptWrites, answer: int) -> Tensor:
    """What every component brings, at the last position, to the answer's log-probability: [components].

    By integrated gradients from the bias-only logits: they sum to what the whole stream brings. Those of the answer
    that was asked about last are kept: a question and a glance at all heads both begin with them.
    """
    kept = up.brings.get(answer)
    if kept is None:
        kept = _likelihood_shares(up, answer)
        up.brings = {answer: kept}
    return kept


def _likelihood_shares(up: PromptWrites, answer: int) -> Tensor:
    readout = _readout(up)
    base, whole = readout.constant(), readout.push(last_of(up))
    chosen = torch.tensor([answer], device=base.device)
    # Logits reach some dozens, over which softmax is smooth: fewer nodes than attention needs.
    g = _likelihood_gradient(readout, base, whole, chosen, torch.ones_like(base[:1]), nodes("gauss", 20))
    return _along(up, readout.pull(readout.unembedding.to(g.dtype).mT @ g)).double()


def _likelihood_gradient(
    readout: Readout,
    base: Tensor,
    whole: Tensor,
    chosen: Tensor,
    target: Tensor,
    path: tuple[tuple[float, ...], tuple[float, ...]],
) -> Tensor:
    """What each logit counts for Σ_t target_t log softmax_t over the ``chosen`` tokens, on the way from ``base``.

    ``path`` are nodes and weights on it.
    """
    g = torch.zeros_like(base)
    for alpha, weight in zip(*path, strict=True):
        along = base + alpha * whole
        slope = -torch.softmax(soft_cap(along, readout.cap), -1)
        slope[chosen] += target
        if readout.cap is not None:
            slope = slope / torch.cosh(along / readout.cap).square()
        g += weight * slope
    return g


def _seed(up: PromptWrites, index: int, weight: float, reading: Tensor) -> Seed:
    component = up.component(up.n_layers, index)
    return Seed(component, weight, reading if component.kind == "mlp" and weight > 0 else None)


def answer_set(logits: Tensor, top_k: int | None, top_p: float | None) -> list[int]:
    """The most likely tokens: at most ``top_k``, and no more than are needed for probability ``top_p``.

    >>> answer_set(torch.tensor([0.0, 3.0, 2.0, -1.0]), None, 0.9)
    [1, 2]
    """
    top_k = None if top_k is None else count(top_k, "top_k", "names no answers")
    top_p = None if top_p is None else share(top_p, "top_p", "a probability")
    p, order = torch.softmax(logits, -1).sort(descending=True)
    n = len(p) if top_p is None else int((p.cumsum(0) < top_p).sum()) + 1
    return order[: min(n, len(p), top_k or len(p))].tolist()


def last_of(up: PromptWrites) -> Tensor:
    """The stream [d_model] before the final norm at the last position."""
    final = up.stream.final
    assert final is not None, "the pass stopped before the final norm"
    return final[up.prompt, up.span.stop - 1]


def _readout(up: PromptWrites) -> Readout:
    return Readout.of(up.stream.model, last_of(up))


def _along(up: PromptWrites, direction: Tensor) -> Tensor:
    """Every component's write at the last position along a direction of the stream: [components]."""
    n, last = up.n_layers, up.tokens - 1
    weights = up.row_weights(n, torch.tensor([last], device=up.device))[0]
    carried = up.carried(direction[None, None], n)[0, :, 0]
    return torch.cat((carried * weights.flatten(), up.static[:, last] @ direction))


def _write(up: PromptWrites, index: int) -> Tensor:
    """The write of one component at the last position: [d_model]."""
    last = up.tokens - 1
    component = up.component(up.n_layers, index)
    if component.kind != "head":
        return up.static[index - up.n_carried(up.n_layers), last]
    layer, head, source = component.layer, component.index, component.source
    weight = up.row_weights(layer + 1, torch.tensor([last], device=up.device))[0, layer, head, source]
    return weight * (up.stream.output_weight(layer)[head] @ up.v[layer, head // up.group, source])
