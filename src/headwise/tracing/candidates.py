"""The best candidates of a search: all of them multiplied out, or only those that can be among the best.

In a long prompt nearly all (component, channel) pairs bring nothing, and there are millions. No channel of a component
brings more than |v_ck| ≤ ‖y_c‖ · ‖reading_k w_k‖, and ‖y_c‖ has a bound that needs no rotated vector. So components
whose bound lies below the best candidates found so far are never multiplied out. The sets are the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

if TYPE_CHECKING:
    from headwise.tracing.search import LayerChunk
    from headwise.tracing.sides import KeySide, QuerySide

FIRST = 256
"""Components that are multiplied out before any is left out."""


class Best(NamedTuple):
    """The m best candidates of some firings, best first: [o, m] each."""

    attribution: Tensor
    component: Tensor
    channel: Tensor


class EveryCandidate:
    """All attributions at once: [f, N, channels]."""

    def __init__(self, chunk: LayerChunk, side: QuerySide | KeySide) -> None:
        self.scores = side.attributions()
        self.number = self.scores[0].numel()
        self.totals = self.scores.sum(2).double().sum(1)
        """[f]: all attributions of each firing."""
        # A token after the query can have been read by nobody: not a candidate.
        self.future = torch.zeros(self.scores.shape[:2], dtype=torch.bool, device=self.scores.device)
        by_token = self.future[:, : side.n_carried].view(len(chunk.firings), -1, chunk.T)
        by_token[:] = (torch.arange(chunk.T, device=chunk.d.device) > chunk.d[:, None])[:, None]
        self.best = self.scores.amax(2).masked_fill_(self.future, float("-inf"))

    def top(self, of: Tensor, m: int) -> Best:
        """The m best candidates of firings ``of`` [o]."""
        # They lie among the m components of largest best score.
        top = self.best[of].topk(min(m, self.best.shape[1]), 1).indices
        future = self.future[of[:, None], top][..., None]
        among = self.scores[of[:, None], top].masked_fill_(future, float("-inf"))
        value, flat = among.flatten(1).topk(m, 1)
        channels = self.scores.shape[2]
        return Best(value, top.gather(1, flat // channels), flat % channels)


class LikelyCandidates:
    """Attributions of the components that can be among the best, worked out when they are asked for."""

    def __init__(self, chunk: LayerChunk, side: QuerySide | KeySide) -> None:
        self.side = side
        reading, weight = side.prepare()
        self.read = reading * weight[:, None]  # [f, w, channels]
        self.channels = self.read.shape[-1]
        self.number = (side.n_carried + side.n_others) * self.channels
        # The channels sum to the logits, so that all attributions together are the gradient's product with these.
        self.totals = (chunk.g * chunk.logits).sum(1)
        bounds = side.carried_lengths() * self.read.norm(dim=1).amax(1)[:, None].to(side.carried.dtype)
        by_token = bounds.view(len(chunk.firings), -1, chunk.T)
        future = torch.arange(chunk.T, device=chunk.d.device) > chunk.d[:, None]
        self.bounds = by_token.masked_fill_(future[:, None], float("-inf")).view_as(bounds)
        others = torch.arange(side.n_others, device=bounds.device) + side.n_carried
        self._known = [self._scored(i, others) for i in range(len(chunk.firings))]

    def top(self, of: Tensor, m: int) -> Best:
        """The m best candidates of firings ``of`` [o]."""
        return Best(
            *(torch.stack(parts) for parts in zip(*(self._top(i, m) for i in of.tolist()), strict=True))
        )

    def _top(self, firing: int, m: int) -> tuple[Tensor, Tensor, Tensor]:
        bounds = self.bounds[firing]
        component, scores = self._known[firing]
        if m > scores.numel():
            likely = bounds.topk(min(len(bounds), max(FIRST, m))).indices
            component, scores = self._more(firing, likely)
        while True:
            cut = (
                scores.flatten().topk(min(m, scores.numel())).values[-1]
                if scores.numel() >= m
                else -torch.inf
            )
            left = bounds > cut
            left[component[component < len(bounds)]] = False
            missing = left.nonzero()[:, 0]
            if not len(missing):
                break
            # The strongest first: each step raises the cut, and the rest may not be needed.
            order = bounds[missing].argsort(descending=True)[: max(FIRST, 4 * m)]
            component, scores = self._more(firing, missing[order])
        value, flat = scores.flatten().topk(m)
        return value, component[flat // self.channels], flat % self.channels

    def _more(self, firing: int, component: Tensor) -> tuple[Tensor, Tensor]:
        """Multiply some more components out."""
        known = self._known[firing]
        component = component[~torch.isin(component, known[0])]
        made = self._scored(firing, component)
        self._known[firing] = torch.cat((known[0], made[0])), torch.cat((known[1], made[1]))
        return self._known[firing]

    def _scored(self, firing: int, component: Tensor) -> tuple[Tensor, Tensor]:
        vectors = self.side.vectors_of(firing, component)
        return component, vectors @ self.read[firing].to(vectors.dtype)
