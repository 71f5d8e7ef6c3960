"""What the user calls the answer, as a token of the model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwise.errors import HeadwiseError
from headwise.model.prompts import quoted, single_token, whole

if TYPE_CHECKING:
    from headwise.model.model import Model


def answer_token(model: Model, answer: str | int, what: str = "answer") -> int:
    """The one token of an answer given as text or as a token id."""
    if not isinstance(answer, str):
        token, size = whole(answer), model.vocabulary
        if token is None:
            raise HeadwiseError(f"{what} {quoted(answer)} is not a token: give its text or its id")
        if not 0 <= token < size:
            raise HeadwiseError(
                f"{what} {quoted(answer)} is not in the vocabulary, which has tokens 0 to {size - 1}"
            )
        return token
    return single_token(model.tokenizer, answer, what)


def shown(model: Model, token: int) -> str:
    """A token as text, or its number where there is no tokenizer."""
    return model.tokenizer.decode([token])
