"""Texts to measure on: the documentation that set-up brings, or what the user gives."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headwise.corpus import WORDS, Corpus, documentation, paragraphs, read_corpus
from headwise.errors import HeadwiseError

LONG = [" ".join(f"{word}{i}" for i in range(60)).capitalize() + "." for word in ("ash", "oak", "elm")]


@pytest.mark.slow
def test_documentation_is_prose_and_the_same_every_time() -> None:
    found = documentation(["networkx"])
    assert len(found) > 100
    assert set(found.kinds) == {"documentation"}
    assert all(len(text.split()) >= WORDS and "\n" not in text and ">>>" not in text for text in found.texts)
    assert len(set(found.texts)) == len(found)
    assert found.digest == documentation(["networkx"]).digest


def test_every_kind_of_source_gives_the_same_texts(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "a.md").write_text("# Title\n\n" + LONG[0] + "\n\nshort\n\n" + LONG[1])
    (tmp_path / "folder" / "b.txt").write_text(LONG[2])
    (tmp_path / "one.txt").write_text("\n\n".join(LONG))
    (tmp_path / "lines.jsonl").write_text(
        "\n".join([json.dumps(LONG[0]), *(json.dumps({"text": x}) for x in LONG[1:])])
    )
    pq.write_table(pa.table({"text": [*LONG, "short", None]}), tmp_path / "table.parquet")
    for name in ("folder", "one.txt", "lines.jsonl", "table.parquet"):
        assert read_corpus(tmp_path / name).texts == tuple(LONG), name


def test_near_duplicates_count_once(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(f"{LONG[0]}\n\n{LONG[0][:-1]} and a little more.\n\n{LONG[1]}")
    assert read_corpus(tmp_path / "a.txt").texts == (LONG[0], LONG[1])


def test_a_digest_knows_texts_and_order() -> None:
    digests = {Corpus("c", texts, ("x", "x")).digest for texts in (("a", "b"), ("b", "a"), ("ab", ""))}
    assert len(digests) == 3
    assert Corpus("other", ("a", "b"), ("y", "z")).digest in digests


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("none.txt", None, "there is no corpus at"),
        ("short.txt", "too short", "holds no text of 40 words"),
        ("bad.jsonl", "{", "line 1 of .* is not JSON"),
        ("odd.jsonl", '{"words": 3}', "line 1 of .* has no text: write a JSON string"),
        ("latin.txt", b"caf\xe9", "not UTF-8 text"),
        ("not.parquet", b"PAR0", "is not a parquet table"),
    ],
)
def test_what_cannot_be_read_is_one_line(
    tmp_path: Path, name: str, content: str | bytes | None, said: str
) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(HeadwiseError, match=said) as refused:
        read_corpus(path)
    assert "\n" not in str(refused.value)


def test_markup_and_lists_are_no_paragraphs() -> None:
    assert not list(paragraphs("Parameters\n----------\nx : int\n    " + "word " * 60))
    assert not list(paragraphs("- " + "word " * 60))
