"""How often does the analysis of families find some where there are none, and where there are?

python benchmarks/calibration_families.py [DATA SETS] [CIRCUITS]     (100 data sets of 150 circuits for each kind)

Three kinds of data are one family that varies: with two continuous causes, along a gradient that turns signals on and
off at thresholds, and as chains of signals that bring one another. The rule for families was settled on other data
(``tests/helpers/planted_circuits.py``). The fourth kind has three families beside a continuous cause. Prints, for each
kind, in how many data sets more than one family is found; 39 null data sets each.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
import torch
from scipy import sparse

from headwise.families.cluster import cluster
from headwise.families.distance import jaccard
from headwise.families.null import null_tests

FEATURES = 500
DRAWS = 39


def chance(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def two_causes(n: int, generator: np.random.Generator) -> np.ndarray:
    base = generator.normal(-2.3, 1.2, FEATURES)
    causes = generator.normal(size=(n, 2)) @ generator.laplace(0, 0.7, size=(2, FEATURES))
    return generator.random((n, FEATURES)) < chance(base + causes)


def thresholds(n: int, generator: np.random.Generator) -> np.ndarray:
    place, at = generator.uniform(-1, 1, (n, 1)), generator.uniform(-1.4, 1.4, FEATURES)
    sign, most = generator.choice([-1, 1], FEATURES), generator.beta(1, 4, FEATURES)
    return generator.random((n, FEATURES)) < most * chance(4 * sign * (place - at))


def chains(n: int, generator: np.random.Generator) -> np.ndarray:
    often = 1 / np.arange(1, FEATURES + 1) ** 0.7
    sizes = generator.lognormal(np.log(50), 0.6, (n, 1))
    held = generator.random((n, FEATURES)) < np.minimum(0.9, sizes * often / often.sum())
    for feature in range(1, FEATURES):
        held[:, feature] |= held[:, feature - 1] & (generator.random(n) < 0.25)
    return held


def three_families(n: int, generator: np.random.Generator) -> np.ndarray:
    base, family = generator.normal(-2.3, 1.2, FEATURES), generator.integers(3, size=n)
    own = generator.laplace(0, 1.5, size=(3, FEATURES)) * (generator.random((3, FEATURES)) < 0.15)
    cause = generator.normal(size=(n, 1)) @ generator.laplace(0, 0.3, size=(1, FEATURES))
    return generator.random((n, FEATURES)) < chance(base + own[family] + cause)


KINDS: dict[str, Callable[[int, np.random.Generator], np.ndarray]] = {
    "one family, two causes": two_causes,
    "one family, thresholds": thresholds,
    "one family, chains": chains,
    "three families": three_families,
}


def families_in(held: np.ndarray, seed: int) -> int:
    """The number of families, by the rule of ``headwise families``."""
    matrix = sparse.csr_matrix(held[:, held.any(0)].astype(np.float32))
    found = cluster(jaccard(matrix), seed=seed)
    if not found.cuts:
        return 1
    labels = {k: cut.labels for k, cut in found.cuts.items()}
    test, _ = null_tests(matrix, labels, seed=seed, draws=DRAWS)
    return found.choose(test.p_values)


def main(data_sets: int = 100, circuits: int = 150) -> None:
    torch.set_num_threads(1)
    print(f"{data_sets} data sets of {circuits} circuits of each kind: more than one family found in")
    for number, (name, made) in enumerate(KINDS.items()):
        found = [
            families_in(made(circuits, np.random.default_rng([number, seed])), seed)
            for seed in range(data_sets)
        ]
        print(f"    {name:24}{sum(k > 1 for k in found):5d}   (three in {found.count(3)})", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
