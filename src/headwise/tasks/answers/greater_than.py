"""Greater-than: a span of years is opened, and it must close after it began.

What is asked depends on how the tokenizer splits years, so it is looked up, not assumed. Where the last two digits are
one token, the answer is a later pair and the wrong one as much earlier (1732: 36 against 28). Where every digit is a
token, the next token is the tens: the answer is a greater digit and the wrong one as much smaller (1752: 6 against 4),
which settles the year whatever follows. Other splits cannot be asked honestly and are refused.
"""

from __future__ import annotations

from typing import Any

from headwise.tasks.answers.types import AnswerPrompt, AnswerSet, Draws, answer_prompt, draw_set, following
from headwise.tasks.labelled.words import listed

WORDINGS = (
    "The {noun} lasted from the year {start} to the year {century}",
    "The {noun} began in {start} and ended in {century}",
    "The records of the {noun} run from {start} until {century}",
    "From {start} on everybody spoke of the {noun}, which came to an end only in {century}",
    "Historians date the {noun} to the years between {start} and {century}",
    "The {noun} that nobody had expected in {start} was over by {century}",
    "The museum has a room about the {noun}, with everything from {start} up to {century}",
    "She wrote a long book on the {noun} of {start} to {century}",
    "It was a long {noun}: it started in {start}, and it was not settled before {century}",
    "The {noun} was first mentioned in {start} and last mentioned in {century}",
    "After the {noun} had started in {start}, nobody went home until {century}",
    "Start of the {noun}: {start}. End of the {noun}: {century}",
)
NOUNS = listed("""war siege voyage famine drought rebellion dispute marriage trial regency expedition occupation
alliance partnership restoration exile monarchy truce campaign project reform study tour strike embargo crusade conflict
negotiation journey reign""")
CENTURIES = tuple(range(11, 19))


def greater_than(tokenizer: Any, *, prompts: int | None = None, seed: int = 0) -> AnswerSet:
    """Spans of years that must end after they began."""

    def make(cell: int, number: int, attempt: int) -> AnswerPrompt | None:
        draws = Draws(seed, "greater-than", cell, number, attempt)
        noun, century = draws.choose(NOUNS), draws.choose(CENTURIES)
        year = draws.choose(range(12, 89))
        text = WORDINGS[cell].format(noun=noun, start=f"{century}{year}", century=century)
        opening = text[: text.index(f"{century}{year}") + 2]
        split = following(tokenizer, text, str(year))
        if split is None or len(split) > 2 or split != following(tokenizer, opening, str(year)):
            return None
        if len(split) == 2:
            at = year // 10
            by = draws.choose(range(1, min(at, 9 - at) + 1))
            if any(
                len(following(tokenizer, text, f"{digit}{year % 10}") or ()) != 2
                for digit in (at + by, at - by)
            ):
                return None
            later, earlier = f"{at + by}", f"{at - by}"
        else:
            by = draws.choose(range(1, min(year - 2, 99 - year, 10) + 1))
            later, earlier = f"{year + by:02d}", f"{year - by:02d}"
        labels = {
            "wording": str(cell + 1),
            "noun": noun,
            "century": str(century),
            "start": f"{century}{year}",
            "split": "digits" if len(split) == 2 else "pairs",
        }
        return answer_prompt(tokenizer, text, later, earlier, labels)

    why = "it splits years neither into single digits nor into pairs of digits"
    return draw_set("greater-than", range(len(WORDINGS)), prompts, make, seed=seed, why_none=why)
