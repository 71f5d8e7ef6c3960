"""Ordinary text to measure a model on: the documentation strings of the packages headwise runs on, or your own.

Set-up pins these packages to exact versions, so the default corpus is on every machine after it, the same everywhere,
and needs no download. Their source files are parsed, never imported. Every corpus has a digest, which goes into
whatever is measured on it.
"""

from __future__ import annotations

import ast
import hashlib
import re
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from headwise import jsons
from headwise.errors import HeadwiseError
from headwise.strings import shortened

PACKAGES = ("networkx", "numpy", "scipy", "sklearn")
"""Whose documentation is prose rather than lists of parameters."""
WORDS = 40
"""A paragraph has at least this many words: shorter ones are headings and labels."""
RECORD_WORDS = 4
"""A record of a JSONL file or a table is a text as it is, if it has this many words."""
SHINGLE = 5
"""Two texts that share half of their runs of this many words are near-duplicates: the later one goes."""
FIELDS = ("text", "prompt", "content")
"""Where the text of a JSON line or a table is looked for, in this order."""

_PROSE = re.compile(r"[A-Z][^:]*[.?!]\)?$", re.DOTALL)
_MARKUP = re.compile(r"\.\. |>>>|::|\n[-=~^\"]{3,}|\n\s*[-*] |:(math|ref|doc):|^\s*\|", re.MULTILINE)
_ROLE = re.compile(r":\w+:`~?([^`]*)`|``([^`]*)``|`([^`<]*?)(?: <[^>]*>)?`_?")


@dataclass(frozen=True)
class Corpus:
    """Some texts in a fixed order, and what kind of text each is."""

    name: str
    texts: tuple[str, ...]
    kinds: tuple[str, ...]
    """``documentation``, or where in the user's corpus a text is from: what a comparison between kinds goes by."""

    @property
    def digest(self) -> str:
        """SHA-256 of the texts in their order."""
        return hashlib.sha256(jsons.dumps(list(self.texts), indent=None).encode()).hexdigest()

    def __len__(self) -> int:
        return len(self.texts)

    def first(self, texts: int) -> Corpus:
        """At most so many texts, spread evenly over the corpus.

        >>> Corpus("c", tuple("abcdef"), ("x",) * 6).first(3).texts
        ('a', 'c', 'e')
        """
        if texts < 1:
            raise HeadwiseError(f"texts={texts} leaves no text of the corpus: give 1 or more")
        if texts >= len(self):
            return self
        return self._chosen([i * len(self) // texts for i in range(texts)])

    def of_kind(self, kind: str) -> Corpus:
        """The texts of one kind."""
        return self._chosen([i for i, one in enumerate(self.kinds) if one == kind])

    def _chosen(self, kept: list[int]) -> Corpus:
        return Corpus(self.name, tuple(self.texts[i] for i in kept), tuple(self.kinds[i] for i in kept))

    def __add__(self, other: Corpus) -> Corpus:
        return Corpus(f"{self.name}+{other.name}", self.texts + other.texts, self.kinds + other.kinds)


def read_corpus(source: str | Path | None = None) -> Corpus:
    """The default corpus, or the texts of a folder (.txt, .md), a text file, a JSONL file or a parquet table."""
    if source is None:
        return documentation()
    path = Path(source)
    if path.is_dir():
        files = sorted(p for p in path.rglob("*") if p.suffix in (".txt", ".md") and p.is_file())
        found = [
            (text, file.relative_to(path).parts[0].removesuffix(file.suffix))
            for file in files
            for text in paragraphs(_read(file))
        ]
        return _corpus(
            path.name, found, f"the folder {str(source)!r} has no .txt or .md file with a paragraph"
        )
    if not path.is_file():
        raise HeadwiseError(
            f"there is no corpus at {shortened(str(source))!r}: give a folder, a .txt, .jsonl or .parquet file"
        )
    if path.suffix in (".jsonl", ".json"):
        found, least = [(text, path.stem) for text in _lines(path)], RECORD_WORDS
    elif path.suffix == ".parquet":
        found, least = [(text, path.stem) for text in _column(path)], RECORD_WORDS
    else:
        found, least = [(text, path.stem) for text in paragraphs(_read(path))], WORDS
    return _corpus(path.stem, found, f"{str(source)!r} holds no text of {least} words or more")


def documentation(packages: Iterable[str] = PACKAGES) -> Corpus:
    """The prose in the documentation strings of some installed packages, near-duplicates left out."""
    found: list[tuple[str, str]] = []
    for package in sorted(packages):
        spec = find_spec(package)
        if spec is None or not spec.submodule_search_locations:
            continue
        root = Path(next(iter(spec.submodule_search_locations)))
        for file in sorted(root.rglob("*.py")):
            if "tests" not in file.parts:
                found += [(text, "documentation") for text in _docstrings(file)]
    return _corpus(
        "documentation", found, "none of the packages with documentation is installed: run set-up again"
    )


def paragraphs(text: str) -> Iterator[str]:
    """The paragraphs of a text that are prose of some length, each on one line.

    >>> list(paragraphs("Title\\n=====\\n\\n" + "This sentence is made of eight plain words. " * 5))
    ['This sentence is made of eight plain words. This sentence is made of eight plain words. This sentence ...']
    """
    for block in re.split(r"\n\s*\n", text):
        if _MARKUP.search(block):
            continue
        line = " ".join(
            _ROLE.sub(lambda m: next(part for part in m.groups() if part is not None), block).split()
        )
        if len(line.split()) >= WORDS and _PROSE.match(line):
            yield line


def without_near_duplicates(found: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """The texts that do not share half of their runs of words with an earlier one.

    >>> long = " ".join(f"word{i}" for i in range(50))
    >>> len(without_near_duplicates([(long, "a"), (long + " more", "b"), ("other " * 50, "c")]))
    2
    """
    kept: list[tuple[str, str]] = []
    holders: dict[int, list[int]] = {}
    for text, kind in found:
        runs = _shingles(text)
        shared = Counter(one for run in runs for one in holders.get(run, ()))
        if shared and shared.most_common(1)[0][1] >= len(runs) / 2:
            continue
        for run in runs:
            holders.setdefault(run, []).append(len(kept))
        kept.append((text, kind))
    return kept


def _shingles(text: str) -> set[int]:
    words = re.findall(r"\w+", text.lower())
    runs = (" ".join(words[i : i + SHINGLE]) for i in range(max(1, len(words) - SHINGLE + 1)))
    # Python's own hash of text differs from process to process.
    return {int.from_bytes(hashlib.blake2b(run.encode(), digest_size=8).digest(), "big") for run in runs}


def _corpus(name: str, found: list[tuple[str, str]], nothing: str) -> Corpus:
    kept = without_near_duplicates(found)
    if not kept:
        raise HeadwiseError(nothing)
    return Corpus(name, tuple(text for text, _ in kept), tuple(kind for _, kind in kept))


def _docstrings(file: Path) -> Iterator[str]:
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError, OSError):
        return  # templates and files for other versions of Python
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            said = ast.get_docstring(node, clean=False)
            if said and len(said) > 5 * WORDS:
                yield from paragraphs(textwrap.dedent(said.partition("\n")[2]))


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8 text"
        raise HeadwiseError(f"the corpus {str(path)!r} cannot be read ({reason})") from None


def _lines(path: Path) -> Iterator[str]:
    for number, line in enumerate(_read(path).split("\n"), 1):
        if not line.strip():
            continue
        try:
            value: Any = jsons.parse(line)
        except jsons.NotJson as error:
            raise HeadwiseError(f"line {number} of {str(path)!r} is not JSON ({error})") from None
        text = value if isinstance(value, str) else _field(value)
        if text is None:
            raise HeadwiseError(
                f"line {number} of {str(path)!r} has no text: "
                f"write a JSON string or an object with one of {', '.join(FIELDS)}"
            )
        if len(text.split()) >= RECORD_WORDS:
            yield " ".join(text.split())


def _field(value: Any) -> str | None:
    found = [value[name] for name in FIELDS if isinstance(value, dict) and isinstance(value.get(name), str)]
    return found[0] if found else None


def _column(path: Path) -> Iterator[str]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        names = pq.read_schema(path).names
        column = next((name for name in FIELDS if name in names), None)
        if column is None:
            raise HeadwiseError(
                f"the table {str(path)!r} has no column {' or '.join(FIELDS)}; it has {', '.join(names)}"
            )
        values = pq.read_table(path, columns=[column]).column(0).to_pylist()
    except (pa.ArrowException, OSError) as error:
        raise HeadwiseError(f"{str(path)!r} is not a parquet table ({str(error).splitlines()[0]})") from None
    for value in values:
        if isinstance(value, str) and len(value.split()) >= RECORD_WORDS:
            yield " ".join(value.split())
