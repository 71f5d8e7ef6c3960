"""The search against its definition, on every family."""

from __future__ import annotations

import pytest
import torch
from reference_tracer import LiteralTracer
from tiny import prompts_of, tiny

from headwise.model.model import Model
from headwise.tracing import search as search_module
from headwise.tracing.greedy import Rows, drops, first_below, put_back
from headwise.tracing.integrate import attention, path_gradient
from headwise.tracing.search import Firing, LayerSearch, Rules, SideSignals
from headwise.tracing.signals import component_shares
from headwise.tracing.upstream import Upstream
from headwise.types import Component

LAYERS = (1, 3)


def _firings(up: Upstream, layer: int, rules: Rules, per_layer: int = 10) -> list[Firing]:
    """Strong cells of a layer, those above the threshold."""
    cells = [
        Firing(layer, h, d, s)
        for d in range(2, up.tokens)
        for h in range(up.n_heads)
        for s in range(d + 1)
        if bool(up.visible(layer)[d, s])
    ]
    strong = []
    for cell, a in zip(cells, up.cells(layer, cells), strict=True):
        keys = int(up.visible(layer)[cell.query].sum()) if rules.visible_keys else cell.query + 1
        if a >= rules.threshold(keys):
            strong.append(cell)
    return strong[:: max(1, len(strong) // per_layer)]


def _searched(model: Model, rules: Rules, layer: int) -> tuple[Upstream, list[dict[str, SideSignals]]]:
    up = Upstream(model.split(prompts_of(9, 6)), 0)
    firings = _firings(up, layer, rules)
    return up, LayerSearch(model, layer, rules, up.dtype).run(up, firings)  # pyright: ignore[reportReturnType]


@pytest.mark.parametrize("layer", LAYERS)
def test_published_mode_is_the_literal_reference(variant: str, layer: int) -> None:
    model = tiny(variant, torch.float64)
    up, found = _searched(model, Rules.published(), layer)
    reference = LiteralTracer(model, up.stream, 0)
    compared = 0
    for sides in found:
        for side, signals in sides.items():
            expected = reference.signals(signals.firing, side, signals.tau)
            assert [(c, k) for c, k, _ in expected] == list(
                zip(signals.components, signals.channels, strict=True)
            )
            assert [drop for *_, drop in expected] == pytest.approx(signals.drops, abs=1e-9)
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
                assert signals.attention == pytest.approx(up.cells(layer, [signals.firing])[0], abs=bound)
                if not signals.resolved:
                    continue
                left = signals.attention
                for drop in signals.drops[:-1]:
                    left -= drop
                    assert left >= signals.tau - bound
                assert left - signals.drops[-1] < signals.tau
                assert signals.after == pytest.approx(signals.attention - sum(signals.drops), abs=bound)


def test_the_backward_pass_leaves_a_minimal_set(variant: str) -> None:
    model = tiny(variant, torch.float64)
    for layer in LAYERS:
        up, minimal = _searched(model, Rules(), layer)
        _, greedy = _searched(model, Rules(backward=False), layer)
        for a, b in zip(minimal, greedy, strict=True):
            for side in ("query", "key"):
                if not a[side].resolved:
                    continue
                members = set(zip(a[side].components, a[side].channels, strict=True))
                assert members <= set(zip(b[side].components, b[side].channels, strict=True))
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


def _attention_without(up: Upstream, signals: SideSignals, members: set[tuple[Component, int]]) -> float:
    from headwise.circuits.counterfactual import removal

    return removal(up, signals.firing, {signals.side: sorted(members)}).predicted(up)


def test_parts_sum_to_the_query_and_key(model: Model) -> None:
    """The vectors of single components, which interventions use, sum to what the head reads."""
    bound = 1e-9 if model.dtype == torch.float64 else 2e-5
    up = Upstream(model.split(prompts_of(9)), 0)
    firing = Firing(3, 2, 7, 4)
    n = up.n_carried(3) + up.n_static(3)
    for side in ("query", "key"):
        offset = up.reading(3, side)[0].offset is not None
        parts = [up.component(3, i) for i in range(n + offset)]
        total = torch.stack([component_shares(up, firing, side, part) for part in parts]).sum(0)
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
    from headwise.tracing import upstream as upstream_module

    model = tiny(variant, torch.float64)
    kept, usual = _searched(model, Rules(), 3)
    monkeypatch.setattr(upstream_module, "KEPT_BYTES", 0)
    monkeypatch.setattr(upstream_module, "LONG", 1)
    monkeypatch.setattr(upstream_module, "BLOCK_BYTES", 1)
    monkeypatch.setattr(search_module, "CHUNK_BYTES", 1)
    rebuilt, other = _searched(model, Rules(), 3)
    assert len(list(kept.blocks(3))) == 1
    assert len(list(rebuilt.blocks(3))) == 3
    rows = torch.tensor([4, 0])
    assert torch.allclose(kept.row_weights(3, rows), rebuilt.row_weights(3, rows), atol=1e-12)
    for a, b in zip(usual, other, strict=True):
        for side in ("query", "key"):
            assert (a[side].components, a[side].channels) == (b[side].components, b[side].channels)
            assert a[side].drops == pytest.approx(b[side].drops, abs=1e-12)


def test_heads_shared_by_many_prompts_are_read_alike(variant: str) -> None:
    """Joined with the outputs below, a head reads values; alone it reads what was written. The same shares."""
    model = tiny(variant, torch.float64)
    up = Upstream(model.split(prompts_of(9, 6)), 0)
    firings = _firings(up, 3, Rules())
    alone, shared = (LayerSearch(model, 3, Rules(), up.dtype) for _ in range(2))
    shared.expect([(up, firings)] * 50)
    for a, b in zip(alone.run(up, firings), shared.run(up, firings), strict=True):
        for side in ("query", "key"):
            assert a[side].components == b[side].components
            assert a[side].channels == b[side].channels
            assert a[side].strengths == pytest.approx(b[side].strengths, abs=1e-9)
    assert not alone._joined  # pyright: ignore[reportPrivateUsage]
    assert shared._joined  # pyright: ignore[reportPrivateUsage]
