"""Answers of several tokens, and tokens that the model itself wrote: the prompt goes on to where the question is asked.

An answer's log-probability is the sum over its tokens, each after those before it. Two answers that begin alike are
compared where they part: what they share is read as part of the prompt, and the first tokens that differ are compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from headwise.arguments import count
from headwise.errors import HeadwiseError
from headwise.positions import one_position
from headwise.strings import in_short, whole
from headwise.tokens import Prompt, answer_token, shown
from headwise.why.consequence import SummedEffect, set_row, without_cell
from headwise.why.proof import removal_of

if TYPE_CHECKING:
    from headwise.model.edits import Edit
    from headwise.model.model import Model
    from headwise.tracing.table import LogOddsTable
    from headwise.tracing.writers import WriterSet
    from headwise.tracing.writes import PromptWrites

AnswerLike = str | int | Sequence[int]
"""An answer as users give it: text, a token id, or several."""
MOST = 1000
"""Tokens that are written at most."""


@dataclass(frozen=True)
class LongAnswer:
    """Some tokens after the prompt."""

    token_ids: tuple[int, ...]
    """Their ids."""
    tokens: tuple[str, ...]
    """The same as text."""
    log_probabilities: tuple[float, ...]
    """Of each token, after the prompt and the tokens before it."""

    @property
    def text(self) -> str:
        """All of it as text."""
        return "".join(self.tokens)

    @property
    def log_probability(self) -> float:
        """Of all of it: the sum over its tokens."""
        return sum(self.log_probabilities)

    def to_json(self) -> dict[str, Any]:
        return {
            "text": self.text,
            "tokens": list(self.tokens),
            "log_probabilities": list(self.log_probabilities),
            "log_probability": self.log_probability,
        }


@dataclass(frozen=True)
class Continued:
    """How the prompt goes on before the question is asked."""

    answer: LongAnswer | None
    """The answer as it was given, or what the model wrote; None where only a wrong one of several tokens was given."""
    wrong: LongAnswer | None
    """What it is compared with, where that was given."""
    at: int
    """How many tokens are read after the prompt, before the one that is asked about."""
    written: bool
    """Whether the model wrote the answer itself."""

    @property
    def notice(self) -> str:
        """What a reader must know first."""
        if self.written and self.answer is not None:
            tokens = self.answer.tokens
            return (
                f"The model wrote {self.answer.text!r} after the prompt; asked about is its token {tokens[self.at]!r} "
                f"({self.at})."
            )
        said = " and ".join(
            f"{one.text!r} has log-probability {one.log_probability:.2f} ({len(one.tokens)} tokens)"
            for one in (self.answer, self.wrong)
            if one is not None
        )
        one = self.answer or self.wrong
        assert one is not None
        read = f", after {''.join(one.tokens[: self.at])!r} has been read" if self.at else ""
        return f"{said}; the question is asked where they part{read}."

    def to_json(self) -> dict[str, Any]:
        return {
            "answer": None if self.answer is None else self.answer.to_json(),
            "wrong": None if self.wrong is None else self.wrong.to_json(),
            "at": self.at,
            "written": self.written,
        }


@dataclass(frozen=True)
class AskedAfter:
    """The prompt as far as the question, and the tokens that are compared there."""

    token_ids: list[int]
    text: str | None
    answer: int | None
    wrong: int | None
    continued: Continued | None


@torch.no_grad()
def after_answers(
    model: Model, prompt: Prompt, answer: AnswerLike | None, wrong: AnswerLike | None, start: int = 0
) -> AskedAfter:
    """Where two answers part, of which one has several tokens; the prompt's end where neither has."""
    given = [
        None if one is None else _ids(model, one, what)
        for one, what in ((answer, "answer"), (wrong, "wrong"))
    ]
    ids = model.prompt_ids(prompt)
    if all(one is None or len(one) == 1 for one in given):
        first, second = (None if one is None else one[0] for one in given)
        return AskedAfter(ids, prompt if isinstance(prompt, str) else None, first, second, None)
    own, other = (None if one is None else _scored(model, ids, one, start) for one in given)
    at = _parting(own, other)
    shared = (own or other).answer.token_ids[:at]  # pyright: ignore[reportOptionalMemberAccess]
    continued = Continued(
        None if own is None else own.answer, None if other is None else other.answer, at, False
    )
    text = prompt + continued_text(model, shared) if isinstance(prompt, str) else None
    first, second = (None if one is None else one.answer.token_ids[at] for one in (own, other))
    return AskedAfter([*ids, *shared], text, first, second, continued)


@torch.no_grad()
def after_writing(
    model: Model,
    prompt: Prompt,
    number: Any,
    which: str | int | None = None,
    wrong: Any = None,
    start: int = 0,
) -> AskedAfter:
    """Some tokens that the model writes, always the most likely one; ``which`` of them is asked about.

    ``wrong`` is the one token that it is compared with, if any.
    """
    against = (
        None if wrong is None else answer_token(model.tokenizer, wrong, "wrong", vocabulary=model.vocabulary)
    )
    number = count(number, "generate", "writes nothing")
    if number > MOST:
        raise HeadwiseError(f"generate={number} is more than the {MOST} tokens that are written at most")
    ids = model.prompt_ids(prompt)
    end = getattr(model.tokenizer, "eos_token_id", None)
    written: list[int] = []
    scores: list[float] = []
    while len(written) < number and end not in written:
        logits = _logits(model, [*ids, *written], [-1], start)[0]
        token = int(logits.argmax())
        written.append(token)
        scores.append(float(logits[token]))
    made = LongAnswer(tuple(written), shown(model.tokenizer, written), tuple(scores))
    at = len(written) - 1 if which is None else one_position(made.tokens, which, "written")
    text = prompt + continued_text(model, written[:at]) if isinstance(prompt, str) else None
    return AskedAfter([*ids, *written[:at]], text, written[at], against, Continued(made, None, at, True))


def continued_text(model: Model, ids: Sequence[int]) -> str:
    """Tokens after a prompt as text."""
    return "".join(shown(model.tokenizer, list(ids)))


@torch.no_grad()
def summed_effects(
    up: PromptWrites, table: LogOddsTable, cause: WriterSet | None, continued: Continued
) -> tuple[SummedEffect, ...]:
    """Both answers as a whole, with the cell and its cause taken away where the question is asked.

    Every pass reads the prompt and all of an answer, so that what is taken away counts for the later tokens, too.
    """
    cell, without = table.cell, without_cell(table)
    plans: list[list[Edit]] = [[]]
    if without is not None:
        plans.append([set_row(up, cell, without)])
    if cause is not None:
        plans.append(removal_of(up, cell, cause).edits())
    model, ids = up.stream.model, up.stream.token_ids[up.prompt]
    prompt = list(ids[: len(ids) - continued.at])
    edits = [replace(edit, prompt=copy) for copy, plan in enumerate(plans) for edit in plan]
    made = []
    for one in (continued.answer, continued.wrong):
        if one is None:
            continue
        places = list(range(len(prompt) - 1, len(prompt) + len(one.token_ids) - 1))
        read = [*prompt, *one.token_ids[:-1]]
        logits = model.edit([read] * len(plans), edits, logits=places, start=up.stream.start).logits
        scores = logits.double().log_softmax(-1)
        wanted = torch.tensor(one.token_ids, device=scores.device).expand(len(plans), -1)
        sums = scores.gather(2, wanted[..., None]).sum((1, 2)).tolist()
        before = sums.pop(0)
        path = None if without is None else sums.pop(0)
        made.append(SummedEffect(one.text, before, path, None if cause is None else sums.pop(0)))
    return tuple(made)


# --- answers and their log-probabilities -----------------------------------------------------------------------------


def _ids(model: Model, given: AnswerLike, what: str) -> list[int]:
    """The tokens of an answer. Text that would be one token with a space before it is refused with that hint."""
    if isinstance(given, str):
        ids = list(model.tokenizer(given, add_special_tokens=False).input_ids) if given.strip() else []
        spaced = model.tokenizer(f" {given.strip()}", add_special_tokens=False).input_ids if ids else []
        if len(ids) < 2 or (len(spaced) == 1 and not given.startswith(" ")):
            return [answer_token(model.tokenizer, given, what, vocabulary=model.vocabulary)]
        return [int(token) for token in ids]
    if whole(given) is not None or not isinstance(given, Sequence):
        return [answer_token(model.tokenizer, given, what, vocabulary=model.vocabulary)]  # type: ignore[arg-type]
    if not given:
        raise HeadwiseError(f"{what}={in_short(given)} names no tokens: give text or token ids")
    return [answer_token(model.tokenizer, token, what, vocabulary=model.vocabulary) for token in given]


@dataclass(frozen=True)
class _ScoredAnswer:
    """An answer with its log-probabilities, and what the model would say at each of its tokens."""

    answer: LongAnswer
    predicted: tuple[int, ...]


def _scored(model: Model, ids: list[int], answer: list[int], start: int) -> _ScoredAnswer:
    """One pass over the prompt and the answer."""
    places = list(range(len(ids) - 1, len(ids) + len(answer) - 1))
    logits = _logits(model, [*ids, *answer[:-1]], places, start)
    values = logits.gather(1, torch.tensor(answer, device=logits.device)[:, None])[:, 0].tolist()
    made = LongAnswer(tuple(answer), shown(model.tokenizer, answer), tuple(values))
    return _ScoredAnswer(made, tuple(logits.argmax(-1).tolist()))


def _logits(model: Model, ids: list[int], places: list[int], start: int) -> torch.Tensor:
    """Log-probabilities [places, vocabulary] of the token after each place."""
    got = model.capture(
        [ids], heads=[model.heads[0]], queries=-1, keys=-1, want=("q",), logits=places, start=start
    )
    return got.logits[0].double().log_softmax(-1)


def _parting(own: _ScoredAnswer | None, other: _ScoredAnswer | None) -> int:
    """How many tokens two answers share; beside one alone, the model's own choices are the other."""
    if own is not None and other is not None:
        a, b = own.answer.token_ids, other.answer.token_ids
        both = zip(a, b, strict=False)
        found = next((i for i, (x, y) in enumerate(both) if x != y), None)
        if found is None:
            longer, shorter = sorted((own.answer, other.answer), key=lambda one: -len(one.tokens))
            raise HeadwiseError(
                f"{in_short(longer.text)} begins with {in_short(shorter.text)}, so the two answers do not part: name "
                "two that do"
            )
        return found
    one = own or other
    assert one is not None
    pairs = zip(one.answer.token_ids, one.predicted, strict=True)
    return next((i for i, (x, y) in enumerate(pairs) if x != y), 0)
