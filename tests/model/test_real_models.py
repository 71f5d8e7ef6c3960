"""The identities on real weights: the default model, and Gemma-3-270m (QK-norm, windows) where it is installed."""

from __future__ import annotations

import pytest
import torch
from reference import obvious_forward, worst

import headwise
from headwise.model.check import examine
from headwise.model.loading import store
from headwise.model.model import Model

PROMPTS = [
    "When John and Mary went to the store, John gave a drink to",
    "The box is in the kitchen and the apple is in the box, so the apple is in the",
]

pytestmark = pytest.mark.real


def _identities(model: Model) -> None:
    assert max(check.error for check in examine(model).checks) <= 1e-5
    for padding in ("right", "left"):
        seen = model.capture(PROMPTS, want=("q", "k", "pattern"), logits="last", padding=padding)
        stream = model.split(PROMPTS, padding=padding)
        for number, ids in enumerate(seen.token_ids):
            logits, queries, keys, patterns = obvious_forward(model, ids)
            length = len(ids)
            assert worst(seen.logits[number, 0], logits[-1]) <= 1e-5
            assert worst(seen.q[number, :, :length], torch.cat(queries)) <= 1e-5
            assert worst(seen.k[number, :, :length], torch.cat(keys)) <= 1e-5
            assert (
                float((seen.pattern[number, :, :length, :length] - torch.cat(patterns)).abs().max()) <= 1e-5
            )
            for head in (model.heads[-1], model.heads[len(model.heads) // 2]):
                for side in ("query", "key"):
                    assert stream.shares(head, side, -1, number).error <= 1e-5
            assert stream.writes(model.n_layers, -1, number).error <= 1e-5


def test_default_model(smollm2: Model) -> None:
    assert smollm2.tokens(PROMPTS[0])[1:4] == [" John", " and", " Mary"]
    _identities(smollm2)


@pytest.mark.skipif(
    not store.is_ready("gemma3-270m"), reason="headwise models get gemma3-270m --accept-license"
)
def test_gemma3_270m() -> None:
    model = headwise.load("gemma3-270m")
    assert model.tokenizer(PROMPTS[0]).input_ids[0] == model.tokenizer.bos_token_id
    _identities(model)
