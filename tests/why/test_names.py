"""Names in an explanation: always with verdict and evidence, never of another model, never of another basis."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from known import TEXT, names_document, names_folder, names_known
from rich.console import Console
from tiny import prompts_of, tiny
from tiny_banks import random_bank

from headwise.basis_names import BasisName
from headwise.errors import HeadwiseError
from headwise.files import write_json
from headwise.known_names import KnownNames, anchor, signal_id
from headwise.naming.signals import Subject
from headwise.show.why.terminal import explanation
from headwise.types import Head
from headwise.why.explain import explain
from headwise.why.explanation import Explanation
from headwise.why.names import mentioned
from headwise.why.question import PromptReading

IDS = prompts_of(11)[0]
MODEL = tiny("llama", torch.float64)


@pytest.fixture(scope="module")
def why() -> Explanation:
    head = Head(3, 1)
    return explain(MODEL, IDS, head=head, query=-1, draws=19, features=random_bank(MODEL, head))


def verdicts(why: Explanation) -> dict[str, str]:
    """Everything that it mentions gets a name."""
    return dict.fromkeys(mentioned(why), "named")


def printed(why: Explanation) -> str:
    out = Console(file=io.StringIO(), width=200)
    out.print(explanation(why))
    assert isinstance(out.file, io.StringIO)
    return out.file.getvalue()


def test_what_is_looked_up_is_written_as_headwise_name_takes_it(why: Explanation) -> None:
    keys = mentioned(why)
    assert keys[0] == "L3H1" and len(keys) == len(set(keys))
    levels = {key: Subject.parse(key).level for key in keys}
    assert all(str(Subject.parse(key)) == key for key in keys)
    assert set(levels.values()) >= {"head", "writer", "channel", "signal", "feature"}
    found = [one for side in why.who.signals.values() for one in side.by_writer()]
    assert {signal_id(one.signal, one.strengths) for one in found} <= set(keys)


def test_a_channels_pole_is_that_of_its_factors_here() -> None:
    model = tiny(
        "gpt2", torch.float64
    )  # positions are in the stream: queries and keys are multiplied as they are
    why = explain(model, IDS, head="L3H1", query=-1, draws=19)
    up = PromptReading.of(model, IDS).up
    basis = up.bases.head(why.head)
    a = up.q[3, 1, why.query].double() @ basis.query_map
    b = up.k[3, 1 // up.group].double() @ basis.key_map.mT
    others = torch.arange(len(b)) != why.key
    centred = b[why.key] - b[others].mean(0)
    for part in why.what.channels[:6]:
        signs = ["+" if value[part.channel] >= 0 else "-" for value in (a, centred)]
        assert part.pole == "".join(signs)


def test_names_are_in_table_sentence_page_and_document(why: Explanation, tmp_path: Path) -> None:
    folder = names_folder(tmp_path / "runs" / "my names", MODEL, verdicts(why))
    named = why.with_names(folder)
    document = named.to_json()
    assert document["names"]["run"] == str(folder)
    entry = document["names"]["signals"]["L3H1"]
    assert entry["text"] == TEXT and entry["verdict"] == "named"
    assert entry["accuracy"] == {"mean": 0.8125, "low": 0.75, "high": 0.875}
    assert entry["evidence"] == "names.html#L3H1"
    assert f"L3H1 attends where {TEXT} (named, accuracy 0.81)" in named.sentence
    assert str(folder) in named.sentence
    shown = printed(named)
    assert "Names, tested on other texts" in shown and "0.81 (0.75 to 0.88)" in shown
    assert "names.html (wikipedia-excerpt)" in shown
    (tmp_path / "pages").mkdir()
    page = named.save_html(tmp_path / "pages" / "why.html").read_text(encoding="utf-8")
    # from the page's own folder on, so that both can be moved together
    assert '"link":"../runs/my%20names"' in page
    assert why.to_json()["names"] is None and "Names" not in printed(why)


def test_a_name_that_failed_is_not_given(why: Explanation) -> None:
    failed = why.with_names(names_known(MODEL, dict.fromkeys(mentioned(why), "no name")))
    assert TEXT not in failed.sentence + printed(failed)
    assert {one["text"] for one in failed.to_json()["names"]["signals"].values()} == {None}
    rare = why.with_names(names_known(MODEL, {"L3H1": "too rare", "L2H0": "named"}))
    assert "too rare" in printed(rare) and TEXT not in rare.sentence


def test_every_name_has_its_verdict_beside_it(why: Explanation) -> None:
    named = why.with_names(names_known(MODEL, dict.fromkeys(mentioned(why), "beyond chance")))
    lines = [line for line in printed(named).splitlines() if TEXT in line]
    assert lines and all("beyond chance" in line for line in lines)
    assert named.sentence.count(TEXT) == named.sentence.count("(beyond chance, accuracy 0.81)")


def test_names_of_another_model_are_refused(why: Explanation, tmp_path: Path) -> None:
    folder = names_folder(tmp_path / "names", tiny("gpt2"), {"L3H1": "named"})
    with pytest.raises(
        HeadwiseError, match=r"the names in '.*names' are of .* not of .*: name what this model"
    ):
        why.with_names(folder)
    with pytest.raises(HeadwiseError, match="are of"):
        explain(MODEL, IDS, names=folder)


def test_names_of_channels_stay_in_their_basis(why: Explanation) -> None:
    known = names_known(MODEL, verdicts(why))
    other = replace(why, basis=BasisName("balanced", "query", "0" * 16)).with_names(known)
    found = other.to_json()["names"]
    assert {one["level"] for one in found["signals"].values()} == {"head", "writer", "feature"}
    left = sum(one.level in ("channel", "signal") for one in known.by_signal.values())
    assert found["other_basis"] == left > 0
    assert f"{left} names of channels and signals left out" in printed(other)


def test_a_folder_that_is_no_run_of_names_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(HeadwiseError, match=r"there is no folder '.*none': make it with `headwise name"):
        KnownNames.load(tmp_path / "none")
    folder = names_folder(tmp_path / "names", MODEL, {"L3H1": "named"})
    write_json(folder / "names.json", {**names_document(MODEL, {}), "model": "other"})
    with pytest.raises(HeadwiseError, match="missing, damaged or of another run"):
        KnownNames.load(folder)
    with pytest.raises(HeadwiseError, match="names=3 are no names"):
        KnownNames.of(3)  # pyright: ignore[reportArgumentType]


def test_no_page_no_anchor(tmp_path: Path) -> None:
    folder = names_folder(tmp_path / "names", MODEL, {"L3H1 feature a b": "named"})
    known = KnownNames.load(folder).by_signal
    assert known["L3H1 feature a b"].evidence == f"names.html#{anchor('L3H1 feature a b')}"
    (folder / "names.html").unlink()
    assert KnownNames.load(folder).by_signal["L3H1 feature a b"].evidence == "names.json"
