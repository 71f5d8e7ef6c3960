"""Text to tokens, and back to text that people read: all that needs a tokenizer and no model.

A prompt is text or token ids; an answer is one token; places in a prompt are read by :mod:`headwise.positions`. Every
room reads them by these rules, and shows them by :func:`shown`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from headwise.errors import HeadwiseError, WrongField
from headwise.strings import in_short, is_boolean, shortened, well_formed, whole

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

Prompt: TypeAlias = "str | Sequence[int] | Tensor | np.ndarray"
"""One prompt: its text, or its token ids as a list or as a tensor or array of one dimension."""

_BROKEN = "\N{REPLACEMENT CHARACTER}"
_SUBSCRIPTS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")
_LONGEST = 4
"""Bytes of the longest character in UTF-8."""
_UNSEEN = (*range(0x21), *range(0x7F, 0xA1), 0xAD)
_LETTERS = {chr(byte): byte for byte in range(0x100)}
_LETTERS |= {chr(0x100 + i): byte for i, byte in enumerate(_UNSEEN)}
"""How byte-level vocabularies write bytes: those that nobody could see as letters from U+0100 on."""


# --- the tokenizer -------------------------------------------------------------------------------------------------


class NoTokenizer:
    """What a model without a tokenizer has in its place: text is refused, a token is shown as its number.

    >>> NoTokenizer().decode([17])
    '17'
    >>> NoTokenizer("the folder 'm' has no tokenizer (expected 'm/tokenizer.json')")("text")
    Traceback (most recent call last):
    ...
    headwise.errors.HeadwiseError: the folder 'm' has no tokenizer (expected 'm/tokenizer.json'): give token ids
    """

    is_fast = False
    chat_template = None

    def __init__(self, reason: str = "this model has no tokenizer") -> None:
        self.reason = reason

    def refuse(self, instead: str) -> NoReturn:
        """Say that there is none, and what to do ``instead``."""
        raise HeadwiseError(f"{self.reason}: {instead}")

    def __call__(self, *_: Any, **__: Any) -> NoReturn:
        self.refuse("give token ids")

    def decode(self, ids: Sequence[int]) -> str:
        return " ".join(str(int(one)) for one in ids)


def require_tokenizer(tokenizer: Any, instead: str) -> Any:
    """The tokenizer, if there is one; otherwise one line that ends with what to do ``instead``."""
    if tokenizer is None:
        NoTokenizer().refuse(instead)
    if isinstance(tokenizer, NoTokenizer):
        tokenizer.refuse(instead)
    return tokenizer


# --- prompts -------------------------------------------------------------------------------------------------------


def is_one(prompts: Any) -> bool:
    """Whether this is one prompt, not a list of several.

    >>> import numpy as np
    >>> is_one("text"), is_one([5, 6]), is_one(np.array([5, 6])), is_one(["text"]), is_one([[5, 6]])
    (True, True, True, False, False)
    """
    if _is_array(prompts):
        return prompts.ndim < 2
    if isinstance(prompts, str | bytes) or not isinstance(prompts, Sequence):
        return True
    return len(prompts) > 0 and not _is_many(prompts[0])


def encode(
    tokenizer: Any,
    prompts: Prompt | Sequence[Prompt],
    context: int | None = None,
    vocabulary: int | None = None,
) -> list[list[int]]:
    """Token ids of one prompt or of several; every id is below ``vocabulary``, every prompt fits ``context``."""
    given: Any = [prompts] if is_one(prompts) else prompts
    encoded: list[list[int]] = []
    for number, prompt in enumerate(given):
        same = number > 0 and prompt is given[number - 1]  # copies of one prompt need no second look
        which = f"prompt {number}"
        encoded.append(list(encoded[-1]) if same else _encoded(tokenizer, prompt, which, context, vocabulary))
    if not encoded:
        raise HeadwiseError("no prompts were given")
    return encoded


def encode_one(
    tokenizer: Any, prompt: Prompt, context: int | None = None, vocabulary: int | None = None
) -> list[int]:
    """Token ids where exactly one prompt is meant: a list of prompts is refused, not cut to its first."""
    if not is_one(prompt) and len(prompt):
        raise HeadwiseError(
            f"one prompt is wanted here, not a list of {len(prompt)} ({in_short(prompt[0])} first): give one text or "
            "one list of token ids, and call again for the next"
        )
    return _encoded(tokenizer, prompt, "the prompt", context, vocabulary)


def _encoded(
    tokenizer: Any, prompt: Any, which: str, context: int | None, vocabulary: int | None
) -> list[int]:
    ids = _from_text(tokenizer, prompt, which) if isinstance(prompt, str) else _from_ids(prompt, which)
    if not ids:
        raise HeadwiseError(f"{which} is empty: give it at least one token")
    if context is not None and len(ids) > context:
        raise HeadwiseError(f"{which} has {len(ids)} tokens but the model's context is {context}: shorten it")
    if vocabulary is not None:
        for position, token in enumerate(ids):
            if not 0 <= token < vocabulary:
                raise HeadwiseError(
                    f"token {in_short(token)} at position {position} of {which} is not in the model's vocabulary, "
                    f"which has tokens 0 to {vocabulary - 1}"
                    + (": the tokenizer is of another model" if isinstance(prompt, str) else "")
                )
    return ids


def _from_text(tokenizer: Any, text: str, which: str) -> list[int]:
    if not text:
        return []
    reads = require_tokenizer(tokenizer, "give prompts as token ids")
    ids = [int(token) for token in reads(well_formed(text, which)).input_ids]
    if not ids:
        raise HeadwiseError(
            f"the model's tokenizer makes no token of {which}, {in_short(text)}: give other text"
        )
    return ids


def _from_ids(prompt: Any, which: str) -> list[int]:
    if _is_array(prompt):
        if prompt.ndim != 1:
            raise HeadwiseError(
                f"{which} has shape {list(prompt.shape)}: token ids are a list or an array of one dimension"
            )
        prompt = list(prompt) if is_boolean(prompt) else prompt.tolist()
    elif isinstance(prompt, bytes) or not isinstance(prompt, Sequence):
        raise HeadwiseError(f"{in_short(prompt)} is not a prompt: give text or a list of token ids")
    ids = []
    for position, token in enumerate(prompt):
        number = whole(token)
        if number is None:
            raise HeadwiseError(
                f"{in_short(token)} at position {position} of {which} is not a token id: ids are whole numbers"
            )
        ids.append(number)
    return ids


def _is_array(value: Any) -> bool:
    """Whether this is a tensor or an array of any library; none is imported for the question."""
    return hasattr(value, "ndim") and hasattr(value, "tolist")


def _is_many(item: Any) -> bool:
    return item.ndim > 0 if _is_array(item) else isinstance(item, Sequence)


# --- chat ----------------------------------------------------------------------------------------------------------


def chat_prompt(tokenizer: Any, text: str) -> str | list[int]:
    """What a chat model reads when a user says ``text``: its chat template, up to where the model's own turn begins.

    Text that the tokenizer reads as the template means it; token ids where there is no such text, because the
    tokenizer would add special tokens that the template writes itself.
    """
    whole_text = chat_text(tokenizer, text)
    ids = [int(token) for token in tokenizer(whole_text, add_special_tokens=False).input_ids]
    for candidate in (whole_text, whole_text.removeprefix(getattr(tokenizer, "bos_token", None) or "")):
        if list(tokenizer(candidate).input_ids) == ids:
            return candidate
    return ids


def chat_text(tokenizer: Any, text: str) -> str:
    """A user's text in the tokenizer's chat template, with all special tokens written out."""
    require_tokenizer(tokenizer, "a chat prompt cannot be made")
    if not getattr(tokenizer, "chat_template", None):
        raise HeadwiseError(
            "the model's tokenizer has no chat template: give the prompt as the model is to read it"
        )
    turn = [{"role": "user", "content": well_formed(text, "the prompt")}]
    try:
        return str(tokenizer.apply_chat_template(turn, tokenize=False, add_generation_prompt=True))
    except Exception as error:  # a template is the model's own program and may fail in any way
        reason = " ".join(str(error).split()) or type(error).__name__
        raise HeadwiseError(
            f"the model's chat template refuses the prompt ({shortened(reason, 200)})"
        ) from None


# --- answers -------------------------------------------------------------------------------------------------------


def answer_token(
    tokenizer: Any, answer: str | int, what: str = "answer", *, vocabulary: int | None = None
) -> int:
    """The one token of an answer given as text or as a token id, which must be below ``vocabulary``."""
    if isinstance(answer, str):
        return single_token(tokenizer, answer, what)
    token = whole(answer)
    if token is None:
        raise HeadwiseError(f"{what} {in_short(answer)} is not a token: give its text or its id")
    if token < 0 or (vocabulary is not None and token >= vocabulary):
        known = "" if vocabulary is None else f", which has tokens 0 to {vocabulary - 1}"
        raise HeadwiseError(f"{what} {in_short(answer)} is not in the vocabulary{known}")
    return token


def single_token(tokenizer: Any, text: str, what: str = "answer") -> int:
    """The token that a text is; refused, with a hint, if it is none or several."""
    require_tokenizer(tokenizer, f"give the {what} as a token id")
    ids = list(tokenizer(well_formed(text, what), add_special_tokens=False).input_ids) if text else []
    if not ids:
        raise WrongField(
            f"the {what} is empty: give one token, with its leading space if it has one (' Mary')", what
        )
    if len(ids) > 1:
        pieces = shown(tokenizer, ids)
        spaced = f" {text.strip()}"
        fits = len(tokenizer(spaced, add_special_tokens=False).input_ids) == 1 and spaced != text
        # Part of a character is no text that could be given.
        first = repr(pieces[0]) if tokenizer.decode(ids[:1]) == pieces[0] else f"the token id {ids[0]}"
        hint = f"{spaced!r}, with a leading space, is one" if fits else f"give its first one, {first}"
        cut = " | ".join(map(repr, pieces))
        raise WrongField(
            f"{what} {text!r} is {len(ids)} tokens ({cut}): {hint}", what, [spaced if fits else pieces[0]]
        )
    if ids[0] == getattr(tokenizer, "unk_token_id", None) and text != tokenizer.unk_token:
        raise WrongField(f"{what} {text!r} is not in the model's vocabulary", what)
    return ids[0]


# --- tokens as people read them ------------------------------------------------------------------------------------


def shown(tokenizer: Any, ids: Sequence[int]) -> tuple[str, ...]:
    """The text of every token of a prompt, or its number where there is no tokenizer.

    Tokens of bytes may cut a character into pieces that are no text by themselves. Such a piece shows its character
    and its number among the character's pieces, ``🍎₁``, ``🍎₂``; where the tokens around it leave the character open,
    the bytes that it has of it: ``⟨F0 9F⟩``.
    """
    pieces = [str(tokenizer.decode([token])) for token in ids]
    start = 0
    while start < len(pieces):
        stop = start
        while stop < len(pieces) and _BROKEN in pieces[stop]:
            stop += 1
        run = zip(ids[start:stop], pieces[start:stop], strict=True)
        pieces[start:stop] = _parts([_bytes(tokenizer, token, piece) for token, piece in run])
        start = stop + 1
    return tuple(pieces)


def shown_after(tokenizer: Any, ids: Sequence[int], token: int) -> str:
    """One token as it follows a prompt: an answer that ends a character shows that character and its piece."""
    return shown(tokenizer, [*ids[1 - _LONGEST :], token])[-1]


def _parts(tokens: Sequence[bytes]) -> list[str]:
    r"""What to show for tokens in a row, given as their bytes.

    >>> _parts([b"\xe2\x82", b"\xac!", b" \xf0\x9f"])
    ['€₁', '€₂!', ' ⟨F0 9F⟩']
    """
    held: list[list[str]] = [[] for _ in tokens]
    owners, start = [i for i, token in enumerate(tokens) for _ in token], 0
    for character in b"".join(tokens).decode(errors="surrogateescape"):
        encoded = character.encode(errors="surrogateescape")
        known = character if encoded.isascii() or len(encoded) > 1 else f"⟨{encoded[0]:02X}⟩"
        sharing = sorted(set(owners[start : start + len(encoded)]))
        for number, token in enumerate(sharing, 1):
            held[token].append(known + (str(number).translate(_SUBSCRIPTS) if len(sharing) > 1 else ""))
        start += len(encoded)
    return ["".join(pieces).replace("⟩⟨", " ") for pieces in held]


def _bytes(tokenizer: Any, token: int, piece: str) -> bytes:
    """The bytes of a token that is no whole text, as its name in the vocabulary says; else those of its ``piece``."""
    name = str(getattr(tokenizer, "convert_ids_to_tokens", lambda _: piece)(int(token)))
    if fallback := re.fullmatch("<0x([0-9A-Fa-f]{2})>", name):
        return bytes.fromhex(fallback[1])
    if all(letter in _LETTERS for letter in name):
        return bytes(_LETTERS[letter] for letter in name)
    return piece.encode()
