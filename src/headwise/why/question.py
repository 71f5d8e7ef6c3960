"""Which attention is meant? Either the user says so, or the model's own answer leads to it.

One yardstick chooses the question and measures what becomes of the answer: the log-probability of the answer, or its
lead where the user named a token that it is compared with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from headwise.bases.basis import Bases
from headwise.basis_names import BasisKind
from headwise.circuits.counterfactual import Outcome
from headwise.errors import WrongField
from headwise.model.attend import BLOCK
from headwise.model.stream import split
from headwise.positions import one_cell, one_position
from headwise.tokens import Prompt, answer_token, shown, shown_after
from headwise.tracing.seeds import Readout, answer_shares, last_of, likelihood_shares
from headwise.tracing.writes import PromptWrites
from headwise.types import AnswerIds, Cell, Head

if TYPE_CHECKING:
    from headwise.model.model import Model

RUNNERS_UP = 4
MUCH = 0.05
"""A head brings much of the answer from this part of all that is brought."""


@dataclass(frozen=True, eq=False)
class PromptReading:
    """One prompt as the model read it, in one pass: what every question about it shares."""

    prompt: str | None
    """The prompt as text; None if token ids were given."""
    token_ids: tuple[int, ...]
    tokens: tuple[str, ...]
    """[T]: its tokens as text."""
    up: PromptWrites
    logits: Tensor
    """[vocabulary]: of the next token."""

    @classmethod
    @torch.no_grad()
    def of(
        cls, model: Model, prompt: Prompt, *, basis: BasisKind = "singular", start: int = 0
    ) -> PromptReading:
        """Read a prompt; one that is too short to ask about is refused."""
        token_ids = readable(model, prompt)
        up = PromptWrites(split(model, token_ids, start=start), 0, Bases.of(model, basis))
        last = last_of(up)
        return cls(
            prompt if isinstance(prompt, str) else None,
            tuple(token_ids),
            shown(model.tokenizer, token_ids),
            up,
            Readout.of(model, last).logits(last),
        )


def readable(model: Model, prompt: Prompt) -> list[int]:
    """The token ids of a prompt in which a head can read another token."""
    if isinstance(prompt, str) and not prompt.strip():
        raise WrongField("the prompt is empty: give the text the model is to read", "text")
    token_ids = model.prompt_ids(prompt)
    if len(token_ids) < 2:
        raise WrongField(
            "the prompt is one token long, so every head can only read that token: give a longer one", "text"
        )
    return token_ids


@dataclass(frozen=True, kw_only=True)
class Answer(AnswerIds):
    """What the model says after the prompt, and the token it is compared with."""

    wrong: int  # pyright: ignore[reportIncompatibleVariableOverride, reportGeneralTypeIssues]
    """The token id that it is compared with: the user's, or the model's next choice."""
    text: str
    """The answer as text."""
    wrong_text: str
    """What it is compared with, as text."""
    probability: float
    """Of the answer, after the prompt."""
    lead: float
    """Logit of the answer minus that of the wrong one."""
    predicted: str
    """The model's own first choice (the answer, unless the user named another)."""
    compared: bool = False
    """Whether the user named the wrong one; otherwise it is the model's next choice."""

    def yardstick(self, outcome: Outcome) -> float:
        """By what the answer is measured: its lead over the wrong one where that was named, else its log-probability.

        In nats either way.
        """
        return outcome.lead if self.compared else outcome.log_probability

    @property
    def measured_by(self) -> str:
        """The yardstick's name."""
        return "lead" if self.compared else "log_probability"


@dataclass(frozen=True)
class RunnerUp:
    """Another cell that could have been asked about, and the number by which it was ranked."""

    cell: Cell
    """The cell."""
    score: float
    """What it brings for the answer, or its attention, by which it was ranked."""


@dataclass(frozen=True)
class Question:
    """One cell of one head's pattern, how it was chosen, and what came after it in the ranking."""

    cell: Cell
    """The head, the position that attends and the one it attends to."""
    because: str
    """How it was chosen, as a clause."""
    runners_up: tuple[RunnerUp, ...] = ()
    """The cells that came next in the ranking."""
    notices: tuple[str, ...] = ()
    """What a reader must know before the answer."""


def find_answer(
    model: Model,
    token_ids: Sequence[int],
    logits: Tensor,
    answer: str | int | Sequence[int] | None,
    wrong: str | int | Sequence[int] | None,
) -> Answer:
    """The answer (default: the most likely token) and what it is compared with (default: the next)."""

    def text(token: int) -> str:
        return shown_after(model.tokenizer, token_ids, token)

    def named(given: Any, what: str) -> int:
        return answer_token(model.tokenizer, given, what, vocabulary=model.vocabulary)

    order = logits.topk(2).indices.tolist()
    token = order[0] if answer is None else named(answer, "answer")
    other = named(wrong, "wrong") if wrong is not None else order[1] if token == order[0] else order[0]
    if token == other:
        raise WrongField(f"answer and wrong are both {text(token)!r}: name two different tokens", "wrong")
    ids = AnswerIds(token, other)
    return Answer(
        token=token,
        text=text(token),
        wrong=other,
        wrong_text=text(other),
        probability=float(ids.likelihood(logits.double())),
        lead=float(ids.difference(logits)),
        predicted=text(order[0]),
        compared=wrong is not None,
    )


def ask(
    model: Model,
    up: PromptWrites,
    tokens: Sequence[str],
    answer: Answer,
    head: str | Head | None,
    query: str | int | None,
    key: str | int | None,
) -> Question:
    """The cell that is meant."""
    if query is not None and key is not None:
        row, column = one_cell(tokens, query, key)
    else:
        row = None if query is None else one_position(tokens, query, "query")
        column = None if key is None else one_position(tokens, key, "key")
    asked = None if head is None else model.head(head)
    found = _by_answer(up, tokens, answer, row, column) if asked is None else _by_head(up, asked, row, column)
    return replace(found, notices=(*_about(answer), *found.notices))


def _about(answer: Answer) -> list[str]:
    """What is odd about the answer itself."""
    said = []
    if not answer.text.strip():
        said.append(
            f"The answer {answer.text!r} is only a space or a new line, so what is said about it tells little: end the "
            "prompt where a word comes next, or name an answer."
        )
    if answer.lead < 0:
        said.append(
            f"The model does not prefer {answer.text!r}: {answer.wrong_text!r} leads by {-answer.lead:.2f}."
        )
    return said


def _by_answer(
    up: PromptWrites, tokens: Sequence[str], answer: Answer, query: int | None, key: int | None
) -> Question:
    """The head that brings most of the answer to the last position, and the token it brings it from."""
    last = up.tokens - 1
    if query is not None and query != last:
        raise WrongField(
            f"query={query} needs a head: without one the last token ({last}) is asked about, "
            "where the answer is made",
            "query",
            [last],
        )
    token, wrong = answer.token, answer.wrong
    shares = answer_shares(up, token, wrong) if answer.compared else likelihood_shares(up, token)
    total, shares = float(shares.sum()), shares[: up.n_carried(up.n_layers)]
    source = torch.arange(len(shares)) % up.tokens
    if key is not None:
        left_out = source != key
    else:
        # A head that reads the last token itself brings nothing that was not there already, and attention on the
        # first token is where heads rest when they have nothing to bring.
        left_out = source == last
        if up.tokens > 2:
            left_out |= source == 0
    shares = shares.masked_fill(left_out, float("-inf"))
    best = shares.topk(min(RUNNERS_UP + 1, int(shares.isfinite().sum())))
    found = []
    for index, share in zip(best.indices.tolist(), best.values.tolist(), strict=True):
        part = up.component(up.n_layers, index)
        found.append(RunnerUp(Cell(part.head, last, part.source), share))
    first, share = found[0].cell, found[0].score
    of = (
        f"the lead of {answer.text!r} over {answer.wrong_text!r}"
        if answer.compared
        else f"log p({answer.text!r})"
    )
    why = (
        f"of all heads, {first.head} brings most of {of} to the last token from elsewhere: "
        f"{share:+.2f} of {total:.2f}, by reading {tokens[first.key]!r} ({first.key})"
    )
    notices: tuple[str, ...] = ()
    if share < MUCH * abs(total):
        notices = (
            f"No head brings much of {of} from another token: the most is {share:+.2f} of {total:.2f}, "
            f"by {first.head}.",
        )
    return Question(first, why, tuple(found[1:]), notices)


def _by_head(up: PromptWrites, head: Head, query: int | None, key: int | None) -> Question:
    """The strongest cell of one head's pattern, in the row or column that was named."""
    first = 0 if query is None else query
    rows = torch.arange(first, up.tokens if query is None else query + 1, device=up.device)
    if query is not None and key is not None:
        if not bool(up.visible(head.layer, rows)[0, key]):
            raise WrongField(
                f"{head} at position {query} cannot see position {key}: it is outside its window", "key"
            )
        return Question(Cell(head, query, key), "head, query and key were given")
    said = []
    if query is not None:
        said.append(f"in the row of position {query}")
    columns = torch.arange(up.tokens, device=up.device)
    wanted = torch.ones_like(columns, dtype=torch.bool) if key is None else columns == key
    if key is not None:
        said.append(f"in the column of position {key}")
    elif int(rows[-1]) > 0:  # every other row sees itself
        wanted[0] = False  # attention on the first token is where heads rest when they have nothing to do
        said.append("the first token, where heads rest, left out")
    found = _strongest(up, head, rows if query == 0 else rows[rows > 0], wanted)
    if not found:
        raise WrongField(f"no query of {head} other than the first token sees position {key}", "key")
    cells = [RunnerUp(Cell(head, *divmod(place, up.tokens)), score) for score, place in found]
    why = f"the strongest attention of {head}" + (f" ({', '.join(said)})" if said else "")
    return Question(cells[0].cell, why, tuple(cells[1:]))


def _strongest(up: PromptWrites, head: Head, rows: Tensor, columns: Tensor) -> list[tuple[float, int]]:
    """The largest attentions of a head in some rows [n] and columns (True in [T]), each with its row · T + column: some
    rows at a time."""
    found: list[tuple[float, int]] = []
    for some in rows.split(max(1, BLOCK // up.tokens)):
        allowed = up.visible(head.layer, some) & columns
        pattern = up.stream.whole_pattern(head, up.prompt, some.tolist()).masked_fill(~allowed, -1.0)
        best = pattern.flatten().topk(min(RUNNERS_UP + 1, int(allowed.sum())))
        places = (some[best.indices // up.tokens] * up.tokens + best.indices % up.tokens).tolist()
        found += zip(best.values.tolist(), places, strict=True)
    return sorted(found, key=lambda one: (-one[0], one[1]))[: RUNNERS_UP + 1]
