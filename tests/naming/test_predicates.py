"""Each predicate on texts made by hand, where the right answer can be seen."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from pieces import all_cells, drawn_cells, ordinary_texts, piece_tokenizer

from headwise.errors import HeadwiseError
from headwise.naming.cells import Cells
from headwise.naming.predicates.lexicon import NOTHING, Lexicon
from headwise.naming.predicates.library import by_id, identities, library, library_digest
from headwise.naming.texts import Texts


def read(*raw: str) -> Texts:
    return Texts.read(piece_tokenizer(), raw)


def words_where(name: str, raw: str, lexicon: Lexicon = NOTHING) -> list[str]:
    """The words of the tokens of which a predicate of the source holds, each occurrence once."""
    texts = read(raw)
    cells = Cells(np.zeros(texts.tokens), np.full(texts.tokens, texts.tokens - 1), np.arange(texts.tokens))
    at = np.flatnonzero(by_id(f"source.{name}", lexicon).holds(texts, cells))
    seen = [(texts.place[i], texts.words[texts.word[i]] or texts.strings[texts.string[i]]) for i in at]
    return [word for (_, word), _ in itertools.groupby(seen)]


def pairs_where(name: str, raw: str) -> set[tuple[str, str]]:
    """(destination, source) as words, where a relation holds; words are numbered from their second occurrence."""
    texts = read(raw)
    d, s = np.tril_indices(texts.tokens)
    cells = Cells(np.zeros(len(d)), d, s)
    kept = cells[by_id(f"relation.{name}").holds(texts, cells)]
    return {(label(texts, one), label(texts, other)) for _, one, other in kept.rows()}


def label(texts: Texts, at: int) -> str:
    word = texts.words[texts.word[at]] or texts.strings[texts.string[at]]
    earlier = {int(texts.place[i]) for i in range(at) if texts.word[i] == texts.word[at]} - {
        int(texts.place[at])
    }
    return word + str(len(earlier) + 1) * bool(earlier)


@pytest.mark.parametrize(
    ("name", "raw", "expected"),
    [
        ("letters", "ab, 12 שלום!", ["ab", "שלום"]),
        ("number", "in 1987 at 3.50 for x1", ["1987", "3.50"]),
        ("has-digit", "in 1987 for x1 now", ["1987", "x1"]),
        ("capitalised", "Mary saw NASA and I", ["Mary", "I"]),
        ("all-caps", "Mary saw NASA and I", ["NASA"]),
        ("mixed-case", "a camelCase word", ["camelCase"]),
        ("lower-case", "Mary saw x_bar", ["saw", "x_bar"]),
        ("identifier", "def x_bar of y _", ["x_bar"]),
        ("one-sign", "a , bc", ["a", ","]),
        ("short", "the rhinoceros and it", ["the", "and", "it"]),
        ("long", "the rhinoceros and it", ["rhinoceros"]),
        ("whole-word", "the zyzzyvaxq of", ["the", "of"]),
        ("suffix=ing", "walking to the king and a thing", ["walking", "thing"]),
        ("suffix=s", "cats is his class", ["cats", "his"]),
        ("prefix=un", "an unhappy uncle under us", ["unhappy", "uncle", "under"]),
        ("script=hebrew", "shalom שלום", ["שלום"]),
        ("script=chinese", "a 中文 b", ["中文"]),
        ("script=japanese", "a カナ b", ["カナ"]),
        ("script=emoji", "an 🍎 here", ["🍎"]),
        ("newline", "a\nb", ["\n"]),
        ("blank-line", "a\nb\n\nc", ["\n"]),
        ("punctuation", "a, b (c).", [",", "(", ")"]),
        ("sentence-end", "No. Really? Yes", [".", "?"]),
        ("comma", "a, b; c", [","]),
        ("semicolon", "a, b; c", [";"]),
        ("colon", "a: b", [":"]),
        ("opening-bracket", "f(x[1]) y", ["(", "["]),
        ("closing-bracket", "( x [ 1 ] ) y", ["]", ")"]),
        ("quote-mark", 'he said "yes" now', ['"', '"']),
        ("dash", "a - b", ["-"]),
        ("slash", "a / b", ["/"]),
        ("operator", "a = b + c !", ["=", "+"]),
        ("row", "a ------ b - c", ["------"]),
        ("in-brackets", "f(x, y) z", ["x", ",", "y"]),
        ("in-quotes", 'he said " yes it is " now', ["yes", "it", "is"]),
        ("class=article", "The cat and an owl", ["The", "an"]),
        ("class=preposition", "in the middle of it", ["in", "of"]),
        ("class=pronoun", "She saw them", ["She", "them"]),
        ("class=possessive", "my cat and their dog", ["my", "their"]),
        ("class=auxiliary", "it was and will be", ["was", "will", "be"]),
        ("class=conjunction", "a and b but c", ["and", "but"]),
        ("class=question", "who knows when", ["who", "when"]),
        ("class=negation", "it is not there", ["not"]),
        ("class=month", "in May it may rain in March", ["May", "March"]),
        ("class=weekday", "on Friday", ["Friday"]),
        ("class=determiner", "this and every dog", ["this", "every"]),
        ("class=function-word", "the cat of mine", ["the", "of", "mine"]),
        ("class=content-word", "the cat of Rome, 12", ["cat", "Rome"]),
        ("class=and", "this and that or", ["and", "or"]),
        ("category=name", "Mary met john and Paul", ["Mary", "Paul"]),
        ("category=place", "from Paris to Japan", ["Paris", "Japan"]),
        ("category=proper", "The Zork met him", ["Zork"]),
        ("category=number-word", "two of ten cats", ["two", "ten"]),
        ("category=colour", "a red and green car", ["red", "green"]),
        ("category=unit", "ten metres in two hours", ["metres", "hours"]),
        ("category=animal", "two dogs and a cat", ["dogs", "cat"]),
        ("category=kin", "his mother left", ["mother"]),
        ("category=time", "see you tomorrow", ["tomorrow"]),
        ("category=food", "an apple and tea", ["apple", "tea"]),
        ("category=vehicle", "by train", ["train"]),
        ("category=thing", "a hammer", ["hammer"]),
        ("category=keyword", "def f: return x", ["def", "return"]),
        ("position=0-0", "ab of cd", ["ab"]),
        ("first-in-sentence", "It is. He has. e.g. this", ["It", "He"]),
        ("first-in-sentence", "Mr. Fox left. “Why?” we said.", ["Mr", "“"]),
        ("first-in-line", "a b\n  c d\n\ne", ["a", "c", "e"]),
        ("pair=1", "when Mary and John left", ["Mary"]),
        ("pair=2", "when Mary and John left", ["John"]),
        ("pair=2", "Mary and then it", []),
        ("pair=2", "a cat and the dog left", ["the", "dog"]),
        ("pair=2", "red, green and blue", []),
        ("item=1", "we saw red, green, and blue cars", ["red"]),
        ("item=2", "we saw red, green, and blue cars", ["green"]),
        ("item=3", "we saw red, green, and blue cars", ["blue"]),
        ("item=last", "we saw red, green or blue cars", ["blue"]),
        ("seen", "the cat and The dog", ["The"]),
        ("seen-twice", "a b a c a", ["a"]),
        ("after:comma", "a, b c", ["b"]),
        ("after:class=article", "the cat of a dog", ["cat", "dog"]),
        ("before:class=and", "Mary and John", ["Mary"]),
        ("only:category=name", "then Mary met him", ["Mary"]),
        ("only:category=name", "then Mary met Paul", []),
        ("last:category=name", "then Mary met Paul there", ["Paul"]),
        ("first:category=name", "then Mary met Paul there", ["Mary"]),
        ("word=the", "The cat, the theme", ["The", "the"]),
        ("token= the", "the cat is the.", ["the"]),
    ],
)
def test_a_predicate_of_one_token(name: str, raw: str, expected: list[str]) -> None:
    assert words_where(name, raw) == expected


@pytest.mark.parametrize(
    ("name", "raw", "expected"),
    [
        ("distance=0", "of it", {("of", "of"), ("it", "it")}),
        ("distance=1", "of it in", {("it", "of"), ("in", "it")}),
        ("distance=2", "of it in", {("in", "of")}),
        ("distance=3", "of it in a", {("a", "of")}),
        ("previous-word", "of zyzzyvaxq in", {("zyzzyvaxq", "of"), ("in", "zyzzyvaxq")}),
        ("same-place", "of zyzzyvaxq in", {("zyzzyvaxq", "zyzzyvaxq")}),
        ("same-token", "the cat of the", {}),
        ("same-token", "of the cat of the", {("the2", "the")}),
        ("same-word", "The cat of the", {("the", "The")}),
        ("same-beginning", "computing a computer", {("computer", "computing")}),
        ("after-copy", "is the cat or the", {("the2", "cat")}),
        ("before-copy", "is the cat or the", {("the2", "is")}),
        ("same-predecessor", "is the cat or the dog", {("dog", "cat")}),
        ("last-copy", "is the a the or the", {("the2", "the"), ("the3", "the2")}),
        ("first-copy", "is the a the or the", {("the2", "the"), ("the3", "the")}),
        ("matching", "f ( a , ( b ) ) c", {(")", "(2"), (")2", "(")}),
        ("matching", 'is " a b " c', {('"2', '"')}),
        ("opened-bracket", "f (a (b) c", {("a", "("), ("(2", "("), ("b", "(2"), (")", "("), ("c", "(")}),
        ("opened-quote", 'is " a b " c', {("a", '"'), ("b", '"')}),
        ("same-list", "now Mary and John left", {("John", "Mary")}),
    ],
)
def test_a_relation(name: str, raw: str, expected: set[tuple[str, str]]) -> None:
    assert pairs_where(name, raw) == (expected or set())


def test_distances_have_the_bounds_they_name() -> None:
    cells = Cells.of([(0, 30, s) for s in range(31)])
    texts = read("a b " * 40)
    near = by_id("relation.distance<=4").holds(texts, cells)
    far = by_id("relation.distance>=16").holds(texts, cells)
    assert (30 - cells.source[near]).max() == 4 and near.sum() == 5
    assert (30 - cells.source[far]).min() == 16 and far.sum() == 15


def test_bins_cover_every_position_once() -> None:
    texts = read("a b " * 48)
    cells = all_cells(texts)
    bins = [one for one in library() if one.kind == "source absolute"]
    assert (np.sum([one.holds(texts, cells) for one in bins], axis=0) == 1).all()


def test_sentences_lines_and_brackets_hold_tokens_together() -> None:
    assert ("It", "He") not in pairs_where("same-sentence", "He is. It is.")
    assert ("is", "He") in pairs_where("same-sentence", "He is. It is.")
    assert ("b", "a") not in pairs_where("same-line", "a\nb")
    assert ("b", "a") in pairs_where("same-enclosure", "( a b ) c")
    assert ("c", "a") not in pairs_where("same-enclosure", "( a b ) c")


def test_a_word_in_pieces_is_one_word_to_absence_and_classes() -> None:
    raw = "then zyzzyvaxq met him; Quuxington left"
    assert words_where("only:capitalised", raw) == ["Quuxington"]
    assert words_where("last:capitalised", raw) == ["Quuxington"]
    assert {"zyzzyvaxq", "Quuxington"} <= set(words_where("inside-word", raw))
    assert words_where("list=beasts", raw, Lexicon.of({"beasts": ["Zyzzyvaxq"]})) == ["zyzzyvaxq"]


HOSTILE = [
    "",
    " ",
    "\n\n\n",
    "🍎👨‍👩‍👧‍👦🍎",
    "שלום, עולם! (שלום)",
    "مرحبا «بكم» هنا",
    ")))((([[[",
    "\"\"\"'''```",
    "a" * 500,
    "\u202eabc\u200b\u0301",
    "def f(x):\n\treturn [x for x in range(10)]  # “done”\n",
    "' or 1=1; -- {{7*7}} </script> **bold** %s %n",
]


def test_every_predicate_answers_on_any_text() -> None:
    texts = Texts.read(piece_tokenizer(), HOSTILE)
    cells = all_cells(texts)
    for one in library():
        found = one.holds(texts, cells)
        assert found.shape == (len(cells),) and found.dtype == bool, one.id
        assert one.holds(texts, cells[:0]).shape == (0,)
    nothing = Texts.read(piece_tokenizer(), [])
    assert not any(len(one.holds(nothing, Cells.of([]))) for one in library())


def test_answers_do_not_depend_on_the_other_texts() -> None:
    """Flat arrays run over all texts: nothing may reach from one into the next."""
    raw = ["( Mary and John", "left ) the cat, and", 'the " dog. It', 'was " Mary']
    together = read(*raw)
    for number, text in enumerate(raw):
        alone = read(text)
        cells = all_cells(alone)
        moved = Cells(np.full(len(cells), number), cells.destination, cells.source)
        for one in library():
            assert (one.holds(alone, cells) == one.holds(together, moved)).all(), (one.id, text)


def test_ids_are_unique_and_lead_back() -> None:
    ids = [one.id for one in library()]
    assert len(ids) == len(set(ids)) > 150
    for one in library():
        assert by_id(one.id) is one
        assert one.phrase.yes and one.phrase.no and one.cost > 0
    with pytest.raises(
        HeadwiseError, match=r"there is no predicate 'source.commma' \(closest: source.comma\)"
    ):
        by_id("source.commma")


def test_only_what_speaks_of_places_counts_as_positional() -> None:
    """The others must not be answered by positions: on shuffled text they change, these do not."""
    kinds = {one.kind for one in library() if one.positional}
    assert kinds == {
        "relation distance",
        "relation nearness",
        "relation copy",
        "source absence",
        "destination absolute",
        "source absolute",
        "destination copy",
        "source copy",
    }


def test_tokens_and_words_are_predicates_where_they_are_frequent() -> None:
    texts = ordinary_texts()
    cells = drawn_cells(texts, 2000, 0)
    found = identities(texts, cells)
    assert {"source.word=the", "destination.word=the"} <= {one.id for one in found}
    for one in found:
        assert one.holds(texts, cells).mean() >= 0.01
    assert len(identities(texts, cells, share=0.05)) < len(found)


def test_word_lists_of_the_user() -> None:
    pets = Lexicon.of({"pets": ["Cat", "hamster "]})
    assert words_where("list=pets", "a hamster, a CAT and a dog", pets) == ["hamster", "CAT"]
    with pytest.raises(HeadwiseError, match="the word list 'pets' is not at hand"):
        by_id("source.list=pets")
    with pytest.raises(HeadwiseError, match="the word list 'none' has no words"):
        Lexicon.of({"none": [" "]})
    assert library_digest(pets) != library_digest(Lexicon.of({"pets": ["cat"]})) != library_digest()
