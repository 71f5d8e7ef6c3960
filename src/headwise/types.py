"""Small frozen value types that every room uses: a head, a component of the stream, a subspace of head space."""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from headwise.errors import HeadwiseError
from headwise.strings import shortened

Side = Literal["query", "key"]

# No model has a layer of ten digits, and Python refuses to read numbers of thousands.
_HEAD_FORMS = (
    re.compile(r"L([0-9]{1,9})\.?H([0-9]{1,9})", re.IGNORECASE),
    re.compile(r"([0-9]{1,9})\.([0-9]{1,9})"),
    re.compile(r"a([0-9]{1,9})\.h([0-9]{1,9})", re.IGNORECASE),
)


@dataclass(frozen=True, order=True, slots=True)
class Head:
    """One attention (query) head.

    >>> Head(9, 6)
    L9H6
    >>> Head.parse("9.6") == Head.parse("a9.h6") == Head.parse("L9H6")
    True
    """

    layer: int
    index: int

    @classmethod
    def parse(cls, text: HeadLike) -> Head:
        """Read ``L9H6``, ``9.6``, ``a9.h6`` or a pair of numbers.

        >>> Head.parse((9, 6))
        L9H6
        >>> Head.parse("head nine")
        Traceback (most recent call last):
        ...
        headwise.errors.HeadwiseError: 'head nine' is not a head: write it as L9H6, 9.6 or a9.h6
        """
        if isinstance(text, Head):
            return text
        if isinstance(text, str):
            for form in _HEAD_FORMS:
                if match := form.fullmatch(text.strip()):
                    return cls(int(match[1]), int(match[2]))
        elif _is_pair(text):
            return cls(operator.index(text[0]), operator.index(text[1]))
        given = text if isinstance(text, str) else repr(text)
        raise HeadwiseError(f"{shortened(given)!r} is not a head: write it as L9H6, 9.6 or a9.h6")

    def __str__(self) -> str:
        return f"L{self.layer}H{self.index}"

    __repr__ = __str__


HeadLike = Head | str | tuple[int, int]
"""A head as users write it: itself, its name, or layer and index."""


def head_list(heads: Any) -> list[HeadLike]:
    """One head or several, as a list.

    >>> head_list("L9H6"), head_list((9, 6)), head_list([(9, 6), "1.2"])
    (['L9H6'], [(9, 6)], [(9, 6), '1.2'])
    """
    if isinstance(heads, str | Head) or _is_pair(heads):
        return [heads]
    if not isinstance(heads, Iterable):
        raise HeadwiseError(f"{shortened(repr(heads))} is not a head or a list of heads: write it as L9H6")
    return list(heads)


def _is_pair(value: Any) -> bool:
    return (
        isinstance(value, tuple)
        and len(value) == 2
        and all(hasattr(one, "__index__") and not isinstance(one, bool) for one in value)
    )


ComponentKind = Literal["embedding", "head", "mlp", "bias", "offset"]


@dataclass(frozen=True, order=True, slots=True)
class Component:
    """One writer into the residual stream.

    ``head`` is what one head carried from one source token; ``bias`` is a layer's attention output bias, with the
    value bias folded in (attention rows sum to one, so it does not depend on the token read); ``offset`` exists
    only in a head's q/k space: what the norm's shift and the query or key bias add there.

    >>> Component("head", 3, 1, source=7), Component("mlp", 2), Component("embedding")
    (L3H1<-7, MLP2, embedding)
    """

    kind: ComponentKind
    layer: int = -1
    index: int = -1
    source: int = -1

    @property
    def head(self) -> Head:
        """The head, for a component of kind ``head``."""
        if self.kind != "head":
            raise HeadwiseError(f"{self} is not a head")
        return Head(self.layer, self.index)

    def __str__(self) -> str:
        if self.kind == "head":
            return f"L{self.layer}H{self.index}" + (f"<-{self.source}" if self.source >= 0 else "")
        if self.kind == "mlp":
            return f"MLP{self.layer}"
        if self.kind == "bias":
            return f"bias{self.layer}"
        return self.kind

    __repr__ = __str__


@dataclass(frozen=True, eq=False)
class Subspace:
    """An orthonormal basis of a subspace of one head's query or key space (after RoPE and QK-norm).

    ``basis`` has shape [d_head, rank] and orthonormal columns.

    >>> s = Subspace.spanned_by(torch.tensor([[2.0, 0.0], [0.0, 0.0], [0.0, 0.0]]))
    >>> s
    Subspace(rank=1, d_head=3)
    >>> s.project(torch.tensor([3.0, 4.0, 5.0])).tolist()
    [3.0, 0.0, 0.0]
    """

    basis: Tensor

    def __post_init__(self) -> None:
        basis = self.basis
        if basis.ndim != 2 or basis.shape[1] > basis.shape[0]:
            raise HeadwiseError(
                f"a subspace's basis has shape [d_head, rank] with rank <= d_head, not {list(basis.shape)}"
            )
        gram = basis.mT @ basis
        eye = torch.eye(basis.shape[1], dtype=basis.dtype, device=basis.device)
        if basis.shape[1] and not torch.allclose(gram, eye, atol=1e-4):
            raise HeadwiseError("a subspace's basis must be orthonormal: use Subspace.spanned_by(vectors)")

    @classmethod
    def spanned_by(cls, vectors: Tensor, *, tolerance: float = 1e-6) -> Subspace:
        """Orthonormalise the columns of ``vectors`` [d_head, n], dropping directions below ``tolerance``.

        The tolerance is relative to the largest singular value, so a set of vectors that spans fewer dimensions
        than it has members does not gain directions made of rounding noise.
        """
        work = vectors.to(torch.float64)
        left, sigma, _ = torch.linalg.svd(work, full_matrices=False)
        keep = sigma > tolerance * sigma.max() if sigma.numel() and sigma.max() > 0 else sigma > 0
        return cls(left[:, keep].to(vectors.dtype))

    @property
    def rank(self) -> int:
        return self.basis.shape[1]

    @property
    def d_head(self) -> int:
        return self.basis.shape[0]

    def project(self, vectors: Tensor) -> Tensor:
        """The part of ``vectors`` [..., d_head] that lies in the subspace."""
        basis = self.basis.to(device=vectors.device, dtype=vectors.dtype)
        return (vectors @ basis) @ basis.mT

    def __repr__(self) -> str:
        return f"Subspace(rank={self.rank}, d_head={self.d_head})"
