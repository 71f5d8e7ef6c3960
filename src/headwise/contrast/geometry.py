"""On what do classes that have an order lie: a line, a curve, a circle, or nothing that follows the order?

Of the class means inside a feature's subspace, on prompts that fitted nothing, three things are tested in turn:

* **ordered**: a path through the means in their order is shorter than through the same means in another order;
* **irreducible**: a second dimension that is no feature of its own. The means leave every line by more than their noise
  does, whichever class is left out (else the second dimension sets a single class apart: a mixture), and along that
  dimension too neighbours are alike (else it is another variable, such as odd and even, and the two are separable).
  Both coordinates then are smooth functions of one order, and no rotation makes them independent;
* **closed**: the last class is nearer to the first than classes two apart are on average, as on a circle.

Noise is that of clusters of prompts: their deviations from the class means, with signs flipped cluster by cluster. Its
size is itself uncertain where clusters are few: below twelve it varies from draw to draw as Student's t has it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Literal

import torch
from torch import Tensor

from headwise.claims import LEVEL, claims, p_value
from headwise.contrast.bank import BankFeature
from headwise.contrast.detail_rows import ShapeRow
from headwise.contrast.labelled_vectors import LabelledVectors, members
from headwise.intervals import FEW, numbered
from headwise.randomness import keyed
from headwise.types import Side

DRAWS = 999
LEAST = 6
"""Classes, and clusters of prompts, below which a path says nothing of its shape."""
GROUP = "all shapes of the run"
Test = Literal["ordered", "irreducible", "closed"]
NULLS: dict[Test, str] = {
    "ordered": "the same class means in another order",
    "irreducible": "a line with the clusters' noise, without any one class; the second coordinate in another order",
    "closed": "the clusters' noise around the class means",
}
"""The claims in the order in which they build on one another, and what each is held against."""
ShapeName = Literal["none", "line", "beyond a line", "curve", "circle"]


@dataclass(frozen=True, eq=False)
class ClassMeans:
    """Means of C ordered classes in r dimensions, and what the noise of clusters may do to them."""

    means: Tensor
    """[C, r]: centred."""
    noise: Tensor
    """[draws, C, r]: deviations of clusters from the means, added up with signs flipped at random."""

    @classmethod
    def of(cls, values: Tensor, classes: Tensor, clusters: Tensor, generator: torch.Generator) -> ClassMeans:
        """From values [n, r], their class [n] (numbers from 0, all of which occur) and cluster [n]."""
        count = int(classes.max()) + 1
        which, groups = numbered(clusters, len(values))
        takes = members(classes, count)
        means = takes @ values
        # Per cluster what it adds to the means: a deviation from fitted means is too small by (G − 1) / G.
        parts = torch.zeros(groups, count, values.shape[1], dtype=values.dtype)
        weighted = takes.amax(0)[:, None] * (values - means[classes])
        parts.index_put_((which, classes), weighted, accumulate=True)
        signs = torch.randint(2, (DRAWS, groups), generator=generator).to(values) * 2 - 1
        if groups < FEW:
            free = max(1, groups - 1)
            spread = torch.randn(DRAWS, free, generator=generator).to(values).square().mean(1, keepdim=True)
            signs = signs / spread.sqrt()
        noise = torch.einsum("dg,gcr->dcr", signs, parts) * (groups / max(1, groups - 1)) ** 0.5
        return cls(means - means.mean(0), noise - noise.mean(1, keepdim=True))

    @property
    def line_share(self) -> float:
        """How much of the means' spread the best line holds."""
        sigma = torch.linalg.svdvals(self.means).square()
        return float(sigma[0] / sigma.sum().clamp_min(1e-300))

    def without(self, number: int) -> ClassMeans:
        """The same without one class."""
        kept = torch.arange(len(self.means)) != number
        means, noise = self.means[kept], self.noise[:, kept]
        return ClassMeans(means - means.mean(0), noise - noise.mean(1, keepdim=True))

    # --- the tests ---

    def ordered(self, generator: torch.Generator) -> float:
        """p of the order."""
        return _smooth(self.means, generator)

    def beyond_line(self) -> float:
        """p of a second dimension: the means around their best line against noise around it."""
        if self.means.shape[1] < 2:
            return 1.0
        left, sigma, right = torch.linalg.svd(self.means, full_matrices=False)
        line = sigma[0] * left[:, :1] @ right[:1]
        drawn = torch.linalg.svdvals(line + self.noise)[:, 1]
        return p_value(float(sigma[1]), drawn)

    def irreducible(self, generator: torch.Generator) -> float:
        """p of a second dimension that is neither one class's nor another variable's: the largest of its tests."""
        if self.means.shape[1] < 2:
            return 1.0
        alone = [self.without(number).beyond_line() for number in range(len(self.means))]
        second = self.means @ torch.linalg.svd(self.means, full_matrices=False)[2][1]
        return max(*alone, self.beyond_line(), _smooth(second[:, None], generator))

    def closed(self) -> float:
        """p of ends that are nearer than classes two apart are."""
        return (1 + int((_closure(self.means + self.noise) <= 0).sum())) / (1 + len(self.noise))


def _smooth(means: Tensor, generator: torch.Generator) -> float:
    """p of a short path through means [C, r] in their order, among paths in other orders."""
    length = _path(means[None])
    orders = torch.rand(DRAWS, len(means), generator=generator).argsort(1)
    return p_value(-float(length), -_path(means[orders]))


def _path(means: Tensor) -> Tensor:
    """Squared steps from class to class [...] of means [..., C, r]."""
    return means.diff(dim=-2).square().sum((-2, -1))


def _closure(means: Tensor) -> Tensor:
    """By how much classes two apart are further from one another than the ends are, of means [..., C, r]."""
    apart = (means[..., 2:, :] - means[..., :-2, :]).square().sum(-1).mean(-1)
    return apart - (means[..., -1, :] - means[..., 0, :]).square().sum(-1)


def shape_rows(item: BankFeature, vectors: LabelledVectors, *, seed: int) -> Iterator[ShapeRow]:
    """The three tests of keys and of queries, not yet corrected; none without an order or with too few clusters."""
    if not vectors.ordered or item.rank < 1:
        return
    n, width = vectors.key_class.shape
    sides: dict[Side, tuple[Tensor, Tensor, Tensor]] = {
        "key": (
            (vectors.k @ item.key.basis.double()).flatten(0, 1),
            vectors.key_class.flatten(),
            vectors.clusters[:, None].expand(n, width).flatten(),
        ),
        "query": (vectors.q @ item.query.basis.double(), vectors.query_class, vectors.clusters),
    }
    for side, (values, classes, clusters) in sides.items():
        known = classes >= 0
        classes, count = numbered(classes[known], int(known.sum()))
        if min(count, len(clusters[known].unique())) < LEAST:
            continue
        label = (str(item.head), item.name, side)
        found = ClassMeans.of(values[known], classes, clusters[known], keyed(seed, "shape noise", *label))
        p: dict[Test, float] = {
            "ordered": found.ordered(keyed(seed, "shape order", *label)),
            "irreducible": found.irreducible(keyed(seed, "shape second", *label)),
            "closed": found.closed(),
        }
        for measure, null in NULLS.items():
            yield ShapeRow(
                head=str(item.head),
                name=item.name,
                side=side,
                measure=measure,
                by=vectors.by,
                classes=count,
                prompts=n,
                line_share=found.line_share,
                p_plane=found.beyond_line(),
                against=null,
                against_draws=DRAWS,
                p_value=p[measure],
                q_value=1.0,
                group=GROUP,
                supported=False,
            )


def judged_shapes(rows: Sequence[ShapeRow]) -> tuple[ShapeRow, ...]:
    """The tests of a run, corrected together; each claim asks for those before it."""
    found = claims([row.p_value for row in rows], null="", draws=DRAWS, group=GROUP)
    held: dict[tuple[str, str, Side], bool] = {}
    made = []
    for row, one in zip(rows, found, strict=True):
        of = (row.head, row.name, row.side)
        held[of] = held.get(of, True) and one.supported
        made.append(replace(row, q_value=one.q, supported=held[of]))
    return tuple(made)


@dataclass(frozen=True)
class FoundShape:
    """What the ordered classes of one feature lie on, on one side."""

    tests: tuple[ShapeRow, ...]
    """``ordered``, ``irreducible``, ``closed``."""

    @property
    def head(self) -> str:
        return self.tests[0].head

    @property
    def name(self) -> str:
        return self.tests[0].name

    @property
    def side(self) -> Side:
        return self.tests[0].side

    @property
    def shape(self) -> ShapeName:
        """``none``: no order is shown; ``beyond a line``: more than one, but not shown to be one feature."""
        ordered, irreducible, closed = self.tests
        if not ordered.supported:
            return "none"
        if not irreducible.supported:
            return "beyond a line" if ordered.p_plane <= LEVEL else "line"
        return "circle" if closed.supported else "curve"

    @property
    def sentence(self) -> str:
        """The shape in words."""
        ordered = self.tests[0]
        share = f"the best line holds {ordered.line_share:.0%} of their spread"
        said = {
            "none": "show no order",
            "line": f"lie on a line: no second dimension is shown, {share}",
            "beyond a line": f"leave the line, but no second dimension that cannot be reduced is shown; {share}",
            "curve": f"lie on a curve of two dimensions that cannot be reduced; {share}",
            "circle": f"lie on a circle, two dimensions that cannot be reduced; {share}",
        }[self.shape]
        plural = {"key": "keys", "query": "queries"}[self.side]
        return f"{self.head} {self.name}: the {ordered.classes} classes of {plural} by {ordered.by} {said}"

    def to_json(self) -> dict[str, Any]:
        """The shape in the study's document, with its claims."""
        about = ("head", "name", "side", "by", "classes", "prompts", "line_share", "p_plane")
        return {
            **{name: getattr(self.tests[0], name) for name in about},
            "shape": self.shape,
            "claims": {row.measure: row.claim.to_json() for row in self.tests},
        }


def shapes(rows: Sequence[ShapeRow]) -> list[FoundShape]:
    """Every feature's sides, in the order of the rows."""
    by = groupby(rows, key=lambda row: (row.head, row.name, row.side))
    return [FoundShape(tuple(group)) for _, group in by]
