"""Which prompts belong together: those of one wording, entity, text or pair are resampled, flipped and split as one.

A label is taken for clusters only if it has values enough to say how far they differ; of several such labels the one
with the fewest values, for it holds the others' sharing too. Where there is none, two prompts that share a scene are
one cluster, and all others stand for themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

NAMES = ("wording", "template", "text", "entity", "item", "subject", "pair")
"""Labels that say what prompts share; all others say what differs between them."""
WORDINGS = ("wording", "template", "text")
"""Those of them that are the wording itself."""
LEAST = 6
"""Values of a label below which an interval over them would say nothing."""


@dataclass(frozen=True, eq=False)
class Clusters:
    """What the prompts of a task share."""

    name: str
    """The label that they share, ``pair`` for prompts of one scene, or ``prompt``."""
    which: Tensor
    """[prompts]: the cluster of each, by number."""

    def __len__(self) -> int:
        return int(self.which.max()) + 1 if len(self.which) else 0

    def __repr__(self) -> str:
        return f"Clusters({self.name!r}, {len(self)} of {len(self.which)} prompts)"


def clusters_of(
    labels: Sequence[Mapping[str, str]],
    partners: Sequence[int | None] = (),
    *,
    names: Sequence[str] = NAMES,
    least: int = LEAST,
) -> Clusters:
    """The clusters of prompts with these labels; ``partners`` are the prompts that share a scene with each.

    >>> clusters_of([{"wording": str(i // 4), "name": str(i)} for i in range(60)])
    Clusters('wording', 15 of 60 prompts)
    >>> clusters_of([{"wording": "1"}] * 4, [1, 0, 3, 2])
    Clusters('pair', 2 of 4 prompts)
    """
    import torch  # here, for prompts are read, and refused, before it is needed

    n = len(labels)
    found: dict[str, list[str]] = {}
    for name in names:
        values = [one.get(name) for one in labels]
        known = [value for value in values if value is not None]
        # A label that parts two prompts of one scene does not hold what these share.
        whole = len(known) == n and all(
            p is None or values[p] == value for p, value in zip(partners, values, strict=False)
        )
        if whole and least <= len(set(known)) < n:
            found[name] = known
    if found:
        name = min(found, key=lambda one: len(set(found[one])))
        numbers = {value: i for i, value in enumerate(dict.fromkeys(found[name]))}
        return Clusters(name, torch.tensor([numbers[value] for value in found[name]]))
    if any(p is not None for p in partners):
        first = [i if p is None else min(i, p) for i, p in enumerate(partners)]
        return Clusters("pair", torch.tensor(first).unique(return_inverse=True)[1])
    return Clusters("prompt", torch.arange(n))


def units_of(labels: Sequence[Mapping[str, str]]) -> Clusters:
    """What a test counts as one: the clusters of prompts, or the wording where it has too few values for these.

    Few wordings leave few ways to exchange them, and the test says so by its p. Prompts in their place would each be
    counted as evidence of their own, which prompts of one wording are not.

    >>> units_of([{"wording": str(i // 20)} for i in range(60)])
    Clusters('wording', 3 of 60 prompts)
    >>> units_of([{"wording": "1"}] * 4)
    Clusters('prompt', 4 of 4 prompts)
    """
    found = clusters_of(labels)
    return found if found.name != "prompt" else clusters_of(labels, names=WORDINGS, least=2)
