"""What two families do differently, in words: which named signals one of them holds and the other does not, tested.

Of prompts with the same wording circuits are alike, so prompts are not independent: wordings are the units, and what a
family has more is held against the same with families exchanged in whole wordings
(:mod:`headwise.families.exchange`). Prompts without a wording have the label of most values that crosses the families
for units, or else what they share (an entity, a pair). Only prompts that share nothing count one by one, by Fisher's
exact test. Where there are too few units for any p of 5 %, nothing can be supported, and the paragraph says so.
Families that were cut from these very signals cannot be tested by them: then shares are told, and no p.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.stats import fisher_exact

from headwise.claims import corrected
from headwise.families.aggregate import written
from headwise.families.exchange import ClusterExchange
from headwise.known_names import KnownName, KnownNames, writer_id
from headwise.randomness import keyed
from headwise.strings import counted
from headwise.tasks.clusters import NAMES, WORDINGS
from headwise.types import Claim, Component, Head

if TYPE_CHECKING:
    from headwise.families.result import FamiliesResult

COMPARED = 4
"""The largest families, of which all pairs are compared."""
FEWEST_UNITS = 6
"""Values of a label that both families must have for it to be taken for the unit: with fewer, none reaches 5 %."""
LEVEL = 0.05
LARGE = 0.5
"""A difference of shares that is told where no test applies."""
PROMPTS = "prompts dealt anew to the two families (Fisher)"
GROUP = "all names and pairs of families"
TOLD = 3
"""Names of each kind that a paragraph gives."""


@dataclass(frozen=True, kw_only=True)
class Difference:
    """How often a named signal, writer or head occurs in the circuits of two families."""

    first: int
    """One family, by number."""
    second: int
    """The other."""
    name: KnownName
    """What it is called, with its test."""
    share_first: float
    """The share of the first family's circuits that hold it."""
    share_second: float
    """The share of the second's."""
    units: int
    """How many prompts, or values of a label, were compared."""
    draws: int
    """Ways to exchange them that were gone through or drawn; 0 where the test has a closed form, or there is none."""
    least: float
    """The smallest p that so many units leave."""
    p: float | None
    """Of the test; None where families were cut from these signals."""
    q: float | None = None
    """Benjamini–Hochberg over all names and pairs of families."""
    null: str = PROMPTS
    """What the test holds it against."""

    @property
    def claim(self) -> Claim | None:
        """That it tells the two apart; None where no test applies."""
        if self.p is None or self.q is None:
            return None
        told = self.q <= LEVEL and self.share_first != self.share_second
        return Claim(self.null, self.draws, self.p, self.q, GROUP, told)

    @property
    def differs(self) -> bool:
        """Whether it tells the two apart: by its test, or where there is none by a large difference, which is said to
        be untested."""
        if self.claim is not None:
            return self.claim.supported
        return abs(self.share_first - self.share_second) >= LARGE

    def to_json(self) -> dict[str, Any]:
        """One entry of a document."""
        return {
            "families": [self.first, self.second],
            "signal": self.name.signal,
            "shares": [self.share_first, self.share_second],
            "units": self.units,
            "p": self.p,
            "q": self.q,
            "differs": self.differs,
            "claim": None if self.claim is None else self.claim.to_json(),
        }


@dataclass(frozen=True, eq=False, kw_only=True)
class FamilyDifferences:
    """The named differences of all pairs of families, and what a person would say of them."""

    entries: tuple[Difference, ...]
    """Every name that occurs in a circuit, for every pair, the clearest first."""
    unit: str
    """What was compared: ``prompts``, or the label whose values are the units."""
    tested: bool
    """Whether a test applies: families by a label, not by clustering."""
    paragraphs: tuple[str, ...]
    """One per pair of families."""

    def to_json(self) -> dict[str, Any]:
        """One part of a document."""
        return {
            "unit": self.unit,
            "tested": self.tested,
            "entries": [one.to_json() for one in self.entries],
            "paragraphs": list(self.paragraphs),
        }


def find_differences(found: FamiliesResult, names: KnownNames) -> FamilyDifferences:
    """Compare the families by the names of what their circuits hold."""
    held = _held(found, names)
    largest = sorted(found.families, key=lambda f: (-f.size, f.family))[:COMPARED]
    pairs = [(a.family, b.family) for a, b in combinations(sorted(largest, key=lambda f: f.family), 2)]
    label, tested = _unit(found, pairs), found.grouped_by is not None
    made = [one for pair in pairs for one in _of_pair(found, names, held, pair, label, tested)]
    if tested and made:
        qs = corrected([1.0 if one.p is None else one.p for one in made])
        made = [replace(one, q=q) for one, q in zip(made, qs, strict=True)]
    made.sort(key=lambda one: (not one.differs, -abs(one.share_first - one.share_second), one.name.signal))
    unit = "prompts" if label is None else label
    said = tuple(_paragraph(found, pair, made, unit, tested) for pair in pairs)
    return FamilyDifferences(entries=tuple(made), unit=unit, tested=tested, paragraphs=said)


def _held(found: FamiliesResult, names: KnownNames) -> dict[str, np.ndarray]:
    """By what has words: which rows hold it. A whole writer and a head are held by any edge of theirs."""
    place = {int(prompt): row for row, prompt in enumerate(found.incidence.prompts)}
    wanted = {key for key, one in names.by_signal.items() if one.text is not None}
    held: dict[str, set[int]] = defaultdict(set)
    for one in written(found.run):
        row = place.get(one.prompt)
        if row is None:
            continue
        keys = [one.source, one.target]
        if one.signal is not None:
            side = "query" if one.side == "query" else "key"
            keys += [one.signal, writer_id(Head.parse(one.target), side, Component.parse(one.source))]
        for key in wanted.intersection(keys):
            held[key].add(row)
    made = {key: np.zeros(len(found.labels), dtype=bool) for key in sorted(held)}
    for key, rows in made.items():
        rows[list(held[key])] = True
    return made


def _unit(found: FamiliesResult, pairs: Sequence[tuple[int, int]]) -> str | None:
    """The label whose values are the units: the wording, or what crosses the families, or what prompts share."""
    shared = _shared(found)
    wording = next((name for name in WORDINGS if name in shared), None)
    crossing = _crossing(found, pairs) if wording is None else None
    others = sorted(shared, key=lambda name: (len(set(shared[name])), name))
    return wording or crossing or next(iter(others), None)


def _shared(found: FamiliesResult) -> dict[str, list[str]]:
    """Labels that say what prompts share, and do not name each of them; the families' own label is none of them."""
    labels = [found.run.labels[int(prompt)] for prompt in found.incidence.prompts]
    known = [n for n in NAMES if n != found.grouped_by and all(n in one for one in labels)]
    values = {name: [str(one[name]) for one in labels] for name in known}
    return {name: some for name, some in values.items() if 2 <= len(set(some)) < len(some)}


def _crossing(found: FamiliesResult, pairs: Sequence[tuple[int, int]]) -> str | None:
    """The label of most values that every pair of families shares, if they are enough."""
    best: tuple[int, str] | None = None
    for label, values in found.groups.items():
        if label == found.grouped_by:
            continue
        both = [len(set(values[found.labels == a]) & set(values[found.labels == b])) for a, b in pairs]
        least = min(both, default=0)
        if least >= FEWEST_UNITS and (best is None or least > best[0]):
            best = (least, label)
    return None if best is None else best[1]


def _of_pair(
    found: FamiliesResult,
    names: KnownNames,
    held: dict[str, np.ndarray],
    pair: tuple[int, int],
    label: str | None,
    tested: bool,
) -> list[Difference]:
    """Every name in the circuits of two families."""
    first, second = (found.labels == one for one in pair)
    rows = np.array(list(held.values()), dtype=bool).reshape(len(held), len(first))
    if label is None:
        units, draws, least, null = int(first.sum() + second.sum()), 0, 0.0, PROMPTS
        p = [_fisher(one, first, second) for one in rows] if tested else []
    else:
        values = _shared(found).get(label)
        clusters = np.unique(found.groups[label] if values is None else values, return_inverse=True)[1]
        exchange = ClusterExchange.of(first, second, clusters)
        units, least = len(exchange), exchange.least
        null = f"families exchanged within each value of {label}, or between those that hold one of them"
        p, draws = [], 0
        if tested:
            found_p, draws = exchange.p_values(rows, keyed(found.settings["seed"], "names", *pair))
            p = found_p.tolist()
    return [
        Difference(
            first=pair[0],
            second=pair[1],
            name=names.by_signal[key],
            share_first=float(one[first].mean()),
            share_second=float(one[second].mean()),
            units=units,
            draws=draws,
            least=least,
            p=p[number] if tested else None,
            null=null,
        )
        for number, (key, one) in enumerate(zip(held, rows, strict=True))
    ]


def _fisher(rows: np.ndarray, first: np.ndarray, second: np.ndarray) -> float:
    table = [[int(rows[some].sum()), int((~rows[some]).sum())] for some in (first, second)]
    found: Any = fisher_exact(table)
    return float(found.pvalue)


# --- in words --------------------------------------------------------------------------------------------------------


def _paragraph(
    found: FamiliesResult, pair: tuple[int, int], made: Sequence[Difference], unit: str, tested: bool
) -> str:
    first, second = (found.families[one] for one in pair)
    mine = [one for one in made if (one.first, one.second) == pair]
    apart = [one for one in mine if one.differs]
    how = f"{mine[0].units} {'prompts' if unit == 'prompts' else f'values of {unit}'}" if mine else ""
    said = [f"{first.name} and {second.name} ({first.size} and {second.size} circuits)."]
    if not mine:
        said.append("Nothing that has a name occurs in their circuits.")
    elif tested and mine[0].least > LEVEL:
        few = f"{how} are too few: however different, p is at least {mine[0].least:.2g}"
        said.append(
            f"Of {counted(len(mine), 'name')} that occur, none can be shown to tell them apart ({few})."
        )
    elif not apart:
        test = f" at 5 % over {how}" if tested else ""
        said.append(f"Of {counted(len(mine), 'name')} that occur, none tells them apart{test}.")
    else:
        test = (
            f"by tests over {how}, q at most 0.05"
            if tested
            else "by at least half of the circuits; untested, as "
        )
        test += "" if tested else "the families were cut from these very signals"
        said.append(f"Of {counted(len(mine), 'name')} that occur, {len(apart)} tell them apart ({test}).")
        for family, more in ((first, 1), (second, -1)):
            own = [one for one in apart if (one.share_first - one.share_second) * more > 0]
            if own:
                said.append(f"More in {family.name}: {'; '.join(map(_told, own[:TOLD]))}{_rest(own)}.")
    same = [one for one in mine if min(one.share_first, one.share_second) >= LARGE and not one.differs]
    if same:
        said.append(f"In most circuits of both: {'; '.join(map(_told, same[:TOLD]))}{_rest(same)}.")
    return " ".join([*said, *_heads(found, pair), *_causal(found, pair)])


def _told(one: Difference) -> str:
    q = "" if one.q is None or not one.differs else f", q {one.q:.2g}"
    return (
        f"{one.name.signal}, {one.name.said}, in {one.share_first:.0%} and {one.share_second:.0%}{q}".replace(
            "%", " %"
        )
    )


def _rest(some: Sequence[Difference]) -> str:
    return f"; and {len(some) - TOLD} more" if len(some) > TOLD else ""


def _heads(found: FamiliesResult, pair: tuple[int, int]) -> list[str]:
    """Heads that read the opposite, or something else."""
    said = []
    for verdict in ("the opposite", "something else"):
        some = [h for h in found.heads if (h.first, h.second) == pair and h.verdict == verdict]
        some.sort(key=lambda h: h.cosine.mean)
        if some:
            listed = ", ".join(
                f"{h.head} {h.side} ({h.cosine.mean:+.2f}, {h.cosine.low:+.2f} to {h.cosine.high:+.2f})"
                for h in some[:TOLD]
            )
            more = f" and {len(some) - TOLD} more" if len(some) > TOLD else ""
            said.append(f"Heads that are asked for {verdict} (cosine, 95 %): {listed}{more}.")
    return said


def _causal(found: FamiliesResult, pair: tuple[int, int]) -> list[str]:
    """What becomes of the answer without the signals that only one family holds."""
    said = []
    for test in found.causality:
        if {test.exclusive_to, test.against} != set(pair) or not (test.own and test.other and test.gap):
            continue
        own, gap = found.families[test.exclusive_to].name, test.gap
        held = " and ".join(
            f"{what} {'supported' if test.claims[name].supported else 'not shown'} (q {test.claims[name].q:.3f})"
            for name, what in (("own", "more than under controls:"), ("gap", "more than in the other's:"))
        )
        said.append(
            f"Without the {counted(test.features, test.kind[:-1])} of {own} alone, chosen on other prompts, the lead "
            f"changes by {test.own.change.mean:+.2f} in its own prompts and {test.other.change.mean:+.2f} in the "
            f"other's (difference {gap.mean:+.2f}, {gap.low:+.2f} to {gap.high:+.2f}); {held}."
        )
    return said
