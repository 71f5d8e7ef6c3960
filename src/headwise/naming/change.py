"""What changing texts showed about names: the value types of causal evidence, and what it comes to.

How texts are changed is in :mod:`headwise.naming.rewriting`, what is tested in :mod:`headwise.naming.causal`. Each kind
of test is a family of its own over all names of a run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from headwise.naming.statistics import RATE, discoveries
from headwise.types import Claim, Estimate

SHAM = "a matched change that leaves the name what it is, text by text"
GROUP = "the tests of this kind of all names of this run"
FEWEST = 20
"""Texts below which nothing is said."""
CausalKind = Literal["break", "make", "remove"]
KINDS: tuple[CausalKind, ...] = ("break", "make", "remove")
OF_TEXTS: tuple[CausalKind, ...] = ("break", "make")
"""Kinds that change what the model reads, and so say something about the name itself."""
SAID = {
    "break": "breaking the name takes the signal away more than a matched change that leaves it true",
    "make": "making the name true brings the signal up more often than a matched change that does not",
    "remove": "without the signal, attention falls more where the name holds than where it does not",
}
"""What a passed test shows."""


@dataclass(frozen=True)
class ChangeTest:
    """What changing texts (or taking the signal away) did, against the sham."""

    kind: CausalKind
    """``break``, ``make`` or ``remove``."""
    n: int
    """Texts that could be changed in both ways."""
    p: float
    """1 with fewer than 20 texts."""
    effect: Estimate | None = None
    """Break: the mean fall of the signal. Make: the share above the threshold. Remove: the mean fall of attention.
    None without texts."""
    sham: Estimate | None = None
    """The same under the sham, or where the name does not hold."""
    difference: Estimate | None = None
    """Effect less sham, text by text."""
    same_place: float | None = None
    """Share of shams that changed the same word; None where no word was changed."""
    examples: tuple[tuple[str, str, str], ...] = ()
    """Some words, what took their place, and what the sham put in."""

    def to_json(self) -> dict[str, Any]:
        """All of it."""
        return {
            "n": self.n,
            "p": self.p,
            **{name: _interval(getattr(self, name)) for name in ("effect", "sham", "difference")},
            "same_place": self.same_place,
            "examples": [list(one) for one in self.examples],
        }


@dataclass(frozen=True)
class CausalEvidence:
    """What changing texts showed about one name, beside all other names of the run."""

    tests: tuple[ChangeTest, ...]
    """Break, make and, for what is only part of a head, remove."""
    q: tuple[float, ...]
    """Benjamini–Hochberg of each test, over the tests of its kind of all names."""

    @property
    def passed(self) -> tuple[CausalKind, ...]:
        """The kinds of evidence that the name has."""
        return tuple(test.kind for test, q in zip(self.tests, self.q, strict=True) if q <= RATE)

    @property
    def is_causal(self) -> bool:
        """Whether the signal follows the name where texts are changed; what is not so is observational."""
        return any(kind in OF_TEXTS for kind in self.passed)

    @property
    def is_untried(self) -> bool:
        """Whether too few texts could be changed for either test of the name."""
        return all(test.n < FEWEST for test in self.tests if test.kind in OF_TEXTS)

    @property
    def sentence(self) -> str:
        """What was shown, in words.

        >>> CausalEvidence((ChangeTest("break", 4, 1.0),), (1.0,)).sentence
        'observational: too few texts could be changed to tell'
        """
        if self.passed:
            return "; ".join(SAID[kind] for kind in self.passed)
        if self.is_untried:
            return "observational: too few texts could be changed to tell"
        return "observational: changing the texts did not show that the signal follows the name"

    def to_json(self) -> dict[str, Any]:
        """Flag, sentence and every test by its kind; None for one that was not made."""
        made: dict[str, Any] = dict.fromkeys(KINDS)
        for test, q in zip(self.tests, self.q, strict=True):
            one = Claim(SHAM, 0, test.p, q, GROUP, q <= RATE)
            made[test.kind] = {**test.to_json(), "q": q, "claim": one.to_json()}
        flag = "causal" if self.is_causal else "observational"
        return {"flag": flag, "passed": list(self.passed), "sentence": self.sentence, **made}


def causal_evidence(tests: Sequence[Sequence[ChangeTest]]) -> list[CausalEvidence]:
    """The tests of each name with their q values: false discoveries are held down within each kind, over all names.

    >>> passed, failed = ChangeTest("break", 30, 1e-6), ChangeTest("break", 30, 0.6)
    >>> [one.passed for one in causal_evidence([[passed], [failed], []])]
    [('break',), (), ()]
    """
    q: list[dict[CausalKind, float]] = [{} for _ in tests]
    for kind in KINDS:
        of_kind = [(i, test) for i, some in enumerate(tests) for test in some if test.kind == kind]
        for (i, _), value in zip(of_kind, discoveries([test.p for _, test in of_kind]), strict=True):
            q[i][kind] = value
    return [
        CausalEvidence(tuple(some), tuple(values[test.kind] for test in some))
        for some, values in zip(tests, q, strict=True)
    ]


def _interval(value: Estimate | None) -> dict[str, Any] | None:
    if value is None:
        return None
    return {"mean": value.mean, "low": value.low, "high": value.high, "n": value.n}
