"""Independent axes inside a span: coordinates that vary on their own, where the data can tell.

Second moments leave the axes of a span open: any rotation has the same ΔC. Independent component analysis (FastICA)
fixes them where coordinates are independent and not Gaussian. Where samples have no preferred directions no method can,
so an axis is compared with what the same samples give once their directions are drawn anew, at the same distances from
the centre, and is looked for in halves of the texts and from other starts.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.decomposition import FastICA
from sklearn.exceptions import ConvergenceWarning

from headwise.errors import HeadwiseError
from headwise.randomness import keyed

STABLE = 0.9
"""|correlation| from which an axis counts as the same one."""
LEAST = 20
"""Samples per axis that are too few for a fourth moment."""
_GAUSSIAN = 0.374567
"""E[log cosh x] of a standard normal x."""


class IndependentAxes(TransformerMixin, BaseEstimator):
    """FastICA with what is known of each axis.

    Parameters
    ----------
    seeds:
        Fits from other starts that every axis is looked for in.
    surrogates:
        Samples with directions drawn anew, whose most non-Gaussian axis an axis must exceed.
    max_iter:
        Steps of one fit at most.
    random_state:
        The seed of everything random.

    Learned: ``components_`` [r, r] (rows read an axis), ``mixing_`` [r, r] (columns write it), ``mean_`` [r],
    ``negentropy_`` [r], ``surrogate_`` (the surrogates' largest), ``halves_`` and ``seeds_`` [r] (|correlation| of the
    axis between two halves, and with other starts), ``identified_`` [r] bool.

    >>> g = np.random.default_rng(0)
    >>> signs = g.choice([-1.0, 1.0], size=(2000, 3))
    >>> axes = IndependentAxes().fit(signs @ g.normal(size=(3, 3)))
    >>> axes.identified_.tolist()
    [True, True, True]
    >>> IndependentAxes().fit(g.normal(size=(2000, 3))).identified_.any()
    np.False_
    """

    def __init__(
        self, *, seeds: int = 3, surrogates: int = 19, max_iter: int = 300, random_state: int = 0
    ) -> None:
        self.seeds = seeds
        self.surrogates = surrogates
        self.max_iter = max_iter
        self.random_state = random_state

    def fit(self, X: Any, y: None = None, *, units: Any = None) -> Self:
        """Find the axes of samples X [n, r]; halves keep whole what ``units`` [n] says belongs together (texts)."""
        X = np.asarray(X, dtype=np.float64)
        n, r = X.shape
        if n < LEAST * r:
            raise HeadwiseError(f"{n} keys are too few for {r} independent axes: give at least {LEAST * r}")
        whole = self._fitted(X, "whole")
        self.mean_ = whole.mean_
        self.components_ = self._signed(whole.components_, X)
        self.mixing_ = np.linalg.inv(self.components_)
        found = self.transform(X)
        self.negentropy_ = negentropy(found)
        self.surrogate_ = self._surrogates(found)
        # Each from a start of its own: where there is nothing to find, a fit stays near its start.
        first, second = (
            self._fitted(X[half], "half", number).transform(X)
            for number, half in enumerate(self._halves(n, units))
        )
        others = [self._fitted(X, "seed", seed).transform(X) for seed in range(self.seeds)]
        self._again = [(first, second), *((found, other) for other in others)]
        self.halves_, self.seeds_ = self.agreement([(axis,) for axis in range(r)], found)
        stable = np.minimum(self.halves_, self.seeds_) >= STABLE
        # A single axis is its span.
        self.identified_ = stable & (self.negentropy_ > self.surrogate_) if r > 1 else np.ones(1, dtype=bool)
        return self

    def agreement(
        self, groups: Sequence[tuple[int, ...]], found: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """How well the span of each group is found again: between halves, and with other starts (the worst of them).

        The smallest canonical correlation between the axes that two fits have in the group's place.
        """
        owner = np.empty(found.shape[1], dtype=int)
        for number, group in enumerate(groups):
            owner[list(group)] = number
        scores = []
        for one, other in self._again:
            mine, theirs = (_partners(found, fit) for fit in (one, other))
            scores.append(
                [
                    _canonical(one[:, mine[owner == g]], other[:, theirs[owner == g]])
                    for g in range(len(groups))
                ]
            )
        halves, *starts = np.array(scores)
        return halves, np.min(starts or [np.ones(len(groups))], axis=0)

    def transform(self, X: Any) -> np.ndarray:
        """Coordinates of samples along the axes [n, r], of mean 0 and variance 1 where the axes were fitted."""
        return (np.asarray(X, dtype=np.float64) - self.mean_) @ self.components_.T

    def _fitted(self, X: np.ndarray, *label: object) -> FastICA:
        r = X.shape[1]
        # The usual start is drawn by the library; a rotation of our own is the same on every platform.
        start = keyed(self.random_state, "axes", *label, r)
        w_init = torch.linalg.qr(torch.randn(r, r, generator=start, dtype=torch.float64)).Q.numpy()
        ica = FastICA(whiten="unit-variance", w_init=w_init, max_iter=self.max_iter, tol=1e-4)
        with warnings.catch_warnings():
            # Without an end there is no axis to find: what is found again says so.
            warnings.simplefilter("ignore", ConvergenceWarning)
            return ica.fit(X)

    @staticmethod
    def _signed(components: np.ndarray, X: np.ndarray) -> np.ndarray:
        """Signs by the longer tail, so that an axis is positive where it is seldom large."""
        found = (X - X.mean(0)) @ components.T
        third = (found**3).mean(0)
        return components * np.where(third < 0, -1.0, 1.0)[:, None]

    def _surrogates(self, found: np.ndarray) -> float:
        """The most non-Gaussian axis of the samples with directions drawn anew, the largest of all surrogates."""
        n, r = found.shape
        distance, most = np.linalg.norm(found, axis=1, keepdims=True), 0.0
        for draw in range(self.surrogates if r > 1 else 0):
            generator = keyed(self.random_state, "surrogate", draw, n, r)
            turned = torch.randn(n, r, generator=generator, dtype=torch.float64).numpy()
            turned *= distance / np.linalg.norm(turned, axis=1, keepdims=True)
            most = max(
                most, float(negentropy(self._fitted(turned, "surrogate", draw).transform(turned)).max())
            )
        return most

    @staticmethod
    def _halves(n: int, units: Any) -> tuple[np.ndarray, np.ndarray]:
        units = np.arange(n) if units is None else np.asarray(units)
        _, place = np.unique(units, return_inverse=True)
        if place.max() < 1:
            raise HeadwiseError("all keys are of one text: give several, to see what is found again")
        return place % 2 == 0, place % 2 == 1


def negentropy(found: np.ndarray) -> np.ndarray:
    """How far coordinates [n, r] of variance 1 are from a Gaussian: (E[log cosh x] − its Gaussian value)² [r]."""
    size = np.abs(found)
    log_cosh = size + np.log1p(np.exp(-2 * size)) - np.log(2)
    return (log_cosh.mean(0) - _GAUSSIAN) ** 2


def _partners(found: np.ndarray, other: np.ndarray) -> np.ndarray:
    """The axis of another fit that is closest to each, every one taken once [r]."""
    r = found.shape[1]
    size = np.abs(np.corrcoef(found.T, other.T)[:r, r:])
    mine, theirs = linear_sum_assignment(-size)
    return theirs[np.argsort(mine)]


def _canonical(one: np.ndarray, other: np.ndarray) -> float:
    """The smallest canonical correlation between coordinates [n, g] and [n, g]."""
    spans = [np.linalg.qr(x - x.mean(0))[0] for x in (one, other)]
    return float(min(1.0, np.linalg.svd(spans[0].T @ spans[1], compute_uv=False)[-1]))
