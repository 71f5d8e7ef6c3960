"""Numbers on the results pages are numbers that a run wrote."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from make_results import RESULTS, made_page
from result_blocks import BLOCK

PAGES = Path(__file__).parent.parent / "docs" / "results"
TABLE = re.compile(r"<!-- numbers of (?P<files>[\w., -]+) -->\n+(?P<rows>(?:\|.*\n)+)")
NUMBER = re.compile(r"(?<![\w.])([-−+]?)(\d+\.\d+)( %)?")


def leaves(value: Any) -> Iterator[float]:
    """Every number of a document."""
    if isinstance(value, dict):
        for one in value.values():
            yield from leaves(one)
    elif isinstance(value, list):
        for one in value:
            yield from leaves(one)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield float(value)


def written(text: str) -> list[tuple[float, int]]:
    """The numbers with a point in a text, and how many places each has.

    >>> written("| L18H6 | −0.31 (0.2 %) | 3 |")
    [(-0.31, 2), (0.002, 3)]
    """
    found = []
    for sign, digits, share in NUMBER.findall(text):
        places = len(digits.split(".")[1])
        value = float(digits) * (-1 if sign in "-−" and sign else 1)
        found.append((value / 100, places + 2) if share else (value, places))
    return [(round(value, places), places) for value, places in found]


def tables() -> list[Any]:
    """Every table that says which file it is of."""
    found = []
    for page in sorted(PAGES.glob("*.md")):
        for number, match in enumerate(TABLE.finditer(page.read_text(encoding="utf-8")), 1):
            files = [PAGES / "data" / name.strip() for name in match["files"].split(",")]
            found.append(pytest.param(files, match["rows"], id=f"{page.stem}-{number}"))
    return found


@pytest.mark.parametrize(("files", "rows"), tables())
def test_every_number_of_a_table_is_in_the_file_it_names(files: list[Path], rows: str) -> None:
    known = [one for file in files for one in leaves(json.loads(file.read_text(encoding="utf-8")))]
    numbers = written(rows)
    assert len(numbers) >= 4
    missing = [
        (value, places)
        for value, places in numbers
        # Half a unit of the last place, and what a binary fraction makes of it.
        if not any(math.isclose(one, value, abs_tol=0.5 * 10**-places + 1e-9) for one in known)
    ]
    assert missing == []


def test_the_comparison_can_fail(tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    file.write_text(json.dumps({"a": [0.123, {"b": -4.56}], "c": "0.9", "d": True}))
    test_every_number_of_a_table_is_in_the_file_it_names([file], "| 0.12 | 12.3 % | -4.6 | −4.56 |")
    with pytest.raises(AssertionError):
        test_every_number_of_a_table_is_in_the_file_it_names([file], "| 0.12 | 12.3 % | -4.6 | 0.9 |")


@pytest.mark.parametrize("name", RESULTS)
def test_every_block_of_a_page_is_made_from_the_kept_numbers(name: str) -> None:
    page = (PAGES / f"{name}.md").read_text(encoding="utf-8")
    assert made_page(name) == page, "run: python tools/make_results.py"
    assert {block for _, block, _ in BLOCK.findall(page)} == set(RESULTS[name].blocks)
    assert f"(data/{name}.json)" in page


@pytest.mark.parametrize("name", [name for name, page in RESULTS.items() if page.whole])
def test_the_sentences_between_the_blocks_have_their_numbers_from_the_same_file(name: str) -> None:
    prose = BLOCK.sub("", (PAGES / f"{name}.md").read_text(encoding="utf-8"))
    known = list(leaves(json.loads((PAGES / "data" / f"{name}.json").read_text(encoding="utf-8"))))
    # Of another run, of the works, or chosen (a threshold): said so beside it.
    own = re.sub(r"<!-- numbers from elsewhere -->.*?\n\n", "", prose, flags=re.DOTALL)
    missing = [
        (value, places)
        for value, places in written(own)
        if not any(math.isclose(one, value, abs_tol=0.5 * 10**-places + 1e-9) for one in known)
    ]
    assert missing == []
