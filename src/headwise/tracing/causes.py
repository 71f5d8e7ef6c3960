"""Which candidates cause an attention: integrated gradients give their order, a greedy search a minimal set.

IG_i = ∫₀¹ Σ_t C_it ∂p_s/∂z_t(αz) dα = ⟨C_i, g⟩ with one vector g per firing, so nothing of the size candidates × keys
is ever built. With a soft-cap the logits are decomposed before the cap, and the cap's derivative sech² belongs to g.
Candidates leave in descending order of attribution until the attention falls below τ. Because the order is fixed before
the search, the search is a cumulative sum of their rows, one softmax, and the first index below τ; then a backward pass
puts back what turns out not to be needed (docs/method/tracing.md §3).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from headwise.model.attend import soft_cap, visible_softmax

if TYPE_CHECKING:
    from headwise.tracing.search import LayerChunk
    from headwise.tracing.sides import KeySide, QuerySide

Quadrature = Literal["gauss", "trapezoid"]


@cache
def nodes(rule: Quadrature, number: int = 64) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Nodes and weights on [0, 1]: Gauss–Legendre with so many nodes, or the trapezoid rule with so many intervals.

    >>> [round(float(sum(nodes(rule)[1])), 12) for rule in ("gauss", "trapezoid")]
    [1.0, 1.0]
    """
    if rule == "gauss":
        x, w = np.polynomial.legendre.leggauss(number)
        return tuple((x + 1) / 2), tuple(w / 2)
    w = np.full(number + 1, 1 / number)
    w[[0, -1]] /= 2
    return tuple(np.linspace(0, 1, number + 1)), tuple(w)


def default_threshold(attention: float, keys: int) -> float:
    """Below which attention a cause must take a cell: 2.5 / keys or a quarter of it, but at most half of it.

    >>> default_threshold(0.8, 14), default_threshold(0.8, 600), default_threshold(0.1, 14)
    (0.2, 0.2, 0.05)
    """
    return min(max(2.5 / keys, attention / 4), attention / 2)


def attention(logits: Tensor, visible: Tensor, cap: float | None = None) -> Tensor:
    """Attention over visible keys, from logits [..., keys] before the soft-cap."""
    return visible_softmax(soft_cap(logits, cap), visible)


def path_gradient(
    logits: Tensor, visible: Tensor, key: Tensor, *, cap: float | None, rule: Quadrature
) -> Tensor:
    """g [firings, keys] of attention to ``key`` [firings], for pre-cap ``logits`` [firings, keys].

    ⟨logits, g⟩ is the attention less that of the uniform row (completeness).

    >>> z = torch.tensor([[1.0, 3.0, -2.0]], dtype=torch.float64)
    >>> g = path_gradient(z, torch.ones(1, 3, dtype=torch.bool), torch.tensor([1]), cap=None, rule="gauss")
    >>> abs(float((z * g).sum() - (z.softmax(-1)[0, 1] - 1 / 3))) < 1e-12
    True
    """
    at, weight = (torch.tensor(x, dtype=logits.dtype, device=logits.device) for x in nodes(rule))
    along = logits[:, None] * at[:, None]
    p = attention(along, visible[:, None], cap)
    chosen = p.gather(2, key[:, None, None].expand(-1, p.shape[1], 1))
    weighted = chosen * weight[:, None]
    slope = -weighted * p
    slope.scatter_add_(2, key[:, None, None].expand(-1, p.shape[1], 1), weighted)
    if cap is not None:
        slope = slope / torch.cosh(along / cap).square()
    return slope.sum(1)


# --- the best candidates --------------------------------------------------------------------------------------------
#
# Nearly all (component, channel) pairs bring next to nothing, and in a long prompt there are millions. No channel of a
# component brings more than |v_ck| ≤ ‖y_c‖ · ‖reading_k w_k‖, and ‖y_c‖ has a bound that needs no rotated vector. So
# the components that are not heads, few and strong, are multiplied out first, and heads whose bound lies below the best
# candidates found so far never are. The sets are the same.

STEP = 512
"""Components of each firing that are multiplied out at a time, the most likely first."""
SLACK = 1 + 1e-5
"""Bounds are rounded, too."""


class Best(NamedTuple):
    """The m best candidates of some firings, best first: [o, m] each."""

    attribution: Tensor
    component: Tensor
    channel: Tensor


class Candidates:
    """All candidates of one side of some firings. f firings, N components of which those behind the heads are few."""

    def __init__(self, chunk: LayerChunk, side: QuerySide | KeySide) -> None:
        self.side = side
        reading, weight = side.reading()
        read = reading * weight[:, None]  # [f, w, channels]
        self.channels = read.shape[-1]
        self.number = (side.n_carried + side.n_others) * self.channels
        self.totals = (chunk.g * chunk.logits).sum(1)
        """[f]: all attributions of each firing: channels and components sum to the logits."""
        others = side.others()
        self.read = read.to(others.dtype)
        self.others = others @ self.read  # [f, n_others, channels]
        bounds = side.bounds(self.read) * SLACK
        # A token after the query can have been read by nobody: not a candidate.
        future = torch.arange(chunk.T, device=chunk.d.device) > chunk.d[:, None]
        by_token = bounds.view(len(chunk.firings), -1, chunk.T)
        self.bounds = by_token.masked_fill_(future[:, None], -torch.inf).view_as(bounds)
        self.scored = 0
        """Heads by token that were multiplied out, over all firings."""

    def top(self, of: Tensor, m: int) -> Best:
        """The m best candidates of firings ``of`` [o]; there must be as many."""
        numbers = torch.arange(self.side.n_others, device=of.device) + self.side.n_carried
        best = _best(self.others[of], numbers.expand(len(of), -1), m)
        left = self.bounds[of]
        while True:
            more = (left > best.attribution[:, -1:]).sum(1)
            step = min(STEP, int(more.max()))
            if step == 0:
                return best
            here = more.nonzero()[:, 0]
            bounds, component = left[here].topk(step, 1)
            left[here] = left[here].scatter_(1, component, -torch.inf)
            scores = self.side.vectors_of(of[here], component) @ self.read[of[here]]
            scores.masked_fill_((bounds == -torch.inf)[..., None], -torch.inf)
            self.scored += component.numel()
            found = _best(scores, component, m)
            value, where = torch.cat((best.attribution[here], found.attribution), 1).topk(m, 1)
            for kept, new, old in zip(best[1:], found[1:], best[1:], strict=True):
                kept[here] = torch.cat((old[here], new), 1).gather(1, where)
            best.attribution[here] = value


def _best(scores: Tensor, component: Tensor, m: int) -> Best:
    """The m best of all channels [o, n, channels] of components [o, n]; filled up with −inf where there are fewer."""
    o, n, channels = scores.shape
    # They lie among the m components of largest best score.
    among = scores.amax(2).topk(min(m, n), 1).indices
    flat = scores.gather(1, among[..., None].expand(-1, -1, channels)).flatten(1)
    value, where = flat.topk(min(m, flat.shape[1]), 1)
    found = component.gather(1, among).gather(1, where // channels)
    best = Best(value, found, where % channels)
    short = m - value.shape[1]
    if short <= 0:
        return best
    nothing = (scores.new_full((o, short), -torch.inf), *(component.new_zeros(o, short) for _ in range(2)))
    return Best(*(torch.cat(pair, 1) for pair in zip(best, nothing, strict=True)))


# --- the search -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Rows:
    """Some firings' logit rows and the rows of their best candidates.

    f firings, m candidates each in descending attribution, t keys; all in float64.
    """

    logits: Tensor
    """[f, t] before the soft-cap; 0 where not visible."""
    visible: Tensor
    """[f, t]"""
    key: Tensor
    """[f]: the key whose attention is to fall."""
    tau: Tensor
    """[f]"""
    cap: float | None
    candidates: Tensor
    """[f, m, t]"""

    def chosen(self, firings: Tensor, width: int) -> Rows:
        """Some firings, each with its first ``width`` candidates."""
        return Rows(
            self.logits[firings],
            self.visible[firings],
            self.key[firings],
            self.tau[firings],
            self.cap,
            self.candidates[firings, :width],
        )

    def attention_of(self, logits: Tensor) -> Tensor:
        """Attention to each firing's key, from logits [f, n, t]: [f, n]."""
        p = attention(logits, self.visible[:, None], self.cap)
        return p.gather(2, self.key[:, None, None].expand(-1, logits.shape[1], 1))[..., 0]


def first_below(rows: Rows) -> Tensor:
    """How many candidates of each firing must leave until its attention is below τ; 0 where m do not suffice."""
    left = rows.logits[:, None] - rows.candidates.cumsum(1)
    below = rows.attention_of(left) < rows.tau[:, None]
    count = below.to(torch.uint8).argmax(1) + 1
    return torch.where(below.any(1), count, torch.zeros_like(count))


def put_back(rows: Rows, removed: Tensor) -> Tensor:
    """Make removed sets [f, m] (boolean) 1-minimal: no single member can return without the attention reaching τ.

    Of the members that can return, the one of least attribution does, until none can.
    """
    removed = removed.clone()
    last = rows.candidates.shape[1] - 1
    while True:
        left = rows.logits - (rows.candidates * removed[..., None]).sum(1)
        without = rows.attention_of(left[:, None] + rows.candidates)
        can_return = removed & (without < rows.tau[:, None])
        if not bool(can_return.any()):
            return removed
        least = last - can_return.flip(1).to(torch.uint8).argmax(1)
        some = can_return.any(1)
        removed[some, least[some]] = False


def drops(rows: Rows, removed: Tensor) -> Tensor:
    """The attention each removal took [f, m], in the order of removal; they sum to the whole drop."""
    left = rows.logits[:, None] - (rows.candidates * removed[..., None]).cumsum(1)
    after = rows.attention_of(torch.cat((rows.logits[:, None], left), 1))
    return (after[:, :-1] - after[:, 1:]) * removed


# --- the log-odds of a key against all others ------------------------------------------------------------------------
#
# A head at a query gives the key s the attention A = softmax(z)_s. The log-odds log(A / (1 − A)) = z_s − log Σ e^{z_t},
# the sum over the rivals t ≠ s, count from where the row knows nothing: at z = 0 they are −log(n − 1), n visible keys.
# Integrated gradients from there give every key a weight g_t, and with r = softmax over the rivals (docs/method/why.md)
#
#     g = ∫₀¹ (e_s − r(αz)) dα          Σ_t g_t z_t = log(A / (1 − A)) + log(n − 1)
#
# so whatever splits the logits linearly splits the log-odds. Under a soft-cap z is taken before the cap, and the cap's
# derivative sech²(αz_t/cap) belongs to g. Where a row sees one key alone there is nothing to explain: all is 0.

NODES = 32
"""Gauss–Legendre nodes of each panel."""
CALM = 4.0
"""Logits that reach no further change so little that one panel is enough for them."""


def log_odds(logits: Tensor, visible: Tensor, key: Tensor, *, cap: float | None = None) -> Tensor:
    """log(A / (1 − A)) + log(n − 1) of ``key`` [f] in rows of pre-cap ``logits`` [f, keys]: [f].

    From logits, so that it stays exact where A is 1 or 0 to every digit.

    >>> z = torch.tensor([[800.0, 0.0, 0.0]], dtype=torch.float64)
    >>> float(log_odds(z, torch.ones(1, 3, dtype=torch.bool), torch.tensor([0])))
    800.0
    """
    rivals = _rivals(visible, key)
    z = soft_cap(logits, cap)
    number = rivals.sum(-1)
    own = z.gather(-1, key[:, None])[:, 0]
    # Where there are no rivals the sum is empty; the visible key takes its place, and the result is not used.
    against = z.masked_fill(~torch.where(number[:, None] > 0, rivals, visible), float("-inf")).logsumexp(-1)
    total = own - against + number.clamp(min=1).to(z.dtype).log()
    return torch.where(number > 0, total, torch.zeros_like(total))


def log_odds_gradient(logits: Tensor, visible: Tensor, key: Tensor, *, cap: float | None = None) -> Tensor:
    """g [f, keys] of :func:`log_odds`, for pre-cap ``logits`` [f, keys]; 0 at keys that a row does not see.

    >>> z = torch.tensor([[1.0, 3.0, -2.0]], dtype=torch.float64)
    >>> seen, key = torch.ones(1, 3, dtype=torch.bool), torch.tensor([1])
    >>> g = log_odds_gradient(z, seen, key)
    >>> abs(float((g * z).sum() - log_odds(z, seen, key)[0])) < 1e-12
    True
    """
    rivals = _rivals(visible, key)
    seen = logits.masked_fill(~visible, 0.0)
    reach = 2 * float(seen.abs().amax())
    at, weight = (torch.tensor(x, dtype=logits.dtype, device=logits.device) for x in panels(_halvings(reach)))
    along = seen[:, None] * at[:, None]  # [f, nodes, keys]
    against = torch.softmax(soft_cap(along, cap).masked_fill(~rivals[:, None], float("-inf")), -1)
    slope = -against.nan_to_num(0.0)  # a row without rivals
    slope.scatter_(2, key[:, None, None].expand(-1, len(at), 1), 1.0)
    if cap is not None:
        slope = slope / torch.cosh(along / cap).square()
    return (slope * weight[:, None]).sum(1) * rivals.any(-1, keepdim=True)


@cache
def panels(halvings: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Nodes and weights on [0, 1]: Gauss–Legendre on panels that halve towards 0.

    r(αz) changes where α is about one over a difference of logits, so large logits change it near 0; panels that halve
    see every scale alike, and the error falls geometrically with the nodes whatever the logits are.

    >>> round(sum(panels(0)[1]), 12), round(sum(panels(6)[1]), 12)
    (1.0, 1.0)
    """
    x, w = np.polynomial.legendre.leggauss(NODES)
    edges = [0.0, *(2.0**-k for k in range(halvings, -1, -1))]
    nodes, weights = [], []
    for low, high in pairwise(edges):
        nodes += (low + (high - low) * (x + 1) / 2).tolist()
        weights += ((high - low) * w / 2).tolist()
    return tuple(nodes), tuple(weights)


def _halvings(reach: float) -> int:
    """How often panels halve, until differences of logits are calm on the first one."""
    return int(np.ceil(np.log2(max(reach, CALM) / CALM)))


def _rivals(visible: Tensor, key: Tensor) -> Tensor:
    """[f, keys]: visible keys other than the one asked about."""
    return visible & ~torch.nn.functional.one_hot(key, visible.shape[-1]).bool()
