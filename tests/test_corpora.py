"""Corpora by name: stripped of markup, held against their digest, and one line where there is no network."""

from __future__ import annotations

import bz2
import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

from headwise.cli.main import main
from headwise.corpora import known
from headwise.corpora.wikitext import articles, plain
from headwise.errors import HeadwiseError

PROSE = " ".join(["The river was long and the town beside it was old."] * 5)
PAGE = "<page><title>{}</title><ns>{}</ns>{}<revision><text>{}</text></revision></page>"
WIKI = "<mediawiki xmlns='http://www.mediawiki.org/xml/export-0.10/'>{}</mediawiki>".format(
    PAGE.format("River", 0, "", f"{{{{Infobox}}}}\n{PROSE}&lt;ref&gt;a book&lt;/ref&gt;\n\n* a list")
    + PAGE.format("Stream", 0, "<redirect title='River'/>", "#REDIRECT [[River]]")
    + PAGE.format("Talk:River", 1, "", "What a page.")
)


@pytest.fixture
def cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HEADWISE_CACHE", str(tmp_path))
    content = bz2.compress(WIKI.encode())
    small = replace(known.WIKIPEDIA, sha256=hashlib.sha256(content).hexdigest())
    monkeypatch.setattr(known, "KNOWN", (known.DOCUMENTATION, small))
    return tmp_path


def brings(content: bytes):
    def fetch(_package: str, _version: str, member: str, target: Path) -> None:
        (target / Path(member).name).write_bytes(content)

    return fetch


def test_markup_is_taken_off() -> None:
    said = (
        "{{Use dmy|date={{now}}}}[[File:a.jpg|thumb|A [[cat]] sleeps]]'''Cats''' are [[felid|felids]] &amp; "
        "[[pet]]s<ref name='x'/>, see [http://example.org this page].<!-- hidden -->\n"
        "{| class='t'\n| cell\n|}\n== More ==\n: indented\nA second paragraph."
    )
    assert plain(said) == "Cats are felids & pets, see this page.\n\nA second paragraph."


def test_articles_are_pages_of_text_alone() -> None:
    assert list(articles(WIKI.encode())) == [("River", PROSE)]


def test_a_corpus_is_got_once_and_then_read_by_name(cached: Path) -> None:
    with pytest.raises(HeadwiseError, match="headwise corpus get wikipedia-excerpt"):
        known.find_corpus("wikipedia-excerpt")
    known.get_corpus("wikipedia-excerpt", brings(bz2.compress(WIKI.encode())))
    assert known.find_corpus("wikipedia-excerpt").texts == (PROSE,)

    def refuses(*_: object) -> None:
        raise AssertionError("fetched again")

    known.get_corpus("wikipedia-excerpt", refuses)
    assert [file.name for file in (cached / "corpora").iterdir()] == ["wikipedia-excerpt.txt"]


def test_another_file_is_refused_and_leaves_nothing(cached: Path) -> None:
    with pytest.raises(HeadwiseError, match="holds another file than the corpus wikipedia-excerpt"):
        known.get_corpus("wikipedia-excerpt", brings(b"something else"))
    assert not list((cached / "corpora").iterdir())


def test_no_network_is_one_line(cached: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")
    with pytest.raises(HeadwiseError) as told:
        known.get_corpus("wikipedia-excerpt")
    assert "\n" not in str(told.value)
    assert "gensim 4.4.0 cannot be fetched" in str(told.value)


def test_unknown_names_are_one_line() -> None:
    with pytest.raises(HeadwiseError, match="no corpus named 'brown'"):
        known.known_corpus("brown")


@pytest.mark.parametrize("verb", ["features", "calibrate", "name", "head"])
def test_every_verb_that_reads_texts_knows_a_corpus_by_its_name(
    verb: str, cached: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = {"name": ["name", "all"], "head": ["head", "L1H1"]}.get(verb, [verb])
    assert main([*words, "--corpus", "wikipedia-excerpt"]) == 2
    assert "get it with `headwise corpus get wikipedia-excerpt`" in capsys.readouterr().err
