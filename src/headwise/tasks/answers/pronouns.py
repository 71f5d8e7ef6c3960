"""Gendered pronouns: a person is named, and *he* or *she* must follow."""

from __future__ import annotations

from typing import Any

from headwise.tasks.answers.types import AnswerPrompt, AnswerSet, Draws, answer_prompt, draw_set, single_words
from headwise.tasks.labelled.words import listed

NAMES = {
    "he": listed("""John David Michael James Robert William Thomas Richard Charles Daniel Matthew George Paul Mark
    Steven Andrew Peter Henry Edward Frank Kevin Brian Jason Eric Walter Arthur Philip Oliver Simon
    Martin Jack Adam"""),
    "she": listed("""Mary Sarah Emma Anna Laura Julia Alice Emily Susan Linda Karen Helen Nancy Rachel Maria Jane
    Elizabeth Margaret Jennifer Patricia Lisa Kate Lucy Amy Rose Grace Claire Sophie Diana Ruth Ellen Hannah"""),
}
ADJECTIVES = listed("""great good clever careful gentle patient brave generous funny loyal kind serious""")
ROLES = listed("""friend teacher doctor writer singer player driver student leader painter cook neighbour""")
WORDINGS = (
    "So {name} is a really {adjective} {role}, isn't",
    "As we all know, {name} has always been a {adjective} {role}, and so",
    "Although {name} is a {adjective} {role},",
    "People trust {name}, a {adjective} {role}, because",
    "When {name}, a {adjective} {role}, came home last night,",
    "I heard that {name} wants to be a {adjective} {role}, so",
    "The letter says that {name} is a {adjective} {role} and that",
    "If {name} were not such a {adjective} {role},",
)


def pronouns(tokenizer: Any, *, prompts: int | None = None, seed: int = 0) -> AnswerSet:
    """A named person, then *he* or *she*."""

    names = {pronoun: single_words(tokenizer, known) for pronoun, known in NAMES.items()}

    def make(cell: tuple[int, str], number: int, attempt: int) -> AnswerPrompt | None:
        wording, right = cell
        if not names[right]:
            return None
        draws = Draws(seed, "pronouns", wording, right, number, attempt)
        name, adjective, role = draws.choose(names[right]), draws.choose(ADJECTIVES), draws.choose(ROLES)
        text = WORDINGS[wording].format(name=name, adjective=adjective, role=role)
        other = "she" if right == "he" else "he"
        labels = {"wording": str(wording + 1), "pronoun": right, "name": name}
        return answer_prompt(tokenizer, text, f" {right}", f" {other}", labels)

    cells = [(wording, pronoun) for wording in range(len(WORDINGS)) for pronoun in NAMES]
    why = "'he', 'she' or no name is one token, or no wording can be written in its vocabulary"
    return draw_set("pronouns", cells, prompts, make, seed=seed, why_none=why)
