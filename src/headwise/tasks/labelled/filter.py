"""Which words of the list are fruits? A list of several categories, then a question for one of them.

Keys are the last tokens of the items, the query is the last token of the prompt. There is one contrast for
each category, its items against all others, and the category feature is the union of them. Testing prompts
come in pairs that share the list and ask for two categories; their items and wording occur in no fitting
prompt.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from headwise.errors import HeadwiseError
from headwise.strings import shortened
from headwise.tasks.labelled.formats import Format, Marked, check_format, locate
from headwise.tasks.labelled.types import Contrast, Example, Task
from headwise.tasks.labelled.words import CATEGORIES, FIVE, check_words, halves


@dataclass(frozen=True)
class _Shot:
    """A solved example: words of a list, the category that is asked for, and its words."""

    words: str
    category: str
    answer: str


@dataclass(frozen=True)
class _Wording:
    """How a list opens, how it ends and asks, what a chat model is asked instead, and the solved examples before it."""

    name: str
    opening: str
    asking: str
    question: str
    shots: str

    @classmethod
    def several(
        cls, kind: str, texts: Sequence[tuple[str, str, str]], shots: Sequence[_Shot]
    ) -> tuple[_Wording, ...]:
        """Wordings of one kind, with one solved example and two in turn, each solved in the wording itself."""
        made = []
        for number, (opening, asking, question) in enumerate(texts):
            solved = [shots[(number + i) % len(shots)] for i in range(2 - number % 2)]
            text = "".join(
                f"{opening}{shot.words}{_asked(asking, shot.category)} {shot.answer}.\n\n" for shot in solved
            )
            made.append(cls(f"{kind} {number + 1}", opening, asking, question, text))
        return tuple(made)


def _asked(asking: str, category: str) -> str:
    return asking.format(C=category.capitalize(), c=category)


# Twelve wordings each: below that, what prompts of one wording share cannot be told from what the feature is.
FIT_WORDINGS = _Wording.several(
    "fit",
    (
        ("List: ", ".\n{C}:", "Which of them are {c}?"),
        ("Words: ", ".\nOnly the {c}:", "Give me only the {c}."),
        ("Here are some words: ", ".\nFrom these, the {c}:", "Which of these words are {c}?"),
        ("Read this list: ", ".\nAnswer with the {c}:", "Answer with the {c} in it."),
        ("Given: ", ".\nAll {c}:", "Name all {c} among them."),
        ("Input: ", ".\nOutput, only {c}:", "Return nothing but the {c}."),
        ("Sort these: ", ".\nThese are the {c}:", "Which ones would you put under {c}?"),
        ("Collection: ", ".\nIts {c}:", "What {c} does it hold?"),
        ("A mixed list: ", ".\nPick out the {c}:", "Pick out the {c}."),
        ("Vocabulary: ", ".\nName the {c}:", "Tell me which words are {c}."),
        ("Things: ", ".\nFind the {c}:", "Find the {c} for me."),
        ("On the board: ", ".\nJust the {c}:", "Just the {c}, please."),
    ),
    (
        _Shot("red, oak, violin, green, pine, flute", "colours", "red, green"),
        _Shot("table, doctor, iron, chair, nurse, copper", "furniture", "table, chair"),
        _Shot("tennis, oak, blue, hockey, pine, yellow", "sports", "tennis, hockey"),
    ),
)
TEST_WORDINGS = _Wording.several(
    "test",
    (
        ("Items: ", ".\n{C}:", "Which items are {c}?"),
        ("Entries: ", ".\nThe {c}:", "What are the {c}?"),
        ("Take these words: ", ".\nShow the {c}:", "Show me the {c}."),
        ("Terms: ", ".\nList the {c}:", "List those that are {c}."),
        ("Word bank: ", ".\nChoose the {c}:", "Choose the {c}."),
        ("Consider: ", ".\nAmong them, the {c}:", "Which among them are {c}?"),
        ("Notes: ", ".\nKeep the {c}:", "Keep the {c} and drop the rest."),
        ("Row: ", ".\nExtract the {c}:", "Extract the {c}."),
        ("The words are: ", ".\nHere are the {c}:", "Which of the words are {c}?"),
        ("Set: ", ".\nEvery one of the {c}:", "Say every one that belongs to the {c}."),
        ("Data: ", ".\nSelected {c}:", "Select the {c}."),
        ("In the notebook: ", ".\nWrite down the {c}:", "Write down the {c}."),
    ),
    (
        _Shot("piano, gold, lawyer, guitar, silver, teacher", "instruments", "piano, guitar"),
        _Shot("rose, blue, golf, tulip, yellow, rugby", "flowers", "rose, tulip"),
        _Shot("winter, steel, drum, summer, brass, trumpet", "seasons", "winter, summer"),
    ),
)


def filter(
    tokenizer: Any,
    *,
    prompts: int = 600,
    test: int | None = None,
    scan: int | None = None,
    categories: int | Sequence[str] = 5,
    items: int = 3,
    single: bool = False,
    jitter: bool = False,
    format: str = "few-shot",
    seed: int = 0,
) -> Task:
    """The filter task: ``prompts`` in all to fit the categories' contrasts, ``items`` of each category in a list.

    ``categories`` is 5, 13 or a choice of names. Items of several tokens are kept, with their last token as the key;
    ``single`` filters them out. ``jitter`` varies the length of the list.
    """
    form = check_format(format, tokenizer)
    names = category_names(categories)
    if prompts < 4 * len(names):
        raise HeadwiseError(
            f"{prompts} prompts are too few for {len(names)} categories: give at least {4 * len(names)}"
        )
    design = _FilterDesign(
        tokenizer=tokenizer,
        form=form,
        rng=random.Random(f"filter {seed}"),
        words=_words(tokenizer, names, items=items, single=single, jitter=jitter),
        items=items,
        jitter=jitter,
    )
    test = max(4, prompts // 3) if test is None else test
    scan = max(4, prompts // 3) if scan is None else scan
    # One generator draws them all, in this order.
    tested, scanned = design.tested(test), design.scanned(scan)
    each = prompts // len(names)
    return Task(
        name="filter" if len(names) == 5 else f"filter-{len(names)}",
        rule="ratio",
        scan=Contrast("filter", scanned, "category"),
        fits=tuple(Contrast(name, design.fitted(name, each), "category") for name in names),
        test=Contrast("filter", tested, "category"),
        unions={"category": tuple(names)},
        held_out=("item", "template"),
        colours=dict.fromkeys((*names, "category"), "category"),
        settings={
            "prompts": prompts,
            "test": test,
            "scan": scan,
            "categories": list(names),
            "items": items,
            "single": single,
            "jitter": jitter,
            "format": form,
            "seed": seed,
        },
    )


def _words(
    tokenizer: Any, names: Sequence[str], *, items: int, single: bool, jitter: bool
) -> dict[str, tuple[list[str], list[str]]]:
    """Every category's words to fit on and to test on."""
    split: dict[str, tuple[list[str], list[str]]] = {}
    for name in names:
        least = 2 * items + (2 if jitter else 0)
        split[name] = halves(check_words(tokenizer, CATEGORIES[name], single=single, least=least, what=name))
        if items < 1 or min(map(len, split[name])) < items:
            raise HeadwiseError(
                f"{items} items per list cannot be drawn from the {len(CATEGORIES[name])} {name}"
            )
    return split


@dataclass(frozen=True, eq=False, kw_only=True)
class _FilterDesign:
    """Draws lists of words, and makes of them the prompts to scan, to fit and to test on."""

    tokenizer: Any
    form: Format
    rng: random.Random
    words: Mapping[str, tuple[Sequence[str], Sequence[str]]]
    """Category → the words to fit on, and to test on."""
    items: int
    jitter: bool

    def _draw(self, half: int) -> list[tuple[str, str]]:
        chosen = []
        for name, words in self.words.items():
            # Every category has at least one item, so that the positive set is never empty.
            count = self.rng.randint(1, self.items) if self.jitter else self.items
            chosen += [(name, word) for word in self.rng.sample(words[half], count)]
        self.rng.shuffle(chosen)
        return chosen

    def fitted(self, asked: str, count: int) -> tuple[Example, ...]:
        """Prompts that ask for one category."""
        return tuple(self._fit_example(asked) for _ in range(count))

    def scanned(self, count: int) -> tuple[Example, ...]:
        """Prompts that ask for every category in turn."""
        names = list(self.words)
        return tuple(self._fit_example(names[number % len(names)]) for number in range(count))

    def _fit_example(self, asked: str) -> Example:
        chosen = self._draw(0)
        return _example(self.tokenizer, self.form, chosen, self.rng.choice(FIT_WORDINGS), asked)

    def tested(self, count: int) -> tuple[Example, ...]:
        """Pairs of prompts that share a list and ask for each other's category."""
        made: list[Example] = []
        for _ in range((count + 1) // 2):
            chosen, wording = self._draw(1), self.rng.choice(TEST_WORDINGS)
            asked = self.rng.sample(list(self.words), 2)
            picks = {name: self.rng.randrange(100) for name in asked}
            for this, that in (asked, asked[::-1]):
                example, number = _example(self.tokenizer, self.form, chosen, wording, this), len(made)
                original, target = (_key_of(example, name, picks[name]) for name in (this, that))
                partner = number + 1 if number % 2 == 0 else number - 1
                pair = (original, target)
                made.append(replace(example, swap=pair, partner=partner, about=(this, that)))
        return tuple(made)


def _key_of(example: Example, category: str, pick: int) -> int:
    """One of the category's items, the same in both prompts of a pair."""
    kinds = example.key_groups["category"]
    of = sorted(key for key, kind in zip(example.keys, kinds, strict=True) if kind == category)
    return of[pick % len(of)]


def category_names(categories: int | Sequence[str]) -> list[str]:
    """The categories that are asked for by number or by name, if all are known."""
    if isinstance(categories, int):
        if categories not in (5, 13):
            raise HeadwiseError(f"{categories} categories are not prepared: give 5, 13 or a list of names")
        return list(FIVE if categories == 5 else CATEGORIES)
    for name in categories:
        if name not in CATEGORIES:
            raise HeadwiseError(
                f"category {shortened(name)!r} is not known: choose from {', '.join(CATEGORIES)}"
            )
    if len(set(categories)) < 2:
        raise HeadwiseError("a filter needs at least two categories: the others are its negatives")
    return list(dict.fromkeys(categories))


def _example(
    tokenizer: Any, form: Format, chosen: list[tuple[str, str]], wording: _Wording, asked: str
) -> Example:
    if form == "chat":
        before, after = wording.opening, f". {_asked(wording.question, asked)}"
        reply = "Answer:"
    else:
        before = (wording.shots if form == "few-shot" else "") + wording.opening
        after, reply = "", _asked(wording.asking, asked)
    text = Marked(before)
    for number, (_, word) in enumerate(chosen):
        text.add(", " if number else "").mark(word)
    tokens, keys = locate(tokenizer, text.add(after), format=form, reply=reply)
    order = sorted(range(len(chosen)), key=lambda i: chosen[i][0] != asked)
    count = sum(name == asked for name, _ in chosen)
    return Example(
        tokens=tokens,
        query=len(tokens) - 1,
        positive=tuple(keys[i] for i in order[:count]),
        negative=tuple(keys[i] for i in order[count:]),
        groups={"category": asked, "template": wording.name},
        key_groups={
            "category": tuple(chosen[i][0] for i in order),
            "item": tuple(chosen[i][1] for i in order),
        },
        answers=tuple(tokenizer(f" {chosen[i][1]}", add_special_tokens=False).input_ids[0] for i in order),
    )
