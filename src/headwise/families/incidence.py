"""Which circuit holds which feature: a sparse prompts × features matrix, made from the table of edges at once.

A *feature* is what two circuits can have in common once token positions are dropped: (source component, target head,
side, channel). Edges from embeddings, biases and offsets are left out, for every circuit has them, and so are edges
into the answer, which have no channel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import pyarrow as pa
from scipy import sparse

from headwise.errors import HeadwiseError

ElementKind = Literal["signals", "edges", "heads"]
LEFT_OUT = ("embedding", "bias", "offset")


class Element(NamedTuple):
    """What circuits are compared by. ``edges`` have no channel, ``heads`` only a target.

    >>> print(Element("L9H6", "L20H3", "query", 12), "|", Element("MLP2", "L20H3", "key"), "|", Element("", "L20H3"))
    L9H6 → L20H3 query 12 | MLP2 → L20H3 key | L20H3
    """

    source: str
    """The component that writes; empty where only heads are compared."""
    target: str
    """The head that reads."""
    side: str = ""
    """``query`` or ``key``; empty where only heads are compared."""
    channel: int = -1
    """The channel of the head; -1 where none is compared."""

    def __str__(self) -> str:
        if not self.source:
            return self.target
        return f"{self.source} → {self.target} {self.side}" + (
            f" {self.channel}" if self.channel >= 0 else ""
        )


@dataclass(frozen=True, eq=False)
class Incidence:
    """``matrix`` [prompts, features] is boolean; row i belongs to prompt number ``prompts[i]``."""

    prompts: np.ndarray
    """[rows]: the number of each row's prompt."""
    features: tuple[Element, ...]
    """[columns]: what circuits are compared by."""
    matrix: sparse.csr_matrix
    """[rows, columns]: whether the prompt's circuit holds it (sparse)."""

    @property
    def sizes(self) -> np.ndarray:
        """Features of each circuit."""
        return np.diff(self.matrix.indptr)

    def rows(self, chosen: Sequence[int] | np.ndarray) -> Incidence:
        """The same features for some rows."""
        return Incidence(self.prompts[chosen], self.features, self.matrix[chosen])

    def frequency(self, chosen: np.ndarray | None = None) -> np.ndarray:
        """The share of circuits (of some rows) that hold each feature."""
        part = self.matrix if chosen is None else self.matrix[chosen]
        return np.bincount(part.indices, minlength=len(self.features)) / max(1, len(part.indptr) - 1)

    def of(self, row: int) -> list[Element]:
        """The features of one circuit."""
        start, stop = self.matrix.indptr[row : row + 2]
        return [self.features[i] for i in self.matrix.indices[start:stop]]


def check_kind(kind: str) -> ElementKind:
    if kind not in get_args(ElementKind):
        raise HeadwiseError(f"distance {kind!r} is not known: write signals, edges or heads")
    return kind  # pyright: ignore[reportReturnType]


def incidence(edges: pa.Table, prompts: Sequence[int], kind: str = "signals") -> Incidence:
    """The features of the circuits of ``prompts`` (in this order), from a run's table of edges."""
    kind = check_kind(kind)
    numbers = np.asarray(prompts, dtype=np.int64)
    if kind == "heads":
        rows, keys, features = _heads(edges)
    else:
        rows, keys, features = _signals(edges, kind == "signals")
    order = np.argsort(numbers, kind="stable")
    at = np.searchsorted(numbers[order], rows)
    known = (at < len(numbers)) & (numbers[order][np.minimum(at, len(numbers) - 1)] == rows)
    place = order[at[known]]
    shape = (len(numbers), len(features))
    matrix = sparse.csr_matrix((np.ones(len(place), dtype=bool), (place, keys[known])), shape=shape)
    matrix.sum_duplicates()
    matrix.sort_indices()
    matrix.data[:] = True
    return Incidence(numbers, features, matrix)


def coded(column: pa.ChunkedArray) -> tuple[np.ndarray, list[str]]:
    """A column of text as sorted numbers: the same text has the same place whatever the order of rows."""
    encoded = _one_array(column).dictionary_encode()
    names: list[str] = encoded.dictionary.to_pylist()
    order = sorted(range(len(names)), key=names.__getitem__)
    rank = np.empty(len(names), dtype=np.int64)
    rank[order] = np.arange(len(names))
    return rank[encoded.indices.to_numpy()], [names[i] for i in order]


def spread(column: pa.ChunkedArray) -> tuple[np.ndarray, np.ndarray]:
    """A column of lists: the length of each, and all of them one after the other."""
    lists = _one_array(column)
    return np.diff(lists.offsets.to_numpy()), lists.flatten().to_numpy(zero_copy_only=False)


def _one_array(column: pa.ChunkedArray) -> Any:
    joined = column.combine_chunks()
    return pa.concat_arrays(joined.chunks) if isinstance(joined, pa.ChunkedArray) else joined


def where(table: pa.Table, kept: np.ndarray) -> pa.Table:
    return table.filter(pa.array(kept))


def _signals(edges: pa.Table, by_channel: bool) -> tuple[np.ndarray, np.ndarray, tuple[Element, ...]]:
    kind, kinds = coded(edges["source_kind"])
    out = [number for number, name in enumerate(kinds) if name in LEFT_OUT]
    heads = edges["target_head"].is_valid().to_numpy()
    kept = where(edges, heads & ~np.isin(kind, out))
    rows = kept["prompt"].to_numpy().astype(np.int64)
    (source, sources), (target, targets), (side, sides) = (
        coded(kept[name]) for name in ("source", "target", "side")
    )
    edge = (source * len(targets) + target) * len(sides) + side
    channel = np.full(len(edge), -1, dtype=np.int64)
    if by_channel:
        counts, channel = spread(kept["channels"])
        channel = channel.astype(np.int64)
        rows, edge = np.repeat(rows, counts), np.repeat(edge, counts)
    width = int(channel.max(initial=-1)) + 2
    unique, keys = np.unique(edge * width + channel + 1, return_inverse=True)
    features = []
    for code in unique.tolist():
        rest, c = divmod(code, width)
        rest, s = divmod(rest, len(sides))
        a, b = divmod(rest, len(targets))
        features.append(Element(sources[a], targets[b], sides[s], c - 1))
    return rows, keys, tuple(features)


def _heads(edges: pa.Table) -> tuple[np.ndarray, np.ndarray, tuple[Element, ...]]:
    """Every head that occurs in a circuit, also one that only feeds the answer."""
    rows, names = [], []
    for end in ("source", "target"):
        kept = where(edges, edges[f"{end}_head"].is_valid().to_numpy())
        rows.append(kept["prompt"].to_numpy().astype(np.int64))
        names += kept[end].to_pylist()
    unique, keys = np.unique(np.asarray(names, dtype=object).astype(str), return_inverse=True)
    return np.concatenate(rows), keys, tuple(Element("", name) for name in unique.tolist())
