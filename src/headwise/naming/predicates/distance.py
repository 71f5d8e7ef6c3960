"""How far the source is from the destination, in tokens and in words."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from headwise.naming.predicates.predicate import Places, Predicate, sentence

Exact = Callable[[Places], np.ndarray]


def _is(distance: int) -> Exact:
    return lambda places: places.destination - places.source == distance


def _at_most(distance: int) -> Exact:
    return lambda places: places.destination - places.source <= distance


def _at_least(distance: int) -> Exact:
    return lambda places: places.destination - places.source >= distance


def _same_word(places: Places) -> np.ndarray:
    place = places.texts.place
    return places.earlier & (place[places.destination] >= 0) & _places_apart(places, 0)


def _places_apart(places: Places, words: int) -> np.ndarray:
    place = places.texts.place
    d, s = place[places.destination], place[places.source]
    return (d >= 0) & (s >= 0) & (d - s == words)


def _previous_word(places: Places) -> np.ndarray:
    return _places_apart(places, 1)


def relations() -> list[Predicate]:
    """Distances; all of them follow from positions alone, except for those in words."""
    table: list[tuple[str, str, str, Exact]] = [
        (
            "distance=0",
            "the source is the destination itself",
            "the source is not the destination itself",
            _is(0),
        ),
        ("distance=1", "the source is the previous token", "the source is not the previous token", _is(1)),
        ("distance=2", "the source is two tokens back", "the source is not two tokens back", _is(2)),
        ("distance=3", "the source is three tokens back", "the source is not three tokens back", _is(3)),
        (
            "distance<=4",
            "the source is at most 4 tokens back",
            "the source is more than 4 tokens back",
            _at_most(4),
        ),
        (
            "distance>=16",
            "the source is at least 16 tokens back",
            "the source is less than 16 tokens back",
            _at_least(16),
        ),
        (
            "previous-word",
            "the source is in the word before the destination's",
            "the source is not in the word before the destination's",
            _previous_word,
        ),
        (
            "same-place",
            "the source is an earlier part of the destination's word",
            "the source is not an earlier part of the destination's word",
            _same_word,
        ),
    ]
    return [
        Predicate(f"relation.{name}", "relation", "relation distance", sentence(yes, no), ask, True)
        for name, yes, no, ask in table
    ]
