"""A two-layer induction circuit written into the weights is found again: rank one, along the planted direction."""

from __future__ import annotations

import torch
import transformers

import headwise
from headwise.bases.basis import directions
from headwise.model.model import Model
from headwise.types import Component, Head

VOCABULARY, POSITIONS = 10, 12
WIDTH = 64


def _planted() -> tuple[Model, torch.Tensor]:
    """Token, position and previous-token features on separate coordinates. Layer 0 copies the previous token into the
    third group; layer 1 looks for the token that the query holds there, each token with a strength of its own."""
    config = transformers.GPT2Config(
        vocab_size=VOCABULARY,
        n_positions=POSITIONS,
        n_embd=WIDTH,
        n_layer=2,
        n_head=1,
        bos_token_id=None,
        eos_token_id=None,
    )
    hf = transformers.GPT2LMHeadModel(config).double()
    # pairs of opposite entries have mean zero: LayerNorm's centring leaves them as they are
    eye = torch.eye(WIDTH, dtype=torch.float64)
    features = (eye[0::2] - eye[1::2]) / 2**0.5
    token, position, previous = features.split((VOCABULARY, POSITIONS, VOCABULARY))
    state = {name: torch.zeros_like(value) for name, value in hf.state_dict().items()}
    for name in state:
        if name.endswith(("ln_1.weight", "ln_2.weight", "ln_f.weight")):
            state[name] += 1
    state["transformer.wte.weight"] = state["lm_head.weight"] = token.clone()
    state["transformer.wpe.weight"] = position.clone()
    query, key = torch.zeros(2, WIDTH, WIDTH).double(), torch.zeros(2, WIDTH, WIDTH).double()
    for i in range(1, POSITIONS):
        query[0, :, i] = 6 * position[i]
        key[0, :, i] = position[i - 1]
    for x in range(VOCABULARY):
        query[1, :, x] = (7 + 0.4 * x) * token[x]
        key[1, :, x] = previous[x]
    value = token.mT @ previous
    for layer in range(2):
        thirds = (query[layer], key[layer], value if layer == 0 else torch.eye(WIDTH).double())
        state[f"transformer.h.{layer}.attn.c_attn.weight"] = torch.cat(thirds, 1)
        state[f"transformer.h.{layer}.attn.c_proj.weight"] = torch.eye(WIDTH).double() * (
            0.5 if layer == 0 else 1.0
        )
    hf.load_state_dict(state)
    return Model(hf.eval().requires_grad_(False), name="planted"), previous


def test_the_planted_induction_circuit_is_recovered() -> None:
    model, previous = _planted()
    # the first token has nobody before it and copies itself, so the repeated one stands second
    prompt = [9, 3, 7, 1, 5, 8, 2, 3]
    repeated, query, key = 3, 7, 2
    found = headwise.explain(model, prompt, head="L1H0", query=query, key=key)
    assert found.attention > 0.8
    keys, queries = found.who.signals["key"], found.who.signals["query"]
    # one signal a side, in one and the same channel
    (key_signal,), (query_signal,) = keys.signals, queries.signals
    assert key_signal.writer == Component("head", 0, 0, source=1)
    assert query_signal.writer == Component("embedding")
    assert key_signal.channels == query_signal.channels
    basis = headwise.Basis.of(model, "L1H0")
    direction = directions(model, Head(1, 0), basis, "key")[:, key_signal.channels[0]]
    assert abs(float(torch.cosine_similarity(direction, previous[repeated], dim=0))) > 0.99
    # the same two writers, whole, and nobody else
    assert found.who.sets["key"].members == (Component("head", 0, 0, source=1),)
    assert found.who.sets["query"].members == (Component("embedding"),)
    proof = found.proof
    assert proof.after is not None and proof.predicted is not None
    assert abs(proof.after.attention - proof.predicted) < 1e-9
    assert proof.predicted < found.who.threshold
    assert found.verdict.redundant.said is False
    # it reads the key for the token that came before it, not for where it is
    assert found.place.reason == "content"


def test_the_whole_circuit_leads_from_the_answer_to_the_previous_token() -> None:
    model, _ = _planted()
    circuit = headwise.trace(model, [[9, 3, 7, 1, 5, 8, 2, 3]], answer=7, wrong=1)[0]
    assert "L1H0@7<-2" in circuit.by_id
    (feeding,) = circuit.into("L1H0@7<-2", "key")
    assert feeding.source == "L0H0@2<-1"
    assert len(feeding.channels) == 1
    assert circuit.between("L0H0@2<-1", circuit.edges[0].target).nodes
