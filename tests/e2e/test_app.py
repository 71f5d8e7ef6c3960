"""The app in a browser: type, see every head, click a cell and see why; nothing runs that is not ours."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from browsing import browsed, fits
from browsing_app import Tab, place_of
from serving import Served, served
from toy_answers import answer_lines, small_model

from headwise.model.edits import Silence
from headwise.types import Component, Head
from headwise.why.explain import explain

pytestmark = [browsed, pytest.mark.slow]
PROMPT = answer_lines(3)[0]["prompt"]
HOSTILE = [
    "<script>alert(1)</script> <img src=x onerror=alert(2)>",
    "</script><svg onload=alert(3)> javascript:alert(4)",
    "\u202e {{data}} ${alert(5)} `\u2028 \u0000".replace("\u0000", ""),
    "שלום مرحبا 👩‍👩‍👧 &amp; \"' onclick=alert(6)",
]


def proved(page: Any) -> None:
    page.wait_for_selector(".sentence:not(.soft)", timeout=30_000)


def test_from_a_prompt_to_a_proof(tab: Tab) -> None:
    page = tab()
    page.fill("#prompt-text", PROMPT)
    page.wait_for_selector(".token-line .token")
    why = explain(small_model(), PROMPT)
    assert page.locator(".token-line .token").count() == len(why.tokens)
    page.keyboard.press("Enter")
    page.wait_for_selector(".answer-chip.answer")
    assert f"{why.answer.probability:.3f}" in page.inner_text(".answer-chip.answer")
    page.click("text=See every head")
    page.wait_for_selector(".pictures canvas")
    page.click(".app-bar nav >> text=Cell")
    proved(page)
    model = small_model()
    assert place_of(page) == {
        "p": PROMPT,
        "h": str(why.head),
        "q": str(why.query),
        "k": str(why.key),
        "m": model.name,
        "wt": model.weight_hash[:12],
    }
    assert page.inner_text(".sentence") == why.sentence
    assert f"{why.proof.after.attention:.3f}" in page.inner_text(".proof") if why.proof.after else True
    page.go_back()
    page.wait_for_selector(".pictures canvas")
    assert urlsplit(page.url).path == "/heads"


def test_a_link_restores_the_same_numbers(tab: Tab) -> None:
    first = tab("/cell", p=PROMPT, h="L1H1", q=5, draws=50, seed=3)
    proved(first)
    second = tab("/cell", **place_of(first))
    proved(second)
    for part in (".sentence", ".facts", ".proof"):
        assert first.inner_text(part) == second.inner_text(part)
    assert (
        first.inner_text(".sentence")
        == explain(small_model(), PROMPT, head="L1H1", query=5, draws=50, seed=3).sentence
    )


def test_a_token_shows_its_row_in_every_head_and_a_click_asks_why(tab: Tab) -> None:
    page = tab("/heads", p=PROMPT)
    page.wait_for_selector(".pictures canvas")
    whole = page.locator(".pictures canvas").screenshot()
    token = page.locator(".heads-tokens button").nth(4)
    with page.expect_response(re.compile("/row/4$")):
        token.hover()
    page.wait_for_selector(".shown-now >> text=position 4")
    page.wait_for_timeout(100)
    assert page.locator(".pictures canvas").screenshot() != whole
    token.click()
    assert place_of(page)["r"] == "4"
    page.locator(".pictures canvas").click(position={"x": 20, "y": 20})
    proved(page)
    assert place_of(page)["h"] == "L0H0" and place_of(page)["q"] == "4"


def test_heads_are_ordered_and_filtered(tab: Tab, app: Served) -> None:
    page = tab("/heads", p=PROMPT)
    page.wait_for_selector(".pictures canvas")
    page.locator("select").first.select_option("brings")
    numbers = app.ask("GET", f"/api/prompts/{app.read(PROMPT)['id']}/heads").data["statistics"]["brings"]
    best = max(range(len(numbers)), key=lambda head: numbers[head])
    heads = small_model().heads
    page.click(".heads-screen .numbers summary")
    assert page.inner_text(".heads-screen .numbers tbody tr:first-child td:first-child") == str(heads[best])
    assert place_of(page)["s"] == "brings"
    page.locator(".pictures canvas").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    proved(page)
    assert place_of(page)["h"] == str(heads[best])


def test_of_a_long_prompt_the_picture_is_reduced_and_each_cell_asks_for_its_row(
    tab: Tab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwise.app.routes.LONG", 5)
    pattern = small_model().capture(PROMPT, heads="L1H1", want=("pattern",)).pattern[0, 0]
    first, second = (int(pattern[query].argmax()) for query in (9, 7))
    page = tab("/cell", p=PROMPT, h="L1H1", q=9, k=first)
    page.wait_for_selector("section.pattern .note.long")
    proved(page)
    assert float(page.inner_text(".spot b")) == pytest.approx(float(pattern[9, first]), abs=1e-4)
    with page.expect_response(re.compile(rf"/pattern/L1H1\?query=7&key={second}$")):
        page.fill(".asked [name=query]", "7")
        page.fill(".asked [name=key]", str(second))
        page.press(".asked [name=key]", "Enter")
    page.wait_for_selector("h1 .at >> text=/^7$/")
    page.wait_for_selector("section.pattern .note.long")
    assert float(page.inner_text(".spot b")) == pytest.approx(float(pattern[7, second]), abs=1e-4)
    proved(page)


def test_another_cell_is_one_click_away_and_back_returns(tab: Tab) -> None:
    page = tab("/cell", p=PROMPT)
    proved(page)
    before, first = page.inner_text(".sentence"), place_of(page)
    page.locator(".tokens button").nth(4).click()
    page.locator("p.row button.explain").first.click()
    page.wait_for_selector(".sentence:not(.soft)")
    page.wait_for_selector("h1 .at >> text=/^4$/")
    proved(page)
    assert place_of(page)["q"] == "4"
    head = place_of(page)["h"]
    page.keyboard.press("]")
    page.wait_for_selector(f"h1:not(:has-text('{head} '))")
    page.go_back()
    page.go_back()
    page.wait_for_selector(f"h1 .at >> text=/^{first['q']}$/")
    proved(page)
    assert page.inner_text(".sentence") == before


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("screen", ["/", "/heads", "/cell"])
def test_hostile_prompts_run_no_script(tab: Tab, screen: str, text: str) -> None:
    page = tab(screen, p=text, a="<img src=x onerror=alert(7)>")
    page.wait_for_timeout(700)
    assert page.locator("main script, main img, main svg[onload]").count() == 0


def test_the_policy_holds_in_the_page(browser: Any, app: Served) -> None:
    """What would turn text into elements or into a program is refused by the browser itself."""
    page = browser.new_page()
    page.goto(app.origin)
    for attempt in ("document.body.innerHTML = '<b>x</b>'", "document.write('x')"):
        tried = f"() => {{ try {{ {attempt}; return 'done' }} catch (error) {{ return error.name }} }}"
        assert page.evaluate(tried) == "TypeError", attempt
    assert (
        page.evaluate("() => fetch('https://example.org').then(() => 'sent', () => 'refused')") == "refused"
    )
    page.close()


def test_two_tabs_do_not_disturb_each_other(tab: Tab) -> None:
    places = [{"p": PROMPT, "h": f"L{layer}H1"} for layer in (0, 1)]
    pages = [tab("/cell", **place) for place in places]
    for page, place in zip(pages, places, strict=True):
        proved(page)
        assert place["h"] in page.inner_text("h1")
        assert page.inner_text(".sentence") == explain(small_model(), PROMPT, head=place["h"]).sentence


def test_what_is_wrong_is_said_in_the_cores_words(tab: Tab) -> None:
    page = tab("/cell", p=PROMPT, h="L99H9")
    page.wait_for_selector("[role=alert]")
    assert "L99H9 does not exist" in page.inner_text("[role=alert]")
    page = tab("/cell", p=PROMPT, q="3")
    page.wait_for_selector(".sentence:not(.soft), [role=alert]")


@pytest.mark.parametrize("screen", ["/", "/heads", "/cell"])
@pytest.mark.parametrize("width", [1280, 400])
def test_screens_fit(tab: Tab, screen: str, width: int) -> None:
    page = tab(screen, p=PROMPT)
    page.set_viewport_size({"width": width, "height": 800})
    page.wait_for_selector(
        {"/": ".answer-chip", "/heads": ".pictures canvas", "/cell": ".sentence:not(.soft)"}[screen]
    )
    page.wait_for_timeout(200)
    assert fits(page)


def test_a_browser_without_the_link_is_told_so(browser: Any, app: Served) -> None:
    page = browser.new_page()
    page.goto(app.origin)
    page.wait_for_selector("[role=alert]")
    assert "open the link that was printed" in page.inner_text("[role=alert]")
    page.close()


# --- the bench -------------------------------------------------------------------------------------------------------


def spoken(writer: Component) -> str:
    """As the page calls a writer, up to the text of the token that it read."""
    return (
        f"{writer.name} reading"
        if writer.kind == "head"
        else re.sub(r"^(MLP|bias)", r"\1 ", writer.name) + " away"
    )


def edits(got: Any) -> list[Any]:
    """Writers that a request takes away."""
    return got.request.post_data_json["edits"][0]["writers"]


def test_a_ticked_writer_leaves_the_model_as_python_says(tab: Tab, app: Served) -> None:
    why = explain(small_model(), PROMPT)
    found = why.who.headline
    assert found is not None and why.proof.after is not None
    page = tab("/cell", p=PROMPT)
    proved(page)
    boxes = [f".of-{found.side} input.tick[aria-label^='Take {spoken(member)}']" for member in found.members]
    for box in boxes[:-1]:
        page.click(box)
    with page.expect_response(lambda got: "/api/edit" in got.url and len(edits(got)) == len(found)):
        page.click(boxes[-1])
    page.wait_for_timeout(200)
    cells = page.locator(".effect .numbers tbody tr").nth(1).locator("td")
    told = [json.loads(cells.nth(i).get_attribute("data-with"))["v"] for i in range(1, 6)]
    after = why.proof.after
    wanted = [found.after, after.attention, after.probability, after.lead, after.log_probability]
    assert told == pytest.approx(wanted, abs=1e-5)
    assert place_of(page)["e"].count("rm:") == len(found)
    again = tab("/cell", **place_of(page))  # the address restores it
    again.wait_for_selector(".effect")
    assert again.inner_text(".effect") == page.inner_text(".effect")
    for _ in found.members:
        page.go_back()  # Back is undo
    page.wait_for_selector(".effect", state="detached")
    assert page.locator("input.tick:checked").count() == 0


def test_a_head_is_silenced_cut_and_patched(tab: Tab, app: Served) -> None:
    page = tab("/cell", p=PROMPT)
    proved(page)
    place = place_of(page)
    page.click(".bench > summary")
    page.click(".bench >> text=/^silence L.* here$/")
    page.wait_for_selector(".effect")
    model = small_model()
    edited = model.edit(PROMPT, [Silence(head=Head.parse(place["h"]), positions=int(place["q"]))])
    chances = edited.logits[0, 0].double().softmax(-1)
    answer = explain(model, PROMPT).answer.token
    cells = page.locator(".effect .numbers tbody tr").nth(1).locator("td")
    assert json.loads(cells.nth(3).get_attribute("data-with"))["v"] == pytest.approx(
        float(chances[answer]), abs=1e-6
    )
    page.click(".bench >> text=put everything back")
    page.wait_for_selector(".effect", state="detached")
    page.click(".bench > summary")
    page.click("text=cut this cell")
    page.wait_for_selector(".effect")
    assert "cut" in place_of(page)["e"]
    page.fill(".patch input", "too short")
    page.click(".patch button")
    page.wait_for_selector(".bench [role=alert]")
    assert "of as many" in page.inner_text(".bench [role=alert]")


# --- run folders -----------------------------------------------------------------------------------------------------

ESCAPES = """<p id="here">a report</p><script>
const tell = (text) => { document.getElementById('here').textContent += ' ' + text };
for (const attempt of [() => parent.document.title, () => document.cookie, () => localStorage.length])
  try { attempt(); tell('reached') } catch (error) { tell('refused') }
fetch('/api/state').then(() => tell('reached'), () => tell('refused'));
new Image().src = 'http://127.0.0.1:1/x';
</script>"""


def test_a_hostile_page_of_a_run_folder_reaches_nothing(browser: Any, tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text(ESCAPES)
    with served(small_model(), (tmp_path,)) as app:
        page = browser.new_page()
        asked: list[str] = []
        page.on("requestfinished", lambda request: asked.append(request.url))
        page.goto(app.link)
        page.click(".app-bar nav >> text=Runs")
        page.click("text=report.html")
        inside = page.frame_locator("iframe.saved-page").locator("#here")
        inside.wait_for()
        page.wait_for_timeout(300)
        assert inside.inner_text() == "a report refused refused refused refused"
        assert all(url.startswith(app.origin) for url in asked)
        assert sum("/api/state" in url for url in asked) == 1  # the page's own
        page.close()
