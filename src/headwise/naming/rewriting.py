"""Texts with one word changed, so that a rule becomes false, stays true, or becomes true at a given cell.

A change is minimal: one word for another that the tokenizer cuts into as many tokens, every other token as it was, so
both positions of the cell still hold. Words come from the texts themselves and from a short list that has a member of
most classes; to make a rule true, also from around the cell itself, since rules speak of copies. What is tried first is
the word at the source, then its neighbours and the destination; the first place where some word does what is wanted is
taken. A *sham* is a change of the same size that does not do it: at the same
place if the rule allows that, else as near to it as can be.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from headwise.naming.cells import Cells
from headwise.naming.predicates.punctuation import enclosures
from headwise.naming.predicates.repetition import previous_copy
from headwise.naming.rules import Rule
from headwise.naming.texts import Texts
from headwise.randomness import keyed
from headwise.tasks.labelled.words import listed

DIVERSE = tuple(
    listed("""the of and it was not which this seven 7 12 Mary John Paris Monday May red dog house time people large
    quickly running walked , . : ; ( ) " - = x A""")
)
"""Words of many classes, most of them one token."""
DRAWN = 12
"""Words of the texts that are tried beside them."""
PLACES = 7
"""Places of a cell that are tried."""
AT_ONCE = 12
"""Words that are tried at a place before it is asked whether more are needed."""


@dataclass(frozen=True)
class Rewritten:
    """Two changed copies of one cell's text: one that does what is wanted, and a sham that does not."""

    cell: int
    """The number of the cell."""
    wanted: str
    sham: str
    place: int
    """The position of the word that the wanted change replaces."""
    sham_place: int
    words: tuple[str, str, str]
    """The word at the place, what takes its place, and what the sham puts at its own place."""


@dataclass(frozen=True, eq=False)
class _Attempts:
    """Changed texts of some cells that kept their tokens, and whether the rule holds in them."""

    cell: list[int]
    place: list[int]
    word: list[str]
    raw: list[str]
    holds: np.ndarray


def rewritten(
    rule: Rule, texts: Texts, cells: Cells, tokenizer: Any, *, become: bool, seed: int = 0
) -> list[Rewritten]:
    """For each cell where it can be done, a change that makes the rule ``become`` so, and a sham that does not.

    Cells where the rule is so already, or where positions alone decide it, are left out.
    """
    turning = (rule.holds(texts, cells) != become) & rule.can_turn(texts, cells)
    open_cells = [int(i) for i in np.flatnonzero(turning)]
    places = {cell: _places(texts, cells, cell) for cell in open_cells}
    pool = texts.derived(partial(_pool, seed=seed)) if open_cells else {}
    found: dict[int, tuple[int, str, str]] = {}
    shams: dict[int, list[tuple[int, str, str]]] = {cell: [] for cell in open_cells}
    for round_ in range(PLACES):
        # A sham may be looked for at one more place than the change itself needed.
        at = {
            c: places[c][round_]
            for c in open_cells
            if round_ < len(places[c]) and not (c in found and shams[c])
        }
        words = {c: _words(texts, cells, c, place, pool, seed, become=become) for c, place in at.items()}
        for start in range(0, max(map(len, words.values()), default=0), AT_ONCE):
            asked = [
                (c, at[c], word)
                for c, some in words.items()
                # more words at this place only while it lacks the change, or a sham beside it
                if not (c in found and any(place == at[c] for place, *_ in shams[c]))
                for word in some[start : start + AT_ONCE]
            ]
            tried = _try(rule, texts, cells, asked, tokenizer)
            for cell, place, word, raw, holds in zip(
                tried.cell, tried.place, tried.word, tried.raw, tried.holds.tolist(), strict=True
            ):
                if holds == become:
                    found.setdefault(cell, (place, word, raw))
                else:
                    shams[cell].append((place, word, raw))
    made = []
    for cell in open_cells:
        if cell not in found or not shams[cell]:
            continue
        place, word, raw = found[cell]
        sham_place, sham_word, sham = min(shams[cell], key=lambda one, at=place: abs(one[0] - at))
        start, end = texts.word_spans[texts.place[texts.starts[cells.text[cell]] + place]]
        old = texts.raw[cells.text[cell]][start:end]
        made.append(Rewritten(cell, raw, sham, place, sham_place, (old, word, sham_word)))
    return made


def _places(texts: Texts, cells: Cells, cell: int) -> list[int]:
    """Positions whose words are tried, each word once: the source, what is next to it, the destination, partners."""
    start = int(texts.starts[cells.text[cell]])
    length = int(texts.lengths[cells.text[cell]])
    d, s = int(cells.destination[cell]), int(cells.source[cell])
    around = texts.derived(enclosures)
    linked = [
        int(at) - start
        for at in (
            around.partner[start + d],
            around.partner[start + s],
            around.bracket[start + s],
            around.quote[start + s],
            texts.derived(previous_copy)[start + d],
        )
        if at >= 0
    ]
    wanted = [s, s - 1, d, s + 1, d - 1, *linked, (s + d) // 2, s - 2, d - 3, s + 3]
    seen: dict[int, int] = {}
    for at in wanted:
        if 0 <= at < length and texts.place[start + at] >= 0:
            seen.setdefault(int(texts.place[start + at]), at)
    return list(seen.values())[:PLACES]


def _pool(texts: Texts, seed: int) -> dict[int, list[str]]:
    """Words of the texts by their number of tokens, in a random order."""
    sizes: dict[str, int] = {}
    place, counts = np.unique(texts.place[texts.place >= 0], return_counts=True)
    for at, count in zip(place.tolist(), counts.tolist(), strict=True):
        sizes.setdefault(texts.words[texts.word_kinds[at]], count)
    pool: dict[int, list[str]] = {}
    words = sorted(sizes)
    for at in torch.randperm(len(words), generator=keyed(seed, "words to put in")).tolist():
        pool.setdefault(sizes[words[at]], []).append(words[at])
    return pool


def _try(
    rule: Rule, texts: Texts, cells: Cells, asked: Sequence[tuple[int, int, str]], tokenizer: Any
) -> _Attempts:
    """Words put in at places of cells; kept where all other tokens are as they were."""
    cell_of, place_of, words = [c for c, *_ in asked], [p for _, p, _ in asked], [w for *_, w in asked]
    raws = []
    for cell, place, word in asked:
        text = int(cells.text[cell])
        first, end = (int(x) for x in texts.word_spans[texts.place[texts.starts[text] + place]])
        raws.append(_put(texts.raw[text], first, end, word))
    changed = Texts.read(tokenizer, raws, tokens=int(texts.lengths.max(initial=1)))
    kept = [
        i
        for i, (cell, place) in enumerate(zip(cell_of, place_of, strict=True))
        if _is_same_elsewhere(texts, int(cells.text[cell]), changed, i, place)
    ]
    at = np.array([cell_of[i] for i in kept], dtype=np.int64)
    moved = Cells(np.array(kept, dtype=np.int64), cells.destination[at], cells.source[at])
    return _Attempts(
        [cell_of[i] for i in kept],
        [place_of[i] for i in kept],
        [words[i] for i in kept],
        [raws[i] for i in kept],
        rule.holds(changed, moved),
    )


def _put(raw: str, first: int, end: int, word: str) -> str:
    """A text with other characters in the place of a word. Signs take the place of the space before a word, too.

    >>> _put("a big dog", 2, 5, ","), _put("a dog, and", 5, 6, "or"), _put("(a)", 0, 1, "[")
    ('a, dog', 'a dog or and', '[a)')
    """
    if not word[0].isalnum() and raw[first - 1 : first] == " " and raw[first].isalnum():
        first -= 1
    elif word[0].isalnum() and not raw[first].isalnum() and first and not raw[first - 1].isspace():
        word = f" {word}"
    return raw[:first] + word + raw[end:]


def _words(
    texts: Texts,
    cells: Cells,
    cell: int,
    place: int,
    pool: dict[int, list[str]],
    seed: int,
    *,
    become: bool,
) -> list[str]:
    """Words to put in for the one at a place of a cell: of its size from the texts, of many classes, from around the
    cell, and the same word in another case."""
    start = int(texts.starts[cells.text[cell]])
    inside = texts.place[start : start + int(texts.lengths[cells.text[cell]])]
    size = int((inside == inside[place]).sum())
    old = texts.words[texts.word_kinds[inside[place]]]
    drawn = pool.get(size, [])
    if drawn:
        first = int(torch.randint(len(drawn), (1,), generator=keyed(seed, "words", cell)))
        drawn = [drawn[(first + i) % len(drawn)] for i in range(min(DRAWN, len(drawn)))]
    d, s = int(cells.destination[cell]), int(cells.source[cell])
    near = [at for at in (d, s, d - 1, s - 1, s + 1) if 0 <= at < len(inside) and inside[at] >= 0]
    around = [texts.words[texts.word_kinds[inside[at]]] for at in near] if become else []
    cased = [old.capitalize(), old.lower(), old.upper()]
    many = DIVERSE if size == 1 else ()
    order = [*drawn[: DRAWN // 2], *around, *many, *drawn[DRAWN // 2 :], *cased]
    return [word for word in dict.fromkeys(order) if word != old]


def _is_same_elsewhere(texts: Texts, text: int, changed: Texts, other: int, place: int) -> bool:
    """Whether two texts have as many tokens, the same ones outside the word at ``place``, and differ in it."""
    one = texts.ids[texts.starts[text] : texts.starts[text + 1]]
    two = changed.ids[changed.starts[other] : changed.starts[other + 1]]
    if len(one) != len(two):
        return False
    inside = (
        texts.place[texts.starts[text] : texts.starts[text + 1]] == texts.place[texts.starts[text] + place]
    )
    return bool((one == two)[~inside].all() and (one != two)[inside].any())
