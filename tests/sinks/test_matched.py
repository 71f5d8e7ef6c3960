"""Signals at sinks, held against a frequent token at a fixed distance: exact on tiny cases, level and power."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from pathlib import Path

import pytest
import torch
from planted_sink import by_hand, plant_sink, planted_prompts
from tiny import prompts_of, tiny
from torch import Tensor

from headwise.model.stream import split
from headwise.show.kit.terminal import console
from headwise.show.sinks.report import sinks_report
from headwise.show.sinks.terminal import sinks_tables
from headwise.sinks.matched import GROUP, NULL, exchanged, matched
from headwise.sinks.result import SinksResult
from headwise.sinks.signals import MIN_SIGNALS, Parked, cosine_distance, trace_parked
from headwise.sinks.study import find_sinks
from headwise.types import Cell, Head

FREQUENT = 9


def around(mean: int, noise: float, n: int, generator: torch.Generator, width: int = 6) -> Tensor:
    """Signals of ``n`` prompts about one direction."""
    made = noise * torch.randn(n, width, generator=generator, dtype=torch.float64)
    made[:, mean] += 1
    return made


def firing(head: Head, prompt: int, key: int, signal: Tensor) -> Parked:
    kind = "sink" if key == 0 else "frequent"
    return Parked(prompt, Cell(head, 5, key), kind, {}, {"key": signal}, {"key": signal})


def test_the_share_of_exchanges_equals_the_obvious_loop() -> None:
    generator = torch.Generator().manual_seed(1)
    sink, other = around(0, 0.4, 4, generator), around(1, 0.6, 4, generator)
    gaps = []
    for swaps in itertools.product((False, True), repeat=4):
        mine = torch.stack([other[i] if swap else sink[i] for i, swap in enumerate(swaps)])
        theirs = torch.stack([sink[i] if swap else other[i] for i, swap in enumerate(swaps)])
        gaps.append(float(cosine_distance(theirs) - cosine_distance(mine)))
    assert exchanged(sink, other) == (sum(gap >= gaps[0] - 1e-9 for gap in gaps) / 16, 16)


def test_a_token_that_is_as_constant_is_rarely_told_from_a_sink_and_a_looser_one_mostly() -> None:
    generator = torch.Generator().manual_seed(2)
    # Another direction, spread alike: that signals differ does not make them agree more.
    alike = [
        exchanged(around(0, 0.2, 8, generator), around(1, 0.2, 8, generator))[0] <= 0.05 for _ in range(300)
    ]
    looser = [
        exchanged(around(0, 0.2, 8, generator), around(1, 0.6, 8, generator))[0] <= 0.05 for _ in range(50)
    ]
    assert sum(alike) / 300 < 0.08
    assert sum(looser) / 50 > 0.9


def test_heads_are_judged_together_on_the_prompts_that_have_both() -> None:
    generator = torch.Generator().manual_seed(3)
    near, alike, few = Head(1, 0), Head(1, 1), Head(1, 2)
    sinks, others = [], []
    for head, noise, prompts in ((near, 2.0, 8), (alike, 0.01, 8), (few, 2.0, MIN_SIGNALS - 1)):
        sinks += [firing(head, i, 0, v) for i, v in enumerate(around(0, 0.01, 9, generator))]
        others += [firing(head, i, 3, v) for i, v in enumerate(around(1, noise, prompts, generator))]
    parking = by_hand(tiny("llama"), prompts_of(*[3] * 9))
    found = matched(parking, sinks, others, lambda _: "the", 0)
    assert list(found) == [(near, "key"), (alike, "key")]
    first, second = found.values()
    assert (first.token, first.back, first.firings, first.gap.clusters) == ("the", 2, 8, 8)
    assert first.gap.mean == pytest.approx(first.frequent - first.sink) and first.gap.low > 0
    assert first.claim.to_json() == {
        "null": NULL,
        "draws": 256,
        "p": 1 / 256,
        "q": 2 / 256,
        "group": GROUP,
        "supported": True,
    }
    assert not second.claim.supported and second.gap.low < 0 < second.gap.high
    assert matched(parking, sinks, [], lambda _: "the", 0) == {}


def with_frequent(n: int = 6) -> list[list[int]]:
    """Prompts in which every third token is the same."""
    generator = torch.Generator().manual_seed(4)
    made = []
    for _ in range(n):
        ids = torch.randint(10, 60, (15,), generator=generator)
        ids[1::3] = FREQUENT
        made.append(ids.tolist())
    return made


def test_each_head_keeps_to_the_token_and_distance_that_most_prompts_have() -> None:
    model = tiny("llama")
    parking = by_hand(model, with_frequent())
    traced = trace_parked(model, parking, range(6), model.heads, per_head={"frequent": 6})
    assert traced and {one.kind for one in traced} == {"frequent"}
    for head in {one.head for one in traced}:
        mine = [one for one in traced if one.head == head]
        places = {
            (one.cell.query - one.cell.key, parking.token_ids[one.prompt][one.cell.key]) for one in mine
        }
        assert len(places) == 1 and len({one.prompt for one in mine}) == len(mine) >= MIN_SIGNALS
        # by hand: in how many prompts the head attends to each token at each distance
        count: Counter[tuple[int, int]] = Counter()
        for ids in parking.token_ids:
            pattern = split(model, ids).whole_pattern(head, 0)
            count.update(
                {
                    (d - s, ids[s])
                    for d in range(1, 15)
                    for s in range(1, d)
                    if float(pattern[d, s]) >= min(1.0, 2.5 / (d + 1))
                }
            )
        assert count[places.pop()] == max(count.values()) == len(mine)


@pytest.fixture(scope="module")
def study() -> SinksResult:
    return find_sinks(tiny("llama"), with_frequent(8), threshold=0.05, parked=0.05, traced=8, proved=1)


def test_the_document_and_the_pages_say_what_is_supported(
    study: SinksResult, capsys: pytest.CaptureFixture[str]
) -> None:
    assert study.matched
    document = json.loads(json.dumps(study.to_json()))
    sides = [one for head in document["heads"] for one in head["sides"] if one["matched"]]
    assert len(sides) == len(study.matched)
    for side, said in zip(("query", "key"), document["said"], strict=True):
        mine = [one["matched"]["claim"] for one in sides if one["side"] == side]
        held = sum(one["supported"] for one in mine)
        assert said.startswith(f"{side} side: ") and f"in {held} of {len(mine)} head" in said
    console().print(sinks_tables(study))
    shown, page = capsys.readouterr().out, sinks_report(study).html()
    assert all(said[:60] in shown and said[:60] in page for said in study.said)
    assert "at a frequent token" in shown and "at the token" in page
    assert len(study.to_pandas()["matched"]) == len(sides)


def test_it_comes_back_from_its_folder(study: SinksResult, tmp_path: Path) -> None:
    assert SinksResult.load(study.save(tmp_path / "run")).matched == study.matched


def test_removal_at_once_has_intervals_and_a_claim_against_random_directions() -> None:
    found = find_sinks(plant_sink(), planted_prompts(), traced=8, proved=1)
    rows = found.to_json()["removal"]["shared"]
    key = next(one for one in rows if (one["side"], one["name"]) == ("key", "embedding"))
    assert (
        key["freed"] == pytest.approx(key["control"] - key["removed"]) and 0 < key["freed_low"] < key["freed"]
    )
    # Eight prompts: all 256 flips, of which none does as much.
    assert (key["claim"]["p"], key["claim"]["draws"], key["claim"]["supported"]) == (1 / 256, 256, True)
    assert key["claim"]["q"] <= len(rows) / 256
    assert {one["claim"]["group"] for one in rows} == {"all removals at once of this run"}
    assert found.said[0].startswith("query side: none of ")
