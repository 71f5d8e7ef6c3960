"""Punctuation: which sign a token is, which bracket or quote answers which, and what lies inside them."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from headwise.naming.predicates.characters import of_string, of_word
from headwise.naming.predicates.predicate import (
    Mask,
    Phrase,
    Places,
    Predicate,
    Property,
    clause,
    noun,
    sentence,
)
from headwise.naming.texts import Texts

OPENING = {"(": ")", "[": "]", "{": "}", "（": "）", "「": "」"}
CLOSING = {close: opening for opening, close in OPENING.items()}
QUOTES = {"“": "”", "‘": "’", "«": "»", "„": "“"}
STRAIGHT = '"`'
OPERATORS = frozenset("+-*/=<>%&|^~@!")


def _is_sign(sign: str) -> bool:
    return unicodedata.category(sign)[0] in "PS"


def is_punctuation(token: str) -> bool:
    """
    >>> [is_punctuation(token) for token in (",", " (", "):", "a,", " ", "")]
    [True, True, True, False, False, False]
    """
    bare = token.strip()
    return bool(bare) and all(_is_sign(sign) for sign in bare)


def _begins_with(signs: str) -> Callable[[str], bool]:
    return lambda token: is_punctuation(token) and token.strip()[0] in signs


def _holds(signs: str) -> Callable[[str], bool]:
    return lambda token: is_punctuation(token) and any(sign in signs for sign in token)


def _is_operator(token: str) -> bool:
    bare = token.strip()
    return bool(bare) and all(sign in OPERATORS for sign in bare) and bare != "!"


@dataclass(frozen=True, eq=False)
class Enclosures:
    """Which token answers which bracket or quote, and which one is open around a token; -1 for none."""

    partner: np.ndarray
    """[tokens]: where the token is that opens or closes what this one closes or opens."""
    bracket: np.ndarray
    """[tokens]: where the innermost bracket around a token was opened."""
    quote: np.ndarray
    """[tokens]: where the quote around a token was opened."""


def enclosures(texts: Texts) -> Enclosures:
    """Brackets and quotes of all texts. One that is never closed reaches to the end of its text."""
    partner, bracket, quote = (np.full(texts.tokens, -1, dtype=np.int64) for _ in range(3))
    for text, raw in enumerate(texts.raw):
        if not any(sign in raw for sign in (*OPENING, *CLOSING, *QUOTES, *STRAIGHT)):
            continue
        first, end = texts.starts[text], texts.starts[text + 1]
        pairs = _pairs(raw)
        spans = texts.spans[first:end]
        owner = _owners(spans, len(raw), int(first))
        for opened, closed, is_bracket in pairs:
            a = owner[opened]
            b = owner[closed] if closed < len(raw) else end
            if a < 0 or b < 0:
                continue  # beyond the tokens that are read
            inside = slice(a + 1, b)
            (bracket if is_bracket else quote)[inside] = a  # inner pairs come later and take over
            if closed < len(raw) and a != b:
                for one, other in ((a, b), (b, a)):
                    partner[one] = other if partner[one] < 0 else partner[one]
    return Enclosures(partner, bracket, quote)


def _owners(spans: np.ndarray, characters: int, first: int) -> list[int]:
    """The token that covers each character of a text; the first one where several share it."""
    owner = [-1] * characters
    for at in range(len(spans) - 1, -1, -1):
        start, end = spans[at]
        owner[start:end] = [first + at] * (end - start)
    return owner


def _pairs(raw: str) -> list[tuple[int, int, bool]]:
    """(opened at, closed at, whether brackets) in the order of opening; never closed: closed at the end.

    >>> _pairs('f(x, "a)", [1])')
    [(1, 14, True), (5, 8, False), (11, 13, True)]
    """
    found: list[tuple[int, int, bool]] = []
    stack: list[tuple[int, str]] = []
    quote: tuple[int, str] | None = None
    for at, sign in enumerate(raw):
        if quote is not None:
            if sign == quote[1]:
                found.append((quote[0], at, False))
                quote = None
        elif sign in OPENING:
            stack.append((at, OPENING[sign]))
        elif sign in CLOSING:
            if stack and stack[-1][1] == sign:
                found.append((stack.pop()[0], at, True))
        elif sign in QUOTES:
            quote = (at, QUOTES[sign])
        elif sign in STRAIGHT or (sign == "'" and _opens(raw, at)):
            quote = (at, sign)
    found += [(at, len(raw), True) for at, _ in stack]
    return sorted(found)


def _opens(raw: str, at: int) -> bool:
    """Whether an apostrophe opens a quote: white space or an opening bracket before it, a closing one to come."""
    before = raw[at - 1] if at else " "
    return (
        (before.isspace() or before in OPENING)
        and raw[at + 1 : at + 2].strip() != ""
        and "'" in raw[at + 1 :]
    )


def _inside_brackets(texts: Texts) -> np.ndarray:
    return texts.derived(enclosures).bracket >= 0


def _inside_quotes(texts: Texts) -> np.ndarray:
    return texts.derived(enclosures).quote >= 0


def properties() -> list[Property]:
    """Which sign a token is, and what it is inside of."""
    signs: list[tuple[str, str, Callable[[str], bool]]] = [
        ("punctuation", "a punctuation mark", is_punctuation),
        ("sentence-end", "a sign that ends a sentence", _begins_with(".!?。！？")),
        ("comma", "a comma", _begins_with(",，、")),
        ("colon", "a colon", _begins_with(":：")),
        ("semicolon", "a semicolon", _begins_with(";")),
        ("opening-bracket", "an opening bracket", _holds("".join(OPENING))),
        ("closing-bracket", "a closing bracket", _holds("".join(CLOSING))),
        ("quote-mark", "a quotation mark", _holds("".join((*QUOTES, *QUOTES.values(), *STRAIGHT, "'")))),
        ("dash", "a dash or hyphen", _begins_with("-–—")),
        ("slash", "a slash", _begins_with("/\\")),
        ("operator", "an operator", _is_operator),
    ]
    made = [Property(name, "punctuation", noun(said), of_string(test)) for name, said, test in signs]
    made.append(Property("row", "punctuation", noun("a row of the same sign"), of_word(_is_row)))
    inside: list[tuple[str, Phrase, Mask]] = [
        ("in-brackets", clause("is inside brackets", "is not inside brackets"), _inside_brackets),
        ("in-quotes", clause("is inside quotation marks", "is not inside quotation marks"), _inside_quotes),
    ]
    return [*made, *(Property(name, "enclosure", phrase, mask) for name, phrase, mask in inside)]


def _is_row(word: str) -> bool:
    return len(word) > 2 and len(set(word)) == 1 and _is_sign(word[0])


def _matches(places: Places) -> np.ndarray:
    return places.texts.derived(enclosures).partner[places.destination] == places.source


def _opened_bracket(places: Places) -> np.ndarray:
    return places.texts.derived(enclosures).bracket[places.destination] == places.source


def _opened_quote(places: Places) -> np.ndarray:
    return places.texts.derived(enclosures).quote[places.destination] == places.source


def _same_enclosure(places: Places) -> np.ndarray:
    found = places.texts.derived(enclosures)
    together = np.zeros(len(places.cells), dtype=bool)
    for opened in (found.bracket, found.quote):
        at = opened[places.destination]
        together |= (at >= 0) & (at == opened[places.source])
    return together


def relations() -> list[Predicate]:
    """How the two tokens stand to the same brackets or quotes."""
    table: list[tuple[str, str, str, Callable[[Places], np.ndarray]]] = [
        (
            "matching",
            "the source is the bracket or quotation mark that the destination answers",
            "the source is not the bracket or quotation mark that the destination answers",
            _matches,
        ),
        (
            "opened-bracket",
            "the source is the bracket that is open around the destination",
            "the source is not the bracket that is open around the destination",
            _opened_bracket,
        ),
        (
            "opened-quote",
            "the source is the quotation mark that is open around the destination",
            "the source is not the quotation mark that is open around the destination",
            _opened_quote,
        ),
        (
            "same-enclosure",
            "both are inside the same brackets or quotation marks",
            "the two are not inside the same brackets or quotation marks",
            _same_enclosure,
        ),
    ]
    return [
        Predicate(f"relation.{name}", "relation", "relation enclosure", sentence(yes, no), ask)
        for name, yes, no, ask in table
    ]
