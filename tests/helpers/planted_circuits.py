"""Synthetic circuits with known families, or with none but with edges that depend on one another."""

from __future__ import annotations

import numpy as np
from scipy import sparse


def _held(chance: np.ndarray, generator: np.random.Generator) -> sparse.csr_matrix:
    return sparse.csr_matrix(generator.random(chance.shape) < chance)


def independent(n: int, seed: int, *, features: int = 600, size: float = 60) -> sparse.csr_matrix:
    """Every feature with a frequency of its own, circuits of different sizes, nothing else."""
    generator = np.random.default_rng(seed)
    frequency = generator.beta(0.3, 2.0, features)
    frequency *= size / frequency.sum()
    length = generator.lognormal(0, 0.2, (n, 1))
    return _held(np.clip(frequency * length, 0, 0.98), generator)


def by_heads(n: int, seed: int, *, heads: int = 40, each: int = 12) -> sparse.csr_matrix:
    """One family: heads take part or do not, each for itself, and the edges of a head come together."""
    generator = np.random.default_rng(seed)
    takes_part = generator.random((n, heads)) < generator.uniform(0.1, 0.95, heads)
    chance = generator.uniform(0.3, 0.95, (heads, each))
    return _held((takes_part[..., None] * chance).reshape(n, -1), generator)


def gradient(
    n: int, seed: int, *, factors: int = 3, features: int = 600, strength: float = 1.0
) -> sparse.csr_matrix:
    """One family: a few continuous causes make features more or less likely, all together."""
    generator = np.random.default_rng(seed)
    cause = generator.normal(size=(n, factors))
    loading = generator.normal(size=(factors, features)) * strength / np.sqrt(factors)
    base = generator.normal(-1.6, 1.2, features)
    return sparse.csr_matrix(cause @ loading + base + generator.normal(size=(n, features)) > 0)


def planted(
    n: int, seed: int, *, families: int = 3, own: int = 60, shares: tuple[float, ...] | None = None
) -> tuple[sparse.csr_matrix, np.ndarray]:
    """Families that share most of their circuits, with features of their own, beside nuisance of all kinds above."""
    generator = np.random.default_rng(seed)
    labels = generator.choice(families, n, p=shares)
    chance = np.full((n, families, own), 0.05)
    chance[np.arange(n), labels] = generator.uniform(0.4, 0.9, own)
    parts = [
        _held(chance.reshape(n, -1), generator),
        by_heads(n, seed + 1, heads=12, each=8),
        gradient(n, seed + 2, features=150, strength=0.6),
    ]
    return sparse.csr_matrix(sparse.hstack(parts)), labels
