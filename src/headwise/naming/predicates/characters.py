"""What can be seen in a token or its word alone: case, digits, length, affixes, script, white space."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from functools import lru_cache, partial

import numpy as np

from headwise.naming.predicates.predicate import Mask, Phrase, Property, adjective, clause, noun
from headwise.naming.predicates.tables import PREFIXES, SUFFIXES
from headwise.naming.texts import Texts

SCRIPTS = {
    "latin": "LATIN",
    "greek": "GREEK",
    "cyrillic": "CYRILLIC",
    "hebrew": "HEBREW",
    "arabic": "ARABIC",
    "devanagari": "DEVANAGARI",
    "chinese": "CJK",
    "japanese": ("HIRAGANA", "KATAKANA"),
    "korean": "HANGUL",
    "thai": "THAI",
}
_LETTERS_LEFT = 2
"""What must be left of a word beside its ending: *is* does not end in the suffix *-s*."""


def of_string(test: Callable[[str], bool]) -> Mask:
    """A question about a token's own text."""
    return lambda texts: texts.of_strings(test)


def of_word(test: Callable[[str], bool]) -> Mask:
    """A question about the word that a token is part of."""
    return lambda texts: texts.of_words(test)[texts.word]


def is_capitalised(word: str) -> bool:
    """
    >>> [is_capitalised(word) for word in ("Mary", "I", "NASA", "mary", "3rd", "")]
    [True, True, False, False, False, False]
    """
    return word[:1].isupper() and (len(word) == 1 or not word.isupper())


def is_all_caps(word: str) -> bool:
    """
    >>> [is_all_caps(word) for word in ("NASA", "I", "MAX_SIZE", "Mary", "42")]
    [True, False, True, False, False]
    """
    return len(word) > 1 and word.isupper()


def is_mixed_case(word: str) -> bool:
    """
    >>> [is_mixed_case(word) for word in ("camelCase", "Mary", "NASA", "iPhone")]
    [True, False, False, True]
    """
    return word[1:].lower() != word[1:] and not word.isupper()


def is_number(word: str) -> bool:
    """
    >>> [is_number(word) for word in ("42", "3.50", "1,000", "x1", "")]
    [True, True, True, False, False]
    """
    return bool(word) and re.sub("[.,]", "", word).isdigit()


def is_letters(word: str) -> bool:
    """
    >>> [is_letters(word) for word in ("cat", "don't", "x_bar", "שלום", "42", "!")]
    [True, True, True, True, False, False]
    """
    return any(letter.isalpha() for letter in word)


def is_emoji(word: str) -> bool:
    """
    >>> [is_emoji(word) for word in ("🍎", "☃", "€", "a")]
    [True, True, False, False]
    """
    return any(unicodedata.category(sign) == "So" for sign in word)


@lru_cache(maxsize=4096)
def _script(letter: str) -> str:
    return unicodedata.name(letter, "").split(" ")[0].split("-")[0] if letter.isalpha() else ""


def _in_script(names: tuple[str, ...], word: str) -> bool:
    return any(_script(letter) in names for letter in word)


def _ends(suffix: str, word: str) -> bool:
    rest = word.lower().removesuffix(suffix)
    return (
        len(rest) < len(word)
        and len(rest) > _LETTERS_LEFT - 1
        and rest.isalpha()
        and not rest.endswith(suffix)
    )


def _starts(prefix: str, word: str) -> bool:
    rest = word.lower().removeprefix(prefix)
    return len(rest) < len(word) and len(rest) > _LETTERS_LEFT and rest.isalpha()


def _has_no_characters(texts: Texts) -> np.ndarray:
    return texts.spans[:, 0] == texts.spans[:, 1]


def _follows_space(texts: Texts) -> np.ndarray:
    return np.array(
        [
            start < end and (raw[start].isspace() or (start > 0 and raw[start - 1].isspace()))
            for text, raw in enumerate(texts.raw)
            for start, end in texts.spans[texts.starts[text] : texts.starts[text + 1]].tolist()
        ],
        dtype=bool,
    )


def _is_blank(token: str) -> bool:
    return bool(token) and token.isspace()


def _is_indented(token: str) -> bool:
    return bool(re.search(r"\n[ \t]+\Z|\A[ \t]{2,}\Z", token))


def properties() -> list[Property]:
    """Everything that strings alone tell."""
    return [*_shapes(), *_affixes(), *_scripts(), *_spaces()]


def _shapes() -> list[Property]:
    table: list[tuple[str, Phrase, Mask]] = [
        ("letters", noun("a word"), of_word(is_letters)),
        ("number", noun("a number"), of_word(is_number)),
        ("has-digit", clause("has a digit", "has no digit"), of_word(_has_digit)),
        ("capitalised", adjective("capitalised"), of_word(is_capitalised)),
        ("all-caps", clause("is in capitals", "is not in capitals"), of_word(is_all_caps)),
        ("mixed-case", clause("has capitals inside", "has no capitals inside"), of_word(is_mixed_case)),
        ("lower-case", clause("is in lower case", "is not in lower case"), of_word(str.islower)),
        ("identifier", noun("an identifier with an underscore"), of_word(_has_underscore)),
        ("one-sign", clause("is a single character", "is longer than one character"), of_word(_is_one_sign)),
        ("short", clause("is in a word of at most 3 letters", "is not in a short word"), of_word(_is_short)),
        ("long", clause("is in a word of 8 letters or more", "is not in a long word"), of_word(_is_long)),
        ("begins-word", clause("begins a word", "does not begin a word"), _begins),
        ("inside-word", clause("continues a word", "does not continue a word"), _continues),
        ("whole-word", clause("is a whole word", "is not a whole word"), _is_whole),
    ]
    return [Property(name, "shape", phrase, mask) for name, phrase, mask in table]


def _has_digit(word: str) -> bool:
    return any(sign.isdigit() for sign in word)


def _has_underscore(word: str) -> bool:
    return "_" in word and len(word) > 1


def _is_one_sign(word: str) -> bool:
    return len(word) == 1


def _is_short(word: str) -> bool:
    return is_letters(word) and len(word) <= 3


def _is_long(word: str) -> bool:
    return is_letters(word) and len(word) >= 8


def _begins(texts: Texts) -> np.ndarray:
    return texts.begins & of_word(is_letters)(texts)


def _continues(texts: Texts) -> np.ndarray:
    return (texts.place >= 0) & ~texts.begins


def _is_whole(texts: Texts) -> np.ndarray:
    return texts.begins & texts.ends & of_word(is_letters)(texts)


def _affixes() -> list[Property]:
    made = []
    for kind, test, parts in (("suffix", _ends, SUFFIXES), ("prefix", _starts, PREFIXES)):
        for one in parts:
            shown = f"*-{one}*" if kind == "suffix" else f"*{one}-*"
            phrase = clause(f"is in a word in {shown}", f"is not in a word in {shown}")
            made.append(Property(f"{kind}={one}", "affix", phrase, of_word(partial(test, one))))
    return made


def _scripts() -> list[Property]:
    made = []
    for name, said in SCRIPTS.items():
        phrase = clause(f"is in {name.capitalize()} script", f"is not in {name.capitalize()} script")
        names = (said,) if isinstance(said, str) else said
        made.append(Property(f"script={name}", "script", phrase, of_word(partial(_in_script, names))))
    return [*made, Property("script=emoji", "script", noun("an emoji or symbol"), of_word(is_emoji))]


def _spaces() -> list[Property]:
    table: list[tuple[str, Phrase, Mask]] = [
        ("newline", noun("a line break"), of_string(_has_newline)),
        ("blank-line", noun("a blank line"), lambda t: t.derived(_is_blank_line)),
        ("indentation", noun("an indentation"), of_string(_is_indented)),
        ("blank", noun("white space"), of_string(_is_blank)),
        (
            "after-space",
            clause("follows a space", "does not follow a space"),
            lambda t: t.derived(_follows_space),
        ),
        ("special", noun("a special token"), _has_no_characters),
    ]
    return [Property(name, "space", phrase, mask) for name, phrase, mask in table]


def _has_newline(token: str) -> bool:
    return "\n" in token


def _is_blank_line(texts: Texts) -> np.ndarray:
    """[tokens]: line breaks with nothing but white space up to the line break before or after them."""
    found = np.zeros(texts.tokens, dtype=bool)
    for text, raw in enumerate(texts.raw):
        part = slice(texts.starts[text], texts.starts[text + 1])
        for match in re.finditer(r"\n(?:[ \t]*\n)+", raw):
            found[part] |= (texts.spans[part, 0] < match.end()) & (texts.spans[part, 1] > match.start())
    return found & texts.of_strings(_has_newline)
