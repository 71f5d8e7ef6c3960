"""The page of explanations says what its runs said: sentences are read back, sums are right, tables are those kept."""

from __future__ import annotations

import json
from typing import Any

import pytest
from said import read
from said_checks import check

import make_explanations

CASES = {case.name: case for case in make_explanations.CASES}
DOCUMENTS: dict[str, Any] = json.loads(make_explanations.DATA.read_text())
PAGE = make_explanations.PAGE.read_text()


def test_every_case_was_run() -> None:
    assert list(DOCUMENTS) == list(CASES)
    assert sum(document["model"] == "smollm2" for document in DOCUMENTS.values()) == 12


@pytest.mark.parametrize("name", list(CASES))
def test_every_claim_of_a_sentence_is_in_the_table(name: str) -> None:
    document = DOCUMENTS[name]
    check(read(document["sentence"], document["tokens"]), document)


@pytest.mark.parametrize("name", list(CASES))
def test_the_kept_numbers_sum_to_what_they_explain(name: str) -> None:
    document = DOCUMENTS[name]
    total = document["log_odds"]["total"]
    for side in ("query", "key"):
        rows = [row["log_odds"] for row in document["who"] if row["side"] == side]
        assert sum(rows) == pytest.approx(total, abs=1e-3)
    assert sum(one["log_odds"] for one in document["what"]) == pytest.approx(total, abs=1e-3)
    assert sum(document["place"].values()) == pytest.approx(total, abs=1e-3)
    proof = document["proof"]
    assert proof["after"]["attention"] == pytest.approx(proof["predicted"], abs=1e-4)


@pytest.mark.parametrize("name", list(CASES))
def test_the_page_shows_what_was_kept(name: str) -> None:
    document, case = DOCUMENTS[name], CASES[name]
    assert document["command"] == case.command
    block = make_explanations.block(case, document)
    assert f"<!-- {name} -->\n\n{block}\n\n<!-- end -->" in PAGE
    shown = make_explanations.wrapped(document["sentence"])
    assert shown in block and " ".join(shown.split()) == " ".join(document["sentence"].split())
