"""The search against its definition, on every family."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from reference_tracer import LiteralTracer
from tiny import prompts_of, tiny

from headwise.bases.basis import Bases
from headwise.circuits.counterfactual import removal
from headwise.errors import HeadwiseError
from headwise.model.model import Model
from headwise.model.reading import side_maps
from headwise.tracing import causes as causes_module
from headwise.tracing import search as search_module
from headwise.tracing.causes import Candidates, Rows, attention, drops, first_below, path_gradient, put_back
from headwise.tracing.search import LayerSearch, Rules, SideSignals
from headwise.tracing.sides import KeySide, QuerySide
from headwise.tracing.vectors import component_shares
from headwise.tracing.writes import PromptWrites
from headwise.types import Cell, Component, Head, Removed, Side, Signal

LAYERS = (1, 3)


def _firings(up: PromptWrites, layer: int, rules: Rules, per_layer: int = 10) -> list[Cell]:
    """Strong cells of a layer, those above the threshold."""
    cells = [
        Cell(Head(layer, h), d, s)
        for d in range(2, up.tokens)
        for h in range(up.n_heads)
        for s in range(d + 1)
        if bool(up.visible(layer)[d, s])
    ]
    strong = []
    for cell, a in zip(cells, up.attention_at(cells), strict=True):
        keys = int(up.visible(layer)[cell.query].sum()) if rules.visible_keys else cell.query + 1
        if a >= rules.least(keys):
            strong.append(cell)
    return strong[:: max(1, len(strong) // per_layer)]


def _searched(model: Model, rules: Rules, layer: int) -> tuple[PromptWrites, list[dict[Side, SideSignals]]]:
    bases = Bases.of(model, frame="query" if rules.visible_keys else "absolute")
    up = PromptWrites(model.split(prompts_of(9, 6)), 0, bases)
    firings = _firings(up, layer, rules)
    return up, LayerSearch(bases, layer, rules, up.dtype).run(up, firings)


@pytest.mark.parametrize("layer", LAYERS)
def test_published_mode_is_the_literal_reference(variant: str, layer: int) -> None:
    model = tiny(variant, torch.float64)
    up, found = _searched(model, Rules.published(), layer)
    reference = LiteralTracer(model, up.stream, 0)
    compared = 0
    for sides in found:
        for side, signals in sides.items():
            head, d, s = signals.cell
            expected = reference.signals((head.layer, head.index, d, s), side, signals.tau)
            assert signals.signals == [Signal(head, side, c, (k,)) for c, k, _ in expected]
            assert [drop for *_, drop in expected] == pytest.approx(_drops(signals), abs=1e-9)
            compared += bool(expected)
    assert compared


def test_attributions_are_complete_and_removal_stops_below_the_threshold(model: Model) -> None:
    bound = 1e-9 if model.dtype == torch.float64 else 1e-4
    for layer in LAYERS:
        up, found = _searched(model, Rules(backward=False), layer)
        assert found
        for sides in found:
            for signals in sides.values():
                assert abs(signals.completeness) < bound
                assert signals.attention == pytest.approx(up.attention_at([signals.cell])[0], abs=bound)
                if not signals.resolved:
                    continue
                left = signals.attention
                *earlier, last = _drops(signals)
                for drop in earlier:
                    left -= drop
                    assert left >= signals.tau - bound
                assert left - last < signals.tau
                assert signals.after == pytest.approx(signals.attention - sum(_drops(signals)), abs=bound)


def test_the_backward_pass_leaves_a_minimal_set(variant: str) -> None:
    model = tiny(variant, torch.float64)
    for layer in LAYERS:
        up, minimal = _searched(model, Rules(), layer)
        _, greedy = _searched(model, Rules(backward=False), layer)
        for a, b in zip(minimal, greedy, strict=True):
            for side in ("query", "key"):
                if not a[side].resolved:
                    continue
                members = set(a[side].signals)
                assert members <= set(b[side].signals)
                assert a[side].after < a[side].tau
                for one in members:
                    assert _attention_without(up, a[side], members - {one}) >= a[side].tau - 1e-12


def test_what_later_removals_make_needless_is_put_back() -> None:
    # Removing the first two halves the gap twice; the third alone takes the whole attention, so the others return.
    rows = torch.tensor([[[0.4, 0.0], [0.3, 0.0], [6.0, 0.0]]], dtype=torch.float64)
    firing = Rows(
        logits=torch.tensor([[5.0, 1.0]], dtype=torch.float64),
        visible=torch.ones(1, 2, dtype=torch.bool),
        key=torch.tensor([0]),
        tau=torch.tensor([0.5], dtype=torch.float64),
        cap=None,
        candidates=rows,
    )
    assert first_below(firing).tolist() == [3]
    kept = put_back(firing, torch.ones(1, 3, dtype=torch.bool))
    assert kept.tolist() == [[False, False, True]]
    taken = drops(firing, kept)
    assert taken[0, :2].tolist() == [0, 0]
    before, after = torch.tensor([5.0, 1.0]).softmax(0)[0], torch.tensor([-1.0, 1.0]).softmax(0)[0]
    assert float(taken.sum()) == pytest.approx(float(before - after), abs=1e-6)


def _attention_without(up: PromptWrites, found: SideSignals, members: set[Signal]) -> float:
    return removal(up, found.cell, sorted(members)).predicted(up)


def _drops(found: SideSignals) -> list[float]:
    return [one.drop for one in found.removed]


def test_a_writer_that_lost_several_channels_is_one_signal() -> None:
    cell, mlp, head = Cell(Head(3, 1), 5, 2), Component("mlp", 1), Component("head", 0, 2, source=1)
    removed = tuple(
        Removed(Signal(cell.head, "key", writer, (channel,)), attribution, drop, (strength,))
        for writer, channel, attribution, drop, strength in (
            (mlp, 4, 0.5, 0.25, 1.0),
            (head, 4, 0.25, 0.125, 2.0),
            (mlp, 1, 0.125, 0.0625, 3.0),
        )
    )
    found = SideSignals(
        cell=cell, side="key", tau=0.5, attention=0.9, after=0.4625, removed=removed, completeness=0.0
    )
    assert found.by_writer() == [
        Removed(Signal(cell.head, "key", mlp, (4, 1)), 0.625, 0.3125, (1.0, 3.0)),
        Removed(Signal(cell.head, "key", head, (4,)), 0.25, 0.125, (2.0,)),
    ]


def test_parts_sum_to_the_query_and_key(model: Model) -> None:
    """The vectors of single components, which interventions use, sum to what the head reads."""
    bound = 1e-9 if model.dtype == torch.float64 else 2e-5
    up = PromptWrites(model.split(prompts_of(9)), 0)
    n = up.n_carried(3) + up.n_static(3)
    for side in ("query", "key"):
        offset = side_maps(model, 3, side, torch.float64).offset is not None
        parts = [up.component(3, i) for i in range(n + offset)]
        total = torch.stack([component_shares(up, Head(3, 2), side, part) for part in parts]).sum(0)
        whole = (up.q[3, 2] if side == "query" else up.k[3, 2 // up.group]).double()
        assert (total - whole).abs().max() / whole.abs().max() < bound


def test_gauss_beats_the_trapezoid_and_both_are_complete() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = 10 * torch.randn(4, 12, generator=generator, dtype=torch.float64)
    seen, key = torch.ones(4, 12, dtype=torch.bool), torch.arange(4)
    gain = attention(logits, seen)[torch.arange(4), key] - 1 / 12
    errors = {
        rule: float(
            ((path_gradient(logits, seen, key, cap=None, rule=rule) * logits).sum(1) - gain).abs().max()
        )
        for rule in ("gauss", "trapezoid")
    }
    assert errors["gauss"] < 1e-8 < errors["trapezoid"] < 1e-2


def test_a_soft_cap_enters_the_gradient() -> None:
    logits = torch.tensor([[3.0, -1.0, 8.0]], dtype=torch.float64, requires_grad=True)
    seen, key = torch.ones(1, 3, dtype=torch.bool), torch.tensor([2])
    g = path_gradient(logits.detach(), seen, key, cap=2.0, rule="gauss")
    nodes = torch.linspace(0, 1, 2001, dtype=torch.float64)
    slopes = []
    for alpha in nodes:
        at = (alpha * logits.detach()).requires_grad_()
        slopes.append(torch.autograd.grad(attention(at, seen, 2.0)[0, 2], at)[0])
    assert torch.allclose(g, torch.trapezoid(torch.stack(slopes), nodes, dim=0), atol=1e-6)


def test_long_prompts_small_chunks_and_small_blocks_change_nothing(
    variant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from headwise.tracing import writes as writes_module

    model = tiny(variant, torch.float64)
    kept, usual = _searched(model, Rules(), 3)
    monkeypatch.setattr(writes_module, "KEPT_BYTES", 0)
    monkeypatch.setattr(writes_module, "LONG", 1)
    monkeypatch.setattr(writes_module, "BLOCK_BYTES", 1)
    monkeypatch.setattr(writes_module, "GATHERED", 0)
    monkeypatch.setattr(writes_module, "ROWS", 2)
    monkeypatch.setattr(search_module, "FIRINGS", 2)
    rebuilt, other = _searched(model, Rules(), 3)
    what = torch.randn(kept.tokens, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    at_once, in_turns = (list(one.received_by(3, what)) for one in (kept, rebuilt))
    assert (len(at_once), len(in_turns)) == (1, 3)
    assert torch.allclose(at_once[0][2], torch.cat([one[2] for one in in_turns]), atol=1e-12)
    rows = torch.tensor([4, 0])
    assert torch.allclose(kept.row_weights(3, rows), rebuilt.row_weights(3, rows), atol=1e-12)
    for a, b in zip(usual, other, strict=True):
        for side in ("query", "key"):
            assert a[side].signals == b[side].signals
            assert _drops(a[side]) == pytest.approx(_drops(b[side]), abs=1e-12)


def test_heads_shared_by_many_prompts_are_read_alike(variant: str) -> None:
    """Joined with the outputs below, a head reads values; alone it reads what was written. The same shares."""
    model = tiny(variant, torch.float64)
    up = PromptWrites(model.split(prompts_of(9, 6)), 0)
    firings = _firings(up, 3, Rules())
    alone, shared = (LayerSearch(up.bases, 3, Rules(), up.dtype) for _ in range(2))
    shared.expect([(up, firings)] * 50)
    for a, b in zip(alone.run(up, firings), shared.run(up, firings), strict=True):
        for side in ("query", "key"):
            assert a[side].signals == b[side].signals
            for one, other in zip(a[side].removed, b[side].removed, strict=True):
                assert one.strengths == pytest.approx(other.strengths, abs=1e-9)
    assert not alone._joined  # pyright: ignore[reportPrivateUsage]
    assert shared._joined  # pyright: ignore[reportPrivateUsage]


def test_layers_that_cap_differently_are_refused() -> None:
    """Blocks of layers are rebuilt at once: another cap in one of them must not go unnoticed."""
    stream = tiny("gemma2").split(prompts_of(5))
    record = stream.layers[2]
    record.call = replace(record.call, cap=7.0)
    with pytest.raises(HeadwiseError, match=r"caps the scores of its layers differently \(2.0, 7.0\)"):
        PromptWrites(stream, 0)


def test_maps_are_composed_once_and_only_the_last_ones_kept() -> None:
    model = tiny("llama")
    first = side_maps(model, 0, "query", torch.float64)
    assert side_maps(model, 0, "query", torch.float64) is first
    for layer in range(4):
        for side in ("query", "key"):
            for dtype in (torch.float32, torch.float64):
                side_maps(model, layer, side, dtype)
    assert side_maps(model, 0, "query", torch.float64) is not first


@pytest.mark.parametrize("published", [False, True])
def test_leaving_out_what_cannot_be_among_the_best_gives_the_same_sets(
    variant: str, published: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny(variant, torch.float64)
    rules = Rules.published() if published else Rules()
    for layer in LAYERS:
        with monkeypatch.context() as all_of_them:
            for side in (QuerySide, KeySide):
                every = side.bounds
                all_of_them.setattr(side, "bounds", lambda self, read, every=every: every(self, read) + 1e30)
            _, whole = _searched(model, rules, layer)
        monkeypatch.setattr(causes_module, "STEP", 3)
        _, pruned = _searched(model, rules, layer)
        assert whole
        for one, other in zip(whole, pruned, strict=True):
            for side in ("query", "key"):
                assert other[side].signals == one[side].signals
                assert _drops(other[side]) == pytest.approx(_drops(one[side]), abs=1e-9)


@pytest.mark.parametrize("long", [False, True])
def test_no_candidate_exceeds_its_bound_and_all_sum_to_the_totals(
    variant: str, long: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Multiplied out one and all: the slow way to the best candidates, and to what they sum to."""
    from headwise.tracing import writes as writes_module

    if long:
        for name, value in (("KEPT_BYTES", 0), ("LONG", 1), ("GATHERED", 0), ("ROWS", 2)):
            monkeypatch.setattr(writes_module, name, value)
    model = tiny(variant, torch.float64)
    up = PromptWrites(model.split(prompts_of(9, 6)), 0)
    chunk = search_module.LayerChunk(
        LayerSearch(up.bases, 3, Rules(), up.dtype), up, _firings(up, 3, Rules())
    )
    of = torch.arange(len(chunk.firings))
    for side in (QuerySide(chunk), KeySide(chunk)):
        candidates = Candidates(chunk, side)
        every = torch.arange(side.n_carried).expand(len(of), -1)
        heads = side.vectors_of(of, every) @ candidates.read
        assert (heads.abs().amax(2) <= candidates.bounds.clamp(min=0) + 1e-12)[
            candidates.bounds > -torch.inf
        ].all()
        scores = torch.cat((heads, candidates.others), 1)
        assert torch.allclose(scores.sum((1, 2)), candidates.totals, atol=1e-9)
        scores[:, : side.n_carried].masked_fill_((candidates.bounds == -torch.inf)[..., None], -torch.inf)
        for m in (1, 7, 40):
            best = candidates.top(of, m)
            assert torch.allclose(best.attribution, scores.flatten(1).topk(m, 1).values, atol=1e-12)
            found = scores[of[:, None], best.component, best.channel]
            assert torch.allclose(found, best.attribution, atol=1e-12)


def test_bounds_leave_most_components_out() -> None:
    """What they are for: in a prompt of some length few components are multiplied out."""
    model = tiny("llama")
    up = PromptWrites(model.split(prompts_of(60)), 0)
    shared = LayerSearch(up.bases, 3, Rules(), up.dtype)
    chunk = search_module.LayerChunk(shared, up, _firings(up, 3, Rules())[:1])
    for side in (QuerySide(chunk), KeySide(chunk)):
        candidates = Candidates(chunk, side)
        candidates.top(torch.tensor([0]), 8)
        assert 0 < candidates.scored < side.n_carried / 2
