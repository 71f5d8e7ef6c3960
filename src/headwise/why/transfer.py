"""Does the cause hold elsewhere? The same writers, taken away in another prompt: a paraphrase, or one of its family.

The cell there is the same head at the positions that stand for query and key, and a head among the writers reads the
token that stands for the one it read here; everything else is measured anew in the other prompt, with its own controls.
The cause *transfers* if it takes at least half as large a part of the attention there as here, and no matched control
does as much (p ≤ .05 against each). Where the cell gets no more than an even share there is nothing to transfer to, and
nothing is said.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from headwise.circuits.patching import Align, aligned
from headwise.claims import corrected
from headwise.errors import HeadwiseError
from headwise.model.stream import split
from headwise.strings import in_short
from headwise.tokens import Prompt, shown
from headwise.tracing.seeds import Readout, last_of
from headwise.tracing.table import LogOddsTable, log_odds_table
from headwise.tracing.writers import WriterSet, attention_without
from headwise.tracing.writes import PromptWrites
from headwise.types import Cell, Claim, Component
from headwise.why.proof import HALF, Proof, Word, foresee, prove
from headwise.why.question import find_answer

if TYPE_CHECKING:
    from headwise.model.model import Model

GROUP = "all other prompts of this explanation, each by the largest p over its kinds of control"


@dataclass(frozen=True, eq=False)
class Transfer:
    """The cause of one prompt, taken away in another."""

    prompt: str | None
    """The other prompt as text; None if token ids were given."""
    tokens: tuple[str, ...]
    """Its tokens as text."""
    cell: Cell
    """The same head, at the positions that stand for query and key."""
    writers: tuple[Component, ...]
    """The writers of the cause as they are there: a head reads the token that stands for its own."""
    missing: tuple[Component, ...]
    """Writers of the cause, as they are here, that read a token nothing stands for."""
    proof: Proof
    """The other prompt as it is, without these writers, and without what controls matched there take; the answer is the
    model's own in that prompt."""
    holds: Word
    """Whether the cause transfers: ``value`` is the part of the attention that it takes there over the part that it
    takes here, ``p`` the largest of the controls'. Of several prompts the claim's q is that of all together."""


class OtherPrompt(NamedTuple):
    """A prompt in which a cause is tried, and its token ids."""

    text: str | None
    ids: list[int]


def other_prompts(model: Model, given: Prompt | Sequence[Prompt], align: Align) -> list[OtherPrompt]:
    """Every other prompt; what is none is refused before anything is computed."""
    # A text is one prompt, and so are token ids.
    many = isinstance(given, (list, tuple)) and not all(isinstance(part, int) for part in given)
    prompts: list[Any] = [*given] if many or not len(given) else [given]
    if align is not None and len(prompts) != 1:
        raise HeadwiseError(
            f"align= says which positions of one other prompt belong together, and {len(prompts)} were given with "
            "transfer=: give one"
        )
    made = [OtherPrompt(one if isinstance(one, str) else None, model.prompt_ids(one)) for one in prompts]
    for other, one in zip(made, prompts, strict=True):
        if len(other.ids) < 2:
            raise HeadwiseError(
                f"transfer={in_short(one)} is one token long, so every head can only read that token: give a longer one"
            )
    return made


def stands_for(here: Sequence[int], there: Sequence[int], align: Align = None) -> dict[int, int]:
    """For positions of a prompt, the position in another that stands for it.

    What was given as ``align``; the same positions in prompts of equal length; otherwise the longest runs of equal
    tokens, and between them runs of equal length.

    >>> stands_for([5, 6, 7], [8, 9, 5, 6, 7])
    {0: 2, 1: 3, 2: 4}
    >>> stands_for([5, 6, 7, 8], [1, 5, 9, 7, 8, 2])
    {0: 1, 1: 2, 2: 3, 3: 4}
    """
    if align is not None or len(here) == len(there):
        return aligned(len(here), len(there), align)
    made: dict[int, int] = {}
    for kind, a, b, c, d in SequenceMatcher(None, list(here), list(there), autojunk=False).get_opcodes():
        if kind == "equal" or (kind == "replace" and b - a == d - c):
            made |= {a + i: c + i for i in range(b - a)}
    return made


def transfers(
    up: PromptWrites,
    table: LogOddsTable,
    cause: WriterSet | None,
    others: Sequence[OtherPrompt],
    align: Align = None,
    *,
    draws: int,
    seed: int = 0,
) -> tuple[Transfer, ...]:
    """The cause, taken away in each of the other prompts; that it transfers is corrected over all of them."""
    return _judged([_one(up, table, cause, other, align, draws, seed) for other in others])


def _judged(found: Sequence[Transfer]) -> tuple[Transfer, ...]:
    """The same with the claims about the attention corrected together; one prompt alone stays as it is."""
    tested = [one.holds.claim for one in found if one.holds.claim is not None]
    if len(tested) < 2:
        return tuple(found)
    q = iter(corrected([claim.p for claim in tested]))

    def again(one: Transfer) -> Transfer:
        claim, value = one.holds.claim, one.holds.value
        if claim is None or value is None:
            return one
        held = next(q)
        said = held <= Claim.LEVEL and value >= HALF
        made = replace(claim, q=held, group=GROUP, supported=said)
        return replace(one, holds=replace(one.holds, said=said, claim=made))

    return tuple(map(again, found))


def _one(
    up: PromptWrites,
    table: LogOddsTable,
    cause: WriterSet | None,
    prompt: OtherPrompt,
    align: Align,
    draws: int,
    seed: int,
) -> Transfer:
    model, here, ids = up.stream.model, table.cell, prompt.ids
    tokens = shown(model.tokenizer, ids)
    places = stands_for(up.stream.token_ids[up.prompt], ids, align)
    for what, position in (("query", here.query), ("key", here.key)):
        if position not in places:
            raise HeadwiseError(
                f"nothing in the other prompt {in_short(''.join(tokens))} stands for the {what} at position "
                f"{position}: say with align= which position does"
            )
    cell = Cell(here.head, places[here.query], places[here.key])
    other = PromptWrites(split(model, ids, start=up.stream.start), 0, up.bases)
    rows = torch.tensor([cell.query], device=other.device)
    if not bool(other.visible(cell.head.layer, rows)[0, cell.key]):
        raise HeadwiseError(
            f"{cell.head} at position {cell.query} of the other prompt {in_short(''.join(tokens))} cannot see position "
            f"{cell.key}: say with align= which positions stand for query and key"
        )
    there = log_odds_table(other, cell)
    found, missing = (None, ()) if cause is None else _moved(there, cause, places)
    last = last_of(other)
    answer = find_answer(model, ids, Readout.of(model, last).logits(last), None, None)
    foreseen = foresee(there, found, draws=draws, seed=seed)
    proof = prove(other, there, answer, foreseen, draws=draws, seed=seed)
    return Transfer(
        prompt=prompt.text,
        tokens=tokens,
        cell=cell,
        writers=() if found is None else found.members,
        missing=missing,
        proof=proof,
        holds=_holds(table, cause, there, proof),
    )


def _moved(
    there: LogOddsTable, cause: WriterSet, places: dict[int, int]
) -> tuple[WriterSet | None, tuple[Component, ...]]:
    """The cause as it is in the other prompt, and what of it has no counterpart."""
    one, moved, missing = there.side(cause.side), [], []
    for member in cause.members:
        source = places.get(member.source) if member.kind == "head" else member.source
        if source is None or (member.kind == "head" and source > there.cell.query):
            missing.append(member)
        else:
            moved.append(replace(member, source=source))
    members = tuple(dict.fromkeys(moved))
    if not members or there.keys < 2:
        return None, tuple(missing)
    after = attention_without(there, one.side, members)
    found = WriterSet(one.side, there.attention, cause.threshold, after, members, (), cause.order)
    return found, tuple(missing)


def _holds(table: LogOddsTable, cause: WriterSet | None, there: LogOddsTable, proof: Proof) -> Word:
    if cause is None or proof.after is None or there.total <= 0 or not proof.controls:
        return Word()
    here = (table.attention - cause.after) / table.attention
    share = (there.attention - proof.after.attention) / there.attention / here
    return Word.attention(share, proof.controls, fit=share >= HALF)
