"""Channels: UΣVᵀ = Ω, G_d G_s = 1, sums over channels are the model's logits, on every family."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import prompts_of, tiny
from torch import Tensor

from headwise.bases.basis import Basis, directions
from headwise.bases.cell import split_cell
from headwise.bases.relative import channels_needed, sparsity
from headwise.bases.singular import qk_svd, rotated
from headwise.errors import HeadwiseError
from headwise.model.model import Model
from headwise.model.reading import side_maps


def _random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_the_small_svd_is_the_svd_of_the_full_form() -> None:
    query, key = _random(3, 8, 24), _random(3, 8, 24, seed=1)
    svd = qk_svd(query, key)
    omega = query.mT @ key
    rebuilt = svd.query_directions * svd.sigma[:, None] @ svd.key_directions.mT
    assert (rebuilt - omega).abs().max() < 1e-12
    assert (svd.sigma - torch.linalg.svdvals(omega)[:, :8]).abs().max() < 1e-12
    assert (svd.query_map @ svd.key_map - torch.eye(8)).abs().max() < 1e-12
    for found in (svd.query_directions, svd.key_directions):
        assert (found.mT @ found - torch.eye(8)).abs().max() < 1e-12


def test_signs_are_canonical() -> None:
    query, key = _random(8, 24), _random(8, 24, seed=1)
    svd = qk_svd(query, key)
    flipped = qk_svd(-query, -key)
    assert torch.allclose(svd.query_directions, flipped.query_directions, atol=1e-9)
    largest = svd.query_directions.gather(0, svd.query_directions.abs().argmax(0, keepdim=True))
    assert bool((largest > 0).all())
    assert bool((svd.sigma.diff() <= 0).all())


@pytest.mark.parametrize(("zero_query", "zero_key"), [(3, 0), (0, 2), (3, 2), (8, 0)])
def test_a_rank_deficient_head_gets_null_channels_that_keep_the_sum_exact(
    zero_query: int, zero_key: int
) -> None:
    query, key = _random(8, 24), _random(8, 24, seed=1)
    query[8 - zero_query :] = 0
    if zero_key:
        key[:zero_key] = key[zero_key : 2 * zero_key]
    svd = qk_svd(query, key)
    assert int(svd.rank) < 8
    assert (svd.query_map @ svd.key_map - torch.eye(8)).abs().max() < 1e-10
    rebuilt = svd.query_directions * svd.sigma @ svd.key_directions.mT
    assert (rebuilt - query.mT @ key).abs().max() < 1e-10
    # what a stream (no bias) brings into a null channel meets nothing there
    x, y = _random(24, seed=2), _random(24, seed=3)
    terms = (query @ x @ svd.query_map) * (svd.key_map @ (key @ y))
    assert float(terms[int(svd.rank) :].abs().sum()) < 1e-9


def _head(met: int, unmet: int, unread: int, *, seed: int) -> tuple[Tensor, Tensor]:
    """Query and key maps [8, 24]: ``met`` directions of head space are used by both, ``unmet`` by queries alone,
    ``unread`` by keys alone; the directions are skew, so that no orthogonal projection tells them apart."""
    skew = torch.eye(8) + 0.1 * _random(8, 8, seed=seed)
    axis = torch.arange(8)
    queries = axis < met + unmet
    keys = (axis < met) | ((axis >= met + unmet) & (axis < met + unmet + unread))
    query = skew @ (queries[:, None] * _random(8, 24, seed=seed + 1))
    return query, torch.linalg.inv(skew).mT @ (keys[:, None] * _random(8, 24, seed=seed + 2))


@contextmanager
def _other_library(seed: int) -> Iterator[None]:
    """Singular vectors as another linear-algebra library may return them: where a singular value occurs more than
    once (the zero above all), any basis of their space is as good, and any pair may change its sign."""
    plain, generator = torch.linalg.svd, torch.Generator().manual_seed(seed)

    def turn(size: int) -> Tensor:
        return torch.linalg.qr(torch.randn(size, size, generator=generator, dtype=torch.float64))[0]

    def svd(matrix: Tensor, full_matrices: bool = True) -> tuple[Tensor, Tensor, Tensor]:
        u, sigma, vt = (x.clone() for x in plain(matrix, full_matrices=full_matrices))
        for place in itertools.product(*(range(n) for n in matrix.shape[:-2])):
            values = sigma[place]
            start = 0
            while start < len(values):
                equal = int(((values - values[start]).abs() < 1e-10 * values[0].clamp(min=1)).sum())
                group = slice(start, start + equal)
                left = turn(equal)
                right = turn(equal) if values[start] < 1e-10 * values[0].clamp(min=1) else left
                u[place][:, group] = u[place][:, group] @ left
                vt[place][group] = right.mT @ vt[place][group]
                start += equal
        return u, sigma, vt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.linalg, "svd", svd)
        yield


@given(
    parts=st.tuples(st.integers(0, 8), st.integers(0, 8), st.integers(0, 8)).filter(lambda p: sum(p) <= 8),
    seed=st.integers(0, 10_000),
)
@settings(max_examples=60, deadline=None)
def test_each_null_channel_vanishes_for_every_stream_whatever_the_svd_returns(
    parts: tuple[int, int, int], seed: int
) -> None:
    query, key = _head(*parts, seed=seed)
    with _other_library(seed):
        svd = qk_svd(query, key)
    rank = int(svd.rank)
    assert rank == parts[0]
    x, y = _random(5, 24, seed=seed + 3), _random(5, 24, seed=seed + 4)
    q, k = x @ query.mT, y @ key.mT
    terms = (q @ svd.query_map) * (k @ svd.key_map.mT)
    assert bool((terms[:, rank:].abs() < 1e-9).all())
    singular = (x @ svd.query_directions) * svd.sigma * (y @ svd.key_directions)
    assert (terms - singular)[:, :rank].abs().sum() < 1e-9
    # the sum is exact for any query and key, also with what biases and rotations put outside the maps' ranges
    q, k = q + _random(5, 8, seed=seed + 5), k + _random(5, 8, seed=seed + 6)
    terms = (q @ svd.query_map) * (k @ svd.key_map.mT)
    assert (terms.sum(1) - (q * k).sum(1)).abs().max() < 1e-9
    # and then, too, no null channel depends on the library
    plain = qk_svd(query, key)
    expected = (q @ plain.query_map) * (k @ plain.key_map.mT)
    assert (terms - expected)[:, rank:].abs().sum() < 1e-9


def test_a_head_has_the_same_channels_beside_a_deficient_one() -> None:
    query, key = _random(3, 8, 24), _random(3, 8, 24, seed=1)
    alone = qk_svd(query, key)
    query[1, 4:] = 0
    beside = qk_svd(query, key)
    assert beside.rank.tolist() == [8, 4, 8]
    for name in ("query_map", "key_map"):
        assert torch.equal(getattr(beside, name)[0], getattr(alone, name)[0])
        assert torch.equal(getattr(beside, name)[2], getattr(alone, name)[2])


def test_rotation_keeps_every_logit_and_destroys_sparsity() -> None:
    query, key = _random(16, 40), _random(16, 40, seed=1)
    svd = qk_svd(query, key)
    turned = rotated(svd, torch.Generator().manual_seed(0))
    assert (turned.query_map @ turned.key_map - torch.eye(16)).abs().max() < 1e-10
    # a query and key that meet in one channel alone
    q = torch.linalg.solve(svd.query_map.mT, torch.eye(16, dtype=torch.float64)[2])
    k = torch.linalg.solve(svd.key_map, torch.eye(16, dtype=torch.float64)[2])
    sharp, spread = ((q @ s.query_map) * (s.key_map @ k) for s in (svd, turned))
    assert float(sharp.sum()) == pytest.approx(float(spread.sum()))
    assert sparsity(sharp) == pytest.approx(1 / 16)
    assert sparsity(spread) > 3 / 16


def test_channels_sum_to_the_models_logits(model: Model) -> None:
    prompt = prompts_of(9)[0]
    got = model.capture([prompt], want=("q", "k", "scores"))
    assert got.q is not None and got.k is not None and got.scores is not None
    bound = 1e-9 if model.dtype == torch.float64 else 1e-4
    for place, head in enumerate(got.heads):
        channels = Basis.of(model, head, frame="absolute")
        logits = channels.split(got.q[0, place, -1], got.k[0, place]).sum(-1) * got.scale[place]
        if (cap := got.cap[place]) is not None:
            logits = cap * torch.tanh(logits / cap)
        seen = got.visible[0, place, -1]
        assert (logits - got.scores[0, place, -1])[seen].abs().max() < bound
        query = side_maps(model, head.layer, "query", torch.float64).matrix[head.index]
        key = side_maps(model, head.layer, "key", torch.float64).matrix[head.index // model.anatomy.group]
        reads, read_from = (directions(model, head, channels, side) for side in ("query", "key"))
        omega = reads * channels.energies @ read_from.mT
        assert (omega - query.mT @ key).abs().max() < 1e-9


def test_relative_attention_splits_over_channels() -> None:
    model = tiny("llama-biased", torch.float64)
    prompt = prompts_of(9)[0]
    split = split_cell(model, prompt, "L2H1", 6, 3)
    scores = model.capture([prompt], heads=["L2H1"], want=("scores",)).scores
    assert scores is not None
    row = scores[0, 0, 6, :7]
    others = torch.cat((row[:3], row[4:]))
    assert abs(float(split.relative.sum()) - float(row[3] - others.mean())) < 1e-9
    assert abs(float(split.control.sum()) - float(split.relative.sum())) < 1e-9
    assert abs(float(split.logit.sum()) - float(row[3])) < 1e-9
    assert split.error < 1e-9


def test_sparsity_and_channels_needed() -> None:
    assert sparsity(torch.ones(8)) == pytest.approx(1)
    assert sparsity(torch.eye(8)[3]) == pytest.approx(1 / 8)
    assert channels_needed(torch.tensor([10.0, 0.2, -0.2, 0.1])) == 1
    assert channels_needed(torch.ones(10)) == 9


@pytest.mark.parametrize(
    ("head", "query", "key", "message"),
    [
        ("L9H0", 3, 1, "L9H0 does not exist"),
        ("L1H0", 30, 1, "position 30 is outside"),
        ("L1H0", 3, 30, "position 30 is outside"),
        ("L1H0", 3, 5, "lies after the query"),
        ("L1H0", 8, 1, "outside the window"),
        ("nine", 3, 1, "'nine' is not a head"),
    ],
)
def test_bad_cells_are_one_line(head: str, query: int, key: int, message: str) -> None:
    model = tiny("mistral")
    with pytest.raises(HeadwiseError, match=message) as error:
        split_cell(model, prompts_of(9)[0], head, query, key)
    assert "\n" not in str(error.value)
