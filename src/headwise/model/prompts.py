"""Prompts as the user gives them, text or token ids, made into token ids of the model; or one line why not."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor

from headwise.errors import HeadwiseError
from headwise.strings import shortened, well_formed

Prompt = str | Sequence[int] | Tensor | np.ndarray
"""One prompt: its text, or its token ids as a list or as a tensor or array of one dimension."""


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


def whole(value: Any) -> int | None:
    """A whole number of any integer type (Python's, NumPy's, a tensor's one element); None for all else.

    >>> whole(7), whole(np.int64(7)), whole(torch.tensor(7)), whole(2.7), whole(True), whole("7")
    (7, 7, 7, None, None, None)
    """
    if isinstance(value, bool) or getattr(value, "dtype", None) in (torch.bool, np.bool_):
        return None
    try:
        return operator.index(value)
    except (TypeError, ValueError, RuntimeError):
        return None


def quoted(value: Any) -> str:
    """A value for a message, short whatever it is.

    >>> quoted(2.7), quoted(10**5000)
    ('2.7', 'a number of thousands of digits')
    """
    try:
        return shortened(" ".join(repr(value).split()))
    except ValueError:  # Python prints no integer beyond 4,300 digits
        return "a number of thousands of digits"


def is_one(prompts: Any) -> bool:
    """Whether this is one prompt, not a list of several.

    >>> is_one("text"), is_one([5, 6]), is_one(torch.tensor([5, 6])), is_one(["text"]), is_one([[5, 6]])
    (True, True, True, False, False)
    """
    if isinstance(prompts, Tensor | np.ndarray):
        return prompts.ndim < 2
    if isinstance(prompts, str | bytes) or not isinstance(prompts, Sequence):
        return True
    return len(prompts) > 0 and not _is_many(prompts[0])


def _is_many(item: Any) -> bool:
    if isinstance(item, Tensor | np.ndarray):
        return item.ndim > 0
    return isinstance(item, Sequence)


def encode(
    tokenizer: Any,
    prompts: Prompt | Sequence[Prompt],
    context: int | None = None,
    vocabulary: int | None = None,
) -> list[list[int]]:
    """Token ids of one prompt or of several; every id is below ``vocabulary``, every prompt fits ``context``."""
    given: Any = [prompts] if is_one(prompts) else prompts
    encoded = [
        _encoded(tokenizer, prompt, f"prompt {number}", context, vocabulary)
        for number, prompt in enumerate(given)
    ]
    if not encoded:
        raise HeadwiseError("no prompts were given")
    return encoded


def encode_one(
    tokenizer: Any, prompt: Prompt, context: int | None = None, vocabulary: int | None = None
) -> list[int]:
    """Token ids where exactly one prompt is meant: a list of prompts is refused, not cut to its first."""
    if not is_one(prompt) and len(prompt):
        raise HeadwiseError(
            f"one prompt is wanted here, not a list of {len(prompt)} ({quoted(prompt[0])} first): give one text or "
            "one list of token ids, and call again for the next"
        )
    return _encoded(tokenizer, prompt, "the prompt", context, vocabulary)


def _encoded(
    tokenizer: Any, prompt: Any, which: str, context: int | None, vocabulary: int | None
) -> list[int]:
    ids = _tokens(tokenizer, prompt, which) if isinstance(prompt, str) else _ids(prompt, which)
    if not ids:
        raise HeadwiseError(f"{which} is empty: give it at least one token")
    if context is not None and len(ids) > context:
        raise HeadwiseError(f"{which} has {len(ids)} tokens but the model's context is {context}: shorten it")
    if vocabulary is not None:
        for position, token in enumerate(ids):
            if not 0 <= token < vocabulary:
                raise HeadwiseError(
                    f"token {quoted(token)} at position {position} of {which} is not in the model's vocabulary, "
                    f"which has tokens 0 to {vocabulary - 1}"
                    + (": the tokenizer is of another model" if isinstance(prompt, str) else "")
                )
    return ids


def _tokens(tokenizer: Any, text: str, which: str) -> list[int]:
    if not text:
        return []
    reads = require_tokenizer(tokenizer, "give prompts as token ids")
    ids = [int(token) for token in reads(well_formed(text, which)).input_ids]
    if not ids:
        raise HeadwiseError(
            f"the model's tokenizer makes no token of {which}, {quoted(text)}: give other text"
        )
    return ids


def _ids(prompt: Any, which: str) -> list[int]:
    if isinstance(prompt, Tensor | np.ndarray):
        if prompt.ndim != 1:
            raise HeadwiseError(
                f"{which} has shape {list(prompt.shape)}: token ids are a list or an array of one dimension"
            )
        prompt = prompt.tolist() if prompt.dtype not in (torch.bool, np.bool_) else list(prompt)
    elif isinstance(prompt, bytes) or not isinstance(prompt, Sequence):
        raise HeadwiseError(f"{quoted(prompt)} is not a prompt: give text or a list of token ids")
    ids = []
    for position, token in enumerate(prompt):
        number = whole(token)
        if number is None:
            raise HeadwiseError(
                f"{quoted(token)} at position {position} of {which} is not a token id: ids are whole numbers"
            )
        ids.append(number)
    return ids


def single_token(tokenizer: Any, text: str, what: str = "answer") -> int:
    """The token that a text is; refused, with a hint, if it is none or several."""
    require_tokenizer(tokenizer, f"give the {what} as a token id")
    ids = list(tokenizer(well_formed(text, what), add_special_tokens=False).input_ids) if text else []
    if not ids:
        raise HeadwiseError(
            f"the {what} is empty: give one token, with its leading space if it has one (' Mary')"
        )
    if len(ids) > 1:
        pieces = [tokenizer.decode([token]) for token in ids]
        spaced = f" {text.strip()}"
        fits = len(tokenizer(spaced, add_special_tokens=False).input_ids) == 1 and spaced != text
        hint = f"{spaced!r}, with a leading space, is one" if fits else f"give its first one, {pieces[0]!r}"
        raise HeadwiseError(f"{what} {text!r} is {len(ids)} tokens ({' | '.join(map(repr, pieces))}): {hint}")
    if ids[0] == getattr(tokenizer, "unk_token_id", None) and text != tokenizer.unk_token:
        raise HeadwiseError(f"{what} {text!r} is not in the model's vocabulary")
    return ids[0]
