"""Word lists from outside: files, the lexicon that textblob carries, and a folder of WordNet's files."""

from __future__ import annotations

from pathlib import Path

import pytest
from pieces import piece_tokenizer

from headwise.errors import HeadwiseError
from headwise.naming.cells import Cells
from headwise.naming.predicates import lexicon as module
from headwise.naming.predicates.lexicon import NOTHING, Lexicon, lexicon_of, open_classes, wordnet
from headwise.naming.predicates.library import by_id
from headwise.naming.texts import Texts


def test_lists_from_files(tmp_path: Path) -> None:
    (tmp_path / "pets.txt").write_text("Cat\n\n dog \n", encoding="utf-8")
    assert Lexicon.read([tmp_path / "pets.txt"]).lists == {"pets": {"cat", "dog"}}
    with pytest.raises(
        HeadwiseError, match=r"none\.txt' cannot be read .*: give a text file of one word per line"
    ):
        Lexicon.read([tmp_path / "none.txt"])


def test_open_classes_come_from_textblobs_lexicon() -> None:
    pytest.importorskip("textblob")
    found = open_classes()
    assert {"house", "idea"} <= found.lists["noun"] and "quickly" in found.lists["adverb"]
    assert (
        "walked" in found.lists["verb"]
        and "walked" in found.lists["past"]
        and "green" in found.lists["adjective"]
    )
    texts = Texts.read(piece_tokenizer(), ["London is quickly green"])
    cells = Cells.of([(0, texts.tokens - 1, i) for i in range(texts.tokens)])
    words = {
        name: {
            texts.words[texts.word[i]]
            for i in by_id(f"source.list={name}", found).holds(texts, cells).nonzero()[0]
        }
        for name in ("proper-noun", "adverb", "adjective")
    }
    assert words == {"proper-noun": {"London"}, "adverb": {"quickly"}, "adjective": {"green"}}


def test_without_textblob_there_are_no_open_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_spec", lambda _: None)
    assert open_classes.__wrapped__() is NOTHING


def test_supersenses_of_a_wordnet_folder(tmp_path: Path) -> None:
    (tmp_path / "data.noun").write_text(
        "  1 licence\n00001740 05 n 01 dog 0 000 | an animal\n00002000 13 n 01 bread 0 000 | food\n",
        encoding="utf-8",
    )
    (tmp_path / "index.noun").write_text(
        "  1 licence\ndog n 2 2 @ ~ 2 1 00001740 00002000\nbread n 1 1 @ 1 1 00002000\nhot_dog n 1 0 1 0 00002000\n",
        encoding="utf-8",
    )
    with pytest.raises(HeadwiseError, match=r"has no data\.verb and index\.verb"):
        wordnet(tmp_path)
    (tmp_path / "data.verb").write_text("00003000 38 v 01 walk 0 000 01 + 02 00 | go\n", encoding="utf-8")
    (tmp_path / "index.verb").write_text("walk v 1 1 @ 1 1 00003000\n", encoding="utf-8")
    found = wordnet(tmp_path)
    assert found.lists == {
        "wordnet animals": {"dog"},
        "wordnet food": {"bread"},
        "wordnet verbs of motion": {"walk"},
    }
    assert found.said["wordnet animals"] == "a word for animals"
    both = found | Lexicon.of({"pets": ["dog"]})
    assert set(both.lists) == {*found.lists, "pets"}
    assert str(by_id("source.list=wordnet animals", both).phrase.yes) == "a word for animals"


def test_lists_are_named_as_users_name_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pets.txt").write_text("cat\n", encoding="utf-8")
    assert set(lexicon_of([tmp_path / "pets.txt"]).lists) == {"pets"}
    with pytest.raises(HeadwiseError, match="give the folder of WordNet's database files"):
        lexicon_of([tmp_path])
    monkeypatch.setattr(module, "open_classes", lambda: NOTHING)
    with pytest.raises(HeadwiseError, match=r"textblob is not installed: pip install 'headwise\[words\]'"):
        lexicon_of(["textblob"])
