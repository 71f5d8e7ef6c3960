"""Which words of the list are fruits? A list of several categories, then a question for one of them.

Keys are the last tokens of the items, the query is the last token of the prompt. There is one contrast for
each category, its items against all others, and the category feature is the union of them. Testing prompts
come in pairs that share the list and ask for two categories; their items and wording occur in no fitting
prompt.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from headwise.errors import HeadwiseError
from headwise.strings import shortened
from headwise.tasks.labelled.formats import Format, Marked, check_format, locate
from headwise.tasks.labelled.types import Contrast, Example, Task
from headwise.tasks.labelled.words import CATEGORIES, FIVE, check_words, halves


@dataclass(frozen=True)
class _Wording:
    """How a list opens, how it ends and asks, and the solved examples before it in a few-shot prompt."""

    name: str
    opening: str
    asking: str
    shots: str


FIT_WORDINGS = (
    _Wording(
        "fit 1", "List: ", ".\n{C}:",
        "List: red, oak, violin, green, pine, flute.\nColours: red, green.\n\n"
        "List: table, doctor, iron, chair, nurse, copper.\nFurniture: table, chair.\n\n",
    ),
    _Wording(
        "fit 2", "Words: ", ".\nOnly the {c}:",
        "Words: tennis, oak, blue, hockey, pine, yellow.\nOnly the sports: tennis, hockey.\n\n",
    ),
)  # fmt: skip
TEST_WORDINGS = (
    _Wording(
        "test 1", "Items: ", ".\n{C}:",
        "Items: piano, gold, lawyer, guitar, silver, teacher.\nInstruments: piano, guitar.\n\n"
        "Items: rose, blue, golf, tulip, yellow, rugby.\nFlowers: rose, tulip.\n\n",
    ),
)  # fmt: skip
CHAT = "Here is a list of words: {list}. Which of them are {c}?"


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
    """The filter task: ``prompts`` in all to fit the categories' contrasts, ``items`` of each category in a
    list.

    ``categories`` is 5, 13 or a choice of names. Items of several tokens are kept and stand by their last
    one; ``single`` filters them out. ``jitter`` varies the length of the list.
    """
    form = check_format(format, tokenizer)
    names = _names(categories)
    if prompts < 4 * len(names):
        raise HeadwiseError(
            f"{prompts} prompts are too few for {len(names)} categories: give at least {4 * len(names)}"
        )
    split: dict[str, tuple[list[str], list[str]]] = {}
    for name in names:
        least = 2 * items + (2 if jitter else 0)
        split[name] = halves(check_words(tokenizer, CATEGORIES[name], single=single, least=least, what=name))
        if items < 1 or min(map(len, split[name])) < items:
            raise HeadwiseError(
                f"{items} items a list cannot be drawn from the {len(CATEGORIES[name])} {name}"
            )
    rng = random.Random(f"filter {seed}")

    def draw(half: int) -> list[tuple[str, str]]:
        chosen = []
        for name in names:
            # Every category has at least one item, so that the positive set is never empty.
            count = rng.randint(1, items) if jitter else items
            chosen += [(name, word) for word in rng.sample(split[name][half], count)]
        rng.shuffle(chosen)
        return chosen

    def write(chosen: list[tuple[str, str]], wording: _Wording, asked: str) -> Example:
        return _example(tokenizer, form, chosen, wording, asked)

    def fitted(count: int, asked: str | None) -> list[Example]:
        made = []
        for number in range(count):
            category = names[number % len(names)] if asked is None else asked
            made.append(write(draw(0), rng.choice(FIT_WORDINGS), category))
        return made

    each = prompts // len(names)
    test = max(4, prompts // 3) if test is None else test
    scan = max(4, prompts // 3) if scan is None else scan
    tested: list[Example] = []
    for _ in range((test + 1) // 2):
        chosen, wording, asked = draw(1), rng.choice(TEST_WORDINGS), rng.sample(names, 2)
        picks = {name: rng.randrange(100) for name in asked}
        for this, that in (asked, asked[::-1]):
            example, number = write(chosen, wording, this), len(tested)
            keys, kinds = example.keys, example.key_groups["category"]
            pair = []
            for name in (this, that):
                of = sorted(key for key, kind in zip(keys, kinds, strict=True) if kind == name)
                pair.append(of[picks[name] % len(of)])
            partner = number + 1 if number % 2 == 0 else number - 1
            tested.append(replace(example, swap=(pair[0], pair[1]), partner=partner))
    return Task(
        name="filter" if len(names) == 5 else f"filter-{len(names)}",
        rule="ratio",
        scan=Contrast("filter", tuple(fitted(scan, None)), "category"),
        fits=tuple(Contrast(name, tuple(fitted(each, name)), "category") for name in names),
        test=Contrast("filter", tuple(tested), "category"),
        unions={"category": tuple(names)},
        held_out=("item", "template"),
        colours=dict.fromkeys((*names, "category"), "category"),
        settings={
            "prompts": prompts, "test": test, "scan": scan, "categories": list(names), "items": items,
            "single": single, "jitter": jitter, "format": form, "seed": seed,
        },
    )  # fmt: skip


def _names(categories: int | Sequence[str]) -> list[str]:
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
        before, after = CHAT.replace("{c}", asked).split("{list}")
        reply = "Answer:"
    else:
        before = (wording.shots if form == "few-shot" else "") + wording.opening
        after, reply = "", wording.asking.format(C=asked.capitalize(), c=asked)
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
