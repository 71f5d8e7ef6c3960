"""Features with planted directions: exactly isotropic tokens, and a measured step away from them.

Half of the features are an orthonormal basis and the other half their antipodes, so that tokens have mean zero and a
covariance that is a multiple of the identity: the case in which Σ⁻¹w, the best reader of a feature w, is w itself.
Interference leans every feature but the attended two towards the middle between these two (antipodes stay antipodes,
so the mean stays zero), which stretches the covariance along a line that is oblique to both.
"""

from __future__ import annotations

import torch
from torch import Tensor

from headwise.errors import HeadwiseError
from headwise.randomness import keyed


def planted_features(
    features: int, dims: int, interference: float, seed: int, pair: tuple[int, int] = (0, 1)
) -> Tensor:
    """Unit feature directions [D, N] in float64; ``interference`` 0 makes tokens isotropic.

    >>> w = planted_features(8, 4, 0.0, seed=0)
    >>> torch.allclose(w @ w.mT, 2 * torch.eye(4).double()), float(w.sum(1).abs().max()) < 1e-12
    (True, True)
    """
    if features != 2 * dims:
        raise HeadwiseError(
            f"planted features are a basis and its antipodes: {dims} dimensions hold {2 * dims} of them, "
            f"not {features}"
        )
    if interference < 0:
        raise HeadwiseError(f"interference {interference:g} is below 0: give 0 or more")
    if max(pair) >= dims or pair[0] == pair[1]:
        raise HeadwiseError(
            f"pair {pair}: give two different features of the planted basis, which has {dims} of them"
        )
    drawn = torch.randn(dims, dims, generator=keyed(seed, "planted features"), dtype=torch.float64)
    basis = torch.linalg.qr(drawn).Q
    middle = (basis[:, pair[0]] + basis[:, pair[1]]) / 2**0.5
    leaning = basis + interference * middle[:, None]
    leaning[:, list(pair)] = basis[:, list(pair)]
    half = torch.nn.functional.normalize(leaning, dim=0)
    return torch.cat([half, -half], 1)


def condition(covariance: Tensor) -> float:
    """Largest over smallest eigenvalue: 1 where tokens are isotropic."""
    values = torch.linalg.eigvalsh(covariance)
    return float(values[-1] / values[0])


def least_cosine(condition: float) -> float:
    """The smallest cosine that w and Σ⁻¹w can have at this condition number, whatever w is (Kantorovich's inequality).

    >>> least_cosine(1.0), least_cosine(4.0)
    (1.0, 0.8)
    """
    return 2 * condition**0.5 / (condition + 1)
