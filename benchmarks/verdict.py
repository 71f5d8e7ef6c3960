"""How often is a cause called specific that is none, and how often one that is?

python benchmarks/verdict.py [PROMPTS] [CELLS PER PROMPT]     (12 prompts of the tasks, 12 cells each)

Cells of attention ≥ 0.2 are drawn from all heads of the default model. For each side's cause, and for as many random
writers in its stead (heads for heads, all else for all else), the three controls are drawn; *specific* is said if
p ≤ 0.05 against each. Prints both rates with their Wilson intervals, for whole writers.
"""

from __future__ import annotations

import sys

import torch

import headwise
from headwise.intervals import wilson
from headwise.randomness import keyed
from headwise.tasks.answers.make import ANSWER_TASKS, make_answers
from headwise.tracing.causes import default_threshold
from headwise.tracing.table import LogOddsTable, log_odds_table
from headwise.tracing.writers import WriterSet, attention_without, writer_set
from headwise.tracing.writes import PromptWrites
from headwise.types import Cell, Component, Side
from headwise.why.controls import controls

SIDES: tuple[Side, ...] = ("query", "key")
LEAST = 0.2
LEVEL = 0.05
DRAWS = 199


def cells_of(up: PromptWrites, number: int, generator: torch.Generator) -> list[Cell]:
    """Strong cells of all heads but those of the first layer, in random order; not of the first two tokens."""
    heads = [head for head in up.stream.model.heads if head.layer]
    found = []
    for at in torch.randperm(len(heads), generator=generator).tolist():
        pattern = up.stream.whole_pattern(heads[at], up.prompt)
        strong = (pattern[2:] >= LEAST).nonzero().tolist()
        if strong:
            query, key = strong[int(torch.randint(len(strong), (1,), generator=generator))]
            found.append(Cell(heads[at], query + 2, key))
        if len(found) == number:
            break
    return found


def random_set(table: LogOddsTable, cause: WriterSet, generator: torch.Generator) -> WriterSet:
    """As many writers of the same kinds, drawn from all that could have written."""
    one = table.side(cause.side)
    possible = [one.writer(row) for row in one.possible.nonzero()[:, 0].tolist()]
    members: list[Component] = []
    for member in cause.members:
        like = [w for w in possible if (w.kind == "head") == (member.kind == "head") and w not in members]
        members.append(like[int(torch.randint(len(like), (1,), generator=generator))])
    after = attention_without(table, cause.side, members)
    return WriterSet(cause.side, table.attention, cause.threshold, after, tuple(members), (), "fixed")


def specific(table: LogOddsTable, found: WriterSet) -> bool:
    made = controls(table, found, draws=DRAWS)
    drawn = any(control.name == "writers" for control in made)
    return drawn and all(control.p <= LEVEL for control in made)


def main(prompts: int = 12, cells: int = 12) -> None:
    model = headwise.load()
    each = -(-prompts // len(ANSWER_TASKS))
    texts = [
        one.prompt
        for task in ANSWER_TASKS
        for one in make_answers(task, model.tokenizer, prompts=each).prompts[:each]
    ][:prompts]
    counts = {"found": [0, 0], "random": [0, 0]}
    with torch.no_grad():
        for number, text in enumerate(texts):
            up = PromptWrites(model.split(text), 0)
            generator = keyed(0, "verdict", number)
            for cell in cells_of(up, cells, generator):
                table = log_odds_table(up, cell)
                for side in SIDES:
                    cause = writer_set(table, side, default_threshold(table.attention, table.keys))
                    if not cause.resolved:
                        continue
                    for name, one in (("found", cause), ("random", random_set(table, cause, generator))):
                        counts[name][0] += specific(table, one)
                        counts[name][1] += 1
    for name, (said, of) in counts.items():
        low, high = wilson(said, of)
        print(f"{name}: specific in {said} of {of} ({said / of:.3f}, 95 % {low:.3f} to {high:.3f})")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:3]))
