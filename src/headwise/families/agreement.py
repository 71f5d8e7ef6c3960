"""Do families follow labels, such as the order of names or the wording?

Adjusted mutual information is 0 on average for unrelated partitions and 1 for equal ones. Its interval comes from half
samples without replacement: they vary around their mean as the whole does around the truth, and unlike a bootstrap they
never count a prompt twice, which would look like agreement. The variation is laid around the value of the whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from sklearn.metrics import adjusted_mutual_info_score

from headwise.families.cluster import silhouettes
from headwise.randomness import keyed
from headwise.types import Estimate

HALVES = 200
"""Half samples per interval: each bound then rests on five of them, which is as fine as the spread of AMI needs."""
PERMUTATIONS = 999
"""Shuffled labels per p-value: the smallest that can be reached is 0.001."""
MOST_VALUES = 50
"""A label with more values than this names prompts, not kinds of prompts."""


@dataclass(frozen=True, kw_only=True)
class LabelAgreement:
    """How one label and the families agree."""

    label: str
    """The label's name."""
    values: int
    """How many values it has."""
    ami: Estimate
    """Adjusted mutual information."""
    p_value: float
    """Of a permutation test."""
    silhouette: float
    """Mean silhouette of the label's own groups: whether it parts the circuits, whatever the families."""

    def to_json(self) -> dict[str, Any]:
        return {
            "label": self.label,
            "values": self.values,
            "ami": self.ami.mean,
            "p_value": self.p_value,
            "silhouette": self.silhouette,
            "ci": [self.ami.low, self.ami.high],
        }


def usable_labels(labels: Sequence[Mapping[str, str]]) -> dict[str, np.ndarray]:
    """Labels that every prompt has, with 2 to ``MOST_VALUES`` values: name -> values."""
    names = [n for n in labels[0] if all(n in one for one in labels)] if labels else []
    found = {name: np.array([str(one[name]) for one in labels]) for name in names}
    return {name: v for name, v in found.items() if 2 <= len(np.unique(v)) <= MOST_VALUES}


def agreement(
    labels: Mapping[str, np.ndarray], families: np.ndarray, distances: np.ndarray, *, seed: int = 0
) -> list[LabelAgreement]:
    """Each label against the families: adjusted mutual information with a 95 % interval and a permutation p-value.

    Those that agree best come first.
    """
    codes = {name: np.unique(values, return_inverse=True)[1] for name, values in labels.items()}
    tight = silhouettes(distances, dict(enumerate(codes.values())))
    result = []
    for number, (name, code) in enumerate(codes.items()):
        ami = float(adjusted_mutual_info_score(code, families))
        low = high = ami
        p_value = 1.0
        if families.max(initial=0) > 0:
            halves = np.array([_half(code, families, seed, name, draw) for draw in range(HALVES)])
            low, high = (ami + float(q) for q in np.quantile(halves - halves.mean(), [0.025, 0.975]))
            p_value = _permutation_p(code, families, seed, name)
        found = LabelAgreement(
            label=name,
            values=int(code.max()) + 1,
            ami=Estimate(ami, low, high, n=len(code), clusters=len(code)),
            p_value=p_value,
            silhouette=float(tight[number].mean()),
        )
        result.append(found)
    return sorted(result, key=lambda one: (-one.ami.mean, one.label))


def _half(code: np.ndarray, families: np.ndarray, seed: int, name: str, draw: int) -> float:
    order = torch.randperm(len(code), generator=keyed(seed, "half", name, draw)).numpy()
    chosen = order[: max(2, len(code) // 2)]
    return float(adjusted_mutual_info_score(code[chosen], families[chosen]))


def _permutation_p(code: np.ndarray, families: np.ndarray, seed: int, name: str) -> float:
    """With both margins fixed, adjusted and plain mutual information order permutations alike."""
    generator = keyed(seed, "permutation", name)
    observed = _information(code, families)
    reached = 0
    for _ in range(PERMUTATIONS):
        order = torch.randperm(len(code), generator=generator).numpy()
        reached += _information(code[order], families) >= observed - 1e-12
    return (1 + reached) / (1 + PERMUTATIONS)


def _information(a: np.ndarray, b: np.ndarray) -> float:
    """Σ n_ab log n_ab: mutual information up to what the margins fix."""
    counts = np.bincount(a * (int(b.max()) + 1) + b).astype(np.float64)
    counts = counts[counts > 0]
    return float((counts * np.log(counts)).sum())
