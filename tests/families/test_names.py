"""Families in words: differences by names, tested over independent units, and circuits with named edges."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from family_runs import edge, planted_run, prompt_row, write_run
from known import TEXT, names_folder, names_known
from tiny import tiny

import headwise
from headwise.basis_names import BasisName
from headwise.cli.main import main
from headwise.errors import HeadwiseError
from headwise.families.aggregate import ANSWER, family_circuits, written
from headwise.families.result import FamiliesResult
from headwise.known_names import KnownNames
from headwise.model.model import Model

pytestmark = pytest.mark.slow

WORDINGS = 8


@pytest.fixture(scope="module")
def model() -> Model:
    return tiny("llama")


def two_orders(path: Path, model: Model) -> Path:
    """Eight wordings in two orders. ABBA reads MLP0 through channel 1, BABA through channel 2; both read L0H1; in one
    wording alone, whatever the order, L1H1 is read as well."""
    prompts, edges = [], []
    for number in range(2 * WORDINGS * 4):
        order, wording = ("ABBA", "BABA")[number % 2], f"w{number // 2 % WORDINGS}"
        prompts.append(prompt_row(number, {"order": order, "wording": wording}))
        channel = 1 if order == "ABBA" else 2
        edges.append(edge(number, "MLP0", "L2H0", "key", (channel,), weight=0.5, strengths=(1.0,)))
        edges.append(edge(number, "L0H1", "L2H0", "query", (3,), weight=0.2, strengths=(-1.0,)))
        if wording == "w0":
            edges.append(edge(number, "L1H1", "L2H0", "key", (5,), weight=0.1, strengths=(1.0,)))
        if number < 3:
            edges.append(edge(number, "MLP1", "L2H0", "key", (6,), weight=0.4, strengths=(1.0,)))
        edges.append(edge(number, "embedding", "L2H0", "key", (0,), weight=0.3, strengths=(1.0,)))
        edges.append(edge(number, "L2H0", "answer", "query", (), weight=2.0))
    # not one that anything else leads to
    edges += [edge(n, "L0H0", "L1H0", "key", (1,), weight=0.9, strengths=(1.0,)) for n in range(len(prompts))]
    write_run(path, prompts, edges, weight_hash=model.weight_hash, model=model.name)
    return path


SIGNALS = {
    "L2H0 key ch1 MLP0 ++": "named",
    "L2H0 key ch2 MLP0 ++": "beyond chance",
    "L2H0 query ch3 L0H1 --": "named",
    "L2H0 key ch5 L1H1 ++": "named",
    "L2H0 key MLP0": "no name",
}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory, model: Model) -> FamiliesResult:
    run = two_orders(tmp_path_factory.mktemp("orders") / "run", model)
    return headwise.find_families(run, by="order")


@pytest.fixture(scope="module")
def known(found: FamiliesResult, model: Model) -> KnownNames:
    return replace(names_known(model, SIGNALS), basis=found.run.basis)


def test_names_that_follow_the_order_tell_the_families_apart(
    found: FamiliesResult, known: KnownNames
) -> None:
    said = found.with_names(known).differences
    assert said.tested and said.unit == "wording"
    by = {one.name.signal: one for one in said.entries}
    assert set(by) == {key for key, verdict in SIGNALS.items() if verdict != "no name"}
    first = by["L2H0 key ch1 MLP0 ++"]
    assert (first.share_first, first.share_second, first.units) == (1.0, 0.0, WORDINGS)
    assert first.p == pytest.approx(2 / 2**WORDINGS)
    assert (
        first.claim is not None
        and first.claim.supported
        and "within each value of wording" in first.claim.null
    )
    assert [key for key, one in by.items() if one.differs] == ["L2H0 key ch1 MLP0 ++", "L2H0 key ch2 MLP0 ++"]
    assert by["L2H0 query ch3 L0H1 --"].p == by["L2H0 key ch5 L1H1 ++"].p == 1.0
    [paragraph] = said.paragraphs
    assert "ABBA and BABA (32 and 32 circuits)." in paragraph
    assert "Of 4 names that occur, 2 tell them apart (by tests over 8 values of wording" in paragraph
    more = f"More in ABBA: L2H0 key ch1 MLP0 ++, {TEXT} (named, accuracy 0.81), in 100 % and 0 %, q 0.016."
    assert more in paragraph
    assert "More in BABA: L2H0 key ch2 MLP0 ++" in paragraph and "(beyond chance, accuracy 0.81)" in paragraph
    assert "In most circuits of both: L2H0 query ch3 L0H1 --" in paragraph


def test_a_difference_of_one_wording_is_none_however_many_prompts_it_has(
    tmp_path: Path, model: Model, known: KnownNames
) -> None:
    """Fisher over prompts would call it significant; over wordings it is one of eight."""
    run = two_orders(tmp_path / "run", model)
    table = json.loads(json.dumps(headwise.find_families(run, by="order").run.edges.to_pylist()))
    kept = [row for row in table if not (row["source"] == "L1H1" and row["prompt"] % 2)]
    prompts = [
        prompt_row(n, {"order": ("ABBA", "BABA")[n % 2], "wording": f"w{n // 2 % WORDINGS}"})
        for n in range(64)
    ]
    write_run(tmp_path / "one", prompts, kept, weight_hash=model.weight_hash, model=model.name)
    one = headwise.find_families(tmp_path / "one", by="order").with_names(known).differences
    entry = next(e for e in one.entries if e.name.signal == "L2H0 key ch5 L1H1 ++")
    assert entry.share_first > 0 and entry.share_second == 0
    assert entry.p == 1.0 and not entry.differs


def test_families_that_were_cut_from_these_signals_are_not_tested_by_them(
    tmp_path: Path, model: Model
) -> None:
    run = planted_run(tmp_path / "run", weight_hash=model.weight_hash)
    found = headwise.find_families(run)
    assert found.n_families == 2
    some = {one.signal for one in written(run) if one.signal is not None and one.target == "L1H0"}
    known = replace(names_known(model, dict.fromkeys(sorted(some), "named")), basis=run.basis)
    said = found.with_names(known).differences
    assert not said.tested and {one.p for one in said.entries} == {None}
    assert any(one.differs for one in said.entries)
    assert "untested, as the families were cut from these very signals" in said.paragraphs[0]


def test_a_familys_circuit_keeps_what_most_of_it_holds_and_what_leads_to_the_answer(
    found: FamiliesResult, known: KnownNames
) -> None:
    first, second = family_circuits(found, known)
    assert [(e.source, e.target, e.side) for e in first.edges] == [
        ("L2H0", ANSWER, "query"),
        ("MLP0", "L2H0", "key"),
        ("L0H1", "L2H0", "query"),
    ]
    edges = {e.source: e for e in first.edges}
    assert (edges["MLP0"].share, edges["MLP0"].weight) == (1.0, pytest.approx(0.5))
    assert edges["MLP0"].names == ("L2H0 key ch1 MLP0 ++", "L2H0 key MLP0")
    assert {e.source: e for e in second.edges}["MLP0"].names[0] == "L2H0 key ch2 MLP0 ++"
    assert first.all_edges > len(first.edges)
    everything = family_circuits(found, pruned=0.0)[0]
    assert {e.source for e in everything.edges} == {"L2H0", "MLP0", "L0H1", "L1H1", "MLP1"}


def test_the_whole_command_writes_pages_and_words(
    tmp_path: Path, model: Model, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("headwise.model.loading.load.load", lambda *_, **__: model)
    run = two_orders(tmp_path / "run", model)
    basis = headwise.find_families(run).run.basis
    monkeypatch.setattr("known.Bases.of", lambda _model: type("Named", (), {"name": basis}))
    folder = names_folder(tmp_path / "names", model, SIGNALS)
    asked = ["families", str(run), "--by", "order", "--no-causality", "--names", str(folder)]
    assert main(asked) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "More in ABBA: L2H0 key ch1 MLP0 ++" in said and "circuit-*.html" in said
    out = run / "families"
    document = json.loads((out / "in_words.json").read_text(encoding="utf-8"))
    assert set(document) == {"names", "differences", "circuits"}
    assert document["names"]["signals"]["L2H0 key ch1 MLP0 ++"]["verdict"] == "named"
    assert "In words" in (out / "report.html").read_text(encoding="utf-8")
    page = (out / "circuit-0.html").read_text(encoding="utf-8")
    assert '"link":"../../names"' in page and "The circuit of family" in page
    assert main([*asked, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["differences"]["unit"] == "wording"
    # without names the circuits are there, and no words of before
    assert main(["families", str(run), "--by", "order", "--no-causality"]) == 0
    assert not (out / "in_words.json").exists() and (out / "circuit-1.html").exists()


def test_names_of_another_model_are_refused(found: FamiliesResult) -> None:
    with pytest.raises(HeadwiseError, match="these names are of 'tiny-gpt2'"):
        found.with_names(names_known(tiny("gpt2"), {"L2H0": "named"}))


def test_names_of_another_basis_are_left_out(found: FamiliesResult, known: KnownNames) -> None:
    other = replace(known, basis=BasisName("balanced", "query", "0" * 16))
    said = found.with_names(other)
    assert said.differences.entries == () and said.known.other_basis == 4
    assert "Nothing that has a name occurs" in said.differences.paragraphs[0]
    assert np.all([not e.names or e.names == ("L2H0 key MLP0",) for c in said.circuits for e in c.edges])
