"""Classes and categories of words: closed classes by table, open ones by lists."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from headwise.naming.predicates.characters import is_capitalised, is_letters, of_word
from headwise.naming.predicates.lexicon import Lexicon
from headwise.naming.predicates.predicate import Property, noun
from headwise.naming.predicates.tables import (
    CATEGORY,
    CLASSES,
    FIRST_NAMES,
    FUNCTION,
    PLACES,
    PROPER,
)


def _in_lower(words: frozenset[str], word: str) -> bool:
    return word.lower() in words


def _in_proper(words: frozenset[str], word: str) -> bool:
    return word[:1].isupper() and word.lower() in words


def _in_exact(words: frozenset[str], word: str) -> bool:
    return word in words


def _in_plural(words: frozenset[str], word: str) -> bool:
    lower = word.lower()
    return lower in words or (lower.endswith("s") and lower[:-1] in words)


def _is_content(word: str) -> bool:
    return is_letters(word) and word.lower() not in FUNCTION


def _is_inner_name(word: str) -> bool:
    return is_capitalised(word) and len(word) > 1 and word.lower() not in FUNCTION


def properties() -> list[Property]:
    """Closed classes and the categories that headwise has lists of."""
    classes: list[tuple[str, str, Callable[[str], bool]]] = [
        (name, said, partial(_in_proper if name in PROPER else _in_lower, words))
        for name, (said, words) in CLASSES.items()
    ]
    classes += [
        ("function-word", "a function word", partial(_in_lower, FUNCTION)),
        ("content-word", "a content word", _is_content),
        ("and", "*and* or *or*", partial(_in_lower, frozenset({"and", "or", "&"}))),
    ]
    categories: list[tuple[str, str, Callable[[str], bool]]] = [
        ("name", "a name", partial(_in_exact, FIRST_NAMES)),
        ("place", "a place name", partial(_in_exact, PLACES)),
        ("proper", "a capitalised content word", _is_inner_name),
        *((name, said, partial(_in_plural, words)) for name, (said, words) in CATEGORY.items()),
    ]
    return [
        *(Property(f"class={name}", "class", noun(said), of_word(test)) for name, said, test in classes),
        *(
            Property(f"category={name}", "category", noun(said), of_word(test))
            for name, said, test in categories
        ),
    ]


def listed_properties(lexicon: Lexicon) -> list[Property]:
    """Lists from outside: the user's, textblob's, WordNet's."""
    return [
        Property(
            f"list={name}",
            "list",
            noun(lexicon.said[name]),
            of_word(partial(_in_proper if name == "proper-noun" else _in_lower, words)),
            digest=lexicon.digest_of(name),
        )
        for name, words in sorted(lexicon.lists.items())
    ]
