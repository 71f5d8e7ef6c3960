"""Word lists that are not part of headwise: the user's own, and what optional packages or folders know."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from headwise.errors import HeadwiseError
from headwise.strings import read_lines, shortened

WORDS = 100_000
"""More words than this are no list for a person to read."""
TAGS = {
    "noun": ("a noun", ("NN", "NNS")),
    "proper-noun": ("a proper noun", ("NNP", "NNPS")),
    "verb": ("a verb", ("VB", "VBD", "VBG", "VBN", "VBP", "VBZ")),
    "past": ("a verb in the past tense", ("VBD", "VBN")),
    "plural": ("a plural noun", ("NNS", "NNPS")),
    "adjective": ("an adjective", ("JJ", "JJR", "JJS")),
    "adverb": ("an adverb", ("RB", "RBR", "RBS")),
}
"""Open word classes: what a member is called, and its tags in the lexicon of textblob (the Penn Treebank's)."""
_NAME = re.compile(r"[a-z0-9][a-z0-9 _-]{0,39}", re.IGNORECASE)


@dataclass(frozen=True, eq=False)
class Lexicon:
    """Word lists by name, in lower case.

    >>> lexicon = Lexicon.of({"Pets": ["Cat", "dog"]})
    >>> lexicon.lists["pets"] == {"cat", "dog"}
    True
    >>> Lexicon.of({"no/name": ["cat"]})
    Traceback (most recent call last):
    ...
    headwise.errors.HeadwiseError: 'no/name' cannot name a word list: use letters, digits, spaces and hyphens
    """

    lists: Mapping[str, frozenset[str]]
    said: Mapping[str, str]
    """What a member of each list is called, with its article."""

    @classmethod
    def of(cls, lists: Mapping[str, Iterable[str]]) -> Lexicon:
        """Lists of the user's own."""
        made: dict[str, frozenset[str]] = {}
        for name, words in lists.items():
            if not _NAME.fullmatch(name):
                raise HeadwiseError(
                    f"{shortened(name)!r} cannot name a word list: use letters, digits, spaces and hyphens"
                )
            found = frozenset(word.strip().lower() for word in words if word.strip())
            if not found or len(found) > WORDS:
                problem = "has no words" if not found else f"has {len(found)} words"
                raise HeadwiseError(f"the word list {name!r} {problem}: give 1 to {WORDS}")
            made[name.lower()] = found
        return cls(made, {name: f"one of the {name}" for name in made})

    @classmethod
    def read(cls, files: Iterable[str | Path]) -> Lexicon:
        """Lists from files of one word per line; a file's name is its list's."""
        lists = {}
        for file in files:
            path = Path(file)
            lists[path.stem] = read_lines(path, "give a text file of one word per line")
        return cls.of(lists)

    def __or__(self, other: Lexicon) -> Lexicon:
        return Lexicon({**self.lists, **other.lists}, {**self.said, **other.said})

    def digest_of(self, name: str) -> str:
        """SHA-256 of one list."""
        return hashlib.sha256("\n".join(sorted(self.lists[name])).encode()).hexdigest()

    @property
    def digest(self) -> str:
        """SHA-256 of all lists, however they were put together."""
        said = "\n".join(f"{name} {self.digest_of(name)}" for name in sorted(self.lists))
        return hashlib.sha256(said.encode()).hexdigest()


NOTHING = Lexicon({}, {})


def lexicon_of(words: Iterable[str | Path]) -> Lexicon:
    """Lists as users name them: a file of one word per line, a folder of WordNet's files, or ``textblob``.

    >>> lexicon_of([]) is NOTHING
    True
    """
    found = NOTHING
    for one in words:
        if str(one) == "textblob":
            more = open_classes()
            if more is NOTHING:
                raise HeadwiseError("textblob is not installed: pip install 'headwise[words]'")
        else:
            more = wordnet(one) if Path(one).is_dir() else Lexicon.read([one])
        found = found | more
    return found


@lru_cache(maxsize=1)
def open_classes() -> Lexicon:
    """Nouns, verbs, adjectives and adverbs, from the lexicon that textblob carries; none if it is not installed.

    The lexicon is a text file of words with their most frequent tag: it is read, textblob itself is not imported.
    """
    spec = find_spec("textblob")
    if spec is None or not spec.submodule_search_locations:
        return NOTHING
    file = Path(next(iter(spec.submodule_search_locations))) / "en" / "en-lexicon.txt"
    if not file.is_file():
        raise HeadwiseError(f"textblob has no lexicon at {str(file)!r}: install it again (headwise[words])")
    tagged: dict[str, set[str]] = {}
    for line in file.read_text(encoding="utf-8-sig").splitlines():
        parts = line.split()
        if len(parts) >= 2 and not line.startswith(";;;"):
            tagged.setdefault(parts[1], set()).add(parts[0].lower())
    lists = {name: frozenset().union(*(tagged.get(t, ()) for t in tags)) for name, (_, tags) in TAGS.items()}
    return Lexicon(lists, {name: said for name, (said, _) in TAGS.items()})


def wordnet(folder: str | Path) -> Lexicon:
    """The supersenses of nouns and verbs from a folder of WordNet's database files (``data.noun``, ``data.verb``).

    A word belongs to the supersense of its first, most frequent sense (``index.noun``, ``index.verb``).
    """
    root = Path(folder)
    lists: dict[str, set[str]] = {}
    for part in ("noun", "verb"):
        data, index = root / f"data.{part}", root / f"index.{part}"
        if not data.is_file() or not index.is_file():
            raise HeadwiseError(
                f"{str(folder)!r} has no {data.name} and {index.name}: give the folder of WordNet's database files"
            )
        hint = "give the folder of WordNet's database files"
        files = dict(line.split()[:2] for line in read_lines(data, hint) if line[:1].isdigit())
        for line in read_lines(index, hint):
            fields = line.split()
            if not fields or line[:1] == " " or "_" in fields[0]:
                continue  # the licence, and expressions of several words
            number = files.get(_first_sense(fields))
            if number in SUPERSENSES:
                lists.setdefault(SUPERSENSES[number], set()).add(fields[0])
    made = {name: frozenset(words) for name, words in sorted(lists.items())}
    return Lexicon(made, {name: f"a {name.replace('wordnet ', 'word for ')}" for name in made})


def _first_sense(fields: list[str]) -> str:
    """lemma pos synsets pointers [pointer…] senses tagged offset…: the first offset."""
    pointers = int(fields[3]) if len(fields) > 3 and fields[3].isdigit() else 0
    at = 6 + pointers
    return fields[at] if at < len(fields) else ""


SUPERSENSES = {
    "04": "wordnet actions",
    "05": "wordnet animals",
    "06": "wordnet artefacts",
    "07": "wordnet attributes",
    "08": "wordnet body parts",
    "09": "wordnet thoughts",
    "10": "wordnet messages",
    "11": "wordnet events",
    "12": "wordnet feelings",
    "13": "wordnet food",
    "14": "wordnet groups",
    "15": "wordnet places",
    "17": "wordnet natural things",
    "18": "wordnet people",
    "20": "wordnet plants",
    "21": "wordnet possessions",
    "23": "wordnet quantities",
    "26": "wordnet states",
    "27": "wordnet substances",
    "28": "wordnet times",
    "30": "wordnet change verbs",
    "31": "wordnet verbs of thinking",
    "32": "wordnet verbs of saying",
    "35": "wordnet verbs of contact",
    "36": "wordnet verbs of making",
    "38": "wordnet verbs of motion",
    "39": "wordnet verbs of perceiving",
    "40": "wordnet verbs of owning",
    "41": "wordnet verbs of social life",
    "42": "wordnet verbs of being",
}
"""WordNet's numbers of its lexicographer files, and what their words are called here."""
