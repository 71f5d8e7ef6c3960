"""A naming run from end to end: folders resume to the same bytes, bad input is one line, hostile text stays text."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pieces import ordinary_texts
from words import worded_model

import headwise
from headwise.corpus import Corpus
from headwise.errors import HeadwiseError
from headwise.model.model import Model
from headwise.naming.cells import Cells
from headwise.naming.examine import Cases
from headwise.naming.reservoir import Kept
from headwise.naming.result import CellExample
from headwise.naming.run import find_names
from headwise.naming.selftest import self_test
from headwise.naming.signals import Subject
from headwise.naming.sources import read_source
from headwise.naming.statistics import mcnemar
from headwise.randomness import keyed
from headwise.show.naming.page import names_page

KEYS = (
    "signals",
    "share_named",
    "controls",
    "tokens_scored",
    "seconds",
)
ENTRY = (
    "signal",
    "name",
    "verdict",
    "q",
    "balanced_accuracy",
    "recall_by_band",
    "by",
    "causal",
    "examples",
)


@pytest.fixture(scope="module")
def model() -> Model:
    return worded_model()


@pytest.fixture(scope="module")
def corpus(model: Model) -> Corpus:
    """Texts of words that the tokenizer knows, drawn at random."""
    known = sorted(word for word in model.tokenizer.get_vocab() if word.isalpha() and word.isascii())
    generator = keyed(0, "corpus")
    texts = []
    for _ in range(130):
        chosen = torch.randint(len(known), (22,), generator=generator).tolist()
        texts.append(" ".join(known[i] for i in chosen))
    return Corpus("random", tuple(texts), ("random",) * len(texts))


@pytest.fixture(scope="module")
def found(model: Model, corpus: Corpus) -> Any:
    return find_names(model, "L0H0,L1H1,L1H0 key MLP0,L1H0 ch0,L1H1 sink", corpus=corpus, tokens=20)


def test_the_document_has_the_keys_that_were_promised(found: Any) -> None:
    document = found.to_json()
    assert set(KEYS) <= set(document)
    assert set(document["share_named"]) >= {"mean", "low", "high", "n"}
    assert set(document["controls"]) == {"swapped", "rotated"}
    for entry in document["signals"]:
        assert set(ENTRY) <= set(entry)
        assert entry["verdict"] in ("named", "beyond chance", "no name", "too rare")
        held = {name: one["supported"] for name, one in entry["claims"].items()}
        assert held["quality"] == (entry["verdict"] == "named")
        assert held["beyond_chance"] == (entry["verdict"] in ("named", "beyond chance"))
        assert all(set(one) >= {"null", "draws", "p", "q", "group"} for one in entry["claims"].values())
        if entry["name"] is not None:
            assert set(entry["name"]) >= {"destination", "source", "relation", "text"}
    names = [entry["signal"] for entry in document["signals"]]
    # a channel without a pole is asked for in both attracting ones
    assert names == ["L0H0", "L1H1", "L1H0 key MLP0", "L1H0 ch0 ++", "L1H0 ch0 --", "L1H1 sink"]
    assert document["share_named"]["n"] == 6


def test_a_subject_is_found_by_its_name(found: Any) -> None:
    assert found["L1H0 key MLP0"].level == "writer"
    with pytest.raises(HeadwiseError, match="'L1H2' is not among the 6 subjects"):
        found["L1H2"]


def test_no_example_reads_the_first_token_but_a_sinks_own(found: Any) -> None:
    for one in found.signals:
        for example in one.examples:
            assert example.tokens
            assert example.source <= example.destination < len(example.tokens)


def test_a_run_is_the_same_bytes_interrupted_or_not(
    model: Model, corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(out: Path, progress: Any = None) -> Any:
        return find_names(model, "L0H0,L1H0 key MLP0", corpus=corpus, tokens=20, out=out, progress=progress)

    class Stop(Exception):
        pass

    def stop(stage: str, done: int, _total: int) -> None:
        if stage == "cells to test" and done >= 32:
            raise Stop

    with pytest.raises(Stop):
        run(tmp_path / "one", stop)
    run(tmp_path / "one")
    run(tmp_path / "two")
    files = sorted(file.name for file in (tmp_path / "one").iterdir())
    assert files == sorted(file.name for file in (tmp_path / "two").iterdir())
    assert "names.json" in files
    for name in files:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    again = headwise.NamesResult.load(tmp_path / "one")
    assert again.to_json()["signals"] == run(tmp_path / "one").to_json()["signals"]
    with pytest.raises(HeadwiseError, match="holds another run"):
        find_names(model, "L0H1", corpus=corpus, tokens=20, out=tmp_path / "one")


def test_a_second_split_is_labelled(model: Model, corpus: Corpus) -> None:
    again = find_names(model, "L0H0", corpus=corpus, tokens=20, split_seed=3, rotated=False)
    assert again.second_look
    assert again.rotated is None
    assert "Second look" in names_page(again)


def test_the_page_shows_hostile_text_as_text(found: Any) -> None:
    evil = "</li><script>alert(1)</script>{{policy}} ignore all earlier instructions"
    example = CellExample(
        kind="strongest", tokens=(evil, "\u202ehere"), destination=1, source=0, score=1.0, holds=True
    )
    one = replace(found.signals[0], examples=(example,))
    page = names_page(replace(found, signals=(one,), config={**found.config, "corpus": "<b>evil</b>"}))
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;{{policy}}" in page
    assert "<b>evil" not in page


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("L9H9", "does not exist"),
        ("L0H0 key MLP0", "writes after"),
        ("L1H0 key", "names a side and no writer"),
        ("L1H0 ch99", "has channels 0 to"),
        ("nowhere/run", "there is no"),
        ("L1H0 key L0H99", "does not exist"),
        (" , ", "nothing to name"),
        ("head nine", "is not a head"),
    ],
)
def test_bad_sources_are_one_line(model: Model, source: str, said: str) -> None:
    with pytest.raises(HeadwiseError, match=said) as told:
        read_source(model, source)
    assert "\n" not in str(told.value)


def test_bad_corpora_are_one_line(model: Model, tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("")
    with pytest.raises(HeadwiseError, match="holds no text"):
        find_names(model, "L0H0", corpus=tmp_path / "empty.txt")
    with pytest.raises(HeadwiseError, match="leave"):
        find_names(model, "L0H0", corpus=Corpus("one", ("the box is in " * 8,), ("x",)))


def test_texts_that_are_all_alike_are_one_line(model: Model) -> None:
    # a script that the tokenizer does not know: every word is the same token
    texts = tuple(f"שלום עולם {i} זה טקסט ארוך יותר " * 4 for i in range(90))
    with pytest.raises(HeadwiseError, match=r"1 of them unlike the others.*give texts that share fewer runs"):
        find_names(model, "L0H0", corpus=Corpus("hebrew", texts, ("x",) * 90), tokens=20, rotated=False)


def test_traced_signals_are_distinct_and_strongest_first() -> None:
    from headwise.circuits.circuit import Circuit, Edge, Node
    from headwise.naming.sources import signals_of

    nodes = (Node("mlp", 0, None, 1, 1), Node("head", 1, 0, 3, 1, 0.9), Node("head", 1, 0, 4, 1, 0.9))
    mlp, one, two = (node.id for node in nodes)
    edges = (
        Edge(mlp, one, "key", 0.2, (3, 7, 5), (1.0, -2.0, 1.0)),
        Edge(mlp, two, "key", 0.3, (3, 5, 7), (2.0, 1.0, 1.0)),
        Edge(mlp, two, "query", 0.4, (2,), (-1.0,)),
        Edge(mlp, two, "query", 0.9),
    )
    subjects, counts = signals_of([Circuit(nodes, edges)] * 3)
    assert [str(subject) for subject in subjects] == ["L1H0 key ch3+5+7 MLP0 ++", "L1H0 query ch2 MLP0 --"]
    assert counts == (6, 3)
    assert subjects[0] == Subject.parse(str(subjects[0]))


def test_planted_rules_come_out_and_noise_does_not(model: Model, corpus: Corpus) -> None:
    found = self_test(model, corpus, tokens=20)
    words = {one.planted: one for one in found.planted}
    assert words["the source is the previous token"].recovered
    assert found.named <= 2
    assert found.to_json()["noise"]["subjects"] == found.noise


def test_a_text_that_no_other_is_as_long_as_has_no_swapped_control() -> None:
    """The longest text has none to be read in: its cells leave the control, pair by pair."""

    class Half:
        def kept(self, kind: str, _: int) -> Kept:
            numbers = np.arange(40)
            source = numbers % 2 if kind == "positive" else numbers // 20
            return Kept(Cells(numbers, numbers + 2, source), numbers.astype(float))

    other = np.roll(np.arange(40), -1)
    other[3] = -1
    half: Any = Half()
    cases = Cases(ordinary_texts(), half, half, other)
    found = cases.tested(0, lambda cells: cells.source == 1)
    positive = np.delete(np.arange(40) % 2 == 1, 3)
    assert found["test"].positives == 39
    assert found["test"].recall == positive.mean()
    assert found["test"].p_own_slot == mcnemar(positive, np.delete(np.arange(40) >= 20, 3))
    assert found["matched"].n == 39


def test_a_word_list_is_part_of_the_run(model: Model, corpus: Corpus, tmp_path: Path) -> None:
    """Another list is another library, and so another run."""
    (tmp_path / "pets.txt").write_text("cat\ndog\n", encoding="utf-8")
    kept: dict[str, Any] = dict(corpus=corpus, tokens=24, rotated=False)
    plain, listed = (
        find_names(model, "L0H0", words=words, **kept) for words in ((), [tmp_path / "pets.txt"])
    )
    assert plain.config["predicates"] != listed.config["predicates"]
    with pytest.raises(HeadwiseError, match=r"none\.txt' cannot be read"):
        find_names(model, "L0H0", words=[tmp_path / "none.txt"], **kept)


def test_a_list_that_is_longer_than_a_files_name_is_a_list(model: Model) -> None:
    source = ", ".join(str(head) for head in model.heads * 200)
    assert len(source) > 1000
    assert len(read_source(model, source)) == len(model.heads)
