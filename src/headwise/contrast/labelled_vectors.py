"""Held-out queries and keys of one head with the class of each: what pictures colour, and what tests compare."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from headwise.contrast.measured import Gallery
from headwise.intervals import numbered
from headwise.strings import natural
from headwise.tasks.labelled.types import Contrast


@dataclass(frozen=True, eq=False, kw_only=True)
class LabelledVectors:
    """n queries and up to K keys each; a class is a number from 0, -1 where there is none."""

    by: str
    """The group that the classes are of, such as ``order``."""
    names: tuple[str, ...]
    """The classes that occur among queries and among keys, numbers by size."""
    q: Tensor
    """[n, d_head]"""
    k: Tensor
    """[n, K, d_head], in the order of their places in the prompt."""
    query_class: Tensor
    """[n]"""
    key_class: Tensor
    """[n, K]"""
    clusters: Tensor
    """[n]: which prompts belong together."""
    scene: Tensor
    """[n]: which prompts share their keys."""

    @classmethod
    def of(cls, gallery: Gallery, place: int, by: str, test: Contrast) -> LabelledVectors | None:
        """The vectors of the head at ``place`` with their classes; None where queries and keys share no two."""
        n = gallery.q.shape[1]
        examples = test.examples[:n]
        asked, had = gallery.query.get(by), gallery.keys.get(by)
        if (
            asked is None
            or had is None
            or not all(len(had[i]) == len(e.keys) for i, e in enumerate(examples))
        ):
            return None
        names = sorted(set(asked) & {label for labels in had for label in labels}, key=natural)
        if len(names) < 2:
            return None
        number = {name: i for i, name in enumerate(names)}
        order = [sorted(range(len(e.keys)), key=lambda i, keys=e.keys: keys[i]) for e in examples]
        width = max(map(len, order))
        keys = torch.zeros(n, width, gallery.k.shape[-1], dtype=torch.float64)
        classes = torch.full((n, width), -1)
        for i, places in enumerate(order):
            keys[i, : len(places)] = gallery.k[place, i, places].double()
            classes[i, : len(places)] = torch.tensor([number.get(had[i][p], -1) for p in places])
        first = [
            i if e.partner is None or e.partner >= n else min(i, e.partner) for i, e in enumerate(examples)
        ]
        return cls(
            by=by,
            names=tuple(names),
            q=gallery.q[place].double(),
            k=keys,
            query_class=torch.tensor([number.get(label, -1) for label in asked]),
            key_class=classes,
            clusters=numbered(test.clusters().which[:n], n)[0],
            scene=numbered(torch.tensor(first), n)[0],
        )

    def __len__(self) -> int:
        return len(self.q)

    def halves(self, generator: torch.Generator) -> Tensor | None:
        """A random half of the prompts [n] bool that parts no cluster; None where there is one cluster."""
        count = int(self.clusters.max()) + 1
        if count < 2:
            return None
        return (torch.randperm(count, generator=generator) < (count + 1) // 2)[self.clusters]

    def shuffled(self, draws: int, generator: torch.Generator) -> Tensor:
        """Classes dealt anew among the keys of each prompt [draws, n, K]; prompts of one scene, whose keys are the
        same, are dealt the same."""
        n, width = self.key_class.shape
        scenes = int(self.scene.max()) + 1
        # A key without a class stays as it is.
        absent = self.key_class < 0
        drawn = torch.rand(draws, scenes, width, generator=generator)[:, self.scene]
        order = drawn.masked_fill(absent, 2.0).argsort(-1)
        place = absent.to(torch.int8).argsort(dim=-1, stable=True)
        return torch.full((draws, n, width), -1).scatter(
            -1, place.expand(draws, -1, -1), self.key_class.expand(draws, -1, -1).gather(-1, order)
        )

    @property
    def ordered(self) -> bool:
        """Whether the classes are numbers."""
        return all(name.isdigit() for name in self.names)


def members(classes: Tensor, count: int, kept: Tensor | None = None) -> Tensor:
    """Weights that take the mean of each class [..., classes, n] of values whose class is given [..., n].

    >>> members(torch.tensor([0, 1, 0, -1]), 2).tolist()
    [[0.5, 0.0, 0.5, 0.0], [0.0, 1.0, 0.0, 0.0]]
    """
    chosen = classes[..., None, :] == torch.arange(count)[:, None]
    if kept is not None:
        chosen = chosen & kept
    weights = chosen.double()
    return weights / weights.sum(-1, keepdim=True).clamp_min(1)


def present(classes: Sequence[Tensor], count: int) -> Tensor:
    """The classes that occur in each of several lists [classes] bool."""
    every = [torch.bincount(one[one >= 0].flatten(), minlength=count) > 0 for one in classes]
    return torch.stack(every).all(0)
