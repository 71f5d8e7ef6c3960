"""Where a token is: in its text, sentence and line, and in a list or a pair joined by *and*."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from headwise.naming.predicates.characters import is_letters
from headwise.naming.predicates.predicate import Places, Predicate, Property, clause, frame, sentence
from headwise.naming.predicates.tables import ABBREVIATIONS, CLASSES, FUNCTION
from headwise.naming.texts import Texts

BINS = ((0, 0), (1, 3), (4, 15), (16, 63), (64, None))
"""Absolute positions, first and last of each bin."""
ITEM = 3
"""An item of a list has at most so many words."""
_ENDS = frozenset(".!?。！？")
_CLOSERS = frozenset("\"'”’)]»")
_JOINS = frozenset({"and", "or", "&"})
_OPENERS = CLASSES["article"][1] | CLASSES["possessive"][1]


# --- sentences and lines -------------------------------------------------------------------------------------------


def sentences(texts: Texts) -> np.ndarray:
    """[tokens]: the number of a token's sentence among those of its text."""
    number = np.zeros(len(texts.word_kinds), dtype=np.int32)
    spans, current, ended, last = texts.word_spans.tolist(), 0, False, -1
    for at, (kind, text) in enumerate(zip(texts.word_kinds.tolist(), texts.word_texts.tolist(), strict=True)):
        word = texts.words[kind]
        if text != last:
            current, ended, last = 0, False, text
        elif ended and word not in _CLOSERS:
            between = texts.raw[text][spans[at - 1][1] : spans[at][0]]
            # "3.5" and "e.g." do not end a sentence: white space must follow the stop, and no small letter.
            current += bool(between) and not word[:1].islower()
            ended = False
        elif "\n\n" in texts.raw[text][spans[at - 1][1] : spans[at][0]]:
            current += 1
        if word[0] in _ENDS:
            before = (
                texts.words[texts.word_kinds[at - 1]].lower()
                if at and texts.word_texts[at - 1] == text
                else ""
            )
            ended = word != "." or before not in ABBREVIATIONS
        number[at] = current
    return _to_tokens(texts, number, 0)


def lines(texts: Texts) -> np.ndarray:
    """[tokens]: the number of a token's line; a line break belongs to the line that it ends."""
    number = np.zeros(texts.tokens, dtype=np.int32)
    for text, raw in enumerate(texts.raw):
        breaks = [at for at, sign in enumerate(raw) if sign == "\n"]
        if breaks:
            part = slice(texts.starts[text], texts.starts[text + 1])
            spans, place = texts.spans[part], texts.place[part]
            words = texts.word_spans[place, 0]
            number[part] = np.searchsorted(breaks, np.where(place >= 0, words, spans[:, 0]))
    return number


def _to_tokens(texts: Texts, of_words: np.ndarray, nothing: int) -> np.ndarray:
    """Values of words as values of tokens; a token without a word has that of the token before it in its text."""
    known = np.where(texts.place >= 0, np.arange(texts.tokens), -1)
    at = np.maximum.accumulate(known) if texts.tokens else known
    within = at >= texts.starts[texts.text] if texts.tokens else np.zeros(0, dtype=bool)
    if not len(of_words):
        return np.full(texts.tokens, nothing, dtype=np.int32)
    return np.where(within, of_words[texts.place[np.maximum(at, 0)]], nothing)


def _firsts(number: np.ndarray, texts: Texts) -> np.ndarray:
    """[tokens]: the first token with a word of each numbered part of each text."""
    has_word = texts.place >= 0
    key = texts.text.astype(np.int64) * (texts.tokens + 1) + number
    found = np.zeros(texts.tokens, dtype=bool)
    at = np.flatnonzero(has_word)
    found[at[np.unique(key[at], return_index=True)[1]]] = True
    return found


def first_in_sentence(texts: Texts) -> np.ndarray:
    """[tokens]: the token with which a sentence begins."""
    return _firsts(texts.derived(sentences), texts)


def first_in_line(texts: Texts) -> np.ndarray:
    """[tokens]: the token with which a line begins."""
    return _firsts(texts.derived(lines), texts)


# --- lists ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Lists:
    """Items joined by commas and a last *and* or *or*. 0 for tokens of no list."""

    item: np.ndarray
    """[tokens]: which item of its list a token is in, from 1."""
    size: np.ndarray
    """[tokens]: how many items the list has."""
    number: np.ndarray
    """[tokens]: the number of the list, from 1, over all texts."""
    by_and: np.ndarray
    """[tokens]: whether the last two items are joined by *and*."""


def lists(texts: Texts) -> Lists:
    """All lists: found at each *and* or *or*, followed back over commas."""
    words = [texts.words[kind] for kind in texts.word_kinds.tolist()]
    of_text = texts.word_texts.tolist()
    item, size, number, by_and = (np.zeros(len(words), dtype=np.int32) for _ in range(4))
    count = 0
    for at, word in enumerate(words):
        if word.lower() not in _JOINS:
            continue
        items = _items(words, of_text, at)
        if len(items) < 2:
            continue
        count += 1
        for index, (start, end) in enumerate(items, 1):
            item[start:end], size[start:end], number[start:end] = index, len(items), count
            by_and[start:end] = word.lower() != "or"
    # One more entry, for tokens without a word: -1 reads it.
    columns = [np.append(one, 0)[texts.place] for one in (item, size, number, by_and)]
    return Lists(columns[0], columns[1], columns[2], columns[3] > 0)


def _items(words: list[str], of_text: list[int], join: int) -> list[tuple[int, int]]:
    """Where the items of the list around the word *and* at ``join`` begin and end.

    >>> words = "we saw Mary , the big dog , and Ann today".split()
    >>> [" ".join(words[a:b]) for a, b in _items(words, [0] * len(words), words.index("and"))]
    ['Mary', 'the big dog', 'Ann']
    """

    def inside(at: int) -> bool:
        return 0 <= at < len(words) and of_text[at] == of_text[join]

    def is_plain(at: int) -> bool:
        return (
            inside(at)
            and (is_letters(words[at]) or words[at][:1].isdigit())
            and words[at].lower() not in _JOINS
        )

    last = join + 1
    if inside(last) and words[last].lower() in _OPENERS:
        last += 1
    if not is_plain(last) or words[last].lower() in FUNCTION:
        return []
    found = [(join + 1, last + 1)]
    end = join - 1 if inside(join - 1) and words[join - 1] == "," else join
    while True:
        start = end
        while is_plain(start - 1) and end - start < ITEM:
            start -= 1
        if start == end:
            break
        if not (inside(start - 1) and words[start - 1] == ","):
            # Where the first item begins is not marked: its last word is taken.
            found.append((end - 1, end))
            break
        found.append((start, end))
        end = start - 1
    first = found[-1]
    return found[::-1] if words[first[1] - 1].lower() not in FUNCTION else []


def _is_item(which: int, texts: Texts) -> np.ndarray:
    found = texts.derived(lists)
    return (found.item == which) & (found.size > 2)


def _is_last_item(texts: Texts) -> np.ndarray:
    found = texts.derived(lists)
    return (found.item == found.size) & (found.size > 2)


def _in_pair(which: int, texts: Texts) -> np.ndarray:
    """Of a pair whose members are alike: both capitalised or neither."""
    found = texts.derived(lists)
    return (found.item == which) & (found.size == 2) & found.by_and & texts.derived(_alike)[found.number]


def _alike(texts: Texts) -> np.ndarray:
    """[lists + 1]: whether the members of a pair begin alike, both with a capital or neither."""
    found = texts.derived(lists)
    count = int(found.number.max(initial=0)) + 1
    capital = texts.of_words(lambda word: word[:1].isupper())[texts.word]
    has = np.zeros((count, 3), dtype=bool)
    for which in (1, 2):
        at = (found.item == which) & capital
        has[found.number[at], which] = True
    return has[:, 1] == has[:, 2]


# --- predicates ----------------------------------------------------------------------------------------------------


def _between(first: int, last: int | None, texts: Texts) -> np.ndarray:
    return (texts.position >= first) & (texts.position <= (last if last is not None else texts.tokens))


def properties() -> list[Property]:
    """Absolute places, and places in a sentence, a line, a list and a pair."""
    made = []
    for first, last in BINS:
        span = f"position {first}" if first == last else f"position {first} or later"
        span = f"positions {first} to {last}" if last not in (None, first) else span
        name = f"{first}-{'' if last is None else last}"
        phrase = clause(f"is at {span}", f"is not at {span}")
        made.append(Property(f"position={name}", "absolute", phrase, partial(_between, first, last), True))
    starts: list[tuple[str, str, Callable[[Texts], np.ndarray]]] = [
        ("first-in-sentence", "begins a sentence", lambda texts: texts.derived(first_in_sentence)),
        ("first-in-line", "begins a line", lambda texts: texts.derived(first_in_line)),
    ]
    for name, said, mask in starts:
        denied = said.replace("begins", "does not begin")
        made.append(Property(name, "order", clause(said, denied), mask))
    for which, said in ((1, "first"), (2, "second")):
        phrase = frame(f"the {said} {{}} of a pair joined by *and*")
        made.append(Property(f"pair={which}", "order", phrase, partial(_in_pair, which)))
    for which, said in ((1, "first"), (2, "second"), (3, "third")):
        phrase = frame(f"the {said} {{}} of a list")
        made.append(Property(f"item={which}", "order", phrase, partial(_is_item, which)))
    made.append(Property("item=last", "order", frame("the last {} of a list"), _is_last_item))
    return made


def _same(part: Callable[[Texts], np.ndarray], places: Places) -> np.ndarray:
    number = places.texts.derived(part)
    return number[places.destination] == number[places.source]


def _same_list(places: Places) -> np.ndarray:
    found = places.texts.derived(lists)
    number = found.number[places.destination]
    other = found.item[places.destination] != found.item[places.source]
    return (number > 0) & (number == found.number[places.source]) & other


def relations() -> list[Predicate]:
    """Whether both are in the same part of the text."""
    near = [
        ("same-sentence", "both are in the same sentence", "the two are in different sentences", sentences),
        ("same-line", "both are in the same line", "the two are in different lines", lines),
    ]
    made = [
        Predicate(
            f"relation.{name}", "relation", "relation nearness", sentence(yes, no), partial(_same, part), True
        )
        for name, yes, no, part in near
    ]
    together = sentence("both are items of the same list", "the two are not items of the same list")
    return [*made, Predicate("relation.same-list", "relation", "relation copy", together, _same_list)]
