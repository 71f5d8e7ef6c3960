"""Pages of cards, such as names and an atlas: filters, words and order in a real browser."""

from __future__ import annotations

import pytest
from browsing import Opener, browsed

from headwise.show.kit.page import page, script

pytestmark = browsed


@pytest.mark.parametrize(
    ("template", "into", "card", "select", "words"),
    [
        (
            "naming/page.html",
            "subjects",
            '<article data-verdict="{kind}" data-level="head" data-accuracy="{rank}"><h2>{name}</h2>'
            '<p class="name">{name} name</p><p>beside</p></article>',
            "#verdict",
            "beside",
        ),
        (
            "portraits/index.html",
            "heads",
            '<li data-kind="{kind}" data-layer="1" data-copies="{rank}" data-words="hidden">{name}</li>',
            "#kind",
            "nowhere",
        ),
    ],
)
def test_cards_are_filtered_searched_and_ordered(
    show: Opener, template: str, into: str, card: str, select: str, words: str
) -> None:
    made = "".join(
        card.format(name=name, kind=kind, rank=rank)
        for name, kind, rank in (("anna", "named", "1"), ("ben", "no name", "3"), ("carla", "named", "2"))
    )
    rest = dict.fromkeys(("title", "intro", "facts", "layers", "levels"), "")
    kinds = "<option>named</option><option>no name</option>"
    drawn = show(page(template, {**rest, "kinds": kinds, into: made}, [script("kit/cards.js")]))

    def seen() -> list[str]:
        return drawn.locator(f"#{into} > :visible").all_inner_texts()

    assert len(seen()) == 3 and drawn.inner_text("#count") == "3 of 3"
    drawn.select_option(select, "named")
    assert [text.split()[0] for text in seen()] == ["anna", "carla"]
    drawn.fill("#words", "CARL")
    assert [text.split()[0] for text in seen()] == ["carla"]
    drawn.fill("#words", words)
    assert seen() == [] and drawn.inner_text("#count") == "0 of 3"
    drawn.fill("#words", "")
    drawn.select_option(select, "")
    drawn.select_option("#order", "accuracy" if into == "subjects" else "copies")
    assert [text.split()[0] for text in seen()] == ["ben", "carla", "anna"]
