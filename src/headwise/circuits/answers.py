"""What the user calls the answer, as a token of the model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwise.errors import HeadwiseError

if TYPE_CHECKING:
    from headwise.model.core import Model


def answer_token(model: Model, answer: str | int, what: str = "answer") -> int:
    """The one token of an answer given as text or as a token id."""
    size = model.hf.config.get_text_config().vocab_size
    if isinstance(answer, int):
        if not 0 <= answer < size:
            raise HeadwiseError(f"{what} {answer} is not in the vocabulary, which has tokens 0 to {size - 1}")
        return answer
    if model.tokenizer is None:
        raise HeadwiseError(f"this model has no tokenizer: give the {what} as a token id")
    ids = list(model.tokenizer(answer, add_special_tokens=False).input_ids) if answer else []
    if not ids:
        raise HeadwiseError(
            f"the {what} is empty: give one token, with its leading space if it has one (' Mary')"
        )
    if len(ids) > 1:
        pieces = [model.tokenizer.decode([token]) for token in ids]
        spaced = f" {answer.strip()}"
        fits = len(model.tokenizer(spaced, add_special_tokens=False).input_ids) == 1 and spaced != answer
        hint = f"{spaced!r}, with a leading space, is one" if fits else f"give its first one, {pieces[0]!r}"
        raise HeadwiseError(
            f"{what} {answer!r} is {len(ids)} tokens ({' | '.join(map(repr, pieces))}): {hint}"
        )
    if ids[0] == getattr(model.tokenizer, "unk_token_id", None) and answer != model.tokenizer.unk_token:
        raise HeadwiseError(f"{what} {answer!r} is not in the model's vocabulary")
    return ids[0]


def shown(model: Model, token: int) -> str:
    """A token as text, or its number where there is no tokenizer."""
    return str(token) if model.tokenizer is None else model.tokenizer.decode([token])
