"""The page of a computed explanation: it shows the explanation's own numbers, and is written whole or not at all."""

from __future__ import annotations

import base64
import os
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from browsing import Opener, browsed, fits
from odd_tokens import ODD, ODD_SHOWN
from tiny import prompts_of, tiny

from headwise.errors import HeadwiseError
from headwise.model.model import Model
from headwise.show.kit.report import TRACES
from headwise.show.notebook import explanation
from headwise.show.why.page import page, write_page
from headwise.why.explain import explain
from headwise.why.explanation import Explanation
from make_web import WEB


@pytest.fixture(scope="module")
def why() -> Explanation:
    return explain(tiny("llama"), prompts_of(12)[0], draws=30)


@pytest.fixture(scope="module")
def odd(why: Explanation) -> Explanation:
    answer = replace(why.answer, text=" <img src=x onerror=alert(2)>", wrong_text=" שלום")
    return replace(why, tokens=ODD, prompt="".join(ODD), answer=answer)


def number(text: str) -> float:
    return float(text.replace("−", "-").replace("+", ""))


# --- in a browser ----------------------------------------------------------------------------------------------------


@browsed
def test_the_page_shows_the_explanations_own_table(show: Opener, why: Explanation) -> None:
    shown = show(page(why))
    assert str(why.head) in shown.inner_text("h1")
    assert shown.inner_text(".sentence") == why.sentence
    for side in ("query", "key"):
        shown.click(f".switch .{side}")
        visible = shown.locator(".side-table:not([hidden])")
        while visible.locator(".more-rows").count():
            visible.locator(".more-rows").click()
        rows = [row for row in why.to_json()["who"] if row["side"] == side]
        sums = [number(text) for text in visible.locator("tbody .sum").all_inner_texts()]
        expected = sorted(round(row["log_odds"], 2) for row in rows)
        np.testing.assert_allclose(sorted(sums), expected, atol=0.0051)
        assert abs(number(visible.locator("tfoot .sum").inner_text()) - why.what.log_odds) < 0.0051
        assert visible.locator("tr.cause").count() == len(why.who.sets[side].members)


@browsed
def test_the_heat_is_the_pattern(show: Opener, why: Explanation) -> None:
    shown = show(page(why))
    for row in (why.query, 7):
        shown.click(f".tokens button >> nth={row}")
        styles = shown.locator(".tokens button").evaluate_all(
            "all => all.map((b) => b.style.getPropertyValue('--a'))"
        )
        drawn = torch.tensor([float(one) for one in styles])
        torch.testing.assert_close(drawn, why.pattern[row].float().sqrt(), atol=5e-3, rtol=0)


@browsed
def test_hostile_prompt_is_text(show: Opener, odd: Explanation) -> None:
    shown = show(page(odd))
    said = shown.locator(".tokens button").all_text_contents()
    assert said == ODD_SHOWN
    assert shown.locator("script").count() == 2
    assert shown.locator("img").count() == 0


@browsed
def test_narrow_screen_does_not_scroll_sideways(show: Opener, odd: Explanation) -> None:
    assert fits(show(page(odd), viewport={"width": 360, "height": 800}))


@browsed
@pytest.mark.parametrize("name", ["gpt2", "gemma2", "qwen3"])
def test_token_that_reads_itself(show: Opener, name: str) -> None:
    why = explain(tiny(name), prompts_of(9)[0], head="L2H1", query=5, key=5, draws=20)
    shown = show(page(why))
    assert shown.locator(".tokens button.query.key").count() == 1
    assert shown.locator(".around .node.firing").count() == 1


@browsed
def test_the_first_token_can_only_read_itself(show: Opener) -> None:
    why = explain(tiny("llama"), prompts_of(9)[0], head="L2H1", query=0, key=0, draws=20)
    assert "nothing to explain" in show(page(why)).inner_text("section.table")


@browsed
@pytest.mark.real
def test_real_model(show: Opener, smollm2: Model) -> None:
    why = explain(smollm2, "When John and Mary went to the store, John gave a drink to")
    text = page(why)
    assert len(text.encode()) < 300_000
    shown = show(text)
    assert str(why.head) in shown.inner_text("h1")
    assert shown.inner_text(".sentence") == why.sentence
    assert shown.locator(".verdict li").count() == 3
    assert shown.locator(".verdict li.unknown").count() == 0
    unfolded = next(row for row in why.to_json()["who"] if row["through"] and row["neurons"])
    assert fields("Through") <= set(unfolded["through"][0])
    assert fields("Neuron") <= set(unfolded["neurons"][0])
    assert shown.locator(".unfold-button").count() > 0


# --- the file --------------------------------------------------------------------------------------------------------


def fields(name: str) -> set[str]:
    """The fields that an interface of the page's sources requires."""
    source = (WEB / "src" / "explanation" / "document.ts").read_text(encoding="utf-8")
    found = re.search(rf"export interface {name}(?: extends \w+)? {{\n(.*?)\n}}", source, re.DOTALL)
    assert found is not None
    return set(re.findall(r"^  (\w+):", found[1], re.MULTILINE))


def test_the_document_has_every_field_that_the_page_reads(why: Explanation) -> None:
    document = why.to_json()
    assert why.proof.side is not None
    parts = {
        "ExplanationDocument": document,
        "Row": document["who"][0],
        "Writer": document["who"][0],
        "ChannelPart": document["who"][0]["channels"][0],
        "What": document["what"][0],
        "CauseSide": document["cause"]["query"],
        "Proof": document["proof"],
        "Outcome": document["proof"]["after"],
        "Control": document["controls"][0],
        "Spread": document["controls"][0]["attention"],
        "Word": document["verdict"]["specific"],
        "Balance": document["log_odds"]["query"],
    }
    for name, part in parts.items():
        assert fields(name) and fields(name) <= set(part), name


def test_page_is_small_and_closed(why: Explanation, odd: Explanation) -> None:
    text = page(why)
    assert len(text.encode()) < 300_000
    assert not re.search(r"(src|href)\s*=\s*[\"']?(?!data:)\w+:", text)
    assert "http:" not in text.replace("http://www.w3.org/", "") and "https:" not in text
    assert page(odd).count("<script") == 2
    assert "<script>alert" not in page(odd)
    wide = {
        name: torch.randn(*(part := getattr(why.call, name)).shape[:2], 300, part.shape[3])
        for name in ("query", "key", "value")
    }
    long = replace(why, tokens=tuple("x" * 300), call=replace(why.call, **wide, mask=None))
    assert long.pattern.shape == (300, 300)
    assert len(page(long).encode()) < 1_500_000


def test_pattern_survives(why: Explanation) -> None:
    found = re.search(r'"bytes":2,"cells":"([^"]+)"', page(why))
    assert found is not None
    cells = np.frombuffer(base64.b64decode(found[1]), "<u2") / 65535
    expected = why.pattern.numpy()[np.tril_indices(12)]
    assert abs(cells - expected).max() < 1e-5


def test_lone_surrogate_can_be_written(why: Explanation, tmp_path: Path) -> None:
    broken = replace(why, tokens=("\ud83d", *why.tokens[1:]))
    assert write_page(broken, tmp_path / "a.html").stat().st_size > 1000
    explanation(broken).encode()


def test_unwritable_path_is_one_line(why: Explanation, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "file" / "a.html", tmp_path, Path(""), tmp_path / "a\0.html"):
        with pytest.raises(HeadwiseError, match="cannot be written") as error:
            write_page(why, path)
        assert "\n" not in str(error.value)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_stopped_writing_leaves_nothing(
    why: Explanation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    target = tmp_path / "a.html"
    target.write_text("before")
    monkeypatch.setattr(os, "replace", stop)
    with pytest.raises(KeyboardInterrupt):
        write_page(why, target)
    assert [p.name for p in tmp_path.iterdir()] == ["a.html"]
    assert target.read_text() == "before"


def test_notebook_repr_needs_no_script(why: Explanation, odd: Explanation) -> None:
    text = explanation(why)
    assert "<table" in text and "<script" not in text
    assert "<img" not in explanation(odd) and "<script" not in explanation(odd)


def test_figure_is_made_of_traces_that_pages_can_draw(why: Explanation) -> None:
    traces = why.figure().to_dict()["data"]
    assert len(traces) >= 3
    assert {trace["type"] for trace in traces} <= set(TRACES)
