"""Axes that act together: a feature may take several dimensions, and then its axes are large in the same cells, or one
is large where the other is not.
"""

from __future__ import annotations

import numpy as np
from sklearn.cluster import AgglomerativeClustering

TOGETHER = 0.15
"""Dependence from which axes are one feature; of two that are on and off together it is at most a third."""


def dependence(found: np.ndarray) -> np.ndarray:
    """How much the energies of coordinates [n, r] of variance 1 depend on one another [r, r].

    The covariance of squares over √((1 + var)(1 + var)), from 0 to 1: a correlation for coordinates that are seldom
    large, but next to nothing for those whose square hardly varies (signs), where a correlation would be one of noise.

    >>> g = np.random.default_rng(0)
    >>> angle, size = g.uniform(0, 2 * np.pi, 5000), g.exponential(size=5000)
    >>> ring = np.stack([np.cos(angle), np.sin(angle), g.normal(size=5000)], 1)
    >>> dependence(ring / ring.std(0)).round(1).tolist()
    [[1.0, 0.3, 0.0], [0.3, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """
    square = np.asarray(found) ** 2
    centred = square - square.mean(0)
    covariance = centred.T @ centred / len(square)
    mean = square.mean(0)
    size = np.sqrt(covariance.diagonal() + mean**2)
    shared = np.abs(covariance) / np.maximum(np.outer(size, size), np.finfo(float).tiny)
    np.fill_diagonal(shared, 1.0)
    return shared


def grouped(found: np.ndarray) -> list[tuple[int, ...]]:
    """Groups of axes, by their dependence on cells [n, r] that did not fit them; each sorted, the first axis first.

    >>> g = np.random.default_rng(0)
    >>> on = g.random(5000) < 0.1
    >>> both = g.normal(size=(5000, 2)) * on[:, None]                   # two axes that are active in the same cells
    >>> cells = np.concatenate([both, g.normal(size=(5000, 2))], 1)
    >>> grouped(cells / cells.std(0))
    [(0, 1), (2,), (3,)]
    """
    r = found.shape[1]
    if r < 2:
        return [tuple(range(r))]
    labels = AgglomerativeClustering(
        n_clusters=None,  # pyright: ignore[reportArgumentType] (as its documentation has it)
        metric="precomputed",
        linkage="average",
        distance_threshold=1 - TOGETHER,
    ).fit_predict(1 - dependence(found))
    return sorted(tuple(np.flatnonzero(labels == label).tolist()) for label in np.unique(labels))
