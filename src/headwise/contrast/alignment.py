"""Do query clusters lie where the matching key clusters lie? The number beside the pictures of a feature's subspace.

Two measures, on prompts that fitted nothing, between halves that share no cluster of prompts (key means come from one
half, queries from the other):

* **retrieval**: the key cluster that points most nearly as a query does, inside the feature's subspaces, is the one
  that the query asks for (balanced over classes; chance is one over their number);
* **correlation** of class means of queries and of keys along the feature's paired directions. The directions were
  fitted to other prompts; fitted to these means, canonical directions would correlate whatever the means are.

Each is held against two placebos: classes dealt anew among the keys of each prompt, in the same subspaces, and the true
classes in subspaces that were fitted to labels shuffled within prompts. A claim takes the larger p of both. There
are as many of each as it takes for one alignment of a run to be supported alone, if these are not too many: fewer leave
no p that the correction lets pass.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from headwise.claims import LEVEL, claims, p_value
from headwise.contrast.bank import BankFeature
from headwise.contrast.detail_rows import AlignmentRow
from headwise.contrast.fit import Fitted
from headwise.contrast.labelled_vectors import LabelledVectors, members, present
from headwise.contrast.placebo import placebo_union
from headwise.randomness import keyed
from headwise.tasks.labelled.types import Task

AGAINST = "classes shuffled within prompts, and subspaces fitted to labels shuffled within prompts"
GROUP = "all alignments of the run"
MEASURES = ("retrieval", "correlation")
MOST_DRAWS = 500
"""Draws at most, as each is a fit to all prompts: of more than 25 alignments two, as of one feature, have to stand out
together, of more than fifty three."""
_CHUNK = 20
"""Draws that are worked on together."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Directions:
    """A feature's subspaces, or many placebos of them: [..., d_head, rank] each.

    ``paired_query`` and ``paired_key`` go together column by column; those of a union are its parts' side by side.
    """

    query: Tensor
    key: Tensor
    paired_query: Tensor
    paired_key: Tensor

    @classmethod
    def of(cls, item: BankFeature, parts: Sequence[BankFeature]) -> Directions:
        """The directions of a feature; ``parts`` are what a union is made of, or the feature itself."""
        return cls(
            query=item.query.basis.double(),
            key=item.key.basis.double(),
            paired_query=torch.cat([part.query.basis.double() for part in parts], 1),
            paired_key=torch.cat([part.key.basis.double() for part in parts], 1),
        )

    @classmethod
    def placebos(cls, item: BankFeature, parts: Sequence[tuple[Tensor, Tensor]]) -> Directions:
        """The same of placebos, from each part's query and key directions [draws, d_head, rank]."""
        queries, keys = ([part[side] for part in parts] for side in (0, 1))
        single = len(parts) == 1
        return cls(
            query=queries[0] if single else placebo_union(queries, item.query.rank),
            key=keys[0] if single else placebo_union(keys, item.key.rank),
            paired_query=torch.cat(queries, -1),
            paired_key=torch.cat(keys, -1),
        )

    def some(self, start: int) -> Directions:
        """A chunk of the placebos."""
        cut = slice(start, start + _CHUNK)
        return Directions(
            query=self.query[cut],
            key=self.key[cut],
            paired_query=self.paired_query[cut],
            paired_key=self.paired_key[cut],
        )


def draws_for(tests: int, least: int) -> int:
    """How many draws let one of so many tests be supported alone, corrected with the others; no fewer than ``least``.

    >>> draws_for(12, 200), draws_for(4, 200), draws_for(400, 200)
    (240, 200, 500)
    """
    return max(least, min(MOST_DRAWS, math.ceil(tests / LEVEL)))


def alignment_draws(task: Task, heads: int, least: int) -> int:
    """The same for the alignments of a task's features in so many heads."""
    coloured = sum(bool(task.colours.get(name)) for name in task.names)
    return draws_for(len(MEASURES) * coloured * heads, least)


def measured(
    vectors: LabelledVectors, directions: Directions, half: Tensor, classes: Tensor | None = None
) -> Tensor:
    """Retrieval and correlation [..., 2]; ``classes`` [..., n, K] take the place of the keys' own."""
    one = _between(vectors, directions, half, classes)
    return (one + _between(vectors, directions, ~half, classes)) / 2


def _between(
    vectors: LabelledVectors, directions: Directions, from_keys: Tensor, classes: Tensor | None
) -> Tensor:
    """Key means of one half of the prompts against queries of the other."""
    key_class = vectors.key_class if classes is None else classes
    count = len(vectors.names)
    asked = torch.where(from_keys, -1, vectors.query_class)
    known = present([asked, vectors.key_class[from_keys]], count)
    takes = members(key_class[..., from_keys, :].flatten(-2), count)[..., known, :]
    keys = takes @ vectors.k[from_keys].flatten(0, 1)
    keys = keys - keys.mean(-2, keepdim=True)
    chosen = members(asked, count)[known]
    means = chosen @ vectors.q
    centre = means.mean(0)
    queries = vectors.q - centre
    here = keys @ directions.key @ directions.key.mT
    there = queries @ directions.query @ directions.query.mT
    alike = (there @ here.mT) / here.norm(dim=-1)[..., None, :].clamp_min(1e-30)
    best = alike >= alike.amax(-1, keepdim=True) - 1e-12
    hits = best.double() / best.sum(-1, keepdim=True)
    # [..., classes, classes]: how often queries of a class find each key cluster
    found = (chosen @ hits).diagonal(dim1=-2, dim2=-1).mean(-1)
    a, b = (means - centre) @ directions.paired_query, keys @ directions.paired_key
    correlation = (a * b).sum((-2, -1)) / (a.norm(dim=(-2, -1)) * b.norm(dim=(-2, -1))).clamp_min(1e-30)
    found, correlation = torch.broadcast_tensors(found, correlation)
    return torch.stack([found, correlation], -1)


def alignment_rows(
    item: BankFeature,
    single: Mapping[str, BankFeature],
    fitted: Mapping[str, Fitted],
    place: int,
    vectors: LabelledVectors,
    *,
    draws: int,
    seed: int,
) -> Iterator[AlignmentRow]:
    """Both measures of one feature of one head, not yet corrected; none where there are too few classes or clusters."""
    label = (str(item.head), item.name)
    half = vectors.halves(keyed(seed, "alignment halves", *label))
    if half is None or min(_common(vectors, half), _common(vectors, ~half)) < 2:
        return
    parts = [single[name] for name in (item.parts or (item.name,))]
    real = measured(vectors, Directions.of(item, parts), half)
    dealt = vectors.shuffled(draws, keyed(seed, "alignment", *label))
    shuffled = torch.cat(
        [
            measured(vectors, Directions.of(item, parts), half, dealt[start : start + _CHUNK])
            for start in range(0, draws, _CHUNK)
        ]
    )
    bases = [
        tuple(
            x[:draws, place, :, : part.rank]
            for x in (fitted[part.name].placebos.query, fitted[part.name].placebos.key)
        )
        for part in parts
    ]
    placebos = Directions.placebos(item, [(query, key) for query, key in bases])
    other = torch.cat(
        [measured(vectors, placebos.some(start), half) for start in range(0, len(placebos.key), _CHUNK)]
    )
    classes = _common(vectors, half)
    for number, measure in enumerate(MEASURES):
        value = float(real[number])
        p_shuffled, p_placebo = (p_value(value, drawn[:, number]) for drawn in (shuffled, other))
        yield AlignmentRow(
            head=str(item.head),
            name=item.name,
            measure=measure,
            by=vectors.by,
            classes=classes,
            prompts=len(vectors),
            value=value,
            shuffled_value=float(shuffled[:, number].mean()),
            placebo_value=float(other[:, number].mean()),
            p_shuffled=p_shuffled,
            p_placebo=p_placebo,
            against=AGAINST,
            against_draws=len(shuffled),
            p_value=max(p_shuffled, p_placebo),
            q_value=1.0,
            group=GROUP,
            supported=False,
        )


def _common(vectors: LabelledVectors, from_keys: Tensor) -> int:
    asked = torch.where(from_keys, -1, vectors.query_class)
    return int(present([asked, vectors.key_class[from_keys]], len(vectors.names)).sum())


def judged_alignment(rows: Sequence[AlignmentRow]) -> tuple[AlignmentRow, ...]:
    """The alignments of a run, corrected together."""
    draws = rows[0].against_draws if rows else 0
    found = claims([row.p_value for row in rows], null=AGAINST, draws=draws, group=GROUP)
    return tuple(
        replace(row, q_value=one.q, supported=one.supported) for row, one in zip(rows, found, strict=True)
    )
