"""Averaged circuits against those of families: how much does the structure vary from one sample of prompts to another?

The averaged circuit of some prompts holds what at least half of their circuits hold. Prompts are resampled, the circuit
is averaged again, and the *variance of structure* is the mean Jaccard distance of two such circuits; the same is taken
inside each family, and for the families' representatives. Circuits of fewer prompts vary more, so the null are random
groups of the families' sizes: families are a better unit only if theirs vary less. Prompts of one wording have circuits
that are alike, so groups are dealt within wordings, and between whole wordings that are of one family: families that
are wordings are no steadier than others that are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from headwise.claims import claim, p_value
from headwise.families.dealing import Dealing, dealt_by
from headwise.families.distance import jaccard
from headwise.intervals import resampled
from headwise.randomness import keyed
from headwise.types import Claim

HELD = 0.5
"""An averaged circuit holds what at least this share of the circuits hold."""
RESAMPLES = 40
"""Resamples of the prompts: 780 pairs of averaged circuits."""
DRAWS = 99
"""Random groups of the families' sizes."""
NULL = "random groups of the families' sizes: prompts {dealt}"


@dataclass(frozen=True, kw_only=True)
class Averaging:
    """How much averaged circuits vary from sample to sample: all prompts as one, and family by family."""

    all_prompts: float
    """Mean Jaccard distance of two averaged circuits of all prompts, each of a resample."""
    families: float
    """The same inside families, mean over circuits: a family counts by its size."""
    representatives: float
    """Mean distance of a family's representatives in two resamples of it."""
    by_family: tuple[float, ...]
    """The variance of each family's averaged circuit."""
    random_groups: tuple[float, ...]
    """What random groups of the families' sizes have instead of ``families``, one per draw."""
    all_size: int
    """What the averaged circuit of all prompts holds."""
    shared: float
    """The share of a prompt's circuit that the averaged circuit of all prompts holds, mean over prompts."""
    family_shared: float
    """The same with the averaged circuit of the prompt's own family."""
    steadier: Claim | None
    """That the families' averaged circuits vary less than those of random groups; None where there is one family."""

    def to_json(self) -> dict[str, Any]:
        """Every number by its name; of the random groups their mean."""
        return {
            "all_prompts": self.all_prompts,
            "families": self.families,
            "representatives": self.representatives,
            "by_family": list(self.by_family),
            "random_groups": _mean(self.random_groups),
            "averaged_size": self.all_size,
            "shared": self.shared,
            "family_shared": self.family_shared,
            "steadier": None if self.steadier is None else self.steadier.to_json(),
        }

    @property
    def random_mean(self) -> float | None:
        """The random groups' mean; None where there is one family."""
        return _mean(self.random_groups)


def averaging(
    matrix: sparse.csr_matrix,
    distances: np.ndarray,
    labels: np.ndarray,
    *,
    clusters: np.ndarray | None = None,
    unit: str = "prompt",
    seed: int = 0,
) -> Averaging:
    """Resample circuits [prompts, features] as a whole and within families (``labels`` [prompts]); ``clusters``
    [prompts] say which prompts belong together, and ``unit`` what they share.

    >>> held = sparse.csr_matrix(np.repeat(np.eye(2, 6, dtype=bool), 10, axis=0))
    >>> found = averaging(held, jaccard(held), np.repeat([0, 1], 10))
    >>> found.families, found.all_prompts > 0, found.shared, found.family_shared
    (0.0, True, 1.0, 1.0)
    """
    ones = sparse.csr_matrix(
        (np.ones(matrix.nnz, dtype=np.float32), matrix.indices, matrix.indptr), matrix.shape
    )
    counts = np.bincount(labels)
    groups = [np.flatnonzero(labels == number) for number in range(len(counts))]
    by_family = [_variance(ones[rows], seed, "family", number) for number, rows in enumerate(groups)]
    random = []
    if len(groups) > 1:
        deal = Dealing.of(labels, clusters)
        for draw in range(DRAWS):
            given = deal(keyed(seed, "random groups", draw))
            parts = [np.flatnonzero(given == number) for number in range(len(counts))]
            one = [_variance(ones[rows], seed, "random", draw, n) for n, rows in enumerate(parts)]
            # Whole wordings are of different sizes, and so are the groups that they make.
            random.append(float(np.average(one, weights=[len(rows) for rows in parts])))
    families = float(np.average(by_family, weights=counts))
    whole = _averaged(ones, np.ones((1, len(labels)), dtype=np.float32))[0]
    own = [_averaged(ones[rows], np.ones((1, len(rows)), dtype=np.float32))[0] for rows in groups]
    medoid = [_medoid_variance(distances[np.ix_(rows, rows)], seed, n) for n, rows in enumerate(groups)]
    return Averaging(
        all_prompts=_variance(ones, seed, "all"),
        families=families,
        representatives=float(np.average(medoid, weights=counts)),
        by_family=tuple(by_family),
        random_groups=tuple(random),
        all_size=int(whole.sum()),
        shared=_shared(ones, whole),
        family_shared=float(
            np.average(
                [_shared(ones[rows], held) for rows, held in zip(groups, own, strict=True)], weights=counts
            )
        ),
        steadier=claim(
            p_value(-families, [-one for one in random]),
            null=NULL.format(dealt=dealt_by(unit)),
            draws=DRAWS,
        )
        if random
        else None,
    )


def _averaged(ones: sparse.csr_matrix, weights: np.ndarray) -> np.ndarray:
    """What at least half of the circuits hold, for each row of weights [resamples, prompts]: [resamples, features]."""
    totals = np.asarray(ones.T @ weights.T).T
    return totals >= HELD * weights.sum(1, keepdims=True)


def _variance(ones: sparse.csr_matrix, seed: int, *labels: object) -> float:
    """Mean Jaccard distance of two averaged circuits, each of a resample of these circuits."""
    drawn = (
        resampled(len(ones.indptr) - 1, seed, "averaging", *labels, draws=RESAMPLES)
        .numpy()
        .astype(np.float32)
    )
    found = jaccard(sparse.csr_matrix(_averaged(ones, drawn)))
    return float(found.sum(dtype=np.float64) / (RESAMPLES * (RESAMPLES - 1)))


def _medoid_variance(distances: np.ndarray, seed: int, family: int) -> float:
    """Mean distance of a family's representatives in two resamples of it."""
    drawn = resampled(len(distances), seed, "representatives", family, draws=RESAMPLES).numpy()
    to_all = drawn @ distances.astype(np.float64)
    # Only a prompt of the resample can represent it.
    chosen = np.where(drawn > 0, to_all, np.inf).argmin(1)
    between = distances[np.ix_(chosen, chosen)]
    return float(between.sum(dtype=np.float64) / (RESAMPLES * (RESAMPLES - 1)))


def _shared(ones: sparse.csr_matrix, held: np.ndarray) -> float:
    """The share of each circuit that ``held`` [features] holds, mean over circuits that are not empty."""
    sizes = np.diff(ones.indptr)
    inside = np.asarray(ones @ held.astype(np.float32)).ravel()
    return float((inside[sizes > 0] / sizes[sizes > 0]).mean()) if (sizes > 0).any() else 0.0


def _mean(values: tuple[float, ...]) -> float | None:
    return sum(values) / len(values) if values else None
