"""The texts of a corpus as flat arrays over all their tokens, so that a question about a million cells is a lookup.

Strings are kept once each: a token has the number of its string and the number of its word's string. What is asked of
strings (is it a digit? is it a month?) is answered once per distinct string; what is asked of places (is it inside
quotes?) is answered once per token, by :meth:`Texts.derived`.

A *word* is a run of letters, digits and underscores (with apostrophes and decimal points inside it), or another sign:
a single one, or a row of three or more of the same. Tokens are mapped to words by their place in the text: a token that
is part of a word has the whole word.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from headwise.corpus import Corpus
from headwise.errors import HeadwiseError
from headwise.strings import well_formed
from headwise.tokens import encode, shown

if TYPE_CHECKING:
    from headwise.model.model import Model
    from headwise.naming.cells import Cells

TOKENS = 96
"""Tokens of a text that are read; what follows is cut off."""
AROUND = (10, 4)
"""Tokens shown before the earlier and after the later token of a cell."""
WORD = re.compile(r"\d+(?:[.,]\d+)+|\w+(?:['’]\w+)*|([^\w\s])\1{2,}|[^\w\s]")
Value = TypeVar("Value")


@dataclass(frozen=True, eq=False)
class Texts:
    """Tokenised texts. Arrays ``[tokens]`` run over all tokens of all texts, one text after another."""

    raw: tuple[str, ...]
    """What the tokens of each text cover, to the end of the last word."""
    kinds: tuple[str, ...]
    """What kind of text each is."""
    starts: np.ndarray
    """[texts + 1]: where each text begins among all tokens; the last entry is their number."""
    ids: np.ndarray
    """[tokens] int32: token ids."""
    strings: tuple[str, ...]
    """The distinct tokens as text."""
    string: np.ndarray
    """[tokens] int32: which of :attr:`strings` each token is."""
    words: tuple[str, ...]
    """The distinct words; the first is empty, for tokens that are no part of a word."""
    word: np.ndarray
    """[tokens] int32: which of :attr:`words` each token is part of."""
    place: np.ndarray
    """[tokens] int32: the number of the token's word among all words of all texts; -1 where it has none."""
    spans: np.ndarray
    """[tokens, 2] int32: the characters of the text that each token covers."""
    word_kinds: np.ndarray
    """[words of all texts] int32: which of :attr:`words` each word is."""
    word_texts: np.ndarray
    """[words of all texts] int32: which text each word is in."""
    word_spans: np.ndarray
    """[words of all texts, 2] int32: the characters of the text that each word covers."""

    @classmethod
    def of(cls, model: Model, corpus: Corpus, *, tokens: int = TOKENS) -> Texts:
        """The texts of a corpus as a model reads them, each cut to ``tokens`` tokens and to the model's context."""
        most = tokens if model.context is None else min(tokens, model.context)
        return cls.read(model.tokenizer, corpus.texts, corpus.kinds, tokens=most)

    @classmethod
    def read(
        cls, tokenizer: Any, raw: Sequence[str], kinds: Sequence[str] | None = None, *, tokens: int = TOKENS
    ) -> Texts:
        """Texts as a tokenizer cuts them; one that has no token is an empty text, not an error."""
        if tokens < 1:
            raise HeadwiseError(f"tokens={tokens} leaves nothing of the texts: give 1 or more")
        made = _Builder(tokenizer)
        for text in raw:
            made.add(text, tokens)
        return made.texts(tuple(kinds) if kinds is not None else ("",) * len(raw))

    # --- places ---------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.raw)

    @property
    def tokens(self) -> int:
        """How many tokens all texts have."""
        return len(self.ids)

    @cached_property
    def lengths(self) -> np.ndarray:
        """[texts]: how many tokens each text has."""
        return np.diff(self.starts)

    @cached_property
    def text(self) -> np.ndarray:
        """[tokens] int32: which text each token is in."""
        return np.repeat(np.arange(len(self), dtype=np.int32), self.lengths)

    @cached_property
    def position(self) -> np.ndarray:
        """[tokens] int32: each token's position in its text."""
        return (np.arange(self.tokens) - self.starts[self.text]).astype(np.int32)

    def ids_of(self, text: int) -> list[int]:
        """The token ids of one text."""
        return self.ids[self.starts[text] : self.starts[text + 1]].tolist()

    def strings_of(self, text: int) -> list[str]:
        """The tokens of one text, as text."""
        return [self.strings[i] for i in self.string[self.starts[text] : self.starts[text + 1]]]

    def around(self, text: int, destination: int, source: int) -> tuple[tuple[str, ...], int, int]:
        """A cell in its context: the tokens around the two, and which of them these are."""
        first = max(0, min(destination, source) - AROUND[0])
        last = max(destination, source) + 1 + AROUND[1]
        return tuple(self.strings_of(text)[first:last]), destination - first, source - first

    def destinations(self, cells: Cells) -> np.ndarray:
        """Where the cells' destinations are among all tokens."""
        return self.starts[cells.text] + cells.destination

    def sources(self, cells: Cells) -> np.ndarray:
        """Where the cells' sources are among all tokens."""
        return self.starts[cells.text] + cells.source

    # --- words ----------------------------------------------------------------------------------------------------

    @cached_property
    def begins(self) -> np.ndarray:
        """[tokens]: whether a token is the first of its word."""
        before = np.concatenate([[-1], self.place[:-1]]) if self.tokens else self.place
        return (self.place >= 0) & (self.place != before)

    @cached_property
    def ends(self) -> np.ndarray:
        """[tokens]: whether a token is the last of its word."""
        after = np.concatenate([self.place[1:], [-1]]) if self.tokens else self.place
        return (self.place >= 0) & (self.place != after)

    @cached_property
    def lowered(self) -> tuple[tuple[str, ...], np.ndarray]:
        """The distinct words in lower case, and which of them each of :attr:`words` is."""
        known: dict[str, int] = {}
        which = [known.setdefault(word.lower(), len(known)) for word in self.words]
        return tuple(known), np.array(which, dtype=np.int32)

    @cached_property
    def lower(self) -> np.ndarray:
        """[tokens] int32: which word in lower case each token is part of; 0 where it has none."""
        return self.lowered[1][self.word]

    def neighbour(self, steps: int) -> np.ndarray:
        """[words of all texts] int32: which of :attr:`words` is so many words further in the same text; 0 for none."""
        count = len(self.word_kinds)
        at = np.arange(count) + steps
        inside = (at >= 0) & (at < count)
        at = np.where(inside, at, 0)
        if not count:
            return self.word_kinds
        same = inside & (self.word_texts[at] == self.word_texts)
        return np.where(same, self.word_kinds[at], 0)

    # --- what follows from them ------------------------------------------------------------------------------------

    def derived(self, make: Callable[[Texts], Value]) -> Value:
        """What a function makes of these texts, made once."""
        if make not in self._made:
            self._made[make] = make(self)
        return self._made[make]

    def of_strings(self, test: Callable[[str], bool]) -> np.ndarray:
        """[tokens] bool: a question about a token's text, asked once per distinct token."""
        return self._asked(test, self.strings)[self.string]

    def of_words(self, test: Callable[[str], bool]) -> np.ndarray:
        """[words] bool: a question about words, asked once per distinct word; tokens without a word have ''."""
        return self._asked(test, self.words)

    def _asked(self, test: Callable[[str], bool], strings: tuple[str, ...]) -> np.ndarray:
        key = (test, id(strings))
        if key not in self._made:
            self._made[key] = np.array([bool(test(one)) for one in strings], dtype=bool)
        return self._made[key]

    @cached_property
    def _made(self) -> dict[Any, Any]:
        return {}

    def __getstate__(self) -> dict[str, Any]:
        # what is derived goes by functions and by addresses of this process: another one derives it anew
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    def __repr__(self) -> str:
        return f"Texts({len(self)} texts, {self.tokens} tokens)"


class _Builder:
    """Texts in the making: lists that grow, and the numbers of the strings seen so far."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.decoded: dict[int, str] = {}
        self.strings: dict[str, int] = {}
        self.words: dict[str, int] = {"": 0}
        self.raw: list[str] = []
        self.starts = [0]
        self.ids: list[int] = []
        self.string: list[int] = []
        self.place: list[int] = []
        self.spans: list[tuple[int, int]] = []
        self.word_kinds: list[int] = []
        self.word_spans: list[tuple[int, int]] = []
        self.word_texts: list[int] = []

    def add(self, text: str, most: int) -> None:
        """One text: its tokens, its words, and which token is part of which word."""
        ids, pieces, spans, text = self._tokens(well_formed(text, "text"), most)
        reach = max((end for _, end in spans), default=0)
        found = [(m.start(), m.end(), m[0]) for m in WORD.finditer(text) if m.start() < reach]
        text = text[: max(reach, found[-1][1] if found else 0)]
        owners = [-1] * len(text)
        for number, (start, end, _) in enumerate(found, len(self.word_kinds)):
            owners[start:end] = [number] * (end - start)
        for start, end in spans:
            # The first character that is not a space: a token may carry the space before its word.
            self.place.append(next((owners[i] for i in range(start, end) if owners[i] >= 0), -1))
        self.word_kinds += [self.words.setdefault(word, len(self.words)) for *_, word in found]
        self.word_spans += [(start, end) for start, end, _ in found]
        self.word_texts += [len(self.raw)] * len(found)
        self.string += [self.strings.setdefault(piece, len(self.strings)) for piece in pieces]
        self.ids += ids
        self.spans += spans
        self.raw.append(text)
        self.starts.append(len(self.ids))

    def _tokens(self, text: str, most: int) -> tuple[list[int], list[str], list[tuple[int, int]], str]:
        """Ids, strings and characters of the first tokens of a text, and the whole text."""
        if not text:
            return [], [], [], ""
        if getattr(self.tokenizer, "is_fast", False):
            read = self.tokenizer(text, return_offsets_mapping=True)
            ids = [int(one) for one in read.input_ids][:most]
            spans = [(int(a), int(b)) for a, b in read.offset_mapping][:most]
            return ids, self._shown(ids), spans, text
        ids = encode(self.tokenizer, text)[0][:most]
        pieces = self._shown(ids)
        ends = np.cumsum([len(piece) for piece in pieces]).tolist()
        return ids, pieces, list(zip([0, *ends[:-1]], ends, strict=True)), "".join(pieces)

    def _shown(self, ids: list[int]) -> list[str]:
        for one in ids:
            if one not in self.decoded:
                self.decoded[one] = str(self.tokenizer.decode([one]))
        pieces = [self.decoded[one] for one in ids]
        # Pieces of a character need their neighbours to be shown.
        return list(shown(self.tokenizer, ids)) if any("\ufffd" in piece for piece in pieces) else pieces

    def texts(self, kinds: tuple[str, ...]) -> Texts:
        if len(kinds) != len(self.raw):
            raise HeadwiseError(f"{len(self.raw)} texts have {len(kinds)} kinds: give one per text")
        place = np.array(self.place, dtype=np.int32)
        word_kinds = np.array(self.word_kinds, dtype=np.int32)
        known = np.concatenate([word_kinds, [0]]).astype(np.int32)  # -1, no word, reads the last entry
        return Texts(
            raw=tuple(self.raw),
            kinds=kinds,
            starts=np.array(self.starts, dtype=np.int64),
            ids=np.array(self.ids, dtype=np.int32),
            strings=tuple(self.strings),
            string=np.array(self.string, dtype=np.int32),
            words=tuple(self.words),
            word=known[place],
            place=place,
            spans=np.array(self.spans, dtype=np.int32).reshape(-1, 2),
            word_kinds=word_kinds,
            word_texts=np.array(self.word_texts, dtype=np.int32),
            word_spans=np.array(self.word_spans, dtype=np.int32).reshape(-1, 2),
        )
