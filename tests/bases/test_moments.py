"""Moments of what flows through every head, against the same sums written out cell by cell."""

from __future__ import annotations

import pytest
import torch
from tiny import VARIANTS, prompts_of, tiny

from headwise.bases.balanced import balanced_maps
from headwise.bases.moments import ATTENDED, MomentSums, collect_moments
from headwise.model.outputs import head_outputs


@pytest.mark.parametrize("variant", VARIANTS)
def test_sums_are_those_of_the_cells_one_by_one(variant: str) -> None:
    model = tiny(variant, torch.float64)
    prompts = prompts_of(7, 11, seed=3)
    found = collect_moments(model, prompts)
    slow = MomentSums.zero(model.n_layers, model.n_heads, model.anatomy.d_head)
    for ids in prompts:
        stream = model.split([ids])
        seen = model.capture([ids], want=("q", "k", "pattern"))
        for number, head in enumerate(seen.heads):
            rotary = stream.layers[head.layer].rotary
            for d in range(1, len(ids)):
                visible = seen.visible[0, number, d]
                for s in visible.nonzero()[:, 0].tolist():
                    if seen.pattern[0, number, d, s] < ATTENDED or visible.sum() < 2:
                        continue
                    others = visible.clone()
                    others[s] = False
                    q, dk = seen.q[0, number, d], seen.k[0, number, s] - seen.k[0, number, others].mean(0)
                    if rotary is not None:
                        here = rotary.at(torch.tensor([[d]]))
                        q, dk = (
                            here.undo(q[None, None, None])[0, 0, 0],
                            here.transposed(dk[None, None, None])[0, 0, 0],
                        )
                    at = (head.layer, head.index)
                    slow.cells[at] += 1
                    slow.query[at] += q
                    slow.query_square[at] += torch.outer(q, q)
                    slow.key_square[at] += torch.outer(dk, dk)
    assert torch.equal(found.cells, slow.cells)
    for one, other in (
        (found.query, slow.query),
        (found.query_square, slow.query_square),
        (found.key_square, slow.key_square),
    ):
        assert (one - other).abs().max() <= 1e-9 * other.abs().max()


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_mean_output_is_that_of_every_token(variant: str) -> None:
    model = tiny(variant, torch.float64)
    prompts = prompts_of(7, 11, seed=3)
    found = (collect_moments(model, prompts) + collect_moments(model, prompts[:1])).mean_output
    seen = head_outputs(model, [*prompts, prompts[0]], model.heads)
    for head in model.heads:
        slow = torch.cat([one[head] for one in seen]).mean(0)
        assert (found[head.layer, head.index] - slow).abs().max() <= 1e-9 * slow.abs().max()


def test_what_two_workers_saw_is_what_one_would_have_seen() -> None:
    model = tiny("llama", torch.float64)
    first, second = prompts_of(6, 6, seed=1), prompts_of(6, 6, seed=2)
    joined = collect_moments(model, first) + collect_moments(model, second)
    whole = collect_moments(model, [*first, *second])
    assert torch.equal(joined.cells, whole.cells)
    assert torch.allclose(joined.key_square, whole.key_square, rtol=1e-12, atol=1e-12)


def test_a_balanced_basis_has_what_it_promises() -> None:
    g = torch.Generator().manual_seed(1)
    q = (
        torch.randn(4000, 3, 6, generator=g, dtype=torch.float64) @ torch.randn(6, 6, generator=g).double()
        + 0.7
    )
    k = torch.randn(4000, 3, 6, generator=g, dtype=torch.float64) @ torch.randn(6, 6, generator=g).double()
    sums = MomentSums(
        torch.full((3,), 4000.0).double(),
        q.sum(0),
        torch.einsum("nhi,nhj->hij", q, q),
        torch.einsum("nhi,nhj->hij", k, k),
        torch.tensor(4000.0),
        torch.zeros(3, 6),
    )
    moments = sums.moments()
    found = balanced_maps(moments)
    eye = torch.eye(6, dtype=torch.float64)
    assert (found.query_map @ found.key_map - eye).abs().max() < 1e-9
    seen = moments.shrunk().seen_through(found.query_map, found.key_map)
    # Coordinates are uncorrelated, and but for salience queries and keys use each channel equally.
    energies = torch.diag_embed(found.energies)
    assert (seen.query - energies).abs().max() < 1e-9 * energies.max()
    assert (seen.key - energies)[:, 1:, 1:].abs().max() < 1e-9 * energies.max()
    assert (seen.query_mean[:, 0] > 0).all()
    assert seen.query_mean[:, 1:].abs().max() < 1e-10
    assert (found.energies[:, 1:].diff(dim=-1) <= 1e-12).all()
