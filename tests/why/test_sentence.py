"""The sentence says what the numbers say: channels counted, leads compared as printed, tokens told apart."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console
from tiny import tiny

from headwise.show.why.terminal import explanation
from headwise.why.explain import Explanation, explain


@pytest.fixture(scope="module")
def why() -> Explanation:
    return explain(tiny("llama"), [3, 14, 15, 9, 2, 6, 5, 35, 8], head="L3H1", query=-1, draws=2)


@pytest.mark.parametrize(
    ("values", "needed", "said"),
    [
        ([3.0, 2.0, 1.0, 0.5], 3, "channels 10, 11 and 12,"),
        ([3.0, 2.0, 1.0, 0.5], 4, "channels 10, 11, 12 and 1 other,"),
        (
            [3.0, -2.0, 1.0, 0.5],
            4,
            "channels 10, 12 and 2 others,",
        ),  # a negative part is needed, but not named
        ([3.0, -2.0, -1.0, 0.5], 4, "channel 10 and 3 others,"),
        ([3.0, 2.0, 1.0, 0.5], 1, "channel 10,"),
    ],
)
def test_channels_named_and_others_add_up(
    why: Explanation, values: list[float], needed: int, said: str
) -> None:
    parts = tuple(replace(why.what.channels[i], channel=10 + i, value=v) for i, v in enumerate(values))
    spoken = replace(why, what=replace(why.what, channels=parts, channels_needed=needed)).sentence
    assert f"mainly through {said} written by" in spoken


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (0.308, 0.357, "rises from 0.3 to 0.4."),
        (0.31, 0.26, "stays at 0.3."),
        (0.04, -0.04, "stays at 0.0."),
        (6.12, 4.80, "falls from 6.1 to 4.8."),
    ],
)
def test_leads_are_compared_as_they_are_printed(
    why: Explanation, before: float, after: float, said: str
) -> None:
    main = why.proof.main
    assert main is not None
    test = replace(main, observed=replace(main.observed, lead=after))
    proof = replace(
        why.proof, before=replace(why.proof.before, lead=before), tests=(*why.proof.tests[:-1], test)
    )
    assert said in replace(why, proof=proof).sentence.replace(" But: ", " ")


def test_a_token_that_occurs_again_is_told_by_its_position(why: Explanation) -> None:
    assert f"at {why.tokens[why.query]!r} reads {why.tokens[why.key]!r} " in why.sentence
    tokens = tuple("cat" for _ in why.tokens)
    assert f"at 'cat' ({why.query}) reads 'cat' ({why.key}) " in replace(why, tokens=tokens).sentence


def test_a_rival_that_is_ahead_is_not_called_behind(why: Explanation) -> None:
    rivals = (replace(why.what.rivals[0], gap=-0.13), *why.what.rivals[1:])
    wide = Console(width=200, file=io.StringIO())
    with wide.capture() as shown:
        wide.print(explanation(replace(why, what=replace(why.what, rivals=rivals))))
    assert shown.get().count("is ahead; loses in") == 1 + sum(rival.gap < 0 for rival in rivals[1:4])
