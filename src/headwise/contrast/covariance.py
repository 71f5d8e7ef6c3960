"""The contrastive covariance ΔC = E[q k+ᵀ] − E[q k−ᵀ], kept so that its statistics need no second pass.

Each expectation is a mean over the keys of a set inside one prompt, then a mean over prompts: a prompt with
five positive and twenty negative keys weighs as much as any other, and repeating a key set changes nothing.

A prompt contributes q d̄ᵀ with d = mean k+ − mean k−, a matrix of rank one. When the two sets were read by two
different queries (a counterfactual run), it contributes q+ k̄+ᵀ + q− (−k̄−)ᵀ, of rank two. Both are *rows*
(q, d) of a prompt, one or two of them, and every resampling below is a weighted sum of prompts.
"""

from __future__ import annotations

from typing import Literal, Self

import torch
from torch import Tensor

from headwise.errors import HeadwiseError

Keep = Literal["pairs", "sums"]

# Elements of the [prompts, heads, d_head²] block of outer products that a weighted sum builds at once (64
# MB).
_BLOCK = 8_000_000


class ContrastiveCovariance:
    """ΔC of one head, or of many at once, from labelled prompts.

    Parameters
    ----------
    keep:
        ``"pairs"`` keeps (q_i, d_i) per prompt: bootstrap, null and splits then cost no forward pass.
        ``"sums"`` keeps only Σqk+ᵀ, Σqk−ᵀ, Σq, Σk± and n: constant memory, for scans over every head.

    Learned attributes carry the head axis H only if the data had one: ``delta_c_``, ``c_plus_``, ``c_minus_``
    [(H,) d_head, d_head], ``mean_q_``, ``mean_plus_``, ``mean_minus_``, ``mean_d_`` [(H,) d_head],
    ``n_prompts_``, and with ``keep="pairs"`` also ``q_rows_`` and ``d_rows_`` [H, n, rows, d_head].

    Two estimators of the same heads add up: ``a + b`` is the estimator of both sets of prompts.

    >>> q = torch.tensor([[1.0, 0.0], [0.0, 2.0]])                       # two prompts, d_head = 2
    >>> plus = torch.tensor([[[3.0, 0.0], [1.0, 0.0]], [[0.0, 1.0], [9.0, 9.0]]])
    >>> minus = torch.zeros(2, 1, 2)
    >>> mask = torch.tensor([[True, True], [True, False]])               # the second prompt has one positive
    >>> ContrastiveCovariance().fit(q, plus, minus, positive_mask=mask).delta_c_
    tensor([[1., 0.],
            [0., 1.]], dtype=torch.float64)
    """

    def __init__(self, *, keep: Keep = "pairs") -> None:
        if keep not in ("pairs", "sums"):
            raise HeadwiseError(f"keep={keep!r} is not known: write 'pairs' or 'sums'")
        self.keep: Keep = keep
        self._reset()

    def _reset(self) -> None:
        self.n_prompts_ = 0
        self._heads: int | None = None  # None as long as the data has no head axis
        self._d_head = 0
        self._rows: list[tuple[Tensor, Tensor]] = []
        self._sums: dict[str, Tensor] = {}

    # -- fitting ---------------------------------------------------------------------------------------------

    def fit(
        self,
        q: Tensor,
        positive: Tensor,
        negative: Tensor,
        *,
        positive_mask: Tensor | None = None,
        negative_mask: Tensor | None = None,
        negative_q: Tensor | None = None,
    ) -> Self:
        """Forget everything, then add prompts as :meth:`partial_fit` does.

        Parameters
        ----------
        q:
            Queries, [n, d_head] or [n, H, d_head].
        positive:
            Keys that have the feature, [n, K, d_head] or [n, H, K, d_head], or without the K axis when every set has
            one key.
        negative:
            Keys that lack it, shaped alike with a K of their own.
        positive_mask:
            True where a positive key exists, [n, K] or [n, H, K].
        negative_mask:
            The same for negative keys.
        negative_q:
            The queries that read the negative keys, shaped like ``q``, if they were others.
        """
        self._reset()
        return self.partial_fit(
            q,
            positive,
            negative,
            positive_mask=positive_mask,
            negative_mask=negative_mask,
            negative_q=negative_q,
        )

    def partial_fit(
        self,
        q: Tensor,
        positive: Tensor,
        negative: Tensor,
        *,
        positive_mask: Tensor | None = None,
        negative_mask: Tensor | None = None,
        negative_q: Tensor | None = None,
    ) -> Self:
        """Add prompts.

        Parameters
        ----------
        q:
            Queries, [n, d_head] or [n, H, d_head].
        positive:
            Keys that have the feature, [n, K, d_head] or [n, H, K, d_head], or without the K axis when every set has
            one key.
        negative:
            Keys that lack it, shaped alike with a K of their own.
        positive_mask:
            True where a positive key exists, [n, K] or [n, H, K].
        negative_mask:
            The same for negative keys.
        negative_q:
            The queries that read the negative keys, shaped like ``q``, if they were others.
        """
        q, heads = _with_heads(q)
        plus = _set_mean(positive, positive_mask, q, heads, "positive")
        minus = _set_mean(negative, negative_mask, q, heads, "negative")
        other = None if negative_q is None else _with_heads(negative_q)[0]
        if other is not None and other.shape != q.shape:
            raise HeadwiseError(
                f"negative_q has shape {list(other.shape)}, q has {list(q.shape)}: give the same"
            )
        if not all(torch.isfinite(x).all() for x in (q, plus, minus, *([] if other is None else [other]))):
            raise HeadwiseError(
                "a query or key is NaN or infinite: the model's output cannot be used, try float32"
            )
        self._check_space(heads, q.shape[-1])

        if self.keep == "pairs":
            if other is None:
                rows = q[:, :, None], (plus - minus)[:, :, None]
            else:
                rows = torch.stack([q, other], 2), torch.stack([plus, -minus], 2)
            if self._rows and self._rows[0][0].shape[2] != rows[0].shape[2]:
                raise HeadwiseError("prompts with and without negative_q cannot be mixed in one estimator")
            # [n, H, rows, d] -> [H, n, rows, d]
            self._rows.append((rows[0].transpose(0, 1), rows[1].transpose(0, 1)))
        q_minus = q if other is None else other
        self._add(
            qk_plus=torch.einsum("nhd,nhe->hde", q, plus),
            qk_minus=torch.einsum("nhd,nhe->hde", q_minus, minus),
            q_plus=q.sum(0),
            q_minus=q_minus.sum(0),
            k_plus=plus.sum(0),
            k_minus=minus.sum(0),
        )
        self.n_prompts_ += q.shape[0]
        return self

    def _check_space(self, heads: int | None, d_head: int) -> None:
        if self._sums and (heads, d_head) != (self._heads, self._d_head):
            mine = _space(self._heads, self._d_head)
            raise HeadwiseError(f"prompts of {_space(heads, d_head)} were given to an estimator of {mine}")
        self._heads, self._d_head = heads, d_head

    def _add(self, **sums: Tensor) -> None:
        self._sums = {name: self._sums.get(name, 0) + value for name, value in sums.items()}

    def __add__(self, other: ContrastiveCovariance) -> ContrastiveCovariance:
        """The estimator of both sets of prompts; an estimator without prompts is the neutral element."""
        if not isinstance(other, ContrastiveCovariance):
            return NotImplemented
        if self.keep != other.keep:
            raise HeadwiseError(f"keep={self.keep!r} and keep={other.keep!r} cannot be added: use the same")
        both = ContrastiveCovariance(keep=self.keep)
        for part in (self, other):
            if part.n_prompts_:
                both._check_space(part._heads, part._d_head)
                both._add(**part._sums)
                if both._rows and both._rows[0][0].shape[2] != part._rows[0][0].shape[2]:
                    raise HeadwiseError(
                        "prompts with and without negative_q cannot be mixed in one estimator"
                    )
                both._rows += part._rows
                both.n_prompts_ += part.n_prompts_
        return both

    # -- what was learned ------------------------------------------------------------------------------------

    @property
    def n_heads_(self) -> int:
        """Number of heads (1 for data without a head axis)."""
        return self._heads or 1

    @property
    def d_head_(self) -> int:
        """Dimensions of a query or key."""
        return self._d_head

    def _mean(self, name: str) -> Tensor:
        if not self.n_prompts_:
            raise HeadwiseError(
                "this ContrastiveCovariance has seen no prompts: call fit or partial_fit first"
            )
        return self._sums[name] / self.n_prompts_

    def _out(self, value: Tensor) -> Tensor:
        return value if self._heads is not None else value[0]

    @property
    def c_plus_(self) -> Tensor:
        """E[q k₊ᵀ] (Eq. C1)."""
        return self._out(self._mean("qk_plus"))

    @property
    def c_minus_(self) -> Tensor:
        """E[q k₋ᵀ] (Eq. C1)."""
        return self._out(self._mean("qk_minus"))

    @property
    def delta_c_(self) -> Tensor:
        """ΔC = C₊ − C₋ (Eq. C1)."""
        return self.c_plus_ - self.c_minus_

    @property
    def mean_q_(self) -> Tensor:
        """The mean query."""
        return self._out(self._mean("q_plus"))

    @property
    def mean_plus_(self) -> Tensor:
        """The mean positive key."""
        return self._out(self._mean("k_plus"))

    @property
    def mean_minus_(self) -> Tensor:
        """The mean negative key."""
        return self._out(self._mean("k_minus"))

    @property
    def mean_d_(self) -> Tensor:
        """The mean difference of positive and negative keys."""
        return self.mean_plus_ - self.mean_minus_

    @property
    def salience_(self) -> Tensor:
        """q̄ d̄ᵀ: what does not depend on the query. ``delta_c_ - salience_`` is the interaction Cov(q, d)."""
        outer = torch.einsum("hd,he->hde", self._mean("q_plus"), self._mean("k_plus"))
        return self._out(outer - torch.einsum("hd,he->hde", self._mean("q_minus"), self._mean("k_minus")))

    @property
    def q_rows_(self) -> Tensor:
        """Queries [H, n, rows, d_head]; one row per prompt, two where the sets were read by different queries."""
        return self._compact()[0]

    @property
    def d_rows_(self) -> Tensor:
        """Key differences that go with ``q_rows_`` [H, n, rows, d_head]."""
        return self._compact()[1]

    def _compact(self) -> tuple[Tensor, Tensor]:
        if self.keep != "pairs":
            raise HeadwiseError(
                "resampling needs the pairs of every prompt: fit with ContrastiveCovariance(keep='pairs')"
            )
        self._mean("q_plus")
        if len(self._rows) > 1:
            self._rows = [
                (torch.cat([q for q, _ in self._rows], 1), torch.cat([d for _, d in self._rows], 1))
            ]
        return self._rows[0]

    def centred(self) -> ContrastiveCovariance:
        """The estimator of the same prompts with the means of q and of d taken out: its ΔC is Cov(q, d)."""
        q, d = self._compact()
        made = ContrastiveCovariance(keep="pairs")
        made._heads, made._d_head, made.n_prompts_ = self._heads, self._d_head, self.n_prompts_
        q, d = q - q.mean(1, keepdim=True), d - d.mean(1, keepdim=True)
        made._rows = [(q, d)]
        cross, zero = torch.einsum("hnrd,hnre->hde", q, d), torch.zeros_like(q[:, 0, 0])
        names = ("q_plus", "q_minus", "k_plus", "k_minus")
        made._add(qk_plus=cross, qk_minus=torch.zeros_like(cross), **dict.fromkeys(names, zero))
        return made

    def weighted(self, weights: Tensor) -> Tensor:
        """ΔC under other weights of the prompts: [draws, n] -> [draws, H, d_head, d_head].

        Weights 1/n give ``delta_c_``; ±1/n a sign-flip null; multinomial counts/n a bootstrap draw; 2/n on a
        half a split half. All draws are one matrix product with the prompts' outer products.
        """
        q, d = self._compact()
        heads, n, _, d_head = q.shape
        if weights.ndim != 2 or weights.shape[1] != n:
            raise HeadwiseError(f"weights have shape {list(weights.shape)}, expected [draws, {n}]")
        total = q.new_zeros(weights.shape[0], heads * d_head * d_head)
        step = max(1, _BLOCK // (heads * d_head * d_head))
        for start in range(0, n, step):
            part = slice(start, start + step)
            outer = torch.einsum("hnrd,hnre->nhde", q[:, part], d[:, part])
            total.addmm_(weights[:, part].to(q), outer.reshape(outer.shape[0], -1))
        return total.view(-1, heads, d_head, d_head)

    def __repr__(self) -> str:
        space = _space(self._heads, self._d_head)
        return f"ContrastiveCovariance({space}, n_prompts={self.n_prompts_}, keep={self.keep!r})"


def _space(heads: int | None, d_head: int) -> str:
    return f"d_head={d_head}" if heads is None else f"heads={heads}, d_head={d_head}"


def _with_heads(q: Tensor) -> tuple[Tensor, int | None]:
    """[n, d] or [n, H, d] -> float64 [n, H, d] and H, None if there was no head axis."""
    if q.ndim not in (2, 3) or not q.shape[0]:
        raise HeadwiseError(
            f"q has shape {list(q.shape)}, expected [prompts, d_head] or [prompts, heads, d_head]"
        )
    return (q.double()[:, None], None) if q.ndim == 2 else (q.double(), q.shape[1])


def _set_mean(keys: Tensor, mask: Tensor | None, q: Tensor, heads: int | None, name: str) -> Tensor:
    """Mean of a prompt's key set: float64 [n, H, d]. Padding is never read, whatever it holds."""
    n, _, d_head = q.shape
    given = list(keys.shape)
    if heads is None and keys.ndim in (2, 3):
        keys = keys.unsqueeze(1)
    if keys.ndim == 3 and mask is None:  # one key a prompt, without the K axis
        keys = keys.unsqueeze(2)
    if keys.ndim != 4 or (*keys.shape[:2], keys.shape[3]) != tuple(q.shape) or not keys.shape[2]:
        axes = f"[{n}, keys, {d_head}]" if heads is None else f"[{n}, {heads}, keys, {d_head}]"
        raise HeadwiseError(f"{name} keys have shape {given}, expected {axes} to go with q")
    keys = keys.double()
    if mask is None:
        return keys.mean(2)
    mask = mask.to(device=keys.device, dtype=torch.bool)
    mask = mask[:, None] if mask.ndim == 2 else mask
    if mask.ndim != 3 or mask.shape[0] != n or mask.shape[-1] != keys.shape[2]:
        raise HeadwiseError(f"{name}_mask has shape {list(mask.shape)}, expected [{n}, {keys.shape[2]}]")
    count = mask.sum(-1)
    if (count == 0).any():
        prompt = int((count == 0).any(-1).nonzero()[0])
        raise HeadwiseError(f"prompt {prompt} has no {name} keys: drop it or give it at least one")
    return keys.masked_fill(~mask[..., None], 0.0).sum(2) / count[..., None]
