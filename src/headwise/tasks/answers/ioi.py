"""Indirect objects: two people, one of them acts, and the other one must be named.

Fifteen wordings in two orders. In ABBA the answer (A) enters first, in BABA second; the two orders of a wording use
the same people, place and thing, so that order is all that sets them apart.
"""

from __future__ import annotations

from typing import Any

from headwise.errors import HeadwiseError
from headwise.tasks.answers.types import AnswerPrompt, AnswerSet, Draws, answer_prompt, draw_set, single_words
from headwise.tasks.labelled.words import listed

NAMES = listed("""Mary John Anna David Emma Paul Laura Mark Sarah James Alice Robert Julia Peter Helen Thomas Susan
Daniel Karen Michael Linda George Nancy Frank Rachel Henry Emily Simon Jane Martin Kate Jack Lucy Adam Amy Ryan Lisa
Kevin Maria Brian Rose Eric Grace Jason Claire Steven Sophie Edward Diana Arthur Ruth Philip Ellen Oliver Carol Victor
Judy Walter Alan Sam Tom Ben Max Leo Charles Richard William Joseph Andrew Anthony Patrick Samuel Matthew Rebecca
Jessica Michelle Amanda Hannah Victoria Charlotte Barbara Margaret Elizabeth Catherine Christine Jennifer Scott
Jeff Greg Tim Dan Joe Bob Bill Jim Steve Chris Alex""")
PLACES = listed("""store park school office station market library garden museum beach house restaurant hospital theatre
airport hotel farm church kitchen bakery stadium harbour village castle cafe gym bank zoo river forest""")
OBJECTS = listed("""book drink ball ring letter cake lamp basket pen key map gift coin bag bottle flower card hat phone
camera ticket cup spoon knife box watch guitar pencil newspaper blanket""")

# {a} and {b} are the two people in the order in which they enter; {s} acts, and the other one is the answer.
WORDINGS = (
    "When {a} and {b} arrived at the {place}, {s} handed a {thing} to",
    "After {a} and {b} had walked to the {place}, {s} gave a {thing} to",
    "Then {a} and {b} went to the {place}. In the end {s} gave a {thing} to",
    "Yesterday {a} and {b} met at the {place}, and {s} showed a {thing} to",
    "While {a} and {b} were working at the {place}, {s} passed a {thing} to",
    "Together {a} and {b} found a {thing} near the {place}. Without a word {s} gave it to",
    "Because {a} and {b} were late for the {place}, {s} sent a {thing} to",
    "Once {a} and {b} had left the {place}, {s} decided to give a {thing} to",
    "The {place} was nearly empty when {a} and {b} came in. Soon {s} offered a {thing} to",
    "Last week {a} and {b} had an argument at the {place}. Afterwards {s} brought a {thing} to",
    "It was raining, so {a} and {b} stayed at the {place}, where {s} described a {thing} to",
    "Two friends, {a} and {b}, were talking at the {place}, and {s} wanted to sell a {thing} to",
    "Every summer {a} and {b} go to the {place}. This time {s} took a {thing} and gave it to",
    "At the {place}, {a} and {b} sat down together. A little later {s} slid a {thing} over to",
    "Nobody at the {place} knew {a} and {b}. That is why {s} threw a {thing} to",
)
ORDERS = ("ABBA", "BABA")


def ioi(tokenizer: Any, *, prompts: int | None = None, seed: int = 0) -> AnswerSet:
    """Indirect objects in fifteen wordings and two orders, of words that are one token here."""
    names, places, things = (single_words(tokenizer, words) for words in (NAMES, PLACES, OBJECTS))
    if len(names) < 2 or not places or not things:
        raise HeadwiseError(
            f"the task 'ioi' has no usable prompt for this model's tokenizer: {len(names)} names, {len(places)} places "
            f"and {len(things)} objects are one token in it, 2, 1 and 1 are needed"
        )

    def make(cell: tuple[int, str], number: int, attempt: int) -> AnswerPrompt | None:
        wording, order = cell
        # not keyed by order: its two values share their words
        draws = Draws(seed, "ioi", wording, number, attempt)
        answer, subject = draws.two(names)
        place, thing = draws.choose(places), draws.choose(things)
        a, b = (answer, subject) if order == "ABBA" else (subject, answer)
        text = WORDINGS[wording].format(a=a, b=b, s=subject, place=place, thing=thing)
        labels = {
            "order": order,
            "wording": str(wording + 1),
            "answer": answer,
            "subject": subject,
            "place": place,
            "object": thing,
        }
        return answer_prompt(tokenizer, text, f" {answer}", f" {subject}", labels)

    cells = [(wording, order) for wording in range(len(WORDINGS)) for order in ORDERS]
    return draw_set(
        "ioi", cells, prompts, make, seed=seed, why_none="no wording can be written in its vocabulary"
    )
