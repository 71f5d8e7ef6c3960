"""Text to positions to tokens and back: one rule for all rooms, and every token as a person reads it."""

from __future__ import annotations

import copy
import itertools
import re
import subprocess
import sys
from functools import lru_cache
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from words import word_tokenizer

from headwise.errors import HeadwiseError
from headwise.positions import find_positions, one_cell, one_position
from headwise.tokens import (
    NoTokenizer,
    _parts,
    answer_token,
    chat_prompt,
    encode_one,
    shown,
    shown_after,
    single_token,
)

TOKENS = st.lists(st.sampled_from(["a", " a", "b", " b", "b ", "\n", "é", "the"]), min_size=1, max_size=12)


# --- one rule for positions ----------------------------------------------------------------------------------------


@given(TOKENS, st.data())
def test_text_finds_every_token_that_is_it(tokens: list[str], data: st.DataObject) -> None:
    text = data.draw(st.sampled_from(tokens))
    assert find_positions(tokens, text) == [i for i, token in enumerate(tokens) if token == text]


@given(TOKENS, st.data())
def test_spaces_count_only_where_a_token_has_them(tokens: list[str], data: st.DataObject) -> None:
    text = data.draw(st.sampled_from(tokens)).strip()
    if text and text not in tokens:
        assert find_positions(tokens, text) == [i for i, one in enumerate(tokens) if one.strip() == text]


@given(TOKENS, st.integers(-20, 20), st.sampled_from([int, str, np.int64]))
def test_a_number_is_a_position_however_it_is_written(tokens: list[str], number: int, kind: Any) -> None:
    if -len(tokens) <= number < len(tokens):
        assert find_positions(tokens, kind(number)) == [range(len(tokens))[number]]
    else:
        with pytest.raises(HeadwiseError, match=f"^position {number} is outside the prompt"):
            find_positions(tokens, kind(number))


@given(TOKENS, st.data())
def test_one_position_is_the_only_one_or_none(tokens: list[str], data: st.DataObject) -> None:
    text = data.draw(st.sampled_from(tokens))
    upto = data.draw(st.none() | st.integers(0, len(tokens) - 1))
    every = find_positions(tokens, text)
    seen = [p for p in every if upto is None or p <= upto] or every
    if len(seen) == 1:
        assert one_position(tokens, text, "key", upto=upto) == seen[0]
    else:
        with pytest.raises(HeadwiseError, match=r"^key .* occurs at positions .* and .*: pass one of them$"):
            one_position(tokens, text, "key", upto=upto)


def test_what_is_ambiguous_is_refused_with_its_positions() -> None:
    tokens = ["R", "ub", "en", " met", " ben", ",", " and", " then", " left", " poor", " ben"]
    with pytest.raises(HeadwiseError, match=r"^key ' ben' occurs at positions 4 and 10: pass one of them$"):
        one_position(tokens, " ben", "key")
    with pytest.raises(HeadwiseError, match=r"^query 'ben' occurs at positions 4 and 10: pass one of them$"):
        one_cell(tokens, "ben", 0)
    assert one_cell(tokens, 7, "ben") == (7, 4)
    with pytest.raises(HeadwiseError, match=r"^key ' ben' \(10\) comes after query ' then' \(7\)"):
        one_cell(tokens, 7, 10)
    many = ["a"] * 100
    with pytest.raises(
        HeadwiseError, match="positions 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 and 88 more: pass"
    ):
        one_position(many, "a", "key")


def test_a_refusal_names_the_place_that_is_meant() -> None:
    with pytest.raises(HeadwiseError, match=r"^query position -3 is outside the prompt, which has 2 tokens"):
        one_cell(["a", "b"], -3, 0)
    with pytest.raises(HeadwiseError, match=r"^key 'c' is not in the prompt; its tokens are 0:'a' 1:'b'$"):
        one_cell(["a", "b"], 1, "c")


@pytest.mark.parametrize("wanted", [1.5, True, None, [1]])
def test_what_is_neither_number_nor_text_is_no_position(wanted: Any) -> None:
    with pytest.raises(HeadwiseError, match="is not a position: give a whole number or the token's text"):
        find_positions(["a", "b"], wanted)


# --- tokens as people read them ------------------------------------------------------------------------------------


@lru_cache
def byte_tokenizer(*merges: tuple[str, str]) -> Any:
    """One token per byte, as byte-level models have them, and what ``merges`` joins."""
    from tokenizers import Tokenizer, decoders, pre_tokenizers
    from tokenizers.models import BPE
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    names = [*alphabet, *("".join(pair) for pair in merges)]
    made = Tokenizer(BPE({name: i for i, name in enumerate(names)}, list(merges)))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=made)


def letters(text: str) -> str:
    """The bytes of a text as a byte-level vocabulary writes them."""
    from tokenizers import pre_tokenizers

    split = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return split.pre_tokenize_str(text)[0][0]


def pieces(tokenizer: Any, text: str) -> tuple[str, ...]:
    return shown(tokenizer, tokenizer(text).input_ids)


def test_a_piece_of_a_character_shows_the_character_and_its_number() -> None:
    assert pieces(byte_tokenizer(), "a 🍎é!") == ("a", " ", "🍎₁", "🍎₂", "🍎₃", "🍎₄", "é₁", "é₂", "!")
    first, second, third, _ = letters("🍎")
    joined = byte_tokenizer((letters(" "), first), (second, third))
    assert pieces(joined, "x 🍎") == ("x", " 🍎₁", "🍎₂", "🍎₃")


def test_a_token_that_ends_one_character_and_begins_the_next_shows_both() -> None:
    a1, a2, a3, b1, b2, b3 = letters("日本")
    bridging = byte_tokenizer((a3, b1))
    assert pieces(bridging, "日本.") == ("日₁", "日₂", "日₃本₁", "本₂", "本₃", ".")
    assert a1 + a2 + b2 + b3  # the other bytes stay tokens of their own


def test_bytes_of_no_known_character_are_written_out() -> None:
    tokenizer = byte_tokenizer()
    ids = tokenizer("🍎é").input_ids
    assert shown(tokenizer, ids[1:]) == ("⟨9F⟩", "⟨8D⟩", "⟨8E⟩", "é₁", "é₂")
    assert shown(tokenizer, ids[:2]) == ("⟨F0⟩", "⟨9F⟩")
    assert shown(tokenizer, [*ids[:2], *ids]) == ("⟨F0⟩", "⟨9F⟩", "🍎₁", "🍎₂", "🍎₃", "🍎₄", "é₁", "é₂")
    # The sign for what cannot be read is a character like any other where the text has it.
    assert pieces(tokenizer, "�é") == ("�₁", "�₂", "�₃", "é₁", "é₂")


def test_an_answer_is_shown_as_it_follows_the_prompt() -> None:
    tokenizer = byte_tokenizer()
    *before, last = tokenizer("so 🍎").input_ids
    assert shown_after(tokenizer, before, last) == "🍎₄"
    assert shown_after(tokenizer, tokenizer("so").input_ids, tokenizer("x").input_ids[0]) == "x"


def test_an_answer_that_begins_a_character_shows_its_bytes() -> None:
    space, (first, second, *_) = letters(" "), letters("🍎")
    tokenizer = byte_tokenizer((first, second), (space, first + second))
    so, apple, spaced = (tokenizer(text).input_ids for text in ("so", "🍎", " 🍎"))
    assert shown_after(tokenizer, so, apple[0]) == "⟨F0 9F⟩"
    assert shown_after(tokenizer, so, spaced[0]) == " ⟨F0 9F⟩"
    assert shown_after(tokenizer, [*so, *spaced], apple[0]) == "⟨F0 9F⟩"


def first_character(encoded: bytes) -> int:
    """How many bytes the first character has; 0 if the bytes begin with none."""
    for size in range(1, 5):
        try:
            return len(encoded[:size].decode().encode())
        except UnicodeDecodeError:
            pass
    return 0


BYTES = st.binary(min_size=1, max_size=5) | st.sampled_from([b"\xf0\x9f", b"\x8d\x8e", b"\xe2", b"\x82\xac"])


@given(st.lists(BYTES, max_size=6))
def test_bytes_are_written_out_only_where_they_are_part_of_no_character(tokens: list[bytes]) -> None:
    whole, place = b"".join(tokens), 0
    loose, shared = set(), set()  # bytes of no character, and those of characters that several tokens share
    ends = list(itertools.accumulate(map(len, tokens)))
    while place < len(whole):
        size = first_character(whole[place:])
        if not size:
            loose.add(place)
        elif any(place < end < place + size for end in ends):
            shared.update(range(place, place + size))
        place += max(size, 1)
    got = _parts(tokens)
    assert len(got) == len(tokens)
    for token, piece, end in zip(tokens, got, ends, strict=True):
        mine = range(end - len(token), end)
        written = bytes.fromhex("".join(re.findall("⟨([0-9A-F ]+)⟩", piece)))
        assert written == bytes(whole[i] for i in mine if i in loose)
        assert bool(re.search("[₁₂₃₄]", piece)) == bool(shared & {*mine})
        if not shared & {*mine} and not loose & {*mine}:
            assert piece == token.decode()


def test_fallback_bytes_are_pieces_too() -> None:
    from tokenizers import Tokenizer, decoders
    from tokenizers.models import BPE
    from transformers import PreTrainedTokenizerFast

    names = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "a", "b"]
    made = Tokenizer(
        BPE({name: i for i, name in enumerate(names)}, [], unk_token="<unk>", byte_fallback=True)
    )
    made.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    assert pieces(PreTrainedTokenizerFast(tokenizer_object=made), "a€b") == ("a", "€₁", "€₂", "€₃", "b")


@given(st.text(st.characters(exclude_categories=("Cs", "Nd", "No")), max_size=12))
def test_pieces_and_characters_are_the_text(text: str) -> None:
    """Without their numbers, pieces name the characters of the text, each as often as it has bytes."""
    if "\N{REPLACEMENT CHARACTER}" in text:
        return
    got = pieces(byte_tokenizer(), text) if text else ()
    expected: list[str] = []
    for character in text:
        size = len(character.encode())
        expected += [character] if size == 1 else [f"{character}{'₁₂₃₄'[i]}" for i in range(size)]
    assert list(got) == expected


def test_without_a_tokenizer_a_token_is_its_number() -> None:
    assert shown(NoTokenizer(), [5, 17]) == ("5", "17")
    assert shown_after(NoTokenizer(), [5], 17) == "17"


# --- answers -------------------------------------------------------------------------------------------------------


def test_an_answer_is_one_token_or_one_line() -> None:
    words, int64 = word_tokenizer(), cast(int, np.int64(3))
    token = words("box", add_special_tokens=False).input_ids[0]
    assert single_token(words, "box") == answer_token(words, "box") == answer_token(words, token) == token
    assert answer_token(NoTokenizer(), int64, vocabulary=4) == 3
    refused: list[tuple[Any, str]] = [
        (4, "answer 4 is not in the vocabulary, which has tokens 0 to 3"),
        (-1, "answer -1 is not in the vocabulary"),
        (2.5, "answer 2.5 is not a token: give its text or its id"),
        ("x", "this model has no tokenizer: give the answer as a token id"),
    ]
    for given_answer, line in refused:
        with pytest.raises(HeadwiseError, match=line):
            answer_token(NoTokenizer(), given_answer, vocabulary=4)
    with pytest.raises(HeadwiseError, match="answer 'box which' is 2 tokens"):
        single_token(words, "box which")
    with pytest.raises(HeadwiseError, match="the wrong is empty"):
        single_token(words, "", "wrong")


def test_an_answer_of_several_pieces_names_them_and_the_first_id() -> None:
    tokenizer = byte_tokenizer()
    first = tokenizer("é").input_ids[0]
    with pytest.raises(
        HeadwiseError,
        match=rf"^answer 'é' is 2 tokens \('é₁' \| 'é₂'\): give its first one, "
        rf"the token id {first}$",
    ):
        single_token(tokenizer, "é")
    with pytest.raises(
        HeadwiseError, match=r"^answer 'ab' is 2 tokens \('a' \| 'b'\): give its first one, 'a'$"
    ):
        single_token(tokenizer, "ab")


def test_prompts_are_read_without_torch() -> None:
    """What needs a tokenizer only can be refused before a model's libraries are loaded."""
    code = (
        "import sys; from headwise.tokens import encode_one, NoTokenizer;"
        "assert encode_one(NoTokenizer(), [1, 2]) == [1, 2];"
        "sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    assert encode_one(NoTokenizer(), np.array([1, 2])) == [1, 2]


# --- chat ----------------------------------------------------------------------------------------------------------


def test_a_chat_prompt_is_read_as_the_template_means_it() -> None:
    words = word_tokenizer()  # puts <s> before every text; its template writes <s>, too
    said = chat_prompt(words, "Which box is in ?")
    assert said == "<u> Which box is in ? </u><a> "
    meant = words("<s><u> Which box is in ? </u><a> ", add_special_tokens=False).input_ids
    assert encode_one(words, said) == meant
    assert meant.count(words.bos_token_id) == 1


def test_a_chat_prompt_is_token_ids_where_no_text_is_read_so() -> None:
    words = copy.deepcopy(word_tokenizer())
    words.chat_template = "{% for m in messages %}{{ m['content'] }}{% endfor %}"  # writes no <s>
    assert chat_prompt(words, "box") == words("box", add_special_tokens=False).input_ids


@pytest.mark.parametrize(
    ("template", "line"),
    [
        (None, "the model's tokenizer has no chat template: give the prompt as the model is to read it"),
        (
            "{{ raise_exception('only\nsystem turns') }}",
            r"the model's chat template refuses the prompt \(only system",
        ),
        ("{% for", "the model's chat template refuses the prompt"),
        ("{{ 1 // 0 }}", "the model's chat template refuses the prompt"),
    ],
)
def test_a_chat_template_that_is_missing_or_fails_is_one_line(template: str | None, line: str) -> None:
    words = copy.deepcopy(word_tokenizer())
    words.chat_template = template
    with pytest.raises(HeadwiseError, match=line) as error:
        chat_prompt(words, "box")
    assert "\n" not in str(error.value)
    with pytest.raises(HeadwiseError, match="this model has no tokenizer: a chat prompt cannot be made"):
        chat_prompt(NoTokenizer(), "box")
