"""A batch that is spread over threads gives what it gives in one piece, and nobody else notices."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import combinations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pace import first_is_quick
from reference import worst
from tiny import prompts_of, tiny
from transformers.modeling_utils import AttentionInterface

from headwise.errors import HeadwiseError
from headwise.model import threads as spread
from headwise.model.attend import AttentionCall
from headwise.model.batch import Batch
from headwise.model.edits import AddVectors, Edit, RemoveWithin, SetVectors, SwapWithin
from headwise.model.forward import Instruments, Pass, forward, forward_all
from headwise.model.model import Model
from headwise.types import Head, Subspace

PROMPTS = prompts_of(9, 5, 12, 5, 9, 11, 7)
EVERYTHING = ("q", "k", "scores", "pattern", "q_before_rope", "k_before_rope")
EDITS: tuple[Edit, ...] = (
    SwapWithin(head=Head(1, 2), first=0, second=3),
    AddVectors(head=Head(0, 1), side="query", positions=-1, value=torch.linspace(-1, 1, 8), prompt=5),
    RemoveWithin(head=Head(2, 0), subspace=Subspace.spanned_by(torch.eye(8)[:, :3]), prompt=1, seen_by=-1),
)


@pytest.fixture(params=first_is_quick(2, 3))
def threads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Tiny prompts are worth a thread here, whatever the number of cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    monkeypatch.setattr(spread, "LEAST_TOKENS", 1)
    monkeypatch.setattr(spread, "FAIR", 2.0)
    yield request.param
    torch.set_num_threads(before)


def passes_of(model: Model, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """The thread and the number of prompts of every pass from here on."""
    seen: list[tuple[str, int]] = []
    whole = Batch.model_inputs

    def noted(self: Batch, device: torch.device) -> dict:
        seen.append((threading.current_thread().name, len(self)))
        return whole(self, device)

    monkeypatch.setattr(Batch, "model_inputs", noted)
    return seen


@pytest.mark.parametrize("padding", ["right", "left"])
def test_spread_equals_whole(
    model: Model, exact: float, padding: str, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    edits = EDITS if model.d_head == 8 else EDITS[:1]
    rows = [[-1, 0], [2], [3, 4, 1], [0], [-1], [1], [5, 2]]
    ask = dict(want=EVERYTHING, logits=None, padding=padding, queries=rows, batch_size=4)
    passes = passes_of(model, monkeypatch)
    runs = [model.edit(PROMPTS, edits, heads=model.heads, **ask)]  # pyright: ignore[reportArgumentType]
    assert {name.startswith("headwise") for name, _ in passes} == {True}
    assert sum(number for _, number in passes) == len(PROMPTS)
    monkeypatch.setattr(spread, "parts", lambda _model, lengths: [range(len(lengths))])
    runs.append(model.edit(PROMPTS, edits, heads=model.heads, **ask))  # pyright: ignore[reportArgumentType]
    spread_out, whole = runs
    assert spread_out.token_ids == whole.token_ids == PROMPTS
    assert spread_out.held.keys() == whole.held.keys()
    for name in ("query_positions", "key_positions", "visible", "scale"):
        assert torch.equal(getattr(spread_out, name), getattr(whole, name)), name
    for name, tensor in spread_out.held.items():
        if name == "scores":
            assert torch.equal(tensor.isinf(), whole.held[name].isinf())
        assert worst(tensor.nan_to_num(neginf=0.0), whole.held[name].nan_to_num(neginf=0.0)) <= exact, name


def test_a_stream_spreads_each_batch(threads: int) -> None:
    model = tiny("llama")
    whole = [model.capture([ids], want=("pattern",)) for ids in PROMPTS]
    for indices, seen in model.stream_capture(PROMPTS, want=("pattern",), batch_size=4):
        assert seen.token_ids == [PROMPTS[index] for index in indices]
        for here, index in enumerate(indices):
            length = len(PROMPTS[index])
            assert worst(seen.pattern[here, :, :length, :length], whole[index].pattern[0]) <= 1e-5


def test_the_number_of_threads_stays(threads: int) -> None:
    tiny("llama").capture(PROMPTS)
    later: list[int] = []
    new = threading.Thread(target=lambda: later.append(torch.get_num_threads()))
    new.start()
    new.join()
    assert [torch.get_num_threads(), *later] == [threads, threads]


def test_each_part_has_its_share_of_the_threads() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    try:
        assert spread.side_by_side([lambda _: torch.get_num_threads()] * 2) == [2, 2]
        assert spread.side_by_side([lambda _: torch.get_num_threads()] * 4) == [1, 1, 1, 1]
        assert torch.get_num_threads() == 4
        torch.set_num_threads(1)  # a machine with one core: the parts share it
        assert spread.side_by_side([lambda _: torch.get_num_threads()] * 2) == [1, 1]
    finally:
        torch.set_num_threads(before)


def test_steady_numbers_are_the_same_for_any_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same parts, each with one thread, whether they take turns or not."""
    monkeypatch.setattr(spread, "LEAST_TOKENS", 1)
    monkeypatch.setattr(spread, "FAIR", 2.0)
    model, before = tiny("llama"), torch.get_num_threads()
    whole, found = Batch.model_inputs, []
    for threads in (1, 2, 5):
        passes: list[tuple[str, int]] = []

        def noted(self: Batch, device: torch.device, passes: list[tuple[str, int]] = passes) -> dict:
            assert torch.get_num_threads() == 1
            passes.append((threading.current_thread().name, len(self)))
            return whole(self, device)

        monkeypatch.setattr(Batch, "model_inputs", noted)
        torch.set_num_threads(threads)
        try:
            with spread.steady(), spread.steady():  # one inside another changes nothing
                made = model.edit(PROMPTS * 4, EDITS, heads=model.heads, want=("scores",))
            assert torch.get_num_threads() == threads
        finally:
            torch.set_num_threads(before)
        assert {name == "MainThread" for name, _ in passes} == {threads == 1}
        found.append((sorted(number for _, number in passes), made))
    (cut, alone), *others = found
    assert len(cut) == spread.STEADY
    for other_cut, other in others:
        assert other_cut == cut
        assert torch.equal(other.scores, alone.scores) and torch.equal(other.logits, alone.logits)


def test_an_error_in_one_part_is_raised_and_leaves_nothing(threads: int) -> None:
    model = tiny("llama")
    wrong = SetVectors(head=Head(1, 0), positions=8, value=torch.zeros(8), prompt=1)
    before = dict(AttentionInterface._global_mapping), model.hf.config._attn_implementation
    with pytest.raises(HeadwiseError, match="key position 8 is outside"):
        model.edit(PROMPTS, [wrong])
    assert (dict(AttentionInterface._global_mapping), model.hf.config._attn_implementation) == before
    assert not any(module._forward_pre_hooks for module in model.hf.modules())


def test_a_failure_ends_the_other_parts_early() -> None:
    def fail(_: threading.Event) -> None:
        raise HeadwiseError("this part fails")

    def until_given_up(given_up: threading.Event) -> None:
        assert given_up.wait(timeout=60)

    with pytest.raises(HeadwiseError, match="this part fails"):
        spread.side_by_side([until_given_up, fail])


def test_an_interrupt_ends_all_parts_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """As when the user presses Ctrl-C while the caller waits."""
    model = tiny("llama")
    layers: list[int] = []
    first_layer, interrupted = threading.Event(), threading.Event()

    def observe(call: AttentionCall) -> None:
        layers.append(call.layer)
        first_layer.set()
        assert interrupted.wait(timeout=60)

    whole, waits = spread.wait, []

    def wait(futures: object, **how: object) -> object:
        waits.append(how)
        if len(waits) == 1:
            assert first_layer.wait(timeout=60)
            raise KeyboardInterrupt
        interrupted.set()
        return whole(futures, **how)  # pyright: ignore[reportArgumentType, reportCallIssue]

    monkeypatch.setattr(spread, "wait", wait)
    passes = [Pass(Batch.of([ids]), Instruments(observe=observe)) for ids in PROMPTS[:2]]
    with pytest.raises(KeyboardInterrupt):
        forward_all(model, passes)
    assert set(layers) == {0}, "a pass went on after the interrupt"
    assert model.hf.config._attn_implementation == "sdpa"


def test_what_threads_cannot_share_stays_whole(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny("llama")
    lengths = [9] * 6
    assert len(spread.parts(model, lengths)) == threads
    hook = model.hf.model.layers[0].register_forward_hook(lambda *_: None)
    assert len(spread.parts(model, lengths)) == 1, "a hook of the caller's"
    hook.remove()
    nameless = model.hf.model.layers[0].register_forward_hook([].append)
    assert len(spread.parts(model, lengths)) == 1, "a hook that comes from no module"
    nameless.remove()
    with torch.autocast("cpu"):
        assert len(spread.parts(model, lengths)) == 1, "autocast"
    for kind in ("dynamic", "longrope"):
        parameters = {"sliding_attention": {"rope_type": kind}, "full_attention": {"rope_type": "default"}}
        for one in (parameters, {"rope_type": kind}):
            with monkeypatch.context() as patch:
                patch.setattr(model.anatomy.config, "rope_parameters", one)
                assert len(spread.parts(model, lengths)) == 1, kind
    assert len(spread.parts(model, lengths)) == threads
    monkeypatch.setattr(spread, "LEAST_TOKENS", 40)
    assert len(spread.parts(model, lengths)) == 1, "too little to do"


def test_transformers_own_hooks_do_not_count(threads: int) -> None:
    model = tiny("llama")
    model.hf.set_attn_implementation("eager")
    model.hf(torch.tensor([[1, 2]]), output_attentions=True, output_hidden_states=True)
    assert any(module._forward_hooks for module in model.hf.modules()), "nothing was installed"
    assert len(spread.parts(model, [9] * 6)) == threads


def test_copies_of_one_prompt_share_their_lower_layers_instead(
    threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny("llama")
    passes = passes_of(model, monkeypatch)
    edits = [SwapWithin(head=Head(2, 0), first=0, second=number, prompt=number) for number in range(1, 6)]
    model.edit([PROMPTS[0]] * 6, edits)
    assert passes == [("MainThread", 6)]


def test_a_bare_pass_of_another_thread_passes_by_all_instruments() -> None:
    """It starts and ends in the middle of an instrumented one, whose hooks and edits would change it."""
    model = tiny("llama")
    ids = torch.tensor([PROMPTS[0]])
    with torch.no_grad():
        expected = model.hf(ids).logits
    found: list[torch.Tensor] = []

    def bare() -> None:
        with torch.no_grad():
            found.append(model.hf(ids).logits)

    def observe(call: object) -> None:
        if not found:
            other = threading.Thread(target=bare)
            other.start()
            other.join()

    def spoil(_module: object, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
        return (args[0] + 1.0, *args[1:]), kwargs

    instruments = Instruments(observe=observe, before=[(model.anatomy.layers[2], spoil)])
    spoilt = forward(model, Batch.of([PROMPTS[0]]), instruments, torch.tensor([[8]]))
    assert torch.allclose(found[0], expected, atol=1e-6)
    assert spoilt is not None
    assert not torch.allclose(spoilt[0, 0], expected[0, -1], atol=1e-3)


@given(st.lists(st.integers(1, 40), min_size=1, max_size=30).map(sorted), st.integers(2, 6))
def test_a_fair_cut_is_a_cut_and_fair(lengths: list[int], number: int) -> None:
    cut = spread.fair_cut(lengths, number)
    costs: dict[tuple[int, ...], int] = {}
    if len(lengths) <= 8:
        for ends in _ends(len(lengths), number):
            parts = zip((0, *ends), (*ends, len(lengths)), strict=True)
            costs[tuple(ends)] = max((end - start) * lengths[end - 1] for start, end in parts)
    if cut is None:
        assert all(cost * number > spread.FAIR * len(lengths) * lengths[-1] for cost in costs.values())
        return
    assert [place for part in cut for place in part] == list(range(len(lengths)))
    assert 1 < len(cut) <= number
    assert all(cut)
    longest = max(len(part) * lengths[part[-1]] for part in cut)
    assert longest * number <= spread.FAIR * len(lengths) * lengths[-1]
    assert not costs or longest == min(costs.values())


def _ends(prompts: int, number: int) -> Iterator[tuple[int, ...]]:
    """Every way to cut."""
    yield from combinations(range(1, prompts), number - 1)
