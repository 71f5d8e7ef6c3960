"""All predicates together, and how one is found again by its id."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from dataclasses import replace
from functools import lru_cache, partial

import numpy as np

from headwise.errors import HeadwiseError
from headwise.naming.cells import Cells
from headwise.naming.predicates import (
    characters,
    classes,
    context,
    distance,
    places,
    punctuation,
    repetition,
)
from headwise.naming.predicates.lexicon import NOTHING, Lexicon
from headwise.naming.predicates.predicate import (
    TYPES,
    Places,
    Predicate,
    Property,
    Slot,
    noun,
    of_token,
    priced,
)
from headwise.naming.texts import Texts
from headwise.strings import shortened

SHARE = 0.01
"""A token or word is a predicate of its own if it is in this share of the cells."""
LONGEST = 200
"""Characters of the longest id that is read."""
_SLOTS: tuple[Slot, Slot] = ("destination", "source")


@lru_cache(maxsize=1)
def _built_in() -> tuple[Predicate, ...]:
    """Everything that needs no list from outside, without prices."""
    known = [
        *characters.properties(),
        *punctuation.properties(),
        *classes.properties(),
        *places.properties(),
        *repetition.properties(),
    ]
    before, after = context.neighbours(known)
    made = [of_token(slot, what) for slot in _SLOTS for what in (*known, *before)]
    # What follows the destination is not there yet when a model reads from left to right.
    made += [of_token("source", what) for what in after]
    made += context.absences(known)
    for room in (punctuation, places, repetition, distance):
        made += room.relations()
    return tuple(made)


def library(lexicon: Lexicon = NOTHING) -> tuple[Predicate, ...]:
    """Every predicate that does not depend on the cells at hand, in a fixed order."""
    return _library(lexicon)


@lru_cache(maxsize=8)
def _library(lexicon: Lexicon) -> tuple[Predicate, ...]:
    made = _built_in()
    more = [of_token(slot, what) for slot in _SLOTS for what in classes.listed_properties(lexicon)]
    return priced([*made, *more])


def library_digest(lexicon: Lexicon = NOTHING) -> str:
    """SHA-256 of the ids and words of the library: runs with another library are other runs."""
    said = "\n".join(f"{one.id}\t{one.phrase.yes}\t{one.cost:.6f}" for one in library(lexicon))
    return hashlib.sha256(f"{said}\n{lexicon.digest}".encode()).hexdigest()


# --- identities ----------------------------------------------------------------------------------------------------


def _is_token(text: str, texts: Texts) -> np.ndarray:
    number = texts.derived(_numbers_of_strings).get(text, -1)
    return texts.string == number


def _numbers_of_strings(texts: Texts) -> dict[str, int]:
    return {one: at for at, one in enumerate(texts.strings)}


def _numbers_of_words(texts: Texts) -> dict[str, int]:
    return {one: at for at, one in enumerate(texts.lowered[0])}


def _is_word(text: str, texts: Texts) -> np.ndarray:
    number = texts.derived(_numbers_of_words).get(text, -1) if text else -1
    return texts.lower == number


def quoted(text: str) -> str:
    r"""A token or word inside a name, on one line and with nothing in it that could be taken for the name's own words.

    >>> print(quoted(" the"), quoted("\n"), quoted("a*b"))
    “ the” “\n” “a*b”
    """
    return f"“{shortened(repr(text)[1:-1], 40)}”"


def token_is(slot: Slot, text: str) -> Predicate:
    """The token itself, exactly."""
    what = Property(f"token={text}", "token", noun(f"the token {quoted(text)}"), partial(_is_token, text))
    return of_token(slot, what)


def word_is(slot: Slot, text: str) -> Predicate:
    """The word in lower case."""
    what = Property(f"word={text}", "word", noun(f"the word {quoted(text)}"), partial(_is_word, text))
    return of_token(slot, what)


def identities(texts: Texts, cells: Cells, share: float = SHARE) -> tuple[Predicate, ...]:
    """Tokens and words that are the destination or the source of at least this share of the cells."""
    least = max(2.0, share * len(cells))
    at = Places(texts, cells)
    made: list[Predicate] = []
    for slot in _SLOTS:
        where = at.destination if slot == "destination" else at.source
        words = [w for w in _frequent(texts.lower[where], texts.lowered[0], least) if w[:1].isalnum()]
        tokens = _frequent(texts.string[where], texts.strings, least)
        made += [word_is(slot, one) for one in words]
        # A token that is a whole word in one spelling says no more than the word.
        made += [token_is(slot, one) for one in tokens if one.strip().lower() not in words]
    # At least what it takes to point at one of the tokens that could have been frequent enough.
    return tuple(replace(one, cost=max(one.cost, math.log(TYPES / share))) for one in priced(made))


def _frequent(numbers: np.ndarray, strings: tuple[str, ...], least: float) -> list[str]:
    found, counts = np.unique(numbers, return_counts=True)
    kept = [
        (-count, strings[one])
        for one, count in zip(found.tolist(), counts.tolist(), strict=True)
        if count >= least
    ]
    return [text for _, text in sorted(kept)]


# --- by id ---------------------------------------------------------------------------------------------------------


def by_id(wanted: str, lexicon: Lexicon = NOTHING) -> Predicate:
    """The predicate of this id.

    >>> by_id("source.comma").phrase.yes
    'a comma'
    >>> by_id("source.word=the").phrase.yes
    'the word “the”'
    >>> by_id("source.purple")
    Traceback (most recent call last):
    ...
    headwise.errors.HeadwiseError: there is no predicate 'source.purple' (closest: ...)
    """
    slot, _, what = wanted.partition(".")
    kind, has_value, value = what.partition("=")
    if slot in _SLOTS and has_value and value and len(wanted) <= LONGEST:
        if kind == "token":
            return token_is("destination" if slot == "destination" else "source", value)
        if kind == "word":
            return word_is("destination" if slot == "destination" else "source", value)
    for one in library(lexicon):
        if one.id == wanted:
            return one
    if kind == "list":
        raise HeadwiseError(
            f"the word list {shortened(value)!r} is not at hand: give it with words=, or install headwise[words]"
        )
    raise HeadwiseError(f"there is no predicate {shortened(wanted)!r} (closest: {_closest(wanted)})")


def _closest(wanted: str) -> str:
    import difflib

    ids = [one.id for one in library()]
    return difflib.get_close_matches(wanted[:LONGEST], ids, n=1, cutoff=0.0)[0]


def sizes(lexicon: Lexicon = NOTHING) -> Counter[str]:
    """How many predicates there are of each type."""
    return Counter(one.kind for one in library(lexicon))
