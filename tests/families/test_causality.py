"""Removed signals: exact in the head that reads them, and more causal for the family that has them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import sparse
from tiny import prompts_of, tiny
from tiny_circuits import two_answers

from headwise.bases.basis import Bases
from headwise.families import causality as module
from headwise.families.causality import CausalQuestion, exclusive, measure_causality
from headwise.families.exchange import ClusterExchange
from headwise.families.halves import halved
from headwise.families.incidence import Element, Incidence
from headwise.families.removals import Signals, grouped, removal_edits
from headwise.intervals import wilson
from headwise.model.edits import Edit, SetOutput
from headwise.model.model import Model
from headwise.model.outputs import head_outputs
from headwise.model.reading import side_maps
from headwise.model.stream import split
from headwise.tracing.vectors import component_writes
from headwise.tracing.writes import PromptWrites
from headwise.types import Component, Head


def _everything(up: PromptWrites, head: Head, side: str, width: int) -> list[Element]:
    """Every channel of every component below a head, tokens summed."""
    found = [f"L{layer}H{h}" for layer in range(head.layer) for h in range(up.n_heads)]
    found += [f"MLP{layer}" for layer in range(head.layer)] + ["embedding"]
    if up.per_layer == 2:
        found += [f"bias{layer}" for layer in range(head.layer)]
    if side_maps(up.stream.model, head.layer, side, torch.float64).offset is not None:  # pyright: ignore[reportArgumentType]
        found.append("offset")
    return [Element(name, str(head), side, channel) for name in found for channel in range(width)]


def test_a_whole_head_is_the_sum_over_the_tokens_it_read(variant: str) -> None:
    model = tiny(variant, torch.float64)
    up = PromptWrites(split(model, prompts_of(9)[0]), 0)
    whole = component_writes(up, Component("head", 2, 3))
    parts = sum(component_writes(up, Component("head", 2, 3, source)) for source in range(9))
    assert torch.allclose(whole, torch.as_tensor(parts), atol=1e-10)


def test_without_anything_written_into_it_a_head_attends_evenly(variant: str) -> None:
    model = tiny(variant, torch.float64)
    prompt, head = prompts_of(9)[0], Head(2, 1)
    up = PromptWrites(split(model, prompt), 0)
    for side in ("query", "key"):
        members = grouped(_everything(up, head, side, model.d_head))
        got = model.edit([prompt], removal_edits(Signals(up).vectors(members)), heads=[head], logits="none")
        assert got.pattern is not None
        seen = got.visible[0, 0].double()
        assert (got.pattern[0, 0] - seen / seen.sum(-1, keepdim=True)).abs().max() < 1e-7


def test_the_edited_pattern_is_the_predicted_one(variant: str) -> None:
    """Only some channels of some components leave, on both sides at once."""
    model = tiny(variant, torch.float64)
    prompt, head = prompts_of(9)[0], Head(3, 2)
    up = PromptWrites(split(model, prompt), 0)
    features = [
        Element("L1H2", str(head), "query", 1),
        Element("L0H3", str(head), "query", 1),
        Element("MLP2", str(head), "query", 4),
        Element("L2H0", str(head), "key", 0),
    ]
    vectors = Signals(up).vectors(grouped(features))
    q = up.q[3, 2] - vectors[head, "query"]
    k = up.k[3, 2 // up.group] - vectors[head, "key"]  # of each row its own
    scores = torch.einsum("td,tkd->tk", q, k) * float(up.scale[3])
    if up.cap is not None:
        scores = up.cap * torch.tanh(scores / up.cap)
    predicted = torch.softmax(scores.masked_fill(~up.visible(3), float("-inf")), -1)
    got = model.edit([prompt], removal_edits(vectors), heads=[head], logits="none")
    clean = model.capture([prompt], heads=[head], want=("pattern",))
    assert got.pattern is not None and clean.pattern is not None
    assert (got.pattern[0, 0] - predicted).abs().max() < 1e-9
    assert (got.pattern[0, 0] - clean.pattern[0, 0]).abs().max() > 1e-4


def _incidence(rows: list[list[Element]]) -> Incidence:
    features = tuple(sorted({f for row in rows for f in row}))
    held = np.array([[f in row for f in features] for row in rows])
    return Incidence(np.arange(len(rows)), features, sparse.csr_matrix(held))


def test_exclusive_features_are_frequent_in_one_family_and_rare_in_the_other() -> None:
    a, b, both = (Element("L0H0", "L2H0", "query", c) for c in (0, 1, 2))
    incidence = _incidence([[a, both]] * 6 + [[both]] * 4 + [[b, both]] * 9 + [[a, both]])
    families = np.array([0] * 10 + [1] * 10)
    assert exclusive(incidence, families, 0, 1) == [a]
    assert exclusive(incidence, families, 1, 0) == [b]


def _change(model: Model, question: CausalQuestion, edits: list[Edit]) -> float:
    """What becomes of the answer's lead with some edits."""
    token_ids = list(question.token_ids)
    edited = model.edit([token_ids], edits).logits
    clean = model.capture([token_ids], heads=[], want=(), logits="last").logits
    assert edited is not None and clean is not None and question.wrong_id is not None
    untouched, after = (
        float(x[0, 0, question.answer_id] - x[0, 0, question.wrong_id]) for x in (clean, edited)
    )
    return after - untouched


def test_effects_are_those_of_edited_passes_and_do_not_depend_on_batching(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = tiny("llama", torch.float64)
    prompts = prompts_of(7, 8, 9, 10, 11, 12)
    questions = [CausalQuestion(p, *two_answers(model, p)) for p in prompts]
    mine = [
        Element("L0H1", "L2H0", "query", 0),
        Element("MLP0", "L2H0", "query", 3),
        Element("L1H1", "L3H2", "key", 2),
    ]
    theirs = [Element("MLP1", "L3H1", "query", 1)]
    incidence = _incidence([mine] * 3 + [theirs] * 3)
    families = np.array([0, 0, 0, 1, 1, 1])
    first, second = measure_causality(Bases.of(model), questions, incidence, families, [(0, 1)], controls=2)
    assert (first.features, first.heads, second.features) == (3, 2, 1)
    assert first.own is not None and first.other is not None and first.gap is not None
    changes = []
    for question in questions[:3]:
        up = PromptWrites(split(model, list(question.token_ids)), 0)
        edits = removal_edits(Signals(up).vectors(grouped(mine)))
        changes.append(_change(model, question, edits))
    tested = halved(families, [0, 1], np.arange(6), "prompt").tested[:3]
    assert first.seen_own is not None and 0 < tested.sum() < 3
    assert first.own.change.mean == pytest.approx(np.mean(np.array(changes)[tested]), abs=1e-8)
    assert first.seen_own.change.mean == pytest.approx(np.mean(np.array(changes)[~tested]), abs=1e-8)
    assert first.own.change.low <= first.own.change.mean <= first.own.change.high
    assert first.gap.mean == pytest.approx(first.own.change.mean - first.other.change.mean)
    assert first.own.control.mean != first.own.change.mean
    monkeypatch.setattr("headwise.circuits.counterfactual.PACKED", 2)
    again = measure_causality(Bases.of(model), questions, incidence, families, [(0, 1)], controls=2)
    assert again[0].own is not None
    assert again[0].own.change.mean == pytest.approx(first.own.change.mean, abs=1e-8)
    assert again[0].own.control.mean == pytest.approx(first.own.control.mean, abs=1e-8)


def test_families_without_exclusive_features_have_no_effect_to_report() -> None:
    model = tiny("llama")
    prompts = prompts_of(6, 6)
    both = [Element("L0H1", "L2H0", "query", 0)]
    tests = measure_causality(
        Bases.of(model),
        [CausalQuestion(p, 3, 4) for p in prompts],
        _incidence([both, both]),
        np.array([0, 1]),
        [(0, 1)],
    )
    assert [(t.features, t.own) for t in tests] == [(0, None), (0, None)]


def test_a_head_that_is_removed_writes_what_it_writes_on_average() -> None:
    model = tiny("llama", torch.float64)
    prompts = prompts_of(7, 8, 9, 10)
    questions = [CausalQuestion(p, *two_answers(model, p)) for p in prompts]
    rows = [[Element("", "L1H2"), Element("", "L2H0")]] * 2 + [[Element("", "L3H1")]] * 2
    signals = _incidence([[Element("L0H0", "L2H0", "query", 0)]] * 4)  # nothing exclusive
    found = measure_causality(
        Bases.of(model), questions, signals, np.array([0, 0, 1, 1]), [(0, 1)], heads=_incidence(rows)
    )
    assert [(t.kind, t.features) for t in found] == [
        ("signals", 0),
        ("signals", 0),
        ("heads", 2),
        ("heads", 1),
    ]
    tested = int(np.flatnonzero(halved(np.array([0, 0, 1, 1]), [0, 1], np.arange(4), "prompt").tested)[0])
    written = head_outputs(model, list(prompts[tested]), ["L1H2", "L2H0"])[0]
    edits: list[Edit] = [SetOutput(head=head, value=value.mean(0)) for head, value in written.items()]
    assert found[2].own is not None
    assert found[2].own.change.mean == pytest.approx(_change(model, questions[tested], edits), abs=1e-8)
    assert abs(found[2].own.change.mean) > 1e-6
    assert set(found[2].claims) == {"own", "gap"} and not found[0].claims


def test_what_only_the_tested_half_holds_is_not_chosen() -> None:
    """A signal that every circuit of the tested half holds, and no other, would be chosen from all prompts."""
    model = tiny("llama")
    prompts = prompts_of(*[6] * 12)
    families = np.array([0] * 6 + [1] * 6)
    tested = halved(families, [0, 1], np.arange(12), "prompt").tested
    chosen, late = (Element("L0H1", "L2H0", "query", c) for c in (0, 1))
    rows = [
        ([late] if tested[i] else [chosen]) if families[i] == 0 else [Element("MLP0", "L2H1", "key", 2)]
        for i in range(12)
    ]
    incidence = _incidence(rows)
    assert exclusive(incidence, families, 0, 1) == [chosen, late]
    found = measure_causality(
        Bases.of(model), [CausalQuestion(p, 3, 4) for p in prompts], incidence, families, [(0, 1)], controls=1
    )
    assert (found[0].features, found[0].chosen_on) == (1, 6)
    assert found[0].own is not None and found[0].own.prompts == 3


def test_exchanging_families_equals_the_obvious_loop() -> None:
    values = np.array([3.0, 2.5, 1.0, 0.5, 2.0, 0.0])
    own = np.array([True, True, False, False, True, False])
    clusters = np.array([0, 0, 1, 1, 2, 2])  # two of one family each, one of both
    gaps = []
    for pure in (1.0, -1.0):
        for mixed in (1.0, -1.0):
            # Wordings count once each: the two of one family are one difference, which is worth two of them.
            gaps.append((2 * pure * (2.75 - 0.75) + mixed * 2.0) / 3)
    exact = sum(gap >= gaps[0] - 1e-9 for gap in gaps) / len(gaps)
    p, ways = ClusterExchange.of(own, ~own, clusters).p_values(values[None], torch.Generator(), larger=True)
    assert (float(p[0]), ways) == (exact, 4)
    less, _ = ClusterExchange.of(~own, own, clusters).p_values(values[None], torch.Generator(), larger=True)
    assert float(less[0]) == 1.0  # one-sided: the other family's are not the larger ones


@pytest.mark.parametrize("both", [False, True])
def test_wordings_that_differ_are_rarely_taken_for_families_and_a_real_gap_mostly_is(both: bool) -> None:
    """Wordings of one family each that differ, and wordings of both in which the gap differs and is 0 on average."""
    generator = torch.Generator().manual_seed(0)
    clusters = torch.arange(80) // 8
    own = torch.arange(80) % 2 == 0 if both else clusters < 5
    plain, planted, naive = [], [], []
    for _ in range(200):
        shared = torch.randn(10, generator=generator)[clusters] * (torch.where(own, 0.5, -0.5) if both else 1)
        values = shared + 0.5 * torch.randn(80, generator=generator)
        for found, value, which in (
            (plain, values, clusters),
            (planted, values + 2 * own, clusters),
            (naive, values, torch.arange(80)),
        ):
            made = ClusterExchange.of(own.numpy(), ~own.numpy(), which.numpy())
            p, _ = made.p_values(value.numpy()[None], generator, larger=True)
            found.append(float(p[0]) <= 0.05)
    assert wilson(sum(plain), 200)[0] <= 0.05
    assert wilson(sum(naive), 200)[0] > 0.05  # exchanging prompts one by one calls wordings families
    assert sum(planted) > 120


def test_a_family_of_one_wording_supports_nothing_however_many_prompts_it_has() -> None:
    """Its prompts are parted, and the choice has seen the wording; counted one by one they were called significant."""
    families = np.repeat([0, 1], 12)
    wording = families.copy()
    halves = halved(families, [0, 1], wording, "wording")
    assert halves.parted and halves.unit == "wording" and halves.clusters.tolist() == wording.tolist()
    assert [int(halves.tested[families == f].sum()) for f in (0, 1)] == [6, 6]
    one = module._Set("signals", 0, 1, [], [])
    lead = np.where(families == 0, -1.0, 0.0) + 0.01 * np.arange(24)
    values = np.stack([np.zeros((24, 3)), np.zeros((24, 3))], 1)
    values[:, 0, 1] = lead
    own = torch.from_numpy(families == 0)
    found = module._alone(values, own, torch.from_numpy(wording), halves, one, 0)
    assert {name: claim.p for name, claim in found.items()} == {"own": 0.5, "gap": 0.5}
    assert all("the choice has seen the same ones" in claim.null for claim in found.values())
    each = replace(halves, parted=False, clusters=np.arange(24), unit="prompt")
    naive = module._alone(values, own, torch.arange(24), each, one, 0)
    assert all(claim.p < 0.01 for claim in naive.values())
