"""The corpora that go by a name: what they are, whose they are, and where they are kept once they were got."""

from __future__ import annotations

import bz2
import hashlib
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from headwise.corpora.wikitext import articles
from headwise.corpus import Corpus, documentation, read_corpus
from headwise.errors import HeadwiseError
from headwise.files import write_bytes
from headwise.model.loading.fetch import from_index
from headwise.model.loading.store import cache_folder
from headwise.strings import shortened


@dataclass(frozen=True)
class KnownCorpus:
    """One corpus by name."""

    name: str
    """What it is called."""
    title: str
    """What it is, in a few words."""
    licence: str
    """The terms of its texts."""
    source: str
    """Where it comes from."""
    package: str
    """The package of the Python package index that carries it; empty: it is here already."""
    version: str = ""
    """The version of that package."""
    member: str = ""
    """The file in the package."""
    sha256: str = ""
    """The digest of that file."""

    @property
    def path(self) -> Path:
        """Where its text is kept."""
        return cache_folder() / "corpora" / f"{self.name}.txt"

    @property
    def ready(self) -> bool:
        """Whether it can be read now."""
        return not self.package or self.path.is_file()


DOCUMENTATION = KnownCorpus(
    "documentation",
    "prose of the documentation strings of installed packages",
    "BSD-3-Clause",
    "networkx, numpy, scipy and scikit-learn, as installed",
    "",
)
WIKIPEDIA = KnownCorpus(
    "wikipedia-excerpt",
    "106 articles of the English Wikipedia, 2016",
    "CC BY-SA 3.0",
    "Wikipedia contributors (en.wikipedia.org), as the test data of gensim carry them",
    "gensim",
    "4.4.0",
    "gensim/test/test_data/enwiki-latest-pages-articles1.xml-p000000010p000030302-shortened.bz2",
    "a53f4648dec40467ebdcbc7a1307eddb51fe6e28e9309f6ebde81ba0d04bea2d",
)
KNOWN = (DOCUMENTATION, WIKIPEDIA)


def known_corpus(name: str) -> KnownCorpus:
    """A corpus by its name."""
    for one in KNOWN:
        if one.name == name:
            return one
    raise HeadwiseError(
        f"there is no corpus named {shortened(name)!r}: {' and '.join(one.name for one in KNOWN)} go by a name"
    )


def find_corpus(source: str | Path | None = None) -> Corpus:
    """A corpus by name, or the texts of a file or folder; None is the default one."""
    if source is None or str(source) == DOCUMENTATION.name:
        return documentation()
    for one in KNOWN:
        if str(source) == one.name and not Path(source).exists():
            if not one.ready:
                raise HeadwiseError(
                    f"the corpus {one.name} is not here yet: get it with `headwise corpus get {one.name}`"
                )
            return read_corpus(one.path)
    return read_corpus(source)


def get_corpus(name: str, fetch: Callable[[str, str, str, Path], None] = from_index) -> KnownCorpus:
    """Make a corpus ready: its file is taken out of its package, held against its digest, and stripped of markup."""
    wanted = known_corpus(name)
    if wanted.ready:
        return wanted
    wanted.path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="corpus.", dir=wanted.path.parent) as folder:
        fetch(wanted.package, wanted.version, wanted.member, Path(folder))
        content = (Path(folder) / Path(wanted.member).name).read_bytes()
    if hashlib.sha256(content).hexdigest() != wanted.sha256:
        raise HeadwiseError(
            f"the {wanted.package} {wanted.version} that pip brought holds another file than the corpus "
            f"{wanted.name}: check pip's index settings"
        )
    pages = [text for _, text in articles(bz2.decompress(content)) if text]
    write_bytes(wanted.path, ("\n\n".join(pages) + "\n").encode())
    return wanted
