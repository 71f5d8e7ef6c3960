"""What a naming run found: every subject with its name or without, the shares, and the controls beside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from headwise.errors import HeadwiseError
from headwise.known_names import KIND, MAKE
from headwise.naming.change import CausalEvidence
from headwise.naming.llm.judge import Exam
from headwise.naming.signals import Level, Subject
from headwise.naming.statistics import QUALITY, RATE, Judged, NamedShare, NameTest, NameVerdict
from headwise.strings import counted, shortened
from headwise.types import Claim, Estimate

if TYPE_CHECKING:
    from pandas import DataFrame  # pyright: ignore[reportMissingImports]

    from headwise.scale.folder import RunFolder

CHANCE = "cells of the same texts with the signal's own token changed, and random cells of other texts; the larger p"
MODERATE = f"a balanced accuracy of at most {QUALITY}"
GROUP = "all subjects of this run"
ANSWERS = "answers.jsonl"
"""Everything a language model said in a run, by the digest of what it was asked."""

Giver = Literal["rules", "llm"]


@dataclass(frozen=True, kw_only=True)
class Words:
    """A name slot by slot, as one sentence, and the rule it was printed from."""

    destination: str
    """What the token that attends is."""
    source: str
    """What the token that it attends to is."""
    relation: str
    """How the two relate."""
    text: str
    """All of it as one sentence."""
    rule: tuple[tuple[str, ...], ...]
    """Ids of predicates; one of these conjunctions must hold. Empty for a name that a language model wrote."""
    equally_good: tuple[str, ...] = ()
    """Other rules that explain the explored cells as well: a name is one description, not the only one."""
    falsified_by: str = ""
    """What would show it to be wrong, in the words of the language model that wrote it."""

    def to_json(self) -> dict[str, Any]:
        slots = {name: getattr(self, name) for name in ("destination", "source", "relation", "text")}
        rule = [list(all_of) for all_of in self.rule]
        found = {**slots, "rule": rule, "equally_good": list(self.equally_good)}
        return {**found, "falsified_by": self.falsified_by} if self.falsified_by else found


@dataclass(frozen=True, kw_only=True)
class CellExample:
    """A cell in its context."""

    kind: str
    """``strongest``, ``missed`` (it acts, the name does not hold) or ``false alarm`` (the name holds, it does not
    act)."""
    tokens: tuple[str, ...]
    """The tokens around the two."""
    destination: int
    """Which of them attends."""
    source: int
    """Which of them it attends to."""
    score: float
    """How strongly the subject acts there."""
    holds: bool
    """Whether the name holds there."""

    def to_json(self) -> dict[str, Any]:
        return {
            **{name: getattr(self, name) for name in self.__dataclass_fields__},
            "tokens": list(self.tokens),
        }


@dataclass(frozen=True, kw_only=True)
class ControlOutcome:
    """How a subject's control fared, by the same search and the same tests."""

    name: str | None
    """The rule that the control's search found, in words; None without one."""
    verdict: NameVerdict
    """What its test came to."""
    balanced_accuracy: float | None
    """Of that rule on the control's test cells; None without one."""

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "verdict": self.verdict, "balanced_accuracy": self.balanced_accuracy}


@dataclass(frozen=True, kw_only=True)
class NamedSubject:
    """One subject, with a name or without."""

    subject: Subject
    """What was to be named."""
    judged: Judged
    """Its verdict among all subjects of the run, with q values and flags."""
    name: Words | None
    """The name, also where it failed its test; None where the search found none."""
    test: NameTest | None
    """What the test half says of it; None without a name."""
    position_matched: Estimate | None
    """Balanced accuracy against cells of other texts at the same two positions; None where too few are without it."""
    near: float | None
    """NamedShare of cells just below the threshold (80–95 %) where the name holds."""
    threshold: float
    """The score from which on a cell is positive."""
    flags: tuple[str, ...]
    """``positional``, ``corpus-bound``; ``the channel's``: whoever else writes into the channel, it acts the same;
    ``causal``: it follows the name where texts are changed."""
    occurrences: int | None
    """How often it occurs in the source's circuits."""
    swapped: ControlOutcome
    """The false-naming control of this subject."""
    rotated: ControlOutcome | None
    """The rotated control of this subject."""
    examples: tuple[CellExample, ...]
    """Strongest test cells, and test cells where the name fails."""
    causal: CausalEvidence | None = None
    """What changing texts showed of the name, where that was asked for and the verdict is ``named``."""

    by: Giver = "rules"
    """Who gave the name: ``rules``, or a language model (``llm``), which then also judged where it holds."""
    unread: int = 0
    """Answers of the language model that could not be read; each counts against its name."""
    agreement: float | None = None
    """Cohen's κ with the rule of the same subject, over the test cells of both; None where one of them has no name."""

    @property
    def level(self) -> Level:
        """Which kind of thing was named."""
        return self.subject.level

    @property
    def verdict(self) -> NameVerdict:
        """``named``, ``beyond chance``, ``no name`` or ``too rare``."""
        return self.judged.verdict

    @property
    def q(self) -> float:
        """Benjamini–Hochberg over all subjects of the run."""
        return self.judged.q

    @property
    def balanced_accuracy(self) -> Estimate | None:
        """Of the name on test cells, with its interval over texts."""
        return None if self.test is None or not self.test.positives else self.test.balanced_accuracy

    @property
    def claims(self) -> dict[str, Claim]:
        """What the verdict rests on: the name holds beyond chance, and well enough; both exact, over all subjects."""
        made = self.judged
        rare = self.test is None or made.verdict == "too rare"
        p, quality = (1.0, 1.0) if self.test is None or rare else (self.test.p, self.test.p_quality)
        return {
            "beyond_chance": Claim(CHANCE, 0, p, made.q, GROUP, not rare and made.q <= RATE),
            "quality": Claim(MODERATE, 0, quality, made.q_quality, GROUP, made.verdict == "named"),
        }

    @property
    def positives(self) -> int | None:
        """Test texts with a positive cell; None where there was nothing to test."""
        return None if self.test is None else self.test.positives

    def to_json(self) -> dict[str, Any]:
        """One entry of the document."""
        test = self.test if self.balanced_accuracy is not None else None
        bands = {} if test is None else test.recall_by_band
        return {
            "signal": str(self.subject),
            "level": self.level,
            "name": None if self.name is None else self.name.to_json(),
            "verdict": self.verdict,
            "claims": {name: one.to_json() for name, one in self.claims.items()},
            "q": self.q,
            "balanced_accuracy": _interval(self.balanced_accuracy),
            "recall_by_band": {band: one.recall if one.n else None for band, one in bands.items()},
            "by": self.by,
            "causal": None if self.causal is None else self.causal.to_json(),
            "examples": [example.to_json() for example in self.examples],
            "p": None if test is None else {"own_slot": test.p_own_slot, "random": test.p_random},
            "q_dependent": self.judged.q_dependent,
            "q_quality": self.judged.q_quality,
            "recall": None if test is None else test.recall,
            "false_alarms": None if test is None else dict(test.false_alarms),
            "position_matched": _interval(self.position_matched),
            "near": self.near,
            "positives": self.positives,
            "threshold": self.threshold,
            "flags": list(self.flags),
            "occurrences": self.occurrences,
            "controls": {
                "swapped": self.swapped.to_json(),
                "rotated": None if self.rotated is None else self.rotated.to_json(),
            },
            **({} if self.by == "rules" else {"unread": self.unread, "agreement": self.agreement}),
        }


@dataclass(frozen=True, eq=False, kw_only=True)
class NamesResult:
    """Names of some subjects, tested on texts that the search did not see, beside their controls."""

    model: str
    """The model's name."""
    weight_hash: str
    """The digest of the model's weights."""
    config: dict[str, Any]
    """What was asked for: subjects, corpus, split, predicates."""
    signals: tuple[NamedSubject, ...]
    """Every subject, in the order of the source."""
    share_named: NamedShare
    """NamedShare of subjects with the verdict ``named``."""
    share_beyond_chance: NamedShare
    """NamedShare of subjects beyond chance, the named ones included."""
    swapped: NamedShare
    """NamedShare named when cells are read in another text: the false-naming rate."""
    rotated: NamedShare | None
    """NamedShare named of the rotated counterparts."""
    difference: Estimate | None
    """NamedShare named less the rotated share, with its interval over heads."""
    tokens_scored: int
    """Tokens that really passed through the model for cells."""
    texts: dict[str, int]
    """Texts of each half, groups of near-duplicates, texts too short to be used."""
    seconds: float
    """How long it took."""
    exam: Exam | None = None
    """How the language model that judged did on names whose truth is known; None for rules."""
    beside: NamesResult | None = None
    """The same subjects as a language model names them, where both were asked for: same cells, same tests."""

    @property
    def second_look(self) -> bool:
        """Whether the texts were split anew, as is needed after a test result was seen."""
        return bool(self.config["split_seed"])

    def __len__(self) -> int:
        return len(self.signals)

    def __getitem__(self, subject: str | Subject) -> NamedSubject:
        """One subject by its name, such as ``L23H3``."""
        wanted = Subject.parse(subject) if isinstance(subject, str) else subject
        for one in self.signals:
            if one.subject == wanted:
                return one
        raise HeadwiseError(
            f"{shortened(str(wanted))!r} is not among the {counted(len(self), 'subject')} of this run"
        )

    def to_json(self) -> dict[str, Any]:
        """One document."""
        return {
            "schema": 1,
            "kind": KIND,
            "model": self.model,
            "weight_hash": self.weight_hash,
            "settings": self.config,
            "second_look": self.second_look,
            "signals": self._entries(),
            "share_named": self.share_named.to_json(),
            "share_beyond_chance": self.share_beyond_chance.to_json(),
            "controls": {
                "swapped": self.swapped.to_json(),
                "rotated": None if self.rotated is None else self.rotated.to_json(),
            },
            "difference": _interval(self.difference),
            "tokens_scored": self.tokens_scored,
            "texts": self.texts,
            "seconds": self.seconds,
            **({} if self.exam is None else {"exam": self.exam.to_json()}),
            **({} if self.beside is None else {"beside": self.beside._shares()}),
        }

    def _entries(self) -> list[dict[str, Any]]:
        """One entry per subject; where a language model named it too, its entry is in ``beside``."""
        found = [one.to_json() for one in self.signals]
        if self.beside is None:
            return found
        others = (one.to_json() for one in self.beside.signals)
        return [{**one, "beside": other} for one, other in zip(found, others, strict=True)]

    def _shares(self) -> dict[str, Any]:
        kept = ("share_named", "share_beyond_chance", "controls", "difference", "exam")
        return {"by": "llm", **{key: value for key, value in self.to_json().items() if key in kept}}

    def to_pandas(self) -> dict[str, DataFrame]:
        """Tables by name; needs the extra ``headwise[pandas]``."""
        from headwise.frames import frame

        return {
            "signals": frame(
                rows_of(self.signals) + ([] if self.beside is None else rows_of(self.beside.signals))
            )
        }

    def save(self, folder: str | Path) -> Path:
        """Write a run folder: the document, and the whole result for :meth:`load`."""
        from headwise.scale.study import save_result

        return save_result(self, folder, KIND, self.config)

    def write(self, folder: RunFolder) -> None:
        """Write everything into an open folder, which is finished with that."""
        from headwise.scale.results import write_result

        more = [ANSWERS] if (folder.path / ANSWERS).is_file() else []
        write_result(folder, self.to_json(), replace(self, seconds=0.0), more=more)

    @classmethod
    def load(cls, folder: str | Path) -> NamesResult:
        """Read a finished run, every file of it held against its digest."""
        from headwise.scale.results import load_result

        return load_result(cls, folder, KIND, MAKE)

    def __repr__(self) -> str:
        named = sum(one.verdict == "named" for one in self.signals)
        return f"NamesResult({self.model!r}: {named} of {counted(len(self), 'subject')} named)"

    def _repr_html_(self) -> str:
        from headwise.show.notebook import names_result

        return names_result(self)


def rows_of(signals: Sequence[NamedSubject]) -> list[dict[str, Any]]:
    """One flat row per subject."""
    return [
        {
            "signal": str(one.subject),
            "level": one.level,
            "name": None if one.name is None else one.name.text,
            "verdict": one.verdict,
            "q": one.q,
            "balanced_accuracy": None if one.balanced_accuracy is None else one.balanced_accuracy.mean,
            "low": None if one.balanced_accuracy is None else one.balanced_accuracy.low,
            "high": None if one.balanced_accuracy is None else one.balanced_accuracy.high,
            "position_matched": None if one.position_matched is None else one.position_matched.mean,
            "positives": one.positives,
            "causal": None if one.causal is None else " ".join(one.causal.passed),
            "by": one.by,
        }
        for one in signals
    ]


def _interval(value: Estimate | None) -> dict[str, Any] | None:
    if value is None:
        return None
    return {"mean": value.mean, "low": value.low, "high": value.high, "n": value.n}
