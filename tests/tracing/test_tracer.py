"""Whole circuits: the literal reference's, edges that go up, each firing once, the same on every machine."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from reference_tracer import LiteralTracer
from tiny import prompts_of, tiny
from tiny_circuits import largest_circuit, two_answers

import headwise
from headwise.bases import basis as channels_module
from headwise.circuits import trace as trace_module
from headwise.circuits.circuit import Circuit, Node
from headwise.errors import HeadwiseError
from headwise.model.stream import Stream, split
from headwise.tracing.seeds import Readout, probability_seeds
from headwise.tracing.writes import PromptWrites
from headwise.types import Component
from headwise.why.controls import DRAWS


def _as_literal(circuit: Circuit) -> dict:
    def key(node: Node) -> tuple:
        if node.kind == "head":
            return ("head", node.layer, node.head, node.query, node.key)
        return (node.kind, node.layer, node.query)

    return {
        (key(circuit.by_id[e.source]), key(circuit.by_id[e.target]), e.side): (e.weight, e.channels)
        for e in circuit.edges
        if e.channels
    }


@pytest.mark.parametrize(
    "name", ["gpt2", "gpt_neox", "llama", "llama-biased", "llama-one-key-head", "qwen2", "qwen3", "opt"]
)
@pytest.mark.parametrize("seed", [0, 1])
def test_published_circuits_are_the_literal_reference(name: str, seed: int) -> None:
    model = tiny(name, torch.float64, seed)
    prompt = prompts_of(8, seed=seed)[0]
    answer, wrong = two_answers(model, prompt)
    circuit = headwise.trace(model, [prompt], answer=answer, wrong=wrong, mode="published")[0]
    weight = model.hf.get_output_embeddings().weight
    reference = LiteralTracer(model, model.split([prompt])).trace(weight[answer] - weight[wrong])
    mine = _as_literal(circuit)
    assert mine.keys() == reference.edges.keys()
    for edge, (taken, channels) in reference.edges.items():
        assert mine[edge][1] == channels
        assert mine[edge][0] == pytest.approx(taken, abs=1e-9)
    seeds = {e.source: e.weight for e in circuit.edges if not e.channels}
    assert sorted(seeds.values()) == pytest.approx(sorted(reference.seeds.values()), abs=1e-9)


@pytest.fixture(scope="module")
def circuit() -> Circuit:
    return largest_circuit(tiny("llama-biased", torch.float64))


def test_edges_go_strictly_upward_and_weights_sum_to_the_drop(circuit: Circuit) -> None:
    assert len(circuit.heads) > 3
    for edge in circuit.edges:
        assert circuit.by_id[edge.source].layer < circuit.by_id[edge.target].layer
    for c in circuit.counterfactuals:
        weights = sum(e.weight for e in circuit.into(c.target, c.side))  # pyright: ignore[reportArgumentType]
        assert weights == pytest.approx(c.attention - c.predicted, abs=1e-9)
    assert len({node.id for node in circuit.nodes}) == len(circuit.nodes)
    assert len({(c.target, c.side) for c in circuit.counterfactuals}) == len(circuit.counterfactuals)
    assert len({e.id for e in circuit.edges}) == len(circuit.edges)


def _bare(circuit: Circuit) -> tuple:
    edges = sorted((e.source, e.target, e.side, e.channels, round(e.weight, 6)) for e in circuit.edges)
    return edges, sorted(node.id for node in circuit.nodes)


def test_sign_flips_of_singular_pairs_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    prompt = prompts_of(9)[0]
    answer, wrong = two_answers(tiny("llama"), prompt)
    usual = headwise.trace(tiny("llama"), [prompt], answer=answer, wrong=wrong)[0]
    plain = channels_module.qk_svd

    def flipped(query: torch.Tensor, key: torch.Tensor):
        svd = plain(query, key)
        sign = torch.where(torch.arange(svd.sigma.shape[-1]) % 3 == 0, -1.0, 1.0).double()
        return dataclasses.replace(svd, query_map=svd.query_map * sign, key_map=svd.key_map * sign[:, None])

    monkeypatch.setattr(channels_module, "qk_svd", flipped)
    assert _bare(headwise.trace(tiny("llama"), [prompt], answer=answer, wrong=wrong)[0]) == _bare(usual)


def test_thread_counts_and_batches_change_nothing() -> None:
    model = tiny("qwen2")
    prompts = prompts_of(9, 7, 12, seed=3)
    answers = [two_answers(model, prompt) for prompt in prompts]
    threads = torch.get_num_threads()
    try:
        circuits = []
        for n in (1, 2):
            torch.set_num_threads(n)
            circuits.append(
                headwise.trace(model, prompts, answer=[a for a, _ in answers], wrong=[w for _, w in answers])
            )
    finally:
        torch.set_num_threads(threads)
    for one, two, prompt, (answer, wrong) in zip(*circuits, prompts, answers, strict=True):
        alone = headwise.trace(model, [prompt], answer=answer, wrong=wrong)[0]
        assert _bare(one)[1] == _bare(two)[1] == _bare(alone)[1]
        for a, b in zip(_bare(one)[0], _bare(alone)[0], strict=True):
            assert a[:4] == b[:4]
            assert a[4] == pytest.approx(b[4], abs=1e-4)


def test_every_counterfactual_is_what_the_edited_pass_shows(variant: str) -> None:
    circuit = largest_circuit(tiny(variant), verify=True)
    assert circuit.counterfactuals
    for c in circuit.counterfactuals:
        assert c.edited == pytest.approx(c.predicted, abs=1e-5)


def test_the_edited_passes_need_no_second_split(monkeypatch: pytest.MonkeyPatch) -> None:
    splits: list[int] = []

    def counted(model: headwise.Model, prompts: list[list[int]], *, start: int) -> Stream:
        splits.append(len(prompts))
        return split(model, prompts, start=start)

    monkeypatch.setattr(trace_module, "split", counted)
    assert largest_circuit(tiny("llama"), verify=True).counterfactuals[0].edited is not None
    assert splits == [6]


def test_one_firing_with_its_counterfactuals(variant: str) -> None:
    model = tiny(variant)
    prompt = prompts_of(9)[0]
    pattern = model.capture([prompt], heads=["L3H1"], want=("pattern",)).pattern
    assert pattern is not None
    query = 7
    key = int(pattern[0, 0, query].argmax())
    # a threshold of its own, so that every family has a firing to trace
    tau = 0.8 * float(pattern[0, 0, query, key])
    found = headwise.explain(model, prompt, head="L3H1", query=query, key=key, tau=tau)
    assert found.what.error < 1e-5
    assert found.who.threshold == tau
    after = found.proof.after
    assert after is not None and after.attention < tau
    assert after.attention == pytest.approx(found.proof.predicted, abs=1e-5)
    # the controls hang on the seed, the cell and the draw alone, not on how many there are; where all sets of other
    # writers are listed, they come in an order of their own
    few = headwise.explain(model, prompt, head="L3H1", query=query, key=key, tau=tau, draws=2)
    for mine, theirs in zip(few.proof.controls, found.proof.controls, strict=True):
        if len(theirs.left) < DRAWS:
            assert theirs.name == "writers" and len(mine.left) == 2 < len(theirs.left)
            continue
        assert mine.left == pytest.approx(theirs.left[:2], abs=1e-6)
        assert mine.effects == pytest.approx(theirs.effects[:2], abs=1e-5)


def test_probability_seeds_destroy_most_of_the_gain_and_no_more_than_needed(variant: str) -> None:
    model = tiny(variant, torch.float64)
    stream = model.split(prompts_of(8))
    parts = stream.writes(model.n_layers, -1)
    readout = Readout.of(model, parts.whole)
    logits = model.capture(prompts_of(8), heads=[], want=(), logits="last").logits
    assert logits is not None
    answers = logits[0, 0].topk(2).indices.tolist()
    target = torch.softmax(logits[0, 0, answers], 0)

    def likelihood(removed: list[Component]) -> float:
        kept = [v for c, v in zip(parts.components, parts.vectors, strict=True) if c not in removed]
        left = readout.push(torch.stack(kept).sum(0)) if kept else torch.zeros_like(logits[0, 0])
        left = left + readout.constant()
        left = left if readout.cap is None else readout.cap * torch.tanh(left / readout.cap)
        return float(torch.log_softmax(left, -1)[answers] @ target)

    seeds, gain = probability_seeds(PromptWrites(stream, 0), answers)
    chosen = [seed.component for seed in seeds]
    assert likelihood([]) == pytest.approx(
        float(torch.log_softmax(logits[0, 0], -1)[answers] @ target), abs=1e-9
    )
    assert gain == pytest.approx(likelihood([]) - likelihood(list(parts.components)), abs=1e-9)
    lost = likelihood([]) - likelihood(chosen)
    assert sum(seed.weight for seed in seeds) == pytest.approx(lost, abs=1e-9)
    assert lost >= 0.8 * gain
    assert likelihood([]) - likelihood(chosen[:-1]) < 0.8 * gain


def test_likeliest_tokens_start_a_circuit() -> None:
    model = tiny("llama", torch.float64)
    prompts = [prompts_of(8, seed=seed)[0] for seed in range(6)]
    circuits = headwise.trace(model, prompts, top_k=2)
    assert any(circuit.heads for circuit in circuits)
    for circuit, prompt in zip(circuits, prompts, strict=True):
        assert circuit.answer_id == two_answers(model, prompt)[0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"answer": 99}, "answer 99 is not in the vocabulary"),
        ({"answer": "x"}, "no tokenizer: give the answer as a token id"),
        ({"wrong": 5}, "wrong=5 was given without an answer"),
        ({"answer": 4, "top_k": 2}, "top_k and top_p choose the answers"),
        ({"top_k": 0}, "top_k=0 names no answers"),
        ({"top_p": 1.5}, "top_p=1.5 is not a probability"),
        ({"mode": "fast"}, "mode 'fast' is not a mode"),
        ({"rule": "simpson"}, "rule 'simpson' is not"),
        ({"tau": 2.0}, "tau=2.0 is not an attention"),
        ({"answer": [3, 4]}, "2 answer tokens were given for 1 prompts"),
        ({"prompt": [[]]}, "prompt 0 is empty"),
        ({"prompt": [[5] * 65]}, "65 tokens but the model's context is 64"),
    ],
)
def test_bad_requests_are_one_line(change: dict, message: str) -> None:
    request = {"prompt": prompts_of(8), **change}
    with pytest.raises(HeadwiseError, match=message) as error:
        headwise.trace(tiny("llama"), **request)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("head", "query", "key", "message"),
    [
        ("L9H0", 3, 1, "L9H0 does not exist"),
        ("L1H0", 30, 1, "position 30 is outside the prompt, which has 9 tokens"),
        ("L1H0", 3, -10, "position -10 is outside the prompt"),
        ("L1H0", 3, 5, r"key '38' \(5\) comes after query '57' \(3\), which cannot see it"),
        ("L1H0", 8, 1, "L1H0 at position 8 cannot see position 1: it is outside its window"),
    ],
)
def test_bad_firings_are_one_line(head: str, query: int, key: int, message: str) -> None:
    with pytest.raises(HeadwiseError, match=message) as error:
        headwise.explain(tiny("mistral"), prompts_of(9)[0], head=head, query=query, key=key)
    assert "\n" not in str(error.value)


def test_an_answer_the_model_does_not_give_is_said_so() -> None:
    model = tiny("llama")
    prompt = prompts_of(8)[0]
    best, worst = two_answers(model, prompt)
    circuit = headwise.trace(model, [prompt], answer=worst, wrong=best)[0]
    assert not circuit.edges
    assert "is not what the model predicts" in circuit.notes[0]
    assert "nothing to trace" in circuit.notes[1]
