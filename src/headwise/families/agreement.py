"""Do families follow labels, such as the order of names or the wording?

Adjusted mutual information is 0 on average for unrelated partitions and 1 for equal ones. Its interval comes from half
samples without replacement: they vary around their mean as the whole does around the truth, and unlike a bootstrap they
never count a prompt twice, which would look like agreement. The variation is laid around the value of the whole.

Families may follow wordings, and so may a label that has nothing to do with them: its values are dealt anew within
wordings, and between whole wordings that hold one value (:mod:`headwise.families.dealing`), and half samples are of
whole wordings. The wording itself is another matter, for if it means nothing prompts are independent of one another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from sklearn.metrics import adjusted_mutual_info_score

from headwise.claims import claims
from headwise.families.cluster import silhouettes
from headwise.families.dealing import Dealing, dealt_by
from headwise.intervals import FEW, student
from headwise.randomness import keyed
from headwise.tasks.clusters import LEAST
from headwise.types import Claim, Estimate

HALVES = 200
"""Half samples per interval: each bound then rests on five of them, which is as fine as the spread of AMI needs."""
PERMUTATIONS = 999
"""Shuffled labels per p-value: the smallest that can be reached is 0.001."""
MOST_VALUES = 50
"""A label with more values than this names prompts, not kinds of prompts."""
GROUP = "all labels of this run, against the families"


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
    unit: str = "prompt"
    """What values were dealt to: ``wording``, … where prompts share one, or ``prompt``."""
    claim: Claim | None = None
    """That families follow the label more than they do values that are dealt anew, all labels corrected together; None
    in runs made before that was claimed."""

    def to_json(self) -> dict[str, Any]:
        return {
            "label": self.label,
            "values": self.values,
            "ami": self.ami.mean,
            "p_value": self.p_value,
            "silhouette": self.silhouette,
            "ci": [self.ami.low, self.ami.high],
            "n": self.ami.n,
            "clusters": self.ami.clusters,
            "unit": self.unit,
            "claim": self.claim and self.claim.to_json(),
        }


def usable_labels(labels: Sequence[Mapping[str, str]]) -> dict[str, np.ndarray]:
    """Labels that every prompt has, with 2 to ``MOST_VALUES`` values: name -> values."""
    names = [n for n in labels[0] if all(n in one for one in labels)] if labels else []
    found = {name: np.array([str(one[name]) for one in labels]) for name in names}
    return {name: v for name, v in found.items() if 2 <= len(np.unique(v)) <= MOST_VALUES}


def agreement(
    labels: Mapping[str, np.ndarray],
    families: np.ndarray,
    distances: np.ndarray,
    *,
    clusters: np.ndarray | None = None,
    unit: str = "prompt",
    seed: int = 0,
) -> list[LabelAgreement]:
    """Each label against the families: adjusted mutual information with a 95 % interval and a permutation p-value;
    ``clusters`` say which prompts belong together, and ``unit`` what they share.

    Those that agree best come first.
    """
    codes = {name: np.unique(values, return_inverse=True)[1] for name, values in labels.items()}
    tight = silhouettes(distances, dict(enumerate(codes.values())))
    several = bool(families.max(initial=0) > 0)
    dealt = {name: _dealt(code, clusters) for name, code in codes.items()}
    p = [_permutation_p(dealt[name], families, seed, name) if several else 1.0 for name in codes]
    judged = claims(p, null="", draws=PERMUTATIONS if several else 0, group=GROUP)
    result = []
    for number, (name, code) in enumerate(codes.items()):
        of = "prompt" if dealt[name].by_prompt else unit
        null = f"values {dealt_by(of)}"
        found = LabelAgreement(
            label=name,
            values=int(code.max()) + 1,
            ami=_estimate(code, families, None if of == "prompt" else clusters, seed, name),
            p_value=p[number],
            silhouette=float(tight[number].mean()),
            unit=of,
            claim=replace(judged[number], null=null),
        )
        result.append(found)
    return sorted(result, key=lambda one: (-one.ami.mean, one.label))


def _dealt(code: np.ndarray, clusters: np.ndarray | None) -> Dealing:
    """How values are dealt anew: by cluster, or by prompt where every cluster has a value of its own."""
    found = Dealing.of(code, clusters)
    return found if found.changes else Dealing.of(code)


def _estimate(
    code: np.ndarray, families: np.ndarray, clusters: np.ndarray | None, seed: int, name: str
) -> Estimate:
    """The information with its interval, from halves of the clusters, or of the prompts where these are too few."""
    ami, n = float(adjusted_mutual_info_score(code, families)), len(code)
    which = np.arange(n) if clusters is None else np.unique(clusters, return_inverse=True)[1]
    count = int(which.max()) + 1
    if count < LEAST:
        which, count = np.arange(n), n
    if not families.max(initial=0) > 0:
        return Estimate(ami, ami, ami, n=n, clusters=count)
    halves = np.array([_half(code, families, which, seed, name, draw) for draw in range(HALVES)])
    off = halves - halves.mean()
    low, high = (float(q) for q in np.quantile(off, [0.025, 0.975]))
    if count < FEW:
        high = student(count) * float(off.std())
        low = -high
    return Estimate(ami, ami + low, min(1.0, ami + high), n=n, clusters=count)


def _half(
    code: np.ndarray, families: np.ndarray, which: np.ndarray, seed: int, name: str, draw: int
) -> float:
    count = int(which.max()) + 1
    order = torch.randperm(count, generator=keyed(seed, "half", name, draw)).numpy()
    if count == len(which):
        chosen = order[: max(2, count // 2)]
    else:
        chosen = np.flatnonzero(np.isin(which, order[: max(2, count // 2)]))
    return float(adjusted_mutual_info_score(code[chosen], families[chosen]))


def _permutation_p(dealt: Dealing, families: np.ndarray, seed: int, name: str) -> float:
    """With the families' sizes fixed, this orders deals as mutual information does."""
    generator = keyed(seed, "permutation", name)
    observed = _information(dealt.values, families)
    reached = sum(
        _information(dealt(generator), families) >= observed - 1e-12 * max(1.0, abs(observed))
        for _ in range(PERMUTATIONS)
    )
    return (1 + reached) / (1 + PERMUTATIONS)


def _information(a: np.ndarray, b: np.ndarray) -> float:
    """Σ n_ab log n_ab − Σ n_a log n_a: mutual information up to what the second's sizes fix."""
    return _entropy(a * (int(b.max()) + 1) + b) - _entropy(a)


def _entropy(codes: np.ndarray) -> float:
    counts = np.bincount(codes).astype(np.float64)
    counts = counts[counts > 0]
    return float((counts * np.log(counts)).sum())
