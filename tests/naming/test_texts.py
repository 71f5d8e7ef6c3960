"""Texts as flat arrays: tokens, their words, and where both are."""

from __future__ import annotations

import numpy as np
import pytest
from words import word_tokenizer

from headwise.corpus import Corpus
from headwise.errors import HeadwiseError
from headwise.model.model import Model
from headwise.naming.cells import Cells
from headwise.naming.texts import Texts

pytestmark = pytest.mark.real


def words_of(texts: Texts, text: int = 0) -> list[tuple[str, str]]:
    """Each token of a text and the word that it is part of."""
    part = slice(texts.starts[text], texts.starts[text + 1])
    return [
        (texts.strings[s], texts.words[w]) for s, w in zip(texts.string[part], texts.word[part], strict=True)
    ]


def test_a_token_that_is_part_of_a_word_has_the_whole_word(smollm2: Model) -> None:
    texts = Texts.read(smollm2.tokenizer, ["Zanzibarian cats don't cost 3.50"])
    found = words_of(texts)
    assert "".join(token for token, _ in found) == "Zanzibarian cats don't cost 3.50"
    pieces = [token for token, word in found if word == "Zanzibarian"]
    assert len(pieces) > 1 and "".join(pieces) == "Zanzibarian"
    assert texts.begins.tolist()[: len(pieces)] == [True] + [False] * (len(pieces) - 1)
    assert texts.ends.tolist()[: len(pieces)] == [False] * (len(pieces) - 1) + [True]
    assert {"don't", "3.50", "cats", "cost"} <= {word for _, word in found}


def test_pieces_of_emoji_right_to_left_text_and_code_keep_their_places(smollm2: Model) -> None:
    raw = ["I ate 🍎🍎 today", "שלום עולם, hello", "def f(x_bar):\n    return x_bar\n"]
    texts = Texts.read(smollm2.tokenizer, raw)
    apple = [token for token, word in words_of(texts, 0) if word == "🍎"]
    assert len(apple) >= 2 and all("🍎" in token for token in apple)
    assert {"שלום", "עולם"} <= {word for _, word in words_of(texts, 1)}
    assert {"x_bar", "(", ")"} <= {word for _, word in words_of(texts, 2)}
    for text, whole in enumerate(raw):
        for at in range(texts.starts[text], texts.starts[text + 1]):
            start, end = texts.spans[at]
            word = texts.words[texts.word[at]]
            assert word in whole and (not word or whole[start:end].strip()[:1] in word)


def test_an_empty_text_and_blank_text_are_texts_without_words(smollm2: Model) -> None:
    texts = Texts.read(smollm2.tokenizer, ["", "a b", " \n "])
    assert texts.lengths.tolist()[:2] == [0, 2]
    assert texts.place[texts.text == 2].tolist() == [-1] * texts.lengths[2]
    assert texts.ids_of(0) == []
    nothing = Texts.read(smollm2.tokenizer, [])
    assert (len(nothing), nothing.tokens, nothing.begins.tolist(), nothing.neighbour(1).tolist()) == (
        0,
        0,
        [],
        [],
    )


def test_long_texts_are_cut_and_the_last_word_stays_whole(smollm2: Model) -> None:
    texts = Texts.read(smollm2.tokenizer, ["one two Zanzibarian three"], tokens=3)
    assert texts.lengths.tolist() == [3]
    assert texts.raw == ("one two Zanzibarian",)
    assert words_of(texts)[2][1] == "Zanzibarian"
    with pytest.raises(HeadwiseError, match="tokens=0 leaves nothing"):
        Texts.read(smollm2.tokenizer, ["one"], tokens=0)


def test_ids_are_those_the_model_reads(smollm2: Model) -> None:
    corpus = Corpus("c", ("Mary and John went.", "Now 🍎!"), ("x", "y"))
    texts = Texts.of(smollm2, corpus)
    assert [texts.ids_of(i) for i in (0, 1)] == smollm2.token_ids(list(corpus.texts))
    assert [texts.strings_of(i) for i in (0, 1)] == [smollm2.tokens(text) for text in corpus.texts]
    assert texts.position.tolist() == [*range(texts.lengths[0]), *range(texts.lengths[1])]


def test_special_tokens_have_no_word() -> None:
    texts = Texts.read(word_tokenizer(), ["apple and banana", "lemon"])
    assert texts.strings_of(0)[0] == "<s>"
    assert texts.word[texts.starts[:-1]].tolist() == [0, 0]
    assert [word for _, word in words_of(texts)] == ["", "apple", "and", "banana"]


def test_neighbours_end_where_the_text_ends() -> None:
    texts = Texts.read(word_tokenizer(), ["apple and banana", "lemon"])
    assert [texts.words[w] for w in texts.neighbour(1)] == ["and", "banana", "", ""]
    assert [texts.words[w] for w in texts.neighbour(-2)] == ["", "", "apple", ""]


def test_what_is_derived_is_made_once() -> None:
    texts, calls = Texts.read(word_tokenizer(), ["apple lemon banana"]), []

    def count(of: Texts) -> int:
        calls.append(of)
        return of.tokens

    assert (texts.derived(count), texts.derived(count), len(calls)) == (4, 4, 1)
    assert texts.of_strings(str.isalpha).tolist() == [False, True, True, True]


def test_cells_of_unequal_columns_are_refused() -> None:
    with pytest.raises(HeadwiseError, match=r"three columns of one length, not \[2\], \[1\], \[2\]"):
        Cells(np.arange(2), np.arange(1), np.arange(2))
    assert len(Cells.joined([])) == 0
