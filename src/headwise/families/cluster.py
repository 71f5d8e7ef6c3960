"""Families of circuits: average linkage, cut where families are tight, come back under resampling, and lie apart.

The rule, in full. The tree of average linkage is cut from the top. A cluster counts as a family if it holds at least
``SMALLEST_SHARE`` of the prompts (and three of them); smaller clusters are *strays*, and each stray prompt joins the
family that is nearest on average. For every k from 2 to ``MOST_FAMILIES`` the first cut that has k families is taken,
unless more than ``MOST_STRAYS`` of the prompts are strays there. A cut is *stable* if its families come back when
``RESAMPLED`` of the prompts are clustered alone (mean adjusted Rand index with the whole at least ``STABLE``), and
*apart* if the nearest two of its families are further apart than in any cut of data that are one family
(:mod:`headwise.families.null`, p at most ``LEVEL``, all k considered). Of the cuts that are stable and apart, the one
of the best mean silhouette gives the families. If there is none, all prompts are one family.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from scipy.cluster.hierarchy import linkage
from scipy.spatial.distance import squareform
from sklearn.metrics import adjusted_rand_score

from headwise.randomness import keyed

MOST_FAMILIES = 30
SMALLEST_SHARE = 0.02
MOST_STRAYS = 0.2
RESAMPLED = 0.8
RESAMPLES = 20
"""Draws of that share of the circuits, each clustered anew, behind a cut's stability."""
STABLE = 0.8
"""A cut must be at least this stable to be chosen,"""
LEVEL = 0.05
"""and its p-value against data of one family at most this."""


def average_linkage(distances: np.ndarray) -> np.ndarray:
    """scipy's linkage matrix of a square matrix of distances."""
    return linkage(squareform(distances, checks=False), "average")


@dataclass(frozen=True, eq=False)
class Cut:
    """One way to part the prompts. Families are numbered by size, the largest 0."""

    labels: np.ndarray
    """[prompts] family of each."""
    strays: np.ndarray
    """[prompts] which of them were in no family of the tree and joined the nearest."""

    @property
    def k(self) -> int:
        """How many families it has."""
        return int(self.labels.max(initial=0)) + 1

    @property
    def sizes(self) -> np.ndarray:
        """[families]: how many prompts each holds."""
        return np.bincount(self.labels, minlength=self.k)


def smallest_family(n: int) -> int:
    return max(3, int(np.ceil(SMALLEST_SHARE * n)))


def cuts(tree: np.ndarray, distances: np.ndarray, most: int = MOST_FAMILIES) -> dict[int, Cut]:
    """For each number of families the first cut from the top that has so many (numbers that never occur are absent)."""
    n = len(distances)
    smallest = smallest_family(n)
    children = tree[:, :2].astype(np.int64)
    size = np.concatenate((np.ones(n, dtype=np.int64), tree[:, 3].astype(np.int64)))
    start = _starts(children, size, n)
    order = np.empty(n, dtype=np.int64)
    order[start[:n]] = np.arange(n)
    big = {2 * n - 2}
    found: dict[int, Cut] = {}
    for node in range(2 * n - 2, n - 1, -1):
        if size[node] < smallest:
            continue
        big.discard(node)
        big.update(child for child in children[node - n].tolist() if size[child] >= smallest)
        k = len(big)
        if 2 <= k <= most and k not in found:
            held = sum(int(size[b]) for b in big)
            if n - held <= MOST_STRAYS * n:
                found[k] = _cut(sorted(big), start, size, order, distances)
    return dict(sorted(found.items()))


def _starts(children: np.ndarray, size: np.ndarray, n: int) -> np.ndarray:
    """Where each node's leaves begin when the leaves stand in the order of the tree."""
    start = np.zeros(2 * n - 1, dtype=np.int64)
    for node in range(2 * n - 2, n - 1, -1):
        left, right = children[node - n]
        start[left] = start[node]
        start[right] = start[node] + size[left]
    return start


def _cut(
    big: list[int], start: np.ndarray, size: np.ndarray, order: np.ndarray, distances: np.ndarray
) -> Cut:
    labels = np.full(len(order), -1, dtype=np.int64)
    for number, node in enumerate(big):
        labels[order[start[node] : start[node] + size[node]]] = number
    strays = labels < 0
    if strays.any():
        near = _onehot(labels, len(big))
        labels[strays] = (distances[strays] @ near / near.sum(0)).argmin(1)
    # Largest first; equal sizes in the order of their first prompt, so that numbers do not depend on the tree's ids.
    members = [np.flatnonzero(labels == number) for number in range(len(big))]
    ranked = sorted(range(len(big)), key=lambda number: (-len(members[number]), int(members[number][0])))
    for rank, number in enumerate(ranked):
        labels[members[number]] = rank
    return Cut(labels, strays)


def _onehot(labels: np.ndarray, k: int) -> np.ndarray:
    return (labels[:, None] == np.arange(k)).astype(np.float32)


def silhouettes(distances: np.ndarray, partitions: Mapping[int, np.ndarray]) -> dict[int, np.ndarray]:
    """Silhouette of every prompt under several partitions at once: one product of distances with memberships."""
    if not partitions:
        return {}
    members = {k: _onehot(labels, int(labels.max()) + 1) for k, labels in partitions.items()}
    sums = distances.astype(np.float32, copy=False) @ np.concatenate(list(members.values()), 1)
    result, at = {}, 0
    for k, one in members.items():
        total = sums[:, at : at + one.shape[1]].astype(np.float64)
        at += one.shape[1]
        count, own = one.sum(0, dtype=np.float64), partitions[k]
        rows = np.arange(len(own))
        inside = total[rows, own] / np.maximum(count[own] - 1, 1)
        mean = total / np.maximum(count, 1)
        mean[rows, own] = np.inf
        mean[:, count == 0] = np.inf
        outside = mean.min(1)  # infinite where there is one family: a silhouette of 0, by definition
        larger = np.maximum(inside, outside)
        counted = (larger > 0) & (count[own] > 1) & np.isfinite(outside)
        result[k] = np.divide(
            np.where(counted, outside - inside, 0), larger, out=np.zeros_like(inside), where=counted
        )
    return result


def separation(distances: np.ndarray, labels: np.ndarray) -> float:
    """How far apart the two nearest families lie, in standard deviations inside families.

    Distances are taken for squared distances of points (true of the Jaccard distance). For families A and B every
    member has a place on the line between the two centroids, d²(i, A) − d²(i, B), its share of its own centroid left
    out; the separation of the pair is the difference of the two families' means over their pooled standard deviation.
    Half of one normal cloud is about 2.6 from the other half; clusters with a gap between them are further apart.

    >>> places = np.array([0.0, 0.1, 0.2, 9.0, 9.1, 9.2])
    >>> squared = (places[:, None] - places) ** 2
    >>> separation(squared, np.array([0, 0, 0, 1, 1, 1])) > 50 > separation(squared, np.array([0, 1, 0, 1, 0, 1]))
    True
    """
    k = int(labels.max()) + 1
    if k < 2:
        return 0.0
    members = _onehot(labels, k)
    sums = (distances.astype(np.float32, copy=False) @ members).astype(np.float64)
    count = members.sum(0, dtype=np.float64)
    rows = np.arange(len(labels))
    own = sums[rows, labels]
    whole = np.bincount(labels, own, minlength=k)
    squared = sums / count - whole / (2 * count**2)
    others = np.maximum(count[labels] - 1, 1)
    squared[rows, labels] = own / others - (whole[labels] - 2 * own) / (2 * others**2)
    mean, scatter = np.empty((k, k)), np.empty((k, k, k))
    for a in range(k):
        mine = squared[labels == a]
        mean[a] = mine.mean(0)
        scatter[a] = (mine - mean[a]).T @ (mine - mean[a])
    at = np.arange(k)
    # [a, b]: sum of squares in family a of the place between a and b
    inside = scatter[at, at, at][:, None] + scatter[:, at, at] - 2 * scatter[at, at]
    pooled = (inside + inside.T) / np.maximum(count[:, None] + count - 2, 1)
    apart = mean - mean[at, at][:, None]  # how much further a's members are from b than from a
    value = (apart + apart.T) / np.sqrt(np.maximum(pooled, 1e-12))
    return float(value[~np.eye(k, dtype=bool)].min())


@dataclass(frozen=True, eq=False)
class Clustering:
    """The tree, every cut, and how tight and stable each is."""

    tree: np.ndarray
    """[circuits − 1, 4]: the linkage matrix, as SciPy has it."""
    cuts: dict[int, Cut]
    """Number of families → the cut."""
    silhouette: dict[int, float]
    """Number of families → mean silhouette."""
    stability: dict[int, float]
    """Number of families → mean adjusted Rand index over resamples."""
    stability_low: dict[int, float]
    """The 10 % quantile over resamples."""

    def choose(self, p_values: Mapping[int, float]) -> int:
        """The number of families by the rule of this module; 1 where no cut is stable and apart."""
        fit = [k for k in self.cuts if self.stability[k] >= STABLE and p_values.get(k, 1.0) <= LEVEL]
        return max(fit, key=lambda k: (self.silhouette[k], -k), default=1)

    def labels(self, k: int) -> np.ndarray:
        """The family of every prompt when there are k."""
        return np.zeros(len(self.tree) + 1, dtype=np.int64) if k == 1 else self.cuts[k].labels


def cluster(distances: np.ndarray, *, seed: int = 0, resamples: int = RESAMPLES) -> Clustering:
    """Cluster circuits by their distances, with silhouette and stability for every number of families."""
    tree = average_linkage(distances)
    found = cuts(tree, distances)
    values = silhouettes(distances, {k: cut.labels for k, cut in found.items()})
    again: dict[int, list[float]] = {k: [] for k in found}
    n = len(distances)
    for draw in range(resamples if found else 0):
        order = torch.randperm(n, generator=keyed(seed, "resample", draw)).numpy()
        chosen = np.sort(order[: max(3, round(RESAMPLED * n))])
        part = np.ascontiguousarray(distances[np.ix_(chosen, chosen)])
        partial = cuts(average_linkage(part), part)
        for k, cut in found.items():
            # A number of families that the part does not have at all counts as no agreement.
            same = adjusted_rand_score(cut.labels[chosen], partial[k].labels) if k in partial else 0.0
            again[k].append(float(same))
    return Clustering(
        tree,
        found,
        {k: float(v.mean()) for k, v in values.items()},
        {k: float(np.mean(v)) for k, v in again.items()},
        {k: float(np.quantile(v, 0.1)) for k, v in again.items()},
    )


def leaf_order(tree: np.ndarray) -> np.ndarray:
    """Prompts in the order of the tree's leaves."""
    n = len(tree) + 1
    size = np.concatenate((np.ones(n, dtype=np.int64), tree[:, 3].astype(np.int64)))
    start = _starts(tree[:, :2].astype(np.int64), size, n)
    order = np.empty(n, dtype=np.int64)
    order[start[:n]] = np.arange(n)
    return order


def medoids(distances: np.ndarray, labels: np.ndarray) -> list[int]:
    """Each family's medoid: the member whose mean distance to the others is least (of equals, the first)."""
    result = []
    for number in range(int(labels.max(initial=0)) + 1):
        members = np.flatnonzero(labels == number)
        inside = distances[np.ix_(members, members)].sum(1, dtype=np.float64)
        result.append(int(members[inside.argmin()]))
    return result
