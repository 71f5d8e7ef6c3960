"""The one table of an explanation's page, in a real browser: its cells and margins, sides, unfolding rows, hints."""

from __future__ import annotations

import copy
import re

import numpy as np
from browsing import Opener, browsed
from explanation_documents import VISIBLE, Document, page_of, rows_of

pytestmark = browsed


def numbers(texts: list[str]) -> list[float]:
    return [float(text.replace("−", "-").replace("+", "")) for text in texts]


def test_the_table_is_the_documents_and_its_margins_are_its_sums(show: Opener, data: Document) -> None:
    page = show(page_of(data))
    table = page.locator(f"{VISIBLE} table.heat")
    rows = rows_of(data, "query")
    stable = [one for one in data["what"] if one["stable"]]
    lines = table.locator("> tbody > tr:not(.group):not(.unfold)")
    # Twelve writers, the cause, and all others in one; stable channels, and all others in one.
    assert lines.count() == 13
    assert lines.first.locator("td.cell").count() == len(stable) + 1
    sums = numbers(table.locator("tbody .sum").all_inner_texts())
    np.testing.assert_allclose(sum(sums), data["log_odds"]["total"], atol=0.005 * len(sums))
    feet = numbers(table.locator("tfoot .value").all_inner_texts())
    np.testing.assert_allclose(sum(feet), data["log_odds"]["total"], atol=0.05 * len(feet))
    np.testing.assert_allclose(feet[:-1], [one["log_odds"] for one in stable], atol=0.051)
    assert all(value >= 0 for value in numbers(table.locator("tbody.helps .sum").all_inner_texts()))
    assert all(value < 0 for value in numbers(table.locator("tbody.hinders .sum").all_inner_texts()))
    # Both totals, over all writers.
    balance = data["log_odds"]["query"]
    said = page.inner_text(f"{VISIBLE} .balance")
    assert f"+{balance['helps']:.2f}" in said and f"−{-balance['hinders']:.2f}" in said
    page.click(f"{VISIBLE} .more-rows")
    assert lines.count() == len(rows)


def test_the_other_side_is_one_click_away_and_has_the_same_columns(show: Opener, data: Document) -> None:
    page = show(page_of(data))
    before = page.locator(f"{VISIBLE} tfoot .value").all_inner_texts()
    assert page.get_attribute(".switch .query", "aria-pressed") == "true"
    page.click(".switch .key")
    assert page.locator(VISIBLE).count() == 1
    assert "Key side" in page.inner_text(f"{VISIBLE} figcaption")
    assert page.locator(f"{VISIBLE} tfoot .value").all_inner_texts() == before
    headline = copy.deepcopy(data)
    headline["cause"]["headline"] = "key"
    assert "Key side" in show(page_of(headline)).inner_text(f"{VISIBLE} figcaption")


def test_the_cause_is_outlined_however_small_its_members_are(show: Opener, data: Document) -> None:
    small = rows_of(data, "query")[-2]
    small["cause"] = True
    page = show(page_of(data))
    outlined = page.locator(f"{VISIBLE} tr.cause")
    assert outlined.count() == sum(row["cause"] for row in rows_of(data, "query")) == 3
    for style in outlined.evaluate_all("all => all.map((row) => getComputedStyle(row).outlineStyle)"):
        assert style == "solid"
    name = re.sub(r"^(MLP)(\d+)$", r"\1 \2", small["writer"])
    assert name in " ".join(outlined.locator(".writer").all_inner_texts())


def test_values_on_hover_and_by_keyboard(show: Opener, data: Document) -> None:
    page = show(page_of(data))
    first = page.locator(f"{VISIBLE} td.cell").first
    first.hover()
    hovered = page.inner_text(".tip")
    assert "log-odds" in hovered and "channel 0, salience" in hovered
    page.mouse.move(2, 2)
    assert page.locator(".tip").is_hidden()
    page.locator(f"{VISIBLE} [data-cell][tabindex='0']").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowLeft")
    assert page.inner_text(".tip") == hovered
    page.keyboard.press("ArrowDown")
    assert page.inner_text(".tip") != hovered
    assert page.locator(f"{VISIBLE} [data-cell][tabindex='0']").count() == 1
    page.keyboard.press("Escape")
    assert page.locator(".tip").is_hidden()


def test_a_row_unfolds_into_what_its_mlp_had_read_and_its_neurons(show: Opener, data: Document) -> None:
    page = show(page_of(data))
    assert page.locator(f"{VISIBLE} .unfolded:visible").count() == 0
    row = page.locator(f"{VISIBLE} tr:has(.unfold-button)").first
    name = row.locator(".writer").inner_text().split("\n")[0].removesuffix("cause").strip()
    row.locator(".unfold-button").click()
    unfolded = page.locator(f"{VISIBLE} .unfolded:visible")
    said = unfolded.inner_text()
    found = next(r for r in rows_of(data, "query") if r["writer"] == name.replace(" ", ""))
    assert f"What {name} had read" in said
    for part in found["through"]:
        assert f"{part['log_odds']:+.2f}".replace("-", "−") in said
        if part["effect"] is not None:
            assert f"effect {part['effect']:+.2f}".replace("-", "−") in said
    assert "neuron 411" in said
    assert row.locator(".unfold-button").get_attribute("aria-expanded") == "true"


def test_roles_and_tokens_say_what_is_known_of_a_writer(show: Opener, data: Document) -> None:
    page = show(page_of(data))
    facts = page.inner_text("dl.facts")
    assert "role on random tokens" in facts and "induction" in facts
    assert "duplicate token" in page.locator(f"{VISIBLE} table.heat .role").all_inner_texts()
    writer = page.locator(f"{VISIBLE} table.heat .writer").first
    writer.hover()
    tip = page.inner_text(".tip")
    assert "a hint, not a name" in tip and "would raise" in tip
    assert page.locator(".tip b").count() == 0  # tokens are text, whatever they hold
    foot = page.locator(f"{VISIBLE} table.heat tfoot td.foot").nth(1)
    foot.hover()
    tip = page.inner_text(".tip")
    assert "query: embeddings that point this way: \u2068·she\u2069" in tip
    assert "key: would raise: \u2068·Mary\u2069" in tip
