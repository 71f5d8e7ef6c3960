"""The page of a long prompt holds a part of the head's pattern, says so, and shows no number that is not the head's."""

from __future__ import annotations

import base64
import math
import re
from dataclasses import replace

import pytest
import torch
from browsing import Opener, browsed
from tiny import prompts_of, tiny

from headwise.show.why import long_pattern, page
from headwise.why.explain import explain
from headwise.why.explanation import Explanation

TOKENS, PIXELS = 150, 64


@pytest.fixture(scope="module")
def why() -> Explanation:
    model = tiny("llama", settings={"max_position_embeddings": 256})
    return explain(model, prompts_of(TOKENS)[0], head="L2H1", query=120, key=60, draws=20)


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prompts are long from 101 tokens on, and pictures have fewer pixels."""
    monkeypatch.setattr(page, "LONG", 100)
    monkeypatch.setattr(long_pattern, "PIXELS", PIXELS)


def stretched(why: Explanation, tokens: int, sharp: float = 1.0) -> Explanation:
    """The same with random queries and keys of so many tokens, whose logits spread as said."""
    torch.manual_seed(tokens)
    call, shape = why.call, (1, 1, tokens, why.call.query.shape[3])
    query, key = (torch.randn(shape) for _ in range(2))
    made = replace(call, query=sharp * query / call.scale / shape[-1] ** 0.5, key=key, value=key, mask=None)
    return replace(why, tokens=("x",) * tokens, call=made)


def numbers(text: str, kind: torch.dtype) -> torch.Tensor:
    return torch.frombuffer(bytearray(base64.b64decode(text)), dtype=kind).long()


def test_nothing_that_is_held_is_wrong_and_nothing_strong_is_left_out(why: Explanation, short: None) -> None:
    whole = stretched(why, 500, sharp=4.0)
    held = page.drawn(whole)["pattern"]
    pattern = whole.pattern.double()
    root = lambda text, most, kind: (numbers(text, kind).double() / most) ** 2  # noqa: E731
    row, column, cells = (root(held[name], 65535, torch.uint16) for name in ("row", "column", "cells"))
    torch.testing.assert_close(row, pattern[why.query, : why.query + 1], atol=2e-5, rtol=0)
    torch.testing.assert_close(column, pattern[why.key :, why.key], atol=2e-5, rtol=0)
    counts, keys = numbers(held["counts"], torch.uint8), numbers(held["keys"], torch.int32)
    assert len(counts) == 500 and counts.sum() == len(keys) == len(cells)
    rows = torch.arange(500).repeat_interleave(counts)
    torch.testing.assert_close(cells, pattern[rows, keys], atol=2e-5, rtol=0)
    left = pattern.clone()
    left[rows, keys] = 0.0
    assert left.max() < long_pattern.LEAST <= cells.max()
    least = torch.tensor([float(one.min()) for one in cells.split(counts.tolist())])
    assert (left.amax(1) <= least + 2e-5).all()
    assert (counts[20:] >= long_pattern.STRONGEST).all() and counts.max() > long_pattern.STRONGEST
    # The picture: the largest of each block.
    block, side = held["block"], -(-500 // held["block"])
    assert side <= PIXELS
    picture = root(held["picture"], 255, torch.uint8)
    filled = torch.nn.functional.pad(pattern, (0, side * block - 500, 0, side * block - 500))
    expected = filled.unflatten(0, (-1, block)).unflatten(2, (-1, block)).amax((1, 3))
    seen = torch.ones(side, side, dtype=torch.bool).tril()
    torch.testing.assert_close(picture.sqrt(), expected[seen].sqrt(), atol=0.5 / 255 + 1e-6, rtol=0)


def test_a_short_prompt_is_whole(why: Explanation) -> None:
    held = page.drawn(why)["pattern"]
    assert set(held) == {"bytes", "cells"}
    assert len(base64.b64decode(held["cells"])) == 2 * TOKENS * (TOKENS + 1) // 2


def test_a_page_grows_no_faster_than_its_prompt(why: Explanation) -> None:
    sizes = {
        tokens: len(page.page(stretched(why, tokens, sharp=3.0)).encode()) for tokens in (2049, 4096, 8192)
    }
    slope = math.log(sizes[8192] / sizes[2049]) / math.log(8192 / 2049)
    assert slope <= 1.1
    assert sizes[8192] < 6_000_000, sizes


@browsed
def test_the_page_says_what_it_holds_and_shows_the_heads_own_numbers(
    show: Opener, why: Explanation, short: None
) -> None:
    shown = show(page.page(why))
    said = shown.inner_text("section.pattern .note.long")
    assert "150 tokens" in said and "8 strongest" in said and "3 × 3" in said
    heat = "all => all.map((b) => b.style.getPropertyValue('--a'))"
    drawn = torch.tensor([float(one) for one in shown.locator(".tokens button").evaluate_all(heat)])
    torch.testing.assert_close(drawn, why.pattern[why.query].float().sqrt(), atol=5e-3, rtol=0)
    # Another row: its strongest cells, and of any other a bound that holds.
    shown.click(".tokens button >> nth=140")
    assert "holds the strongest cells" in shown.inner_text("section.prompt > p")
    says = shown.locator(".tokens button").evaluate_all("all => all.map((b) => b.getAttribute('aria-label'))")
    own, bounds = 0, 0
    for key, text in enumerate(says):
        value = float(why.pattern[140, key])
        if (bound := re.search(r"attention at most ([\d.]+)", text)) is not None:
            bounds += 1
            assert value <= float(bound[1]) + 0.0006
        elif (exact := re.search(r"attention ([\d.]+)", text)) is not None:
            own += 1
            assert abs(value - float(exact[1])) < 0.0006
        else:
            assert key > 140 and "not seen" in text
    assert own >= 8 and bounds > 80 and own + bounds == 141
    # The picture's cells answer, by keyboard, too.
    shown.focus("canvas")
    assert "the explained cell" in shown.inner_text(".spot")
    shown.keyboard.press("ArrowUp")
    assert "at most" not in shown.inner_text(".spot")  # the explained column is held
    shown.keyboard.press("ArrowLeft")
    strongest = shown.locator("section.pattern .numbers summary").inner_text()
    expected = int((why.pattern >= 0.02).sum())
    assert strongest == f"Numbers of the {min(120, expected)} strongest cells"


@browsed
def test_pictures_of_both_kinds_are_alike(
    show: Opener, why: Explanation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a pixel for every cell the picture of a part is that of the whole."""
    painted = "c => Array.from(c.getContext('2d').getImageData(0, 0, c.width, c.height).data)"
    whole = show(page.page(why)).eval_on_selector("canvas", painted)
    monkeypatch.setattr(page, "LONG", 100)
    part = show(page.page(why)).eval_on_selector("canvas", painted)
    apart = (torch.tensor(whole) - torch.tensor(part)).abs()
    assert len(whole) == len(part) > 100_000
    assert apart.max() <= 1
