"""Distances between circuits: those of scikit-learn and scipy, whatever the way they are computed."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from family_runs import edge
from hypothesis import given, settings
from hypothesis import strategies as st
from planted_circuits import independent
from scipy import sparse
from scipy.spatial.distance import pdist, squareform
from sklearn.metrics import pairwise_distances

from headwise.errors import HeadwiseError
from headwise.families.distance import jaccard
from headwise.families.incidence import Element, incidence
from headwise.survey.schema import table_of


def by_sets(matrix: sparse.csr_matrix) -> np.ndarray:
    """The slow and obvious way."""
    sets = [set(matrix.indices[a:b].tolist()) for a, b in zip(matrix.indptr, matrix.indptr[1:], strict=False)]
    return np.array([[1 - len(a & b) / len(a | b) if a | b else 0.0 for b in sets] for a in sets])


def test_distances_equal_those_of_sets_scipy_and_sklearn() -> None:
    matrix = independent(60, 3)
    got = jaccard(matrix)
    dense = matrix.toarray()
    assert got.dtype == np.float32
    assert np.allclose(got, by_sets(matrix), atol=1e-6)
    assert np.allclose(got, squareform(pdist(dense, "jaccard")), atol=1e-6)
    assert np.allclose(got, pairwise_distances(dense, metric="jaccard"), atol=1e-6)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sets(st.integers(0, 8)), min_size=1, max_size=9), st.sampled_from([0.0, 0.3, 1.0]))
def test_any_sets_common_rare_or_empty(sets: list[set[int]], common: float) -> None:
    dense = np.array([[i in one for i in range(9)] for one in sets])
    matrix = sparse.csr_matrix(dense)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("headwise.families.distance.COMMON", common)
        assert np.allclose(jaccard(matrix), by_sets(matrix), atol=1e-6)


def test_blocks_do_not_change_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = independent(50, 1)
    whole = jaccard(matrix)
    monkeypatch.setattr("headwise.families.distance.BLOCK_BYTES", 4 * 50 * 7)
    assert np.array_equal(jaccard(matrix), whole)


def edges() -> pa.Table:
    return table_of(
        "edges",
        [
            edge(0, "L0H1", "L2H0", "query", (3, 1), at=4),
            edge(0, "L0H1", "L2H0", "query", (3,), at=9),  # the same at another token
            edge(0, "MLP1", "L2H0", "key", (3,)),
            edge(0, "embedding", "L2H0", "key", (5,)),
            edge(0, "bias1", "L2H0", "key", (5,)),
            edge(0, "offset", "L2H0", "query", (6,)),
            edge(0, "L3H3", "answer", "query", ()),
            edge(2, "L0H1", "L2H0", "key", (3,)),
            edge(5, "L0H1", "L2H0", "key", (3,)),  # a prompt that is not asked for
        ],
    )


def test_features_drop_positions_and_leave_out_embeddings_biases_offsets_and_the_answer() -> None:
    got = incidence(edges(), [2, 0, 1])
    assert got.prompts.tolist() == [2, 0, 1]
    assert set(got.of(1)) == {
        Element("L0H1", "L2H0", "query", 3),
        Element("L0H1", "L2H0", "query", 1),
        Element("MLP1", "L2H0", "key", 3),
    }
    assert got.of(0) == [Element("L0H1", "L2H0", "key", 3)]
    assert got.of(2) == []
    assert got.sizes.tolist() == [1, 3, 0]
    assert got.frequency()[got.features.index(Element("MLP1", "L2H0", "key", 3))] == pytest.approx(1 / 3)


def test_variants_by_edge_and_by_head() -> None:
    by_edge = incidence(edges(), [0, 2], "edges")
    assert set(by_edge.of(0)) == {Element("L0H1", "L2H0", "query"), Element("MLP1", "L2H0", "key")}
    by_head = incidence(edges(), [0, 2], "heads")
    assert {str(f) for f in by_head.of(0)} == {"L0H1", "L2H0", "L3H3"}
    assert {str(f) for f in by_head.of(1)} == {"L0H1", "L2H0"}
    with pytest.raises(HeadwiseError, match="distance 'tokens' is not known: write signals, edges or heads"):
        incidence(edges(), [0], "tokens")


def test_features_do_not_depend_on_the_order_of_rows() -> None:
    table = edges()
    turned = table.take(list(range(table.num_rows))[::-1])
    a, b = incidence(table, [0, 2]), incidence(turned, [0, 2])
    assert a.features == b.features
    assert np.array_equal(a.matrix.toarray(), b.matrix.toarray())
