"""A language model that knows everything: it finds its names by the project's own search and judges by the truth."""

from __future__ import annotations

import json
import re
from typing import Any

from chat_server import examples_in, says_where

from headwise.naming.cells import Cells
from headwise.naming.llm.judge import EXAM
from headwise.naming.llm.prompts import example
from headwise.naming.rules import Rule
from headwise.naming.search import find_rule
from headwise.naming.texts import Texts

_BARE = re.compile(r"^(\[.*\])$", re.MULTILINE)


class Oracle:
    """Answers questions about texts as well as they can be answered."""

    def __init__(self, texts: Texts) -> None:
        self.texts = texts
        self.rules = {str(rule): rule for rule in self.exam()}
        self.cells: dict[str, tuple[int, int, int]] = {}
        for text in range(len(texts)):
            for destination in range(int(texts.lengths[text])):
                for source in range(destination + 1):
                    shown = json.dumps(example(texts, text, destination, source))
                    self.cells.setdefault(shown, (text, destination, source))

    @staticmethod
    def exam() -> list[Rule]:
        """What judges are examined on."""
        return [Rule.parse(ids) for ids in EXAM]

    def __call__(self, question: str) -> str:
        return self.named(question) if "Pairs it responds to" in question else self.judged(question)

    def named(self, question: str) -> str:
        """The best rule for the pairs that are shown, as a name."""
        yes, no = question.split("Pairs it does not respond to:")
        positives = self._cells(examples_in(yes))
        negatives = self._cells([json.loads(line) for line in _BARE.findall(no)])
        rule = find_rule(self.texts, positives, negatives).rule
        if rule is None:
            return '{"none": true}'
        self.rules[str(rule)] = rule
        name = rule.name
        return "Here it is:\n" + json.dumps(
            {
                "destination": name.destination,
                "source": name.source,
                "relation": name.relation,
                "sentence": name.text,
                "falsified_by": "a pair for which this is not so",
            }
        )

    def judged(self, question: str) -> str:
        return says_where(lambda pieces: self._holds(question, pieces))(question)

    def share(self, question: str) -> str:
        """The answer to a question about one pair, as a share."""
        return "0.9" if self._holds(question, json.loads(_BARE.findall(question)[-1])) else "0.1"

    def _holds(self, question: str, pieces: list[Any]) -> bool:
        rule = self.rules[json.loads(question.splitlines()[1])["in one sentence"]]
        return bool(rule.holds(self.texts, self._cells([pieces]))[0])

    def _cells(self, shown: list[list[Any]]) -> Cells:
        return Cells.of([self.cells[json.dumps(pieces)] for pieces in shown])


def always_yes(question: str) -> str:
    return "\n".join(f"{number}: yes" for number in range(1, len(examples_in(question)) + 1))
