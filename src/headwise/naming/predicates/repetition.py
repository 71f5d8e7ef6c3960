"""Copies: tokens and words that occur again, and what follows or precedes an earlier copy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from headwise.naming.predicates.predicate import Places, Predicate, Property, clause, sentence
from headwise.naming.texts import Texts

PREFIX = 4
"""Words with so many first letters in common have the same beginning."""


def _keys(texts: Texts) -> np.ndarray:
    """[tokens]: words in lower case where a token begins one, else the token itself; equal for copies."""
    return np.where(texts.begins, texts.lower, len(texts.lowered[0]) + texts.string).astype(np.int64)


def previous_copy(texts: Texts) -> np.ndarray:
    """[tokens]: where the last earlier copy of each token is in its text, -1 for none. Case does not matter."""
    return _before(texts, _keys(texts))


def copies_before(texts: Texts) -> np.ndarray:
    """[tokens]: how many earlier copies each token has in its text."""
    previous, count = texts.derived(previous_copy), np.zeros(texts.tokens, dtype=np.int32)
    for at in np.flatnonzero(previous >= 0).tolist():  # in order, so that an earlier copy is counted already
        count[at] = count[previous[at]] + 1
    return count


def _before(texts: Texts, keys: np.ndarray) -> np.ndarray:
    found = np.full(texts.tokens, -1, dtype=np.int64)
    order = np.lexsort((np.arange(texts.tokens), keys, texts.text))
    if len(order) > 1:
        one, other = order[:-1], order[1:]
        same = (keys[one] == keys[other]) & (texts.text[one] == texts.text[other])
        found[other[same]] = one[same]
    return found


def properties() -> list[Property]:
    """Whether a token has occurred before in its text."""
    table: list[tuple[str, str, str, Callable[[Texts], np.ndarray]]] = [
        ("seen", "has occurred before", "has not occurred before", lambda t: t.derived(copies_before) >= 1),
        (
            "seen-twice",
            "has occurred at least twice before",
            "has not occurred twice before",
            lambda t: t.derived(copies_before) >= 2,
        ),
    ]
    return [Property(name, "copy", clause(yes, no), mask, True) for name, yes, no, mask in table]


# --- relations -----------------------------------------------------------------------------------------------------


def _equal(values: np.ndarray, one: np.ndarray, other: np.ndarray) -> np.ndarray:
    return values[one] == values[other]


def _same_token(places: Places) -> np.ndarray:
    return places.earlier & _equal(places.texts.string, places.destination, places.source)


def _same_word(places: Places) -> np.ndarray:
    texts, d, s = places.texts, places.destination, places.source
    return (texts.lower[d] > 0) & _equal(texts.lower, d, s) & (texts.place[d] != texts.place[s])


def _same_beginning(places: Places) -> np.ndarray:
    texts, d, s = places.texts, places.destination, places.source
    stems = texts.derived(_stems)[texts.word]
    return (stems[d] > 0) & _equal(stems, d, s) & ~_equal(texts.lower, d, s)


def _stems(texts: Texts) -> np.ndarray:
    """[words]: the number of a word's first letters, 0 for words too short to have some."""
    known = {"": 0}
    heads = [word.lower()[:PREFIX] if len(word) > PREFIX and word.isalpha() else "" for word in texts.words]
    return np.array([known.setdefault(head, len(known)) for head in heads], dtype=np.int32)


def _step(places: Places, at: np.ndarray, by: int) -> tuple[np.ndarray, np.ndarray]:
    """Where the token ``by`` further is, and whether it is in the same text."""
    moved = at + by
    inside = (moved >= places.start) & (moved < places.texts.starts[places.cells.text + 1])
    return np.where(inside, moved, at), inside


def _after_copy(places: Places) -> np.ndarray:
    before, inside = _step(places, places.source, -1)
    keys = places.texts.derived(_keys)
    return inside & places.earlier & _equal(keys, before, places.destination)


def _before_copy(places: Places) -> np.ndarray:
    after, inside = _step(places, places.source, 1)
    keys = places.texts.derived(_keys)
    return inside & (after < places.destination) & _equal(keys, after, places.destination)


def _same_predecessor(places: Places) -> np.ndarray:
    one, inside = _step(places, places.destination, -1)
    other, within = _step(places, places.source, -1)
    return inside & within & places.earlier & _equal(places.texts.derived(_keys), one, other)


def _last_copy(places: Places) -> np.ndarray:
    return places.texts.derived(previous_copy)[places.destination] == places.source


def _first_copy(places: Places) -> np.ndarray:
    texts = places.texts
    keys = texts.derived(_keys)
    first = texts.derived(copies_before)[places.source] == 0
    return places.earlier & first & _equal(keys, places.destination, places.source)


def _repeated(places: Places) -> np.ndarray:
    """The source occurs again after itself and not after the destination."""
    following = places.texts.derived(_next_copy)[places.source]
    return (following >= 0) & (following <= places.destination)


def _next_copy(texts: Texts) -> np.ndarray:
    previous = texts.derived(previous_copy)
    found = np.full(texts.tokens, -1, dtype=np.int64)
    has = np.flatnonzero(previous >= 0)
    found[previous[has]] = has
    return found


def relations() -> list[Predicate]:
    """How the source is a copy of the destination, or next to one."""
    table: list[tuple[str, str, str, Callable[[Places], np.ndarray], bool]] = [
        (
            "same-token",
            "the source is an earlier copy of the destination's token",
            "the source is not an earlier copy of the destination's token",
            _same_token,
            False,
        ),
        (
            "same-word",
            "the source is an earlier copy of the destination's word",
            "the source is not an earlier copy of the destination's word",
            _same_word,
            False,
        ),
        (
            "same-beginning",
            "the two are different words with the same beginning",
            "the two are not different words with the same beginning",
            _same_beginning,
            False,
        ),
        (
            "after-copy",
            "the source follows an earlier copy of the destination",
            "the source does not follow an earlier copy of the destination",
            _after_copy,
            False,
        ),
        (
            "before-copy",
            "the source precedes an earlier copy of the destination",
            "the source does not precede an earlier copy of the destination",
            _before_copy,
            False,
        ),
        (
            "same-predecessor",
            "the source follows a copy of the token before the destination",
            "the source does not follow a copy of the token before the destination",
            _same_predecessor,
            False,
        ),
        (
            "last-copy",
            "the source is the last earlier copy of the destination",
            "the source is not the last earlier copy of the destination",
            _last_copy,
            False,
        ),
        (
            "first-copy",
            "the source is the first copy of the destination",
            "the source is not the first copy of the destination",
            _first_copy,
            False,
        ),
        (
            "repeated",
            "the source occurs again up to the destination",
            "the source does not occur again up to the destination",
            _repeated,
            True,
        ),
    ]
    return [
        Predicate(f"relation.{name}", "relation", "relation copy", sentence(yes, no), ask, positional)
        for name, yes, no, ask, positional in table
    ]
