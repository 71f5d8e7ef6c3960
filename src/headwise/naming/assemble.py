"""Names with their tests, put together: verdicts over the whole family, shares, and the controls beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from headwise.naming.cells import Cells
from headwise.naming.change import CausalEvidence
from headwise.naming.examine import Cases, TriedName, examples_of
from headwise.naming.result import ControlOutcome, Giver, NamedSubject, NamesResult
from headwise.naming.sample import CellKind, Levels
from headwise.naming.sources import Subjects
from headwise.naming.statistics import Judged, NameVerdict, judged, kappa, share_difference, share_named
from headwise.scale.stages import Stages

if TYPE_CHECKING:
    from headwise.model.model import Model


class Fared(NamedTuple):
    """A subject's rule with its test, and what that came to among all others."""

    tried: TriedName
    judged: Judged


def fared(
    tried: Callable[[Cases, Sequence[int]], Iterable[TriedName]],
    cases: Cases,
    false: Cases,
    config: dict[str, Any],
    run: Stages,
    giver: str = "",
) -> dict[str, list[Fared]]:
    """The names that somebody gives subjects and their controls, each family of tests judged by itself."""
    count = len(config["subjects"])
    families = {"names": (cases, range(count)), "swapped names": (false, range(count))}
    if config["rotated"]:
        families["rotated names"] = (cases, range(count, 2 * count))
    made = {}
    for name, (some, numbers) in families.items():
        tick, found = run.begin(f"{giver}{name}", len(numbers)), []
        for one in tried(some, numbers):
            found.append(one)
            tick(1)
        made[name] = _judged(found)
    return made


def _judged(tried: list[TriedName]) -> list[Fared]:
    """One family of tests."""
    rules = [one.rule for one in tried]
    verdicts = judged(
        [one.test for one in tried],
        positional=[rule is not None and rule.is_positional for rule in rules],
        corpus_bound=[rule is not None and rule.is_identity for rule in rules],
    )
    return [Fared(*pair) for pair in zip(tried, verdicts, strict=True)]


def result_of(
    model: Model,
    chosen: Subjects,
    cases: Cases,
    levels: Levels,
    alike: list[bool],
    config: dict[str, Any],
    results: dict[str, list[Fared]],
    giver: Giver,
    shown: dict[int, CausalEvidence],
    told: dict[str, int],
) -> NamesResult:
    real, false, turned = (results.get(name) for name in ("names", "swapped names", "rotated names"))
    assert real is not None
    assert false is not None
    signals = [
        _named(
            chosen,
            number,
            cases,
            float(levels.theta[number]),
            alike[number],
            one,
            false[number],
            None if turned is None else turned[number],
            giver,
            shown.get(number),
        )
        for number, one in enumerate(real)
    ]
    heads = [subject.head for subject in chosen.subjects]
    verdicts: list[NameVerdict] = [one.judged.verdict for one in real]
    swapped_verdicts: list[NameVerdict] = [one.judged.verdict for one in false]
    rotated_verdicts: list[NameVerdict] | None = None
    if turned is not None:
        rotated_verdicts = [one.judged.verdict for one in turned]
    return NamesResult(
        model=model.name,
        weight_hash=model.weight_hash,
        config=config,
        signals=tuple(signals),
        share_named=share_named(verdicts, heads),
        share_beyond_chance=share_named(verdicts, heads, least="beyond chance"),
        swapped=share_named(swapped_verdicts, heads),
        rotated=None if rotated_verdicts is None else share_named(rotated_verdicts, heads),
        difference=None if rotated_verdicts is None else share_difference(verdicts, rotated_verdicts, heads),
        tokens_scored=told["tokens"],
        texts={key: count for key, count in told.items() if key != "tokens"},
        seconds=0.0,
    )


def _named(
    chosen: Subjects,
    number: int,
    cases: Cases,
    theta: float,
    alike: bool,
    one: Fared,
    false: Fared,
    turned: Fared | None,
    giver: Giver,
    shown: CausalEvidence | None,
) -> NamedSubject:
    return NamedSubject(
        subject=chosen.subjects[number],
        judged=one.judged,
        name=one.tried.words,
        test=one.tried.test,
        position_matched=one.tried.matched,
        near=one.tried.near,
        threshold=theta,
        flags=(
            *one.judged.flags,
            *["the channel's"] * alike,
            *["causal"] * (shown is not None and shown.is_causal),
        ),
        occurrences=chosen.occurrences[number] if chosen.occurrences else None,
        swapped=_outcome(false),
        rotated=None if turned is None else _outcome(turned),
        examples=examples_of(cases, number, one.tried.holds),
        causal=shown,
        by=giver,
        unread=one.tried.unread,
    )


def _outcome(one: Fared) -> ControlOutcome:
    words, test = one.tried.words, one.tried.test
    accuracy = None if words is None or test is None else test.balanced_accuracy.mean
    return ControlOutcome(
        name=None if words is None else words.text, verdict=one.judged.verdict, balanced_accuracy=accuracy
    )


def compared(by_llm: NamesResult, cases: Cases, results: dict[Giver, dict[str, list[Fared]]]) -> NamesResult:
    """A language model's names, each with how far it agrees with the rule of the same subject."""
    made = []
    for number, one in enumerate(by_llm.signals):
        holds = [results[giver]["names"][number].tried.holds for giver in ("rules", "llm")]
        same = None
        if holds[0] is not None and holds[1] is not None:
            kinds: tuple[CellKind, ...] = ("positive", "own", "random", "matched")
            cells = Cells.joined([cases.cells(cases.test, kind, number) for kind in kinds])
            same = kappa(holds[0](cells), holds[1](cells))
        made.append(replace(one, agreement=same))
    return replace(by_llm, signals=tuple(made))
