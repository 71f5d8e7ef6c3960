"""Is it more than the wording? Permutations and null data that leave every wording what it is.

Circuits of one wording are alike, whatever else is said of their prompts, so wordings alone look like families, and a
label that goes along with them looks as if it parted circuits. Two tests hold the wording fixed:

*A label's values permuted within wordings*: are circuits of one wording further apart where the values differ? Exact,
for under the null every assignment of the values within a wording is as good as any other.

*Every wording one family*: null data in which the circuits of each wording vary continuously, with the frequencies,
sizes and correlations that they have. Families are held against it by the gaps between them *inside* wordings: families
that are wordings have none, and those that cross wordings do not have to be further apart than wordings are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Self

import numpy as np
import torch
from scipy import sparse

from headwise.claims import claims, p_value
from headwise.families.cluster import separation
from headwise.families.dealing import Dealing, dealt_by
from headwise.families.distance import jaccard
from headwise.families.null import DRAWS, NullTest, OneFamily, ShuffledEdges, drawn_test
from headwise.randomness import keyed
from headwise.tasks.clusters import WORDINGS
from headwise.types import Claim

PERMUTATIONS = 999
"""Permutations per label: the smallest p that can be reached is 0.001."""
AT_ONCE = 4_000_000
"""Entries of permuted patterns that are held at a time."""
GROUP = "all labels of this run"
MEMBERS = 3
"""Circuits that a family must have in a wording to be compared there."""


def wording_of(groups: Mapping[str, np.ndarray]) -> str | None:
    """The label that is the prompts' wording, if they have one.

    >>> wording_of({"order": np.array(["a", "b"]), "template": np.array(["1", "2"])})
    'template'
    """
    return next((name for name in WORDINGS if name in groups), None)


def within_claims(
    groups: Mapping[str, np.ndarray],
    distances: np.ndarray,
    *,
    clusters: np.ndarray | None = None,
    unit: str = "prompt",
    seed: int = 0,
) -> dict[str, Claim]:
    """For every label that varies within wordings: that circuits of one wording differ by it; corrected together.

    Without wordings, that circuits differ by it at all. Prompts that share something else, such as an entity, are then
    no evidence of their own: values are dealt by ``clusters``, whose prompts share a ``unit``.
    """
    wording = wording_of(groups)
    blocks = np.zeros(len(distances), dtype=np.int64) if wording is None else _codes(groups[wording])
    values, nulls = {}, []
    for name, column in groups.items():
        code, generator = _codes(column), keyed(seed, "within", name)
        if name == wording or not _varies(code, blocks):
            continue
        dealing = Dealing.of(code, clusters)
        if wording is not None or unit == "prompt" or not dealing.changes:
            # A label of which every cluster has a value of its own is what the clusters are: it is dealt by prompt.
            values[name] = apart_within(distances, code, blocks, generator)
            nulls.append("values permuted" + ("" if wording is None else f" within each {wording}"))
        else:
            values[name] = apart_by(distances, dealing, generator)
            nulls.append(f"values {dealt_by(unit)}")
    made = claims(list(values.values()), null="", draws=PERMUTATIONS, group=GROUP)
    return {name: replace(one, null=null) for name, one, null in zip(values, made, nulls, strict=True)}


def apart_by(
    distances: np.ndarray, dealing: Dealing, generator: torch.Generator, draws: int = PERMUTATIONS
) -> float:
    """p that circuits are further apart where values differ, by values dealt anew in whole clusters.

    Clusters differ in size, so that deals differ in how many pairs have equal values: means are compared, not sums.
    """

    total, n, near = float(distances.sum(dtype=np.float64)), len(distances), distances.astype(np.float64)

    def apart(code: np.ndarray) -> float:
        given = np.eye(int(code.max()) + 1)[code]
        equal = (given.sum(0) ** 2).sum() - n
        if equal in (0, n * (n - 1)):
            return 0.0
        inside = float((given * (near @ given)).sum())
        return (total - inside) / (n * (n - 1) - equal) - inside / equal

    return p_value(apart(dealing.values), [apart(dealing(generator)) for _ in range(draws)])


def apart_within(
    distances: np.ndarray,
    code: np.ndarray,
    blocks: np.ndarray,
    generator: torch.Generator,
    draws: int = PERMUTATIONS,
) -> float:
    """p that circuits of one block are further apart where ``code`` differs, by permutations within blocks.

    >>> d = np.array([[0, 0, 1, 1], [0, 0, 1, 1], [1, 1, 0, 0], [1, 1, 0, 0.0]])
    >>> apart_within(d, np.array([0, 0, 1, 1]), np.zeros(4, int), torch.Generator().manual_seed(0), 2999) < 0.4
    True
    """
    parts = [np.flatnonzero(blocks == block) for block in np.unique(blocks)]
    # The sum over pairs of equal values falls as that over unequal ones rises: their total is fixed, and so are counts.
    observed, drawn = 0.0, np.zeros(draws)
    for rows in parts:
        near = distances[np.ix_(rows, rows)].astype(np.float64)
        observed -= float(near[code[rows][:, None] == code[rows]].sum())
        step = max(1, AT_ONCE // max(1, len(rows) ** 2))
        for start in range(0, draws, step):
            n = min(step, draws - start)
            order = torch.rand(n, len(rows), generator=generator).argsort(1).numpy()
            given = code[rows][order]
            drawn[start : start + n] -= np.einsum("dij,ij->d", given[:, :, None] == given[:, None], near)
    return p_value(observed, drawn.tolist())


class OneFamilyEach:
    """Circuits of which those of one wording are one continuous cloud, fitted to them alone."""

    def fit(self, matrix: sparse.csr_matrix, blocks: np.ndarray, *, seed: int = 0) -> Self:
        """Fit one cloud to the circuits of each block of ``matrix`` [circuits, features]."""
        held = matrix.toarray().astype(bool)
        self.shape = held.shape
        self.clouds: list[tuple[np.ndarray, np.ndarray, OneFamily]] = []
        for block in np.unique(blocks):
            rows = np.flatnonzero(blocks == block)
            some = sparse.csr_matrix(held[rows])
            shuffled = ShuffledEdges(keyed(seed, "shuffled edges", str(block))).fit(some)
            self.clouds.append((rows, np.flatnonzero(held[rows].any(0)), OneFamily().fit(some, shuffled)))
        return self

    def sample(self, generator: torch.Generator) -> sparse.csr_matrix:
        """The next null data set."""
        made = np.zeros(self.shape, dtype=bool)
        for rows, features, cloud in self.clouds:
            made[np.ix_(rows, features)] = cloud.sample(generator).toarray()
        return sparse.csr_matrix(made)


def separation_within(distances: np.ndarray, labels: np.ndarray, blocks: np.ndarray) -> float:
    """How far apart the nearest two families of each block lie, averaged over circuits; a block of one family has 0.

    >>> places = np.array([0.0, 0.1, 0.2, 9.0, 9.1, 9.2] * 2)
    >>> squared, blocks = (places[:, None] - places) ** 2, np.repeat([0, 1], 6)
    >>> separation_within(squared, blocks, blocks)
    0.0
    >>> separation_within(squared, np.tile([0, 0, 0, 1, 1, 1], 2), blocks) > 50
    True
    """
    total = 0.0
    for block in np.unique(blocks):
        rows = np.flatnonzero(blocks == block)
        _, code, count = np.unique(labels[rows], return_inverse=True, return_counts=True)
        # The spread of one or two circuits is no yardstick.
        kept = rows[count[code] >= MEMBERS]
        if len(kept):
            total += len(rows) * separation(distances[np.ix_(kept, kept)], _codes(labels[kept]))
    return float(total / len(labels))


def wording_test(
    matrix: sparse.csr_matrix,
    labels: Mapping[int, np.ndarray],
    wordings: np.ndarray,
    *,
    seed: int = 0,
    draws: int = DRAWS,
) -> NullTest:
    """The cuts ``labels`` (by number of families): have they gaps inside wordings that one cloud each has not?"""
    distances, blocks = jaccard(matrix), _codes(wordings)
    each = OneFamilyEach().fit(matrix, blocks, seed=seed)

    def apart(between: np.ndarray, cut: np.ndarray) -> float:
        return separation_within(between, cut, blocks)

    return drawn_test(
        {k: apart(distances, one) for k, one in labels.items()},
        lambda draw: each.sample(keyed(seed, "wordings", draw)),
        len(distances),
        draws,
        apart=apart,
    )


def _codes(values: np.ndarray) -> np.ndarray:
    return np.unique(values, return_inverse=True)[1]


def _varies(code: np.ndarray, blocks: np.ndarray) -> bool:
    """Whether some wording has circuits of different values, and some of equal ones."""
    return any(1 < len(np.unique(code[blocks == b])) < (blocks == b).sum() for b in np.unique(blocks))
