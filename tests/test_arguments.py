"""Numbers that callers give, and how long a refusal may be."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from toy_answers import answer_lines, small_model

import headwise
from headwise.arguments import count, share
from headwise.errors import LONGEST, HeadwiseError
from headwise.randomness import seeded

PROMPT = answer_lines(1)[0]["prompt"]


def test_numbers_of_any_library_are_taken_and_nothing_else_is() -> None:
    assert share(np.float32(0.5), "tau") == share(torch.tensor(0.5), "tau") == 0.5
    assert count(np.int64(3), "draws", "is too few") == 3
    for wrong in ("0.5", b"1", True, None, [], object(), float("nan"), float("inf"), 10**400, -0.1, 1.01):
        with pytest.raises(HeadwiseError, match="tau="):
            share(wrong, "tau")
    for wrong in ("3", 2.5, True, None, [], 0, -1, -(10**5000)):
        with pytest.raises(HeadwiseError, match="draws="):
            count(wrong, "draws", "is too few")


@pytest.mark.parametrize("seed", ["0", 0.5, None, True, 2**64, -(2**64)])
def test_a_seed_that_is_no_seed_is_refused(seed: object) -> None:
    with pytest.raises(HeadwiseError, match="seed"):
        seeded(seed)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    "given", [{"tau": ""}, {"tau": [0.5]}, {"mode": None}, {"top_k": "3"}, {"top_p": object()}, {"rule": []}]
)
def test_traces_refuse_settings_of_another_kind(given: dict[str, object]) -> None:
    with pytest.raises(HeadwiseError):
        headwise.trace(small_model(), PROMPT, **given)  # pyright: ignore[reportArgumentType, reportCallIssue]


@pytest.mark.parametrize("given", [{"tau": ""}, {"draws": 2.5}, {"draws": "20"}, {"seed": None}])
def test_explanations_refuse_settings_of_another_kind(given: dict[str, object]) -> None:
    with pytest.raises(HeadwiseError):
        headwise.explain(small_model(), PROMPT, **given)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("want", [0.0, None, [["q"]], {"q": 1, "": 2}, object(), "scores "])
def test_captures_refuse_what_they_do_not_have(want: object) -> None:
    with pytest.raises(HeadwiseError, match="cannot be captured"):
        small_model().capture(PROMPT, want=want)  # pyright: ignore[reportArgumentType]


def test_a_refusal_is_short_whatever_was_given() -> None:
    assert len(str(HeadwiseError(f"there is no {'9' * 5000!r}: give another"))) < 300
    message = str(HeadwiseError(f"there is no {'two words ' * 5000!r}: give another"))
    assert len(message) <= LONGEST
    assert message.startswith("there is no")
    assert message.endswith("give another")
