"""Is it more than the wording? Permutations and null data that leave every wording what it is.

Circuits of one wording are alike, whatever else is said of their prompts, so wordings alone look like families, and a
label that goes along with them looks as if it parted circuits. Two tests hold the wording fixed:

*A label's values permuted within wordings*: are circuits of one wording further apart where the values differ? Exact,
for under the null every assignment of the values within a wording is as good as any other.

*Signals shuffled within wordings*: null data in which every wording holds each signal as often as observed, but in
circuits drawn by lot. Families that are wordings come back in it; a gap that does not is more than the wording.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from scipy import sparse

from headwise.claims import claims, p_value
from headwise.randomness import keyed
from headwise.tasks.clusters import WORDINGS
from headwise.types import Claim

PERMUTATIONS = 999
"""Permutations per label: the smallest p that can be reached is 0.001."""
AT_ONCE = 4_000_000
"""Entries of permuted patterns that are held at a time."""
GROUP = "all labels of this run"


def wording_of(groups: Mapping[str, np.ndarray]) -> str | None:
    """The label that is the prompts' wording, if they have one.

    >>> wording_of({"order": np.array(["a", "b"]), "template": np.array(["1", "2"])})
    'template'
    """
    return next((name for name in WORDINGS if name in groups), None)


def within_claims(
    groups: Mapping[str, np.ndarray], distances: np.ndarray, *, seed: int = 0
) -> dict[str, Claim]:
    """For every label that varies within wordings: that circuits of one wording differ by it; corrected together."""
    wording = wording_of(groups)
    blocks = np.zeros(len(distances), dtype=np.int64) if wording is None else _codes(groups[wording])
    names, values = [], []
    for name, column in groups.items():
        code = _codes(column)
        if name != wording and _varies(code, blocks):
            names.append(name)
            values.append(apart_within(distances, code, blocks, keyed(seed, "within", name)))
    null = "values permuted" + ("" if wording is None else f" within each {wording}")
    made = claims(values, null=null, draws=PERMUTATIONS, group=GROUP)
    return dict(zip(names, made, strict=True))


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


class ShuffledWithin:
    """Circuits whose signals are dealt out anew among those of one wording; each wording keeps its frequencies."""

    def __init__(self, matrix: sparse.csr_matrix, blocks: np.ndarray) -> None:
        self.held = matrix.toarray().astype(bool)
        self.parts = [np.flatnonzero(blocks == block) for block in np.unique(blocks)]

    def sample(self, generator: torch.Generator) -> sparse.csr_matrix:
        """The next null data set."""
        made = np.empty_like(self.held)
        for rows in self.parts:
            order = torch.rand(len(rows), self.held.shape[1], generator=generator).argsort(0).numpy()
            made[rows] = np.take_along_axis(self.held[rows], order, 0)
        return sparse.csr_matrix(made)


def _codes(values: np.ndarray) -> np.ndarray:
    return np.unique(values, return_inverse=True)[1]


def _varies(code: np.ndarray, blocks: np.ndarray) -> bool:
    """Whether some wording has circuits of different values, and some of equal ones."""
    return any(1 < len(np.unique(code[blocks == b])) < (blocks == b).sum() for b in np.unique(blocks))
