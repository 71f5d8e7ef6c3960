"""How many prompts have a circuit, and how large it is: the published seeds and threshold beside the present ones.

python benchmarks/seeds.py [--prompts 15] [--traced 5]
"""

from __future__ import annotations

import argparse
from statistics import mean

import torch

import headwise
from headwise.model.stream import split
from headwise.tasks.answers.make import make_answers
from headwise.tokens import answer_token
from headwise.tracing.search import Rules
from headwise.tracing.seeds import Seed, chosen_seeds, published_seeds
from headwise.tracing.tracer import trace_down
from headwise.tracing.writes import PromptWrites

NOUNS = (
    "key",
    "dog",
    "book",
    "car",
    "girl",
    "teacher",
    "letter",
    "house",
    "farmer",
    "tree",
    "doctor",
    "song",
    "king",
)
PLACES = ("on the table", "near the gardens", "behind the wall")


def agreement(number: str, count: int) -> list[tuple[str, str, str]]:
    right, wrong = (" are", " is") if number == "plural" else (" is", " are")
    ending = "s" if number == "plural" else ""
    return [
        (f"The {noun}{ending} {PLACES[i % len(PLACES)]}", right, wrong)
        for i, noun in enumerate(NOUNS[:count])
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prompts", type=int, default=15)
    parser.add_argument("--traced", type=int, default=5)
    given = parser.parse_args()
    model = headwise.load()

    def token(text: str) -> int:
        return answer_token(model.tokenizer, text, "answer", vocabulary=model.vocabulary)

    tasks: dict[str, list[tuple[str, int, int | None]]] = {
        name: [
            (one.prompt, one.answer_id, one.wrong_id)
            for one in make_answers(name, model.tokenizer, prompts=given.prompts).prompts
        ]
        for name in ("ioi", "greater-than", "pronouns", "facts")
    }
    for number in ("singular", "plural"):
        tasks[f"agreement, {number} subject"] = [
            (text, token(right), token(wrong)) for text, right, wrong in agreement(number, given.prompts)
        ]
    print(
        "| task | preferred | with a circuit, before | after | head seeds, before | after "
        "| edges, before | after, all opened | from 2 % of the answer on |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    ways = (Rules(published_tau=True, influence=0.0), Rules(influence=0.0), Rules())
    with torch.no_grad():
        for name, prompts in tasks.items():
            found: list[tuple[PromptWrites, list[Seed], list[Seed]]] = []
            for text, answer, wrong in prompts:
                up = PromptWrites(split(model, model.prompt_ids(text)), 0)
                before, total = published_seeds(up, answer, wrong)
                if total > 0:
                    found.append((up, before, chosen_seeds(up, answer, wrong)[0]))
            heads = [[sum(s.component.kind == "head" for s in listed) for listed in one[1:]] for one in found]
            sizes: list[list[int]] = [[] for _ in ways]
            for up, before, after in found[: given.traced]:
                for place, (seeds, rules) in enumerate(zip((before, after, after), ways, strict=True)):
                    some = seeds if any(s.component.kind == "head" for s in seeds) else []
                    (traced,) = trace_down(model, [up], [some], rules)
                    sizes[place].append(
                        len(some)
                        + sum(
                            len(side.by_writer())
                            for sides in traced.signals.values()
                            for side in sides.values()
                        )
                    )
            columns = [f"{sum(h[i] > 0 for h in heads)}" for i in (0, 1)]
            columns += [f"{mean(h[i] for h in heads):.1f}" if heads else "–" for i in (0, 1)]
            columns += [f"{mean(size):.0f}" if size else "–" for size in sizes]
            print(f"| {name} | {len(found)} of {len(prompts)} | {' | '.join(columns)} |", flush=True)


if __name__ == "__main__":
    main()
