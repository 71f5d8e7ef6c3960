"""Are a family's own signals, and its own heads, causal for its own prompts? Take them out of both families' and look.

What is *exclusive* to a family (held by at least ``OWN_SHARE`` of its circuits and by at most ``OTHER_SHARE`` of the
other's) is chosen on one half of the prompts and removed in the other, whole wordings on one side of the split. On the
very prompts of the choice an effect is nearly sure; it is given beside it for comparison. Signals and heads are removed
as :mod:`headwise.families.removals` says, all of a set in one edited pass. The controls take away as many signals of
the same components into the same heads along channels that neither family uses there, or as many other heads of the
same layers. Two claims per set: the lead falls further than under the controls, and it does so by more than in the
other family's prompts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch
from torch import Tensor

from headwise.circuits.counterfactual import leads
from headwise.claims import claims, sign_flips
from headwise.errors import HeadwiseError
from headwise.families.causal_test import CausalTest, FamilyEffect, RemovedKind
from headwise.families.exchange import ClusterExchange
from headwise.families.halves import HalvedPrompts, halved
from headwise.families.incidence import Element, Incidence
from headwise.families.removals import (
    NOTHING,
    RemovedHeads,
    RemovedSignals,
    Remover,
    grouped,
    unused_channels,
    unused_heads,
)
from headwise.intervals import estimate, estimated, weights_of
from headwise.model.stream import split
from headwise.randomness import keyed
from headwise.tracing.writes import PromptWrites
from headwise.types import AnswerIds, Claim, Estimate, Head

if TYPE_CHECKING:
    from headwise.bases.basis import Bases
    from headwise.model.model import Model

OWN_SHARE = 0.5
"""A signal is exclusive to a family if at least this share of its circuits hold it,"""
OTHER_SHARE = 0.1
"""and at most this share of the other family's."""
CONTROLS = 5
"""Draws of unused channels per set of signals: their mean is the control, so that one odd draw does not decide."""
PROMPTS = 40
"""Prompts per family in which signals are removed, one edited pass per draw each."""
BOOTSTRAPS = 2000
"""Resamples of prompts per interval: a 95 % bound then rests on 50 of them."""
DRAWS = 9999
"""Flips of signs where there are too many to go through all."""
GROUP = "all sets of signals and heads that were removed in this run, in their own prompts and against the other's"


class Ticker(Protocol):
    def __call__(self, done: int, total: int, /) -> None: ...


@dataclass(frozen=True)
class CausalQuestion:
    """One prompt of the run, as the tests need it."""

    token_ids: Sequence[int]
    answer_id: int
    wrong_id: int | None


def exclusive(incidence: Incidence, families: np.ndarray, own: int, other: int) -> list[Element]:
    """Features that most circuits of one family hold and few of the other."""
    mine, theirs = (incidence.frequency(np.flatnonzero(families == f)) for f in (own, other))
    return [incidence.features[i] for i in np.flatnonzero((mine >= OWN_SHARE) & (theirs <= OTHER_SHARE))]


@dataclass(frozen=True, eq=False)
class _Set:
    """What is exclusive to one family against another, with its controls."""

    kind: RemovedKind
    own: int
    other: int
    features: list[Element]
    variants: list[RemovedSignals] | list[RemovedHeads]
    """The exclusive ones, then the controls."""

    @property
    def key(self) -> tuple[str, int, int]:
        """What its random numbers are drawn by."""
        return self.kind, self.own, self.other


def measure_causality(
    bases: Bases,
    questions: Sequence[CausalQuestion],
    incidence: Incidence,
    families: np.ndarray,
    pairs: Sequence[tuple[int, int]],
    *,
    heads: Incidence | None = None,
    clusters: np.ndarray | None = None,
    unit: str = "prompt",
    sample: int = PROMPTS,
    controls: int = CONTROLS,
    seed: int = 0,
    tick: Ticker | None = None,
) -> list[CausalTest]:
    """Both directions of every pair of families, in the basis that their circuits were traced in; ``questions`` are the
    prompts in the order of the incidences' rows, ``clusters`` which of them share a wording."""
    if any(f.channel < 0 for f in incidence.features[:1]):
        raise HeadwiseError("signals can only be removed by channel: give the incidence of kind 'signals'")
    needed = sorted({f for pair in pairs for f in pair})
    each = np.arange(len(families)) if clusters is None else clusters
    halves = halved(families, needed, each, "prompt" if clusters is None else unit, seed=seed)
    chosen_in = np.where(halves.tested, -1, families)
    kinds: list[tuple[RemovedKind, Incidence]] = [("signals", incidence)]
    if heads is not None:
        kinds.append(("heads", heads))
    sets = [
        _prepared(bases.model, kind, found, chosen_in, own, other, controls, seed)
        for kind, found in kinds
        for a, b in pairs
        for own, other in ((a, b), (b, a))
    ]
    rows = {f: _sampled(families, halves.tested, f, sample, seed) for f in needed}
    total, done = sum(map(len, rows.values())), 0
    outcomes: dict[tuple[int, int], dict[int, np.ndarray]] = {}
    """(set, family) -> row -> [2, 1 + variants]: logit differences (untouched first) and lengths removed."""
    for family, chosen in rows.items():
        mine = [i for i, s in enumerate(sets) if family in (s.own, s.other) and s.features]
        for row in chosen.tolist():
            found = _run(bases, questions[row], [sets[i] for i in mine]) if mine else []
            for i, values in zip(mine, found, strict=True):
                outcomes.setdefault((i, family), {})[row] = values
            done += 1
            if tick:
                tick(done, total)
    made = [
        _tested(s, {f: v for (j, f), v in outcomes.items() if j == i}, halves, chosen_in, seed)
        for i, s in enumerate(sets)
    ]
    return _judged(made)


def _sampled(families: np.ndarray, tested: np.ndarray, family: int, most: int, seed: int) -> np.ndarray:
    """Prompts of a family that it is tested on, and half as many that the choice was made on."""
    found = []
    for half, count in ((True, most), (False, max(1, most // 2))):
        members = np.flatnonzero((families == family) & (tested == half))
        order = torch.randperm(len(members), generator=keyed(seed, "causality", family, half)).numpy()
        found.append(members[order[:count]])
    return np.sort(np.concatenate(found))


def _prepared(
    model: Model,
    kind: RemovedKind,
    incidence: Incidence,
    families: np.ndarray,
    own: int,
    other: int,
    controls: int,
    seed: int,
) -> _Set:
    """What is exclusive among the prompts that ``families`` counts, and the controls for it."""
    features = exclusive(incidence, families, own, other)
    # A control must not hit what either family uses.
    often = np.zeros(len(incidence.features), dtype=bool)
    for f in (own, other):
        often |= incidence.frequency(np.flatnonzero(families == f)) >= OTHER_SHARE
    used = [incidence.features[i] for i in np.flatnonzero(often)]
    draws = [keyed(seed, "controls", kind, own, other, draw) for draw in range(controls)]
    if kind == "heads":
        chosen = tuple(sorted(Head.parse(f.target) for f in features))
        taken = {Head.parse(f.target) for f in used}
        others = [unused_heads(chosen, taken, model.n_heads, generator) for generator in draws]
        return _Set(kind, own, other, features, [chosen, *others])
    members, there = grouped(features), grouped(used)
    channels = [unused_channels(members, there, model.d_head, generator) for generator in draws]
    return _Set(kind, own, other, features, [members, *channels])


def _run(bases: Bases, question: CausalQuestion, sets: Sequence[_Set]) -> list[np.ndarray]:
    """One prompt, untouched and with every variant of every set removed."""
    model = bases.model
    heads = {head for s in sets if s.kind == "heads" for variant in s.variants for head in variant}
    with torch.no_grad():
        stream = split(model, list(question.token_ids))
        remover = Remover(model, PromptWrites(stream, 0, bases), heads)  # pyright: ignore[reportArgumentType]
        plans = [NOTHING, *(remover.removed(variant) for s in sets for variant in s.variants)]
        answer = AnswerIds(question.answer_id, question.wrong_id)
        edits = [plan.edits for plan in plans]
        differences = leads(model, question.token_ids, edits, answer, clean=stream.clean_pass(0))
    result, at = [], 1
    for s in sets:
        stop = at + len(s.variants)
        lengths = [plan.length for plan in plans[at:stop]]
        result.append(np.array([[differences[0], *differences[at:stop]], [0.0, *lengths]]))
        at = stop
    return result


def _tested(
    s: _Set,
    outcomes: Mapping[int, Mapping[int, np.ndarray]],
    halves: HalvedPrompts,
    chosen_in: np.ndarray,
    seed: int,
) -> CausalTest:
    test = CausalTest(
        kind=s.kind,
        exclusive_to=s.own,
        against=s.other,
        features=len(s.features),
        heads=len({f.target for f in s.features}),
        chosen_on=int(np.isin(chosen_in, (s.own, s.other)).sum()),
        unit=halves.unit,
    )
    new = {f: [row for row in found if halves.tested[row]] for f, found in outcomes.items()}
    if not (new.get(s.own) and new.get(s.other)):
        return test
    seen = {f: [row for row in found if not halves.tested[row]] for f, found in outcomes.items()}
    effects = {
        (half, f): _effect(
            s, f, np.stack([outcomes[f][row] for row in rows]), halves.clusters[rows], half, seed
        )
        for half, chosen in (("tested", new), ("chosen", seen))
        for f, rows in chosen.items()
        if rows
    }
    rows = new[s.own] + new[s.other]
    values = np.stack(
        [outcomes[s.own][row] for row in new[s.own]] + [outcomes[s.other][row] for row in new[s.other]]
    )
    own = torch.arange(len(rows)) < len(new[s.own])
    which = torch.from_numpy(halves.clusters[rows])
    return replace(
        test,
        own=effects["tested", s.own],
        other=effects["tested", s.other],
        seen_own=effects.get(("chosen", s.own)),
        seen_other=effects.get(("chosen", s.other)),
        gap=_gap(torch.from_numpy(_changes(values)[0]), own, which, s, seed),
        claims=_alone(values, own, which, halves, s, seed),
    )


def _changes(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Per prompt the lead's change without the set, and the mean of its changes under the controls."""
    leads = values[:, 0]
    return leads[:, 1] - leads[:, 0], (leads[:, 2:] - leads[:, :1]).mean(1)


def _alone(
    values: np.ndarray, own: Tensor, which: Tensor, halves: HalvedPrompts, s: _Set, seed: int
) -> dict[str, Claim]:
    """Both claims about a set, before they are corrected with those of the others."""
    change, control = _changes(values)
    lost = torch.from_numpy(control - change)
    p, flips = sign_flips(lost[own], which[own], draws=DRAWS, generator=keyed(seed, "own", *s.key))
    between = ClusterExchange.of(own.numpy(), ~own.numpy(), which.numpy())
    apart, ways = between.p_values(lost.numpy()[None], keyed(seed, "gap", *s.key), larger=True)
    like = "layers" if s.kind == "heads" else "heads and writers"
    by = f"{halves.unit}{'; the choice has seen the same ones' if halves.parted else ''}"
    tested = {
        "own": (p, f"controls of the same {like}, exchanged by {by}", flips),
        "gap": (float(apart[0]), f"the two families exchanged by {by}", ways),
    }
    return {name: claims([p], null=null, draws=n, group=GROUP)[0] for name, (p, null, n) in tested.items()}


def _judged(tests: Sequence[CausalTest]) -> list[CausalTest]:
    """The same, all claims of the run corrected together."""
    alone = [(i, name, one) for i, test in enumerate(tests) for name, one in test.claims.items()]
    together = claims([one.p for _, _, one in alone], null="", draws=0, group=GROUP)
    held: list[dict[str, Claim]] = [{} for _ in tests]
    for (i, name, one), both in zip(alone, together, strict=True):
        held[i][name] = replace(one, q=both.q, supported=both.supported)
    return [replace(test, claims=found) for test, found in zip(tests, held, strict=True)]


def _gap(change: Tensor, own: Tensor, which: Tensor, s: _Set, seed: int) -> Estimate:
    """Mean change of own prompts less that of the others, clusters resampled."""
    weights = weights_of(which, len(change), BOOTSTRAPS, keyed(seed, "gap interval", *s.key))
    mine, theirs = weights * own, weights * ~own
    drawn = mine @ change / mine.sum(1) - theirs @ change / theirs.sum(1)
    apart = change[own].mean() - change[~own].mean()
    return estimated(apart, drawn, len(change), len(which.unique()))


def _effect(
    s: _Set, family: int, values: np.ndarray, clusters: np.ndarray, half: str, seed: int
) -> FamilyEffect:
    leads, lengths = values[:, 0], values[:, 1]
    change, control = _changes(values)
    ahead, which = leads[:, :1] > 0, torch.from_numpy(clusters)
    key = "causal", *s.key, family, half

    def over(found: np.ndarray, name: str) -> Estimate:
        return estimate(torch.from_numpy(found), seed, name, *key, clusters=which)

    return FamilyEffect(
        family=family,
        prompts=len(leads),
        clean=float(leads[:, 0].mean()),
        change=over(change, "change"),
        control=over(control, "control"),
        flips=float(((leads[:, 1:2] <= 0) & ahead).mean()),
        control_flips=float(((leads[:, 2:] <= 0) & ahead).mean()),
        size=float(lengths[:, 1].mean() / max(float(lengths[:, 2:].mean()), 1e-12)),
    )
