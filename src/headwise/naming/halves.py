"""Two halves of a corpus: names are found on one (explore) and tested on the other, text by text.

Which half a text is in follows from its content, so that adding a text moves no other. Texts that share a run of eight
tokens are near-duplicates and go to the same half, all of a chain of them: otherwise a test would see again what the
search had seen.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from headwise.errors import HeadwiseError

if TYPE_CHECKING:
    from headwise.naming.texts import Texts

Half = Literal["explore", "test"]
SHINGLE = 8
"""Tokens of a run that two texts share only if one is partly a copy of the other."""
LEAST_TOKENS = 12
"""A text of fewer has hardly a cell that is not near its beginning."""


@dataclass(frozen=True, eq=False)
class Halves:
    """The texts of each half, in an order that depends on their content alone."""

    explore: np.ndarray
    """[n] numbers of texts that names are found on."""
    test: np.ndarray
    """[n] numbers of texts that names are tested on."""
    groups: int
    """Groups of near-duplicates, single texts included."""
    left_out: int
    """Texts too short to be used."""

    def of(self, half: Half) -> np.ndarray:
        """The texts of one half."""
        return self.explore if half == "explore" else self.test


def halves_of(texts: Texts, seed: int = 0) -> Halves:
    """Split texts by content; near-duplicates together."""
    usable = [number for number in range(len(texts)) if texts.lengths[number] >= LEAST_TOKENS]
    ids = {number: texts.ids_of(number) for number in usable}
    digests = {number: _digest(ids[number]) for number in usable}
    group = _joined(ids)
    members: dict[int, list[int]] = {}
    for number in usable:
        members.setdefault(group[number], []).append(number)
    chosen: dict[Half, list[int]] = {"explore": [], "test": []}
    for some in members.values():
        first = min(digests[number] for number in some)
        even = hashlib.sha256(f"{seed} half {first}".encode()).digest()[0] % 2 == 0
        chosen["explore" if even else "test"] += some
    for half, some in chosen.items():
        if len(some) < 2:
            # a script that a tokenizer has no words for is cut into pieces, of which any eight are soon met again
            alike = len(members) < len(usable) / 2
            give = (
                "texts that share fewer runs of eight tokens" if alike else "a corpus of some hundred texts"
            )
            raise HeadwiseError(
                f"{len(usable)} texts of {LEAST_TOKENS} tokens or more, {len(members)} of them unlike the others, "
                f"leave {len(some)} in the {half} half: names need texts to be found on and others to be tested on; "
                f"give {give}"
            )

    def ordered(half: Half) -> np.ndarray:
        return np.array(sorted(chosen[half], key=lambda n: (_order(seed, digests[n]), n)), dtype=np.int64)

    return Halves(ordered("explore"), ordered("test"), len(members), len(texts) - len(usable))


def swapped(texts: Texts, halves: Halves) -> np.ndarray:
    """[texts]: for each text another one of its half, of the same length or the next longer one; −1 where none is.

    The swapped control reads the cells of one text in the other. A longer text is read as far as the shorter one goes.
    """
    other = np.full(len(texts), -1, dtype=np.int64)
    for some in (halves.explore, halves.test):
        place = {number: i for i, number in enumerate(some.tolist())}
        by_length: dict[int, list[int]] = {}
        for number in some.tolist():
            by_length.setdefault(int(texts.lengths[number]), []).append(number)
        longer = -1
        for length in sorted(by_length, reverse=True):
            same = sorted(by_length[length], key=place.__getitem__)
            if len(same) > 1:
                for one, two in zip(same, [*same[1:], same[0]], strict=True):
                    other[one] = two
            else:
                other[same[0]] = longer
            longer = same[0]
    return other


def _digest(ids: list[int]) -> str:
    return hashlib.sha256(repr(ids).encode()).hexdigest()


def _order(seed: int, digest: str) -> bytes:
    return hashlib.sha256(f"{seed} order {digest}".encode()).digest()


def _joined(ids: dict[int, list[int]]) -> dict[int, int]:
    """The group of each text: texts that share a run of tokens, directly or through others."""
    parent = {number: number for number in ids}

    def root(number: int) -> int:
        while parent[number] != number:
            parent[number] = parent[parent[number]]
            number = parent[number]
        return number

    holder: dict[tuple[int, ...], int] = {}
    for number, tokens in ids.items():
        for start in range(max(1, len(tokens) - SHINGLE + 1)):
            run = tuple(tokens[start : start + SHINGLE])
            one, two = root(holder.setdefault(run, number)), root(number)
            parent[max(one, two)] = min(one, two)
    return {number: root(number) for number in ids}
