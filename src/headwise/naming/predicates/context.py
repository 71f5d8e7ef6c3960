"""What is around a token: its neighbours, and whether another token could be taken for it.

*Absence* is what a distractor breaks: the source is the **only** name so far, or the **last** one. Words are counted,
not tokens, so a name of two tokens is one.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import numpy as np

from headwise.naming.predicates.predicate import Mask, Places, Predicate, Property, clause, noun
from headwise.naming.texts import Texts

NEIGHBOURS = (
    "newline",
    "comma",
    "sentence-end",
    "colon",
    "opening-bracket",
    "closing-bracket",
    "quote-mark",
    "dash",
    "operator",
    "number",
    "capitalised",
    "class=article",
    "class=preposition",
    "class=pronoun",
    "class=possessive",
    "class=auxiliary",
    "class=conjunction",
    "class=and",
    "class=content-word",
    "category=name",
)
"""Properties that a token's neighbours are asked about."""
SINGLED = (
    "newline",
    "comma",
    "sentence-end",
    "opening-bracket",
    "quote-mark",
    "number",
    "capitalised",
    "class=article",
    "class=preposition",
    "class=pronoun",
    "class=auxiliary",
    "class=and",
    "class=month",
    "class=negation",
    "category=name",
    "category=place",
    "category=proper",
    "category=number-word",
)
"""Properties of which a source may be the only, the last or the first one so far."""


def _said(what: Property) -> str:
    """A property as a noun phrase."""
    return what.phrase.yes if what.phrase.form == "noun" else f"a {what.phrase.yes} word"


def _bare(what: Property) -> str:
    return _said(what).split(" ", 1)[1] if _said(what).split(" ", 1)[0] in ("a", "an") else _said(what)


def _moved(mask: Mask, by: int, texts: Texts) -> np.ndarray:
    """[tokens]: what is true of the token ``by`` further in the same text; false where there is none."""
    values = mask(texts)
    found = np.zeros_like(values)
    if by < 0:
        found[-by:] = values[:by]
        return found & (texts.position >= -by)
    found[:-by] = values[by:]
    left = texts.starts[texts.text + 1] - np.arange(texts.tokens) if texts.tokens else np.zeros(0)
    return found & (left > by)


def neighbours(known: Iterable[Property]) -> tuple[list[Property], list[Property]]:
    """What the token before is, and what the token after is."""
    by_id = {one.id: one for one in known}
    before, after = [], []
    for name in NEIGHBOURS:
        what = by_id[name]
        said = _said(what)
        follows = clause(f"follows {said}", f"does not follow {said}")
        precedes = clause(f"is followed by {said}", f"is not followed by {said}")
        before.append(Property(f"after:{name}", "context", follows, partial(_moved, what.mask, -1)))
        after.append(Property(f"before:{name}", "context", precedes, partial(_moved, what.mask, 1)))
    return before, after


def _counted(mask: Mask, texts: Texts) -> tuple[np.ndarray, np.ndarray]:
    """The mask, and how many words it is true of before each token of all texts."""
    values = mask(texts)
    words = values & (texts.begins | (texts.place < 0))
    return values, np.concatenate([[0], np.cumsum(words)])


def _is_only(mask: Mask, places: Places) -> np.ndarray:
    values, before = _counted(mask, places.texts)
    return values[places.source] & (before[places.destination + 1] - before[places.start] == 1)


def _is_last(mask: Mask, places: Places) -> np.ndarray:
    values, before = _counted(mask, places.texts)
    return values[places.source] & (before[places.destination + 1] == before[places.source + 1])


def _is_first(mask: Mask, places: Places) -> np.ndarray:
    values, before = _counted(mask, places.texts)
    return values[places.source] & (before[places.source + 1] - before[places.start] == 1)


def absences(known: Iterable[Property]) -> list[Predicate]:
    """The source is the only, the last or the first of its kind that the destination sees."""
    by_id = {one.id: one for one in known}
    made = []
    for name in SINGLED:
        what = by_id[name]
        for order, ask in (("only", _is_only), ("last", _is_last), ("first", _is_first)):
            phrase = noun(f"the {order} {_bare(what)} so far")
            made.append(
                Predicate(
                    f"source.{order}:{name}",
                    "source",
                    "source absence",
                    phrase,
                    partial(ask, what.mask),
                    True,
                )
            )
    return made
