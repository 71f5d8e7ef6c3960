"""What a contrast is: labelled positions in prompts, and labels to split and colour them by."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from hashlib import sha256
from typing import Any, Literal

from headwise.errors import HeadwiseError
from headwise.strings import natural
from headwise.tasks.clusters import LEAST, NAMES, Clusters, clusters_of

HeadRule = Literal["accuracy", "ratio"]


@dataclass(frozen=True)
class Example:
    """One prompt of a contrast. Positions count tokens; keys are the positive ones, then the negative ones.

    ``groups`` labels the prompt (entity, template, order …), ``key_groups`` its keys, one label a key.
    ``answers`` is the token that the model would say if it chose a key, one per key. With ``other`` the
    negative keys stand in that counterfactual prompt, and ``other_query`` is the position that reads them
    there (None: they are paired with the query of the prompt itself, a triplet). ``swap`` names an original
    and a target key, and ``partner`` the example of the same contrast whose query asks for the target; ``about`` are
    the features that the swap involves (none named: every feature).

    >>> Example((5, 6, 7), query=2, positive=(0,), negative=(1,)).keys
    (0, 1)
    >>> Example((5, 6, 7), query=2, positive=(0,), negative=())
    Traceback (most recent call last):
    ...
    headwise.errors.HeadwiseError: the negative set is empty: give at least one position
    """

    tokens: tuple[int, ...]
    query: int
    positive: tuple[int, ...]
    negative: tuple[int, ...]
    groups: Mapping[str, str] = field(default_factory=dict)
    key_groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    answers: tuple[int, ...] = ()
    other: tuple[int, ...] | None = None
    other_query: int | None = None
    swap: tuple[int, int] | None = None
    partner: int | None = None
    about: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        read = self.tokens if self.other is None else self.other
        reader = self.query if self.other is None else self.other_query
        _inside("query", self.query, self.tokens)
        if self.other_query is not None:
            _inside("query of the counterfactual prompt", self.other_query, read)
        for name, keys, tokens, row in (
            ("positive", self.positive, self.tokens, self.query),
            ("negative", self.negative, read, reader),
        ):
            if not keys:
                raise HeadwiseError(f"the {name} set is empty: give at least one position")
            for key in keys:
                _inside(f"{name} position", key, tokens)
                if row is not None and key > row:
                    raise HeadwiseError(f"{name} position {key} comes after query {row}, which cannot see it")
        both = sorted(set(self.positive) & set(self.negative)) if self.other is None else []
        if both:
            raise HeadwiseError(f"position {both[0]} is both positive and negative: put it in one set")

    @property
    def keys(self) -> tuple[int, ...]:
        return (*self.positive, *self.negative)


def _inside(what: str, position: int, tokens: Sequence[int]) -> None:
    if not 0 <= position < len(tokens):
        raise HeadwiseError(f"{what} {position} is outside the prompt, which has {len(tokens)} tokens")


@dataclass(frozen=True)
class Contrast:
    """Examples of one feature. ``varies`` names the group whose values the query takes: it bounds the rank."""

    name: str
    examples: tuple[Example, ...]
    varies: str | None = None

    def __post_init__(self) -> None:
        if not self.examples:
            raise HeadwiseError(f"contrast {self.name!r} has no prompts")

    def __len__(self) -> int:
        return len(self.examples)

    @property
    def distinct(self) -> int | None:
        """Number of distinct query values that the design holds, if it says so."""
        return len({e.groups[self.varies] for e in self.examples}) if self.varies else None

    def clusters(self, *, names: Sequence[str] = NAMES, least: int = LEAST) -> Clusters:
        """Which prompts belong together, and are resampled, flipped and split as one."""
        partners = [e.partner for e in self.examples]
        return clusters_of([e.groups for e in self.examples], partners, names=names, least=least)

    def values(self, group: str) -> list[str]:
        """The values of a group, sorted (numbers by size)."""
        found = {e.groups[group] for e in self.examples if group in e.groups}
        return sorted(found, key=natural)

    def __repr__(self) -> str:
        return f"Contrast({self.name!r}, {len(self)} prompts, {len(self.examples[0].keys)} keys)"


@dataclass(frozen=True)
class Task:
    """Everything one study needs: prompts to find heads, to fit features, and to test them on what is held
    out.

    ``rule`` ranks heads: by the share of prompts in which the right key gets most attention, or by attention
    on positive over attention on negative keys. ``unions`` names joint features. ``held_out`` are the groups
    that must not be shared by fitting and testing prompts; ``colours`` the groups to colour pictures by.
    """

    name: str
    rule: HeadRule
    scan: Contrast
    fits: tuple[Contrast, ...]
    test: Contrast
    unions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    held_out: tuple[str, ...] = ()
    colours: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, object] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """Every feature the task has: the fitted ones, then the unions."""
        return (*(c.name for c in self.fits), *self.unions)

    def involved(self, name: str) -> list[int]:
        """The test prompts whose swap involves a feature; for a union those of all its parts.

        A prompt that names no features is about each of them; where no prompt is about a feature, all are taken.
        """
        parts = {name, *self.unions.get(name, ())}
        every = self.test.examples
        return [i for i, e in enumerate(every) if not e.about or parts & set(e.about)] or list(
            range(len(every))
        )

    def scanning_everything(self) -> Task:
        """The same task with all of its labelled prompts to find heads on: nothing need be held out for that."""
        return replace(self, scan=replace(self.scan, examples=(*self.scan.examples, *self.test.examples)))

    @property
    def digest(self) -> str:
        """SHA-256 of all that a study reads of the task: other examples under the same name are another task."""
        stages = [
            [c.name, c.varies, *([_plain(getattr(e, f.name)) for f in fields(e)] for e in c.examples)]
            for c in (self.scan, *self.fits, self.test)
        ]
        # As a list: the order of the unions is the order of the features.
        unions = list(_plain(self.unions).items())
        whole = [stages, self.rule, unions, self.held_out, _plain(self.colours)]
        return sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()

    def __repr__(self) -> str:
        fits = ", ".join(f"{c.name} {len(c)}" for c in self.fits)
        return f"Task({self.name!r}: scan {len(self.scan)}, fit {fits}, test {len(self.test)} prompts)"


def _plain(value: object) -> Any:
    return dict(value) if isinstance(value, Mapping) else value


TaskMaker = Callable[..., Task]
