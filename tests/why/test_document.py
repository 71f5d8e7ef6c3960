"""The reference page of the explanation's document names every key that the program writes, in its own row."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from known import names_known
from tiny import prompts_of, tiny
from tiny_banks import random_bank

from headwise.types import Head
from headwise.why.document import FIELDS
from headwise.why.explain import explain

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "explanation-json.md"
IDS = prompts_of(11)[0]


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    """A document in which no part is empty."""
    model, head = tiny("gpt2", torch.float64), Head(3, 1)
    why = explain(
        model,
        IDS,
        head=head,
        query=-1,
        draws=19,
        features=random_bank(model, head),
        transfer=[IDS, [7, *IDS]],
        vocabulary=True,
    )
    return why.with_names(names_known(model, {"L3H1": "named"})).to_json()


def _keys(value: Any) -> set[str]:
    """Every key at any depth; what a name is about is a key of the prompt's, not of the document's."""
    if isinstance(value, dict):
        return {key for key in value if re.fullmatch("[a-z_]+", key)} | {
            key for one in value.values() for key in _keys(one)
        }
    return {key for one in value for key in _keys(one)} if isinstance(value, list) else set()


def _rows(title: str) -> dict[str, set[str]]:
    """The names in the first column of one of the page's tables, and those in the whole row."""
    table = PAGE.read_text(encoding="utf-8").split(f"| {title} |", 1)[1].split("\n\n", 1)[0]
    rows = [line for line in table.splitlines()[2:] if line.startswith("|")]
    named = {}
    for row in rows:
        names = re.findall(r"`([a-z_]+)`", row)
        for name in re.findall(r"`([a-z_]+)`", row.split("|")[1]) or [row.split("|")[1].strip()]:
            named[name] = set(names)
    return named


def test_the_page_names_every_field_and_no_other(document: dict[str, Any]) -> None:
    assert tuple(_rows("field | meaning")) == FIELDS


def test_the_page_names_every_key_in_its_row(document: dict[str, Any]) -> None:
    fields, parts = _rows("field | meaning"), _rows("part | fields")
    shared = set().union(*parts.values())
    assert set(parts) == {"writer", "outcome", "control", "word", "name", "view"}
    for field, value in document.items():
        missing = _keys(value) - fields[field] - shared
        assert not missing, (field, missing)
    whole = _keys(document) | set(FIELDS)
    # The parts that the page speaks of are really there.
    assert shared & whole >= {
        "writer",
        "reads",
        "said",
        "value",
        "p",
        "histogram",
        "most",
        "least",
        "token",
        "score",
        "verdict",
        "evidence",
    }


def test_the_page_says_how_the_parts_sum(document: dict[str, Any]) -> None:
    total = document["log_odds"]["total"]
    assert sum(document["place"].values()) == pytest.approx(total, abs=1e-9)
    assert sum(part["log_odds"] for part in document["what"]) == pytest.approx(total, abs=1e-9)
    for side in ("query", "key"):
        rows = [row for row in document["who"] if row["side"] == side]
        assert sum(row["log_odds"] for row in rows) == pytest.approx(total, abs=1e-9)
    for row in document["who"]:
        for part in ("channels", "through", "neurons"):
            if row[part]:
                assert sum(one["log_odds"] for one in row[part]) == pytest.approx(row["log_odds"], abs=1e-9)
    assert document["transfer"][1]["tokens"] == [document["transfer"][1]["tokens"][0], *document["tokens"]]
