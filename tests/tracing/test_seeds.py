"""Where circuits start, and how far an attention has to fall: never empty, and never nearly all of it."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny import prompts_of, tiny

from headwise.model.stream import split
from headwise.tracing.causes import default_threshold
from headwise.tracing.search import Rules
from headwise.tracing.seeds import LEAST, answer_shares, chosen_seeds, published_seeds
from headwise.tracing.writes import PromptWrites

VARIANTS = ("llama-biased", "gpt2", "gemma2", "qwen3", "olmo2")


@pytest.mark.parametrize("name", VARIANTS)
def test_there_is_a_seed_wherever_a_head_carries_a_twentieth_of_the_lead(name: str) -> None:
    model = tiny(name, torch.float64)
    tried = 0
    for seed in range(6):
        up = PromptWrites(split(model, prompts_of(9, seed=seed)[0]), 0)
        for answer in range(0, model.vocabulary, 7):
            seeds, total = chosen_seeds(up, answer, None)
            if total <= 0:
                assert seeds == []
                continue
            shares = answer_shares(up, answer, None)
            heads = shares[: up.n_carried(up.n_layers)].view(-1, up.tokens)
            found = {one.component.name for one in seeds if one.component.kind == "head"}
            for index in (heads.sum(1) >= LEAST * total).nonzero()[:, 0].tolist():
                layer, head = divmod(index, up.n_heads)
                assert f"L{layer}H{head}" in found
                tried += 1
    assert tried > 10


@pytest.mark.parametrize("name", VARIANTS)
def test_seeds_are_shares_of_the_answer_in_descending_order(name: str) -> None:
    model = tiny(name, torch.float64)
    up = PromptWrites(split(model, prompts_of(9)[0]), 0)
    for answer in range(0, model.vocabulary, 5):
        shares = answer_shares(up, answer, 1)
        for rule in (chosen_seeds, published_seeds):
            seeds, total = rule(up, answer, 1)
            assert total == pytest.approx(float(shares.sum()))
            weights = [one.weight for one in seeds]
            assert weights == sorted(weights, reverse=True)
            every = {up.component(up.n_layers, i): float(share) for i, share in enumerate(shares)}
            assert all(every[one.component] == pytest.approx(one.weight) for one in seeds)


def test_both_signs_no_longer_empty_a_circuit() -> None:
    """The published rule stops when positive shares pass the net total: one MLP may do that alone."""
    emptied = 0
    for name in VARIANTS:
        model = tiny(name, torch.float64)
        for seed in range(8):
            up = PromptWrites(split(model, prompts_of(9, seed=seed)[0]), 0)
            for answer in range(0, model.vocabulary, 3):
                before, after = (rule(up, answer, None)[0] for rule in (published_seeds, chosen_seeds))
                has = [any(one.component.kind == "head" for one in seeds) for seeds in (before, after)]
                emptied += has == [False, True]
    assert emptied > 10


@given(st.floats(0.01, 1.0), st.integers(2, 2000))
def test_the_threshold_asks_for_at_least_half_and_for_no_more_than_three_quarters(
    a: float, keys: int
) -> None:
    tau = default_threshold(a, keys)
    assert tau <= a / 2
    assert tau >= min(a / 4, a / 2)
    assert Rules().threshold(keys, a) == tau
    assert Rules.published().threshold(keys, a) == min(1.0, 2.5 / keys)
    assert Rules(tau=0.3).threshold(keys, a) == 0.3
