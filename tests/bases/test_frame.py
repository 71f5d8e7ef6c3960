"""Coordinates in the query's frame: exact sums, and the same numbers wherever a prompt begins (A1)."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
import torch
from tiny import VARIANTS, prompts_of, tiny
from torch import Tensor

from headwise.bases import calibrate as module
from headwise.bases.balanced import TOO_FEW
from headwise.bases.basis import Bases, Basis, turned_maps
from headwise.bases.moments import collect_moments
from headwise.corpus import Corpus
from headwise.errors import HeadwiseError
from headwise.model.model import Model
from headwise.model.reading import Rotary
from headwise.model.stream import Stream, split
from headwise.tracing.search import LayerSearch, Rules, SideSignals
from headwise.tracing.seeds import chosen_seeds
from headwise.tracing.through import MLPRules
from headwise.tracing.tracer import trace_down
from headwise.tracing.writes import PromptWrites
from headwise.types import Cell, Side

ROW = 7
ROTATED = [name for name in VARIANTS if name not in ("gpt2", "opt")]


def _coordinates(up: PromptWrites, basis: Basis, layer: int, head: int) -> tuple[Tensor, Tensor]:
    """a [channels] of one row and b [keys, channels], from rotated vectors."""
    rotary = up.stream.rotary(layer, up.prompt)
    here = basis if rotary is None else basis.seen_from(rotary.at_positions([ROW]).double())
    q, k = up.q[layer, head, ROW].double(), up.k[layer, head // up.group].double()
    return q @ here.query_map, k @ here.key_map.mT


@pytest.mark.parametrize("kind", ["singular", "rotated"])
def test_coordinates_sum_to_the_logits_in_the_querys_frame(variant: str, kind: str) -> None:
    model = tiny(variant, torch.float64)
    up = PromptWrites(split(model, prompts_of(9)[0]), 0)
    bases = Bases.of(model, kind)  # pyright: ignore[reportArgumentType]
    for layer in (0, 2):
        for head in range(model.n_heads):
            a, b = _coordinates(up, bases.layer(layer).at(head), layer, head)
            logits = up.k[layer, head // up.group].double() @ up.q[layer, head, ROW].double()
            assert (b @ a - logits).abs().max() < 1e-9


def test_the_query_is_read_as_it_is_before_rotation(variant: str) -> None:
    """The definition: q before RoPE times G_d, and keys turned by the transposed rotation of the row."""
    model = tiny(variant, torch.float64)
    got = model.capture([prompts_of(9)[0]], heads=["L2H1"], want=("q_before_rope", "k"))
    up = PromptWrites(split(model, prompts_of(9)[0]), 0)
    basis = Bases.of(model).layer(2).at(1)
    a, b = _coordinates(up, basis, 2, 1)
    assert (got.q_before_rope[0, 0, ROW].double() @ basis.query_map - a).abs().max() < 1e-6
    keys, rotary = got.k[0, 0].double(), up.stream.rotary(2, 0)
    if rotary is not None:
        keys = rotary.at_positions([ROW] * len(keys)).transposed(keys[None, None])[0, 0]
    assert (keys @ basis.key_map.mT - b).abs().max() < 1e-9


def _moved(stream: Stream, by: Tensor) -> Stream:
    """The same stream with every query, key and rotation turned on by one more rotation, as if begun later."""
    layers = []
    for record in stream.layers:
        rotary = record.rotary
        assert rotary is not None
        half = rotary.cos.shape[-1] // 2
        angle = torch.cat((by[:half], by[:half])).to(record.call.query)
        cos, sin = rotary.cos.double(), rotary.sin.double()
        later = Rotary(cos * angle.cos() - sin * angle.sin(), sin * angle.cos() + cos * angle.sin())
        turn = Rotary(angle.cos().expand_as(rotary.cos), angle.sin().expand_as(rotary.sin))
        call = replace(record.call, query=turn.turn(record.call.query), key=turn.turn(record.call.key))
        layers.append(replace(record, call=call, rotary=later))
    return Stream(stream.model, stream.batch, layers, stream.final)


@cache
def _bases(name: str, kind: str) -> Bases:
    return _bases_of(tiny(name, torch.float64), kind)


def _bases_of(model: Model, kind: str) -> Bases:
    """Of a tiny model; balanced ones from moments over random tokens."""
    if kind != "balanced":
        return Bases.of(model, kind)  # pyright: ignore[reportArgumentType]
    halves = {("random", half): collect_moments(model, prompts_of(*[40] * 4, seed=half)) for half in (0, 1)}
    corpus = Corpus("random", ("tokens",) * 8, ("random",) * 8)
    measured = module._calibration(model, corpus, halves)  # pyright: ignore[reportPrivateUsage]
    assert float(measured.moments.cells.max()) >= TOO_FEW * model.d_head
    return Bases.of(model, "balanced", calibration=measured)


@pytest.mark.parametrize("kind", ["singular", "balanced"])
@pytest.mark.parametrize("name", ROTATED)
def test_turning_queries_and_keys_alike_changes_no_coordinate_no_signal_and_no_circuit(
    name: str, kind: str
) -> None:
    model = tiny(name, torch.float64)
    stream = split(model, prompts_of(9)[0])
    width = model.d_head
    moved = _moved(stream, 3.0 * torch.rand(width, generator=torch.Generator().manual_seed(1)))
    bases = _bases(name, kind)
    here, there = PromptWrites(stream, 0, bases), PromptWrites(moved, 0, bases)
    assert (here.q - there.q).abs().max() > 0.1
    for head in range(model.n_heads):
        basis = bases.layer(3).at(head)
        for one, other in zip(
            _coordinates(here, basis, 3, head), _coordinates(there, basis, 3, head), strict=True
        ):
            assert (one - other).abs().max() < 1e-9
    cells = [Cell(model.head((3, head)), ROW, key) for head in range(model.n_heads) for key in (1, 5)]
    cells = [cell for cell in cells if bool(here.visible(3)[cell.query, cell.key])]
    rules = Rules(tau=0.02)
    found = [LayerSearch(up.bases, 3, rules, up.dtype).run(up, cells) for up in (here, there)]
    assert sum(_same(one, other) for one, other in zip(*found, strict=True)) > 10
    rules = Rules(mlps=MLPRules())
    answer = max(range(model.vocabulary), key=lambda token: chosen_seeds(here, token, None)[1])
    one, other = (
        trace_down(model, [up], [chosen_seeds(up, answer, None)[0]], rules)[0] for up in (here, there)
    )
    assert one.seeds and [seed.component for seed in one.seeds] == [seed.component for seed in other.seeds]
    assert list(one.attention) == list(other.attention)
    assert list(one.attention.values()) == pytest.approx(list(other.attention.values()), abs=1e-9)
    assert list(one.signals) == list(other.signals)
    for firing, sides in one.signals.items():
        _same(sides, other.signals[firing])
    assert [(p.mlp, p.position, p.writer) for p in one.parts] == [
        (p.mlp, p.position, p.writer) for p in other.parts
    ]
    assert [p.weight for p in one.parts] == pytest.approx([p.weight for p in other.parts], abs=1e-9)


def _same(one: dict[Side, SideSignals], other: dict[Side, SideSignals]) -> int:
    """How many signals were compared."""
    for side in one:
        assert one[side].signals == other[side].signals
        for a, b in zip(one[side].removed, other[side].removed, strict=True):
            assert a.drop == pytest.approx(b.drop, abs=1e-9)
            assert a.strengths == pytest.approx(b.strengths, abs=1e-8)
    return sum(map(len, one.values()))


@pytest.mark.parametrize("kind", ["singular", "balanced"])
@pytest.mark.parametrize("name", ROTATED)
def test_a_model_that_runs_later_gives_the_same_coordinates(name: str, kind: str) -> None:
    model = tiny(name, torch.float32, settings={"max_position_embeddings": 1024})
    bases = _bases_of(model, kind)
    here = PromptWrites(split(model, prompts_of(9)[0]), 0, bases)
    for start in (1, 20, 500):
        there = PromptWrites(split(model, prompts_of(9)[0], start=start), 0, bases)
        for layer in (0, 3):
            basis = bases.layer(layer).at(1)
            both = (_coordinates(up, basis, layer, 1) for up in (here, there))
            for one, other in zip(*both, strict=True):
                assert (one - other).abs().max() <= 1e-4 * one.abs().max(), (start, layer)


def test_in_the_absolute_frame_the_same_turn_moves_the_channels() -> None:
    """What the query's frame is for: this is the published tracer's behaviour."""
    model = tiny("llama", torch.float64)
    stream = split(model, prompts_of(9)[0])
    moved = _moved(stream, 3.0 * torch.rand(model.d_head, generator=torch.Generator().manual_seed(1)))
    basis = Basis.of(model, "L3H0", frame="absolute")
    (a, _), (moved_a, _) = (_coordinates(PromptWrites(s, 0), basis, 3, 0) for s in (stream, moved))
    assert (a - moved_a).abs().max() > 1e-2


def test_maps_stay_inverse_where_a_model_scales_its_rotation() -> None:
    """YaRN's rotation is not orthogonal: R⁻ᵀ and Rᵀ are not the same."""
    model = tiny("llama-yarn", torch.float64)
    stream = split(model, prompts_of(9)[0])
    rotary = stream.rotary(1, 0)
    assert rotary is not None
    assert ((rotary.cos.square() + rotary.sin.square()) - 1).abs().max() > 1e-3
    basis = Bases.of(model).layer(1)
    maps = turned_maps(rotary.at_positions([ROW]), basis.query_map, basis.key_map)
    assert (maps[0] @ maps[1] - torch.eye(model.d_head)).abs().max() < 1e-10


def test_a_basis_names_itself(variant: str) -> None:
    model: Model = tiny(variant)
    names = {
        Bases.of(model, kind, frame=frame).name  # pyright: ignore[reportArgumentType]
        for kind in ("singular", "rotated")
        for frame in ("query", "absolute")
    }
    assert len(names) == 4
    assert Basis.of(model, "L1H0").name == Bases.of(model).name
    assert bool(Basis.of(model, "L1H0").stable.all())  # of the weights alone: no text can change it


@pytest.mark.parametrize(
    ("kind", "frame", "message"),
    [
        ("pca", "query", "basis 'pca' is not a basis"),
        ("singular", "key", "frame 'key' is not a frame"),
        ("balanced", "absolute", "a balanced basis is measured in the query's frame"),
    ],
)
def test_bad_choices_are_one_line(kind: str, frame: str, message: str) -> None:
    with pytest.raises(HeadwiseError, match=message) as error:
        Bases.of(tiny("llama"), kind, frame=frame)  # pyright: ignore[reportArgumentType]
    assert "\n" not in str(error.value)
