"""Jaccard distances of all pairs of circuits, as one sparse product."""

from __future__ import annotations

import numpy as np
from scipy import sparse

BLOCK_BYTES = 1 << 26
"""Counts of shared features that are dense at a time."""


COMMON = 0.05
"""Features that more than this share of the circuits hold are multiplied as a dense matrix: most pairs share them, and
there a sparse product is the slow way."""


def jaccard(matrix: sparse.csr_matrix) -> np.ndarray:
    """1 − |A ∩ B| / |A ∪ B| of all pairs of rows of a boolean matrix: [rows, rows], float32.

    |A ∩ B| is a product of the matrix with its transpose, and |A ∪ B| = |A| + |B| − |A ∩ B|. Two empty circuits are
    alike: their distance is 0 (an empty and a non-empty one have distance 1).

    >>> held = sparse.csr_matrix([[1, 1, 0], [1, 0, 1], [0, 0, 0], [0, 0, 0]])
    >>> jaccard(held).astype(float).round(2).tolist()
    [[0.0, 0.67, 1.0, 1.0], [0.67, 0.0, 1.0, 1.0], [1.0, 1.0, 0.0, 0.0], [1.0, 1.0, 0.0, 0.0]]
    """
    ones = sparse.csr_matrix(
        (np.ones(matrix.nnz, dtype=np.float32), matrix.indices, matrix.indptr), shape=matrix.shape
    )
    sizes = np.diff(ones.indptr).astype(np.float32)
    n = len(sizes)
    by_feature = ones.tocsc()
    often = np.diff(by_feature.indptr) > COMMON * n
    common = by_feature[:, often].toarray()
    rare = by_feature[:, ~often].tocsr()
    across = rare.T.tocsr()
    result = np.empty((n, n), dtype=np.float32)
    step = max(1, BLOCK_BYTES // max(1, 4 * n))
    for start in range(0, n, step):
        part = slice(start, start + step)
        # Counts are whole numbers below 2^24: exact in float32, in whatever order they are added.
        shared = common[part] @ common.T
        shared += (rare[part] @ across).toarray()
        union = sizes[part, None] + sizes[None] - shared
        result[part] = 1 - np.divide(shared, union, out=np.ones_like(shared), where=union > 0)
    np.fill_diagonal(result, 0)
    return result
