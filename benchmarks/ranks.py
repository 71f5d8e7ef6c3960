"""Has a signal rank 1 because features are, or because any basis gives it? Prints a table of docs/results/bases.md.

    python benchmarks/ranks.py [PROMPTS] [TASK …]     (12 prompts of every answer task)

The rank of a signal is the number of channels that an edge of a circuit writes into. Each prompt of the four answer
tasks is traced with singular channels, with balanced ones, and with the singular ones of each side rotated at random,
which is a basis that nothing in the model or the texts knows of. Medians, means and shares over signals, with 95 %
intervals over prompts for the mean.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from statistics import median

import torch

import headwise
from headwise.basis_names import BasisKind
from headwise.errors import HeadwiseError
from headwise.intervals import estimate
from headwise.tasks.answers.make import ANSWER_TASKS, make_answers

BASES: tuple[BasisKind, ...] = ("singular", "rotated", "balanced")
PROMPTS = 12


def main(prompts: int = PROMPTS, tasks: Sequence[str] = ()) -> None:
    torch.set_num_threads(1)
    model = headwise.load()
    print("| task | basis | circuits | signals | median rank | mean rank (95 %) | of rank 1 |")
    print("|---|---|---|---|---|---|---|")
    for task in tasks or ANSWER_TASKS:
        asked = make_answers(task, model.tokenizer, prompts=prompts).prompts
        for basis in BASES:
            by_prompt: list[list[int]] = []
            for one in asked:
                try:
                    circuit = headwise.trace(
                        model, one.prompt, answer=one.answer_id, wrong=one.wrong_id, basis=basis
                    )
                except HeadwiseError:
                    continue  # a prompt that the model gets wrong has no circuit
                by_prompt.append([len(edge.channels) for edge in circuit.edges if edge.channels])
            ranks = [rank for some in by_prompt for rank in some]
            which = torch.tensor([i for i, some in enumerate(by_prompt) for _ in some])
            mean = estimate(torch.tensor(ranks).double(), 0, task, basis, clusters=which)
            print(
                f"| {task} | {basis} | {len(by_prompt)} | {len(ranks)} | {median(ranks):g} | {mean.mean:.2f} "
                f"({mean.low:.2f} to {mean.high:.2f}) | {sum(rank == 1 for rank in ranks) / len(ranks):.0%} |",
                flush=True,
            )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else PROMPTS, sys.argv[2:])
