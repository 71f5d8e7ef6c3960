"""The stream is the sum of its parts, in residual space and in every later head's query and key space."""

from __future__ import annotations

import pytest
import torch
from reference import worst
from reference_reader import reader
from tiny import prompts_of, tiny

from headwise import Component
from headwise.errors import HeadwiseError
from headwise.model.model import Model

PROMPTS = prompts_of(9, 5, 12)


@pytest.mark.parametrize("padding", ["right", "left"])
def test_parts_sum_to_stream_queries_and_keys(model: Model, exact: float, padding: str) -> None:
    stream = model.split(PROMPTS, padding=padding)  # pyright: ignore[reportArgumentType]
    seen = model.capture(PROMPTS, want=("q", "k"))
    for number in range(3):
        for position in (0, 3, len(PROMPTS[number]) - 1):
            for layer in range(1, model.n_layers + 1):
                assert stream.writes(layer, position, number).error <= exact
            for head in ("L0H0", "L2H3", "L3H1"):
                there = seen.index(head)
                for side, captured in (("query", seen.q), ("key", seen.k)):
                    parts = stream.shares(head, side, position, number)  # pyright: ignore[reportArgumentType]
                    assert parts.error <= exact
                    assert worst(parts.vectors.sum(0), captured[number, there, position]) <= exact


def test_shares_are_the_writes_read_by_the_head(model: Model, exact: float) -> None:
    """The fast form in head space equals reading each residual-space write on its own."""
    stream = model.split(PROMPTS)
    for side in ("query", "key"):
        writes, shares = stream.writes(3, 7, 0), stream.shares("L3H2", side, 7, 0)  # pyright: ignore[reportArgumentType]
        read = reader(stream, "L3H2", side).read(writes.vectors, 0, 7)
        own = [part for part in shares.components if part.kind != "offset"]
        assert tuple(own) == writes.components
        assert worst(shares.vectors[: len(own)], read) <= exact


def test_the_stream_is_the_models_own(model: Model, exact: float) -> None:
    ids = PROMPTS[2]
    stream = model.split([ids])
    with torch.no_grad():
        states = model.hf(torch.tensor([ids]), use_cache=False, output_hidden_states=True).hidden_states
    # gemma2's own eager attention rounds its softmax to float32 whatever the model's precision
    allowed = max(exact, 1e-5) if model.family.name == "gemma2" else exact
    for layer in range(model.n_layers):
        assert worst(stream.before(layer)[0], states[layer][0]) <= allowed


def test_patterns_rebuilt_from_the_stream(model: Model, exact: float) -> None:
    stream = model.split(PROMPTS, padding="left")
    seen = model.capture(PROMPTS, want=("pattern",))
    for layer in range(model.n_layers):
        mine = stream.pattern(layer, -1, 1)
        theirs = seen.pattern[1, layer * model.n_heads : (layer + 1) * model.n_heads, 4, :5]
        assert worst(mine, theirs) <= exact


def test_components_name_every_writer_once(model: Model) -> None:
    parts = model.split([PROMPTS[0]]).shares("L2H0", "key", 4)
    assert len(set(parts.components)) == len(parts.components)
    kinds = {
        kind: sum(part.kind == kind for part in parts.components) for kind in ("embedding", "head", "mlp")
    }
    assert kinds == {"embedding": 1, "head": 2 * model.n_heads * 5, "mlp": 2}
    has_bias = model.family.name in ("gpt2", "opt") or model.name in (
        "tiny-gpt_neox",
        "tiny-llama-biased",
        "tiny-qwen2",
    )
    assert (Component("bias", 1) in parts.components) == has_bias


def test_a_split_may_stop_early(model: Model) -> None:
    stream = model.split(PROMPTS, layers=2)
    assert len(stream.layers) == 2
    assert stream.shares("L1H0", "query", -1).error < 1e-5
    with pytest.raises(HeadwiseError, match="captured up to layer 1, not for L3H0"):
        stream.shares("L3H0", "query", -1)
    with pytest.raises(HeadwiseError, match="not before 4"):
        stream.writes(4, -1)


def test_wrong_places_get_one_line() -> None:
    model = tiny("gpt2")
    stream = model.split(PROMPTS)
    with pytest.raises(HeadwiseError, match="prompt 3 does not exist: the stream holds 3 prompts"):
        stream.writes(1, 0, 3)
    with pytest.raises(HeadwiseError, match="position 9 is outside"):
        stream.writes(1, 9, 0)
    with pytest.raises(HeadwiseError, match="layers=9 is outside 1 to 4"):
        model.split(PROMPTS, layers=9)
