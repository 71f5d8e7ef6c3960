"""What the head does with what it read: which tokens it raises and lowers, directly and along every path.

*Directly*: A · W_O W_V x_s goes to the stream, and with the final norm frozen it adds a fixed amount to every token's
logit. *Along every path*: the same row without this cell, the others scaled up to one, run through the whole model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from headwise.circuits.counterfactual import Outcome
from headwise.model.edits import SetOutput
from headwise.tracing.causes import attention
from headwise.tracing.seeds import Readout
from headwise.tracing.table import LogOddsTable
from headwise.tracing.vectors import component_writes
from headwise.tracing.writes import PromptWrites
from headwise.types import AnswerIds, Cell, Component

TOKENS = 5
"""Tokens shown on either side."""


@dataclass(frozen=True)
class TokenEffect:
    """What is added to one token's logit, against the mean token."""

    token: str
    """The token as text."""
    logit: float
    """What is added to its logit."""


@dataclass(frozen=True)
class DirectEffect:
    """What is added to the answer's logit, against the mean token and against the wrong one."""

    answer: float
    """To the answer's logit, against the mean token."""
    lead: float
    """To its lead over the wrong one."""


@dataclass(frozen=True)
class SummedEffect:
    """What becomes of an answer of several tokens: its log-probability, summed over its tokens, in edited passes."""

    text: str
    """The answer, as text."""
    before: float
    """Of the model as it is."""
    path: float | None
    """Without the cell; None where the row sees nothing else."""
    after: float | None
    """Without the cause; None where there is none."""


@dataclass(frozen=True)
class Consequence:
    """What one cell does to the next token.

    ``raised`` and ``lowered`` are of the token after the query; ``direct`` is None where that is not where the answer
    is. ``path`` is the model without the cell, None where the row sees nothing else.
    """

    raised: tuple[TokenEffect, ...]
    """The tokens it raises most."""
    lowered: tuple[TokenEffect, ...]
    """The tokens it lowers most."""
    direct: DirectEffect | None
    """What it adds to the answer itself; None where the answer is made at another token."""
    path: Outcome | None = None
    """The model without the cell; None where the row sees nothing else."""
    summed: tuple[SummedEffect, ...] = ()
    """Answers of several tokens as a whole: the answer, then what it is compared with, where given."""


def consequence(up: PromptWrites, cell: Cell, answer: AnswerIds, text: Callable[[int], str]) -> Consequence:
    """The tokens and the direct effect of one cell; ``text`` gives a token's text."""
    head, d, s = cell
    written = component_writes(up, Component("head", head.layer, head.index, s))[d]
    final = up.stream.final
    assert final is not None
    last = final[up.prompt, up.span][d]
    logits = Readout.of(up.stream.model, last).push(written.to(last.dtype)).double()
    moved = logits - logits.mean()
    direct = None
    if d == up.tokens - 1:
        direct = DirectEffect(float(moved[answer.token]), float(answer.difference(logits)))
    return Consequence(_strongest(moved, text, 1.0), _strongest(moved, text, -1.0), direct)


def _strongest(moved: Tensor, text: Callable[[int], str], sign: float) -> tuple[TokenEffect, ...]:
    values, tokens = (sign * moved).topk(min(TOKENS, len(moved)))
    pairs = zip(values.tolist(), tokens.tolist(), strict=True)
    return tuple(TokenEffect(text(token), sign * value) for value, token in pairs if value > 0)


def without_cell(table: LogOddsTable) -> Tensor | None:
    """The row of attention [T] with this cell at zero and the others scaled up to one; None where it sees nothing
    else."""
    others = table.visible.clone()
    others[table.cell.key] = False
    return attention(table.logits, others, table.query.up.cap) if bool(others.any()) else None


def set_row(up: PromptWrites, cell: Cell, weights: Tensor) -> SetOutput:
    """The edit that lets a head at its query carry values with these weights [T], which sum to one."""
    head = cell.head
    value = weights.double() @ up.v[head.layer, head.index // up.group].double()
    bias = up.stream.model.anatomy.value_bias(head.layer)
    if bias is not None:
        value = value + bias[head.index // up.group].double()
    return SetOutput(head=head, positions=cell.query, value=value)
