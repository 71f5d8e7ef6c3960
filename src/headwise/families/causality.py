"""Are a family's own signals causal for its own prompts? Take them out of prompts of both families and look.

Features that are *exclusive* to a family (held by at least ``OWN_SHARE`` of its circuits and by at most ``OTHER_SHARE``
of the other's) are removed at every token: what the source component, a head with all it carried, wrote into that
channel leaves the queries (or the keys) of the target head. What was written is taken from the clean pass; all removals
are made in one edited pass. The control takes away as many signals of the same components into the same heads along
channels that neither family uses there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from torch import Tensor

from headwise.circuits.counterfactual import leads, unused
from headwise.errors import HeadwiseError
from headwise.families.incidence import Element, Incidence
from headwise.intervals import estimated, picked
from headwise.model.edits import AddVectors, Edit
from headwise.model.stream import split
from headwise.randomness import keyed
from headwise.tracing.vectors import component_shares
from headwise.tracing.writes import PromptWrites
from headwise.types import AnswerIds, Component, Estimate, Head, Side, Signal

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

ReadInput = tuple[Head, Side]
"""Where a signal enters: what a head reads on one side."""


@dataclass(frozen=True, kw_only=True)
class FamilyEffect:
    """What removing one set of features did to the answer in prompts of one family; 95 % intervals over prompts."""

    family: int
    """The family whose prompts these are, by number."""
    prompts: int
    """How many were edited."""
    clean: float
    """Mean logit difference, answer − wrong, untouched."""
    change: Estimate
    """Change of the answer's lead."""
    control: Estimate
    """Change when as many signals along unused channels leave."""
    flips: float
    """Share of prompts whose answer falls behind the wrong one."""
    control_flips: float
    """The same with the controls."""
    size: float
    """Length of what was removed, over that of the controls: how much more was written along the real channels."""

    def to_row(self) -> dict[str, Any]:
        """One row of a table."""
        return {
            "family": self.family,
            "prompts": self.prompts,
            "clean": self.clean,
            "change": self.change.mean,
            "low": self.change.low,
            "high": self.change.high,
            "control": self.control.mean,
            "control_low": self.control.low,
            "control_high": self.control.high,
            "flips": self.flips,
            "control_flips": self.control_flips,
            "size": self.size,
        }


@dataclass(frozen=True, kw_only=True)
class CausalTest:
    """The features exclusive to one family, removed in its own prompts and in those of another."""

    exclusive_to: int
    """The family that holds the signals, by number."""
    against: int
    """The family that does not."""
    features: int
    """How many signals these are."""
    heads: int
    """Heads that these features enter."""
    own: FamilyEffect | None = None
    """What removing them did in the first family's prompts; None if there is nothing to remove."""
    other: FamilyEffect | None = None
    """The same in the other's prompts."""
    gap: Estimate | None = None
    """Change in own prompts minus change in the other's: negative, if the features matter more to their own."""

    @property
    def effects(self) -> dict[str, FamilyEffect | None]:
        """By where they were measured: in own prompts, and in the other family's."""
        return {"own": self.own, "other": self.other}

    def to_row(self) -> dict[str, Any]:
        """What a table says of the test in each row of its effects."""
        gap = self.gap
        return {
            "exclusive_to": self.exclusive_to,
            "against": self.against,
            "features": self.features,
            "heads": self.heads,
            "gap": gap and gap.mean,
            "gap_low": gap and gap.low,
            "gap_high": gap and gap.high,
        }

    def to_json(self) -> dict[str, Any]:
        """The test with its effects."""
        return {**self.to_row(), **{where: e and e.to_row() for where, e in self.effects.items()}}


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


class Signals:
    """What components wrote into channels of heads in one prompt, at every token."""

    def __init__(self, up: PromptWrites) -> None:
        self.up = up
        self._shares: dict[tuple[ReadInput, Component], Tensor] = {}
        self._maps: dict[Head, tuple[Tensor, Tensor]] = {}

    def maps(self, head: Head) -> tuple[Tensor, Tensor]:
        """G_d and G_s of a head as each row multiplies them: [T, d_head, channels] and [T, channels, d_head]."""
        if head not in self._maps:
            rows = [self.up.maps_at(head, row) for row in range(self.up.tokens)]
            self._maps[head] = torch.stack([g for g, _ in rows]), torch.stack([g for _, g in rows])
        return self._maps[head]

    def shares(self, place: ReadInput, component: Component) -> Tensor:
        """A component's share of a head's queries or keys: [T, d_head]."""
        if (place, component) not in self._shares:
            self._shares[place, component] = component_shares(self.up, *place, component)
        return self._shares[place, component]

    def vectors(self, members: Mapping[ReadInput, Sequence[Signal]]) -> dict[ReadInput, Tensor]:
        """The sum of some signals at each place, in head space.

        Of queries [T, d_head]; of keys [T rows, T, d_head], as each row sees them.
        """
        result = {}
        for (head, side), listed in members.items():
            query_map, key_map = self.maps(head)
            total = torch.zeros((), dtype=torch.float64, device=self.up.device)
            for signal in listed:
                chosen, shares = list(signal.channels), self.shares((head, side), signal.writer)
                if side == "query":
                    read = torch.einsum("td,tdc->tc", shares, query_map[..., chosen])
                    total = total + torch.einsum("tc,tcd->td", read, key_map[:, chosen])
                else:
                    read = torch.einsum("kd,tcd->tkc", shares, key_map[:, chosen])
                    total = total + torch.einsum("tkc,tdc->tkd", read, query_map[..., chosen])
            result[head, side] = total
        return result


def grouped(features: Sequence[Element]) -> dict[ReadInput, list[Signal]]:
    """Features, as signals, by the head and side that they enter."""
    result: dict[ReadInput, list[Signal]] = {}
    for f in features:
        side: Side = "query" if f.side == "query" else "key"
        signal = Signal(Head.parse(f.target), side, Component.parse(f.source), (f.channel,))
        result.setdefault((signal.head, side), []).append(signal)
    return result


def removal_edits(vectors: Mapping[ReadInput, Tensor]) -> list[Edit]:
    """Edits that take vectors from every query of their heads, and from every key as each row sees it."""
    made: list[Edit] = []
    for (head, side), value in vectors.items():
        if side == "query":
            every = list(range(len(value)))
            made.append(AddVectors(head=head, side="query", positions=every, value=-value))
        elif bool((value == value[:1]).all()):
            # The same for every row (no rotation, or the absolute frame): one edit for all of them.
            every = list(range(len(value)))
            made.append(AddVectors(head=head, positions=every, value=-value[0]))
        else:
            for row, taken in enumerate(value):
                seen = list(range(row + 1))
                made.append(AddVectors(head=head, positions=seen, value=-taken[: row + 1], seen_by=row))
    return made


@dataclass(frozen=True, eq=False)
class _Set:
    """The exclusive features of one family against another, with their controls."""

    own: int
    other: int
    features: list[Element]
    variants: list[dict[ReadInput, list[Signal]]]
    """The features, then the controls."""


def measure_causality(
    bases: Bases,
    questions: Sequence[CausalQuestion],
    incidence: Incidence,
    families: np.ndarray,
    pairs: Sequence[tuple[int, int]],
    *,
    sample: int = PROMPTS,
    controls: int = CONTROLS,
    seed: int = 0,
    tick: Ticker | None = None,
) -> list[CausalTest]:
    """Both directions of every pair of families, in the basis that their circuits were traced in; ``questions`` are the
    prompts in the order of the incidence's rows."""
    if any(f.channel < 0 for f in incidence.features[:1]):
        raise HeadwiseError("signals can only be removed by channel: give the incidence of kind 'signals'")
    sets = [
        _prepared(bases.model, incidence, families, own, other, controls, seed)
        for a, b in pairs
        for own, other in ((a, b), (b, a))
    ]
    rows = {f: _sample(families, f, sample, seed) for pair in pairs for f in pair}
    total, done = sum(map(len, rows.values())), 0
    outcomes: dict[tuple[int, int], list[np.ndarray]] = {}
    """(set, family) -> per prompt [2, 1 + variants]: logit differences (untouched first) and lengths removed."""
    for family, chosen in rows.items():
        mine = [i for i, s in enumerate(sets) if family in (s.own, s.other) and s.features]
        for row in chosen.tolist():
            found = _run(bases, questions[row], [sets[i] for i in mine]) if mine else []
            for i, values in zip(mine, found, strict=True):
                outcomes.setdefault((i, family), []).append(values)
            done += 1
            if tick:
                tick(done, total)
    return [
        _tested(s, {f: np.stack(v) for (j, f), v in outcomes.items() if j == i}, seed)
        for i, s in enumerate(sets)
    ]


def _sample(families: np.ndarray, family: int, most: int, seed: int) -> np.ndarray:
    members = np.flatnonzero(families == family)
    order = torch.randperm(len(members), generator=keyed(seed, "causality", family)).numpy()
    return np.sort(members[order[:most]])


def _prepared(
    model: Model, incidence: Incidence, families: np.ndarray, own: int, other: int, controls: int, seed: int
) -> _Set:
    features = exclusive(incidence, families, own, other)
    members = grouped(features)
    # A control must not hit a channel that either family uses there.
    used: dict[ReadInput, set[int]] = {}
    for f in (own, other):
        often = np.flatnonzero(incidence.frequency(np.flatnonzero(families == f)) >= OTHER_SHARE)
        for place, listed in grouped([incidence.features[i] for i in often]).items():
            used.setdefault(place, set()).update(channel for one in listed for channel in one.channels)
    variants = [members]
    for draw in range(controls):
        generator = keyed(seed, "controls", own, other, draw)
        variants.append(
            {p: unused(m, model.d_head, generator, avoid=used.get(p, ())) for p, m in members.items()}
        )
    return _Set(own, other, features, variants)


def _run(bases: Bases, question: CausalQuestion, sets: Sequence[_Set]) -> list[np.ndarray]:
    """One prompt, untouched and with every variant of every set removed."""
    model = bases.model
    with torch.no_grad():
        stream = split(model, list(question.token_ids))
        signals = Signals(PromptWrites(stream, 0, bases))
        plans: list[dict[ReadInput, Tensor]] = [{}]
        plans += [signals.vectors(variant) for s in sets for variant in s.variants]
        edits = [removal_edits(plan) for plan in plans]
        answer = AnswerIds(question.answer_id, question.wrong_id)
        differences = leads(model, question.token_ids, edits, answer, clean=stream.clean_pass(0))
    lengths = [float(torch.stack([_size(v) for v in p.values()]).sum().sqrt()) if p else 0.0 for p in plans]
    result, at = [], 1
    for s in sets:
        stop = at + len(s.variants)
        result.append(np.array([[differences[0], *differences[at:stop]], [0.0, *lengths[at:stop]]]))
        at = stop
    return result


def _size(vectors: Tensor) -> Tensor:
    """The square of how much is taken from a head's queries, or on average over rows from its keys."""
    total = vectors.square().sum()
    return total if vectors.ndim == 2 else total / len(vectors)


def _tested(s: _Set, outcomes: Mapping[int, np.ndarray], seed: int) -> CausalTest:
    test = CausalTest(
        exclusive_to=s.own,
        against=s.other,
        features=len(s.features),
        heads=len({f.target for f in s.features}),
    )
    if s.own not in outcomes or s.other not in outcomes:
        return test
    own, drawn = _effect(s, s.own, outcomes[s.own], seed)
    other, drawn_other = _effect(s, s.other, outcomes[s.other], seed)
    prompts = own.prompts + other.prompts
    gap = estimated(own.change.mean - other.change.mean, drawn - drawn_other, prompts)
    return replace(test, own=own, other=other, gap=gap)


def _effect(s: _Set, family: int, values: np.ndarray, seed: int) -> tuple[FamilyEffect, Tensor]:
    """The effect in prompts of one family, and the changes that resamples of them have [draws]."""
    leads, lengths = values[:, 0], values[:, 1]
    change, control = leads[:, 1] - leads[:, 0], (leads[:, 2:] - leads[:, :1]).mean(1)
    n, ahead = len(leads), leads[:, :1] > 0
    picks = picked(n, BOOTSTRAPS, keyed(seed, "causal bootstrap", s.own, s.other, family)).numpy()
    drawn, drawn_control = (torch.from_numpy(x[picks].mean(1)) for x in (change, control))
    effect = FamilyEffect(
        family=family,
        prompts=n,
        clean=float(leads[:, 0].mean()),
        change=estimated(float(change.mean()), drawn, n),
        control=estimated(float(control.mean()), drawn_control, n),
        flips=float(((leads[:, 1:2] <= 0) & ahead).mean()),
        control_flips=float(((leads[:, 2:] <= 0) & ahead).mean()),
        size=float(lengths[:, 1].mean() / max(float(lengths[:, 2:].mean()), 1e-12)),
    )
    return effect, drawn
