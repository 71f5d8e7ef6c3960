"""The page of the default model's atlas says what its run said."""

from __future__ import annotations

import json
import re

import make_atlas

DATA = json.loads(make_atlas.DATA.read_text(encoding="utf-8"))
PAGE = make_atlas.PAGE.read_text(encoding="utf-8")


def test_the_page_is_made_from_the_kept_numbers() -> None:
    assert make_atlas.filled(PAGE, DATA) == PAGE, "run python tools/make_atlas.py"
    assert len(DATA["heads"]) == 270 and len({one["head"] for one in DATA["heads"]}) == 270


def test_what_is_said_of_induction_is_in_the_numbers() -> None:
    induction = [one for one in DATA["heads"] if one["kind"] == "induction"]
    fed = [one for one in induction if one["key"]["writer"] == "L16H0"]
    rest = [one for one in induction if one not in fed]
    previous = next(one for one in DATA["heads"] if one["head"] == "L16H0")
    assert (len(induction), len(fed), previous["kind"]) == (7, 5, "previous token")
    assert {make_atlas.layer(one) for one in rest} == {23}
    assert {one["query"]["writer"] for one in rest} == {"L18H6"} and "L18H6" in {one["head"] for one in fed}
    assert re.search(r"L16H0\s+shapes\s+the\s+keys\s+of\s+five\s+of\s+the\s+seven", PAGE)
