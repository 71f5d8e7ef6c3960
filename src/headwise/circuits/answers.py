"""What the user calls the answer, as a token of the model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwise.errors import HeadwiseError
from headwise.model.batch import single_token

if TYPE_CHECKING:
    from headwise.model.core import Model


def answer_token(model: Model, answer: str | int, what: str = "answer") -> int:
    """The one token of an answer given as text or as a token id."""
    size = model.hf.config.get_text_config().vocab_size
    if isinstance(answer, int):
        if not 0 <= answer < size:
            raise HeadwiseError(f"{what} {answer} is not in the vocabulary, which has tokens 0 to {size - 1}")
        return answer
    return single_token(model.tokenizer, answer, what)


def shown(model: Model, token: int) -> str:
    """A token as text, or its number where there is no tokenizer."""
    return str(token) if model.tokenizer is None else model.tokenizer.decode([token])
