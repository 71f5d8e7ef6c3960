"""Place or content: the parts sum to the log-odds, and each is what it says where the answer is known."""

from __future__ import annotations

import pytest
import torch
from tiny import VARIANTS, prompts_of, tiny

from headwise.model.model import Model
from headwise.model.reading import Rotary
from headwise.tracing.causes import log_odds_gradient
from headwise.tracing.table import log_odds_table
from headwise.tracing.writes import PromptWrites
from headwise.types import Cell, Head
from headwise.why.what import PlaceSplit, place_split, split_added, split_rotated

CELLS = (Cell(Head(3, 1), 8, 6), Cell(Head(1, 2), 7, 7), Cell(Head(0, 0), 5, 4))


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_the_parts_sum_to_the_log_odds(variant: str, cell: Cell) -> None:
    model = tiny(variant, torch.float64)
    up = PromptWrites(model.split(prompts_of(11, 9)), 1)
    table = log_odds_table(up, cell)
    found = place_split(up, table)
    assert found.total == pytest.approx(table.total, abs=1e-9)
    assert found.content and found.place
    if up.cap is None:
        assert found.level == pytest.approx(0.0, abs=1e-9)
    else:
        assert abs(found.level) > 1e-6
    if model.family.learned_positions:
        assert found.interaction == pytest.approx(0.0, abs=1e-9)


def test_the_learned_positions_are_what_the_model_adds_to_its_tokens() -> None:
    for name in VARIANTS:
        model = tiny(name, torch.float64)
        ids = prompts_of(7)[0]
        added = model.anatomy.learned_positions(7)
        if added is None:
            assert name not in ("gpt2", "opt")
            continue
        tokens = model.hf.get_input_embeddings()(torch.tensor(ids))
        assert torch.allclose(model.split([ids]).before(0)[0], tokens + added, atol=1e-12)


def _rotary(tokens: int, width: int) -> Rotary:
    angles = torch.arange(tokens).double()[:, None] * torch.tensor([1.0, 0.3, 0.05]).double()
    both = torch.cat((angles, angles), 1)[None]
    assert both.shape[-1] == width
    return Rotary(both.cos(), both.sin())


def _parts(content: torch.Tensor, rotary: Rotary, key: int) -> PlaceSplit:
    """A query at the end of keys of the given contents."""
    generator = torch.Generator().manual_seed(1)
    tokens, width = content.shape
    query = torch.randn(width, generator=generator, dtype=torch.float64)
    q = rotary.at_positions([tokens - 1]).turn(query[None, None, None])[0, 0, 0]
    keys = rotary.turn(content[None, None])[0, 0]
    visible = torch.ones(tokens, dtype=torch.bool)
    g = log_odds_gradient((keys @ q)[None], visible[None], torch.tensor([key]))[0]
    found = split_rotated(q, keys, rotary, visible, g)
    assert found.total == pytest.approx(float(g @ (keys @ q)), abs=1e-12)
    return found


def test_keys_of_equal_content_differ_by_place_alone_and_keys_at_one_place_by_content_alone() -> None:
    generator = torch.Generator().manual_seed(0)
    alike = torch.randn(6, generator=generator, dtype=torch.float64).expand(8, -1)
    found = _parts(alike, _rotary(8, 6), key=5)
    assert abs(found.place) > 0.1
    assert (found.content, found.interaction, found.level) == pytest.approx((0, 0, 0), abs=1e-12)
    still = _rotary(8, 6)
    still = Rotary(still.cos[:, :1].expand(-1, 8, -1), still.sin[:, :1].expand(-1, 8, -1))
    found = _parts(torch.randn(8, 6, generator=generator, dtype=torch.float64), still, key=5)
    assert abs(found.content) > 0.1
    assert (found.place, found.interaction, found.level) == pytest.approx((0, 0, 0), abs=1e-12)


def test_vectors_that_positions_added_are_the_place_part() -> None:
    generator = torch.Generator().manual_seed(0)
    words, places = torch.randn(2, 7, 4, generator=generator, dtype=torch.float64)
    q, visible = torch.randn(4, generator=generator, dtype=torch.float64), torch.ones(7, dtype=torch.bool)
    g = torch.randn(7, generator=generator, dtype=torch.float64)
    g = g - g.mean()
    found = split_added(q, words + places, places, visible, g)
    assert found.place == pytest.approx(float(g @ (places @ q)), abs=1e-12)
    assert found.content == pytest.approx(float(g @ (words @ q)), abs=1e-12)


def test_the_reason_is_the_part_that_helps_most() -> None:
    assert PlaceSplit(2.0, 0.5, 0.1, 9.0).reason == "content"
    assert PlaceSplit(-2.0, 0.5, 0.1, 0.0).reason == "place"
    assert PlaceSplit(-2.0, -0.5, 0.0, 0.0).reason == "nothing"


@pytest.mark.real
@pytest.mark.parametrize(("head", "reason"), [("L11H1", "place"), ("L18H6", "content")])
def test_documented_heads_read_for_the_documented_reason(smollm2: Model, head: str, reason: str) -> None:
    """A previous-token head and an induction head, on a text of repeated names, each at its own strongest cells."""
    text = "Ms Alva Ng met Tom Reed. Tom Reed knew Alva Ng. Then Alva Ng paid Tom Reed and Alva Ng"
    up = PromptWrites(smollm2.split(text), 0)
    wanted = Head.parse(head)
    pattern = up.stream.whole_pattern(wanted, 0)[8:, 1:]
    best = pattern.flatten().topk(8).indices
    found = []
    for i in best.tolist():
        cell = Cell(wanted, 8 + i // pattern.shape[1], 1 + i % pattern.shape[1])
        found.append(place_split(up, log_odds_table(up, cell)))
    assert sum(one.reason == reason for one in found) >= 7
