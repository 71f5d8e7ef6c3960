"""Edits do what they say, to the head they name, and the edited pass is the one attention written out would give."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import obvious_forward, worst
from tiny import prompts_of, tiny

from headwise import AddVectors, RemoveWithin, SetVectors, Subspace, SwapWithin
from headwise.errors import HeadwiseError
from headwise.model.edits import Edit, VectorEdit
from headwise.model.model import Model
from headwise.types import Head

IDS = prompts_of(10)[0]


def _subspace(model: Model, rank: int, seed: int = 0) -> Subspace:
    generator = torch.Generator().manual_seed(seed)
    return Subspace.spanned_by(torch.randn(model.d_head, rank, generator=generator, dtype=model.dtype))


def _edits(model: Model) -> list[VectorEdit]:
    generator = torch.Generator().manual_seed(1)
    vector = torch.randn(model.d_head, generator=generator, dtype=model.dtype)
    several = torch.randn(2, model.d_head, generator=generator, dtype=model.dtype)
    return [
        SwapWithin(head=Head(0, 1), first=9, second=7, subspace=_subspace(model, 2)),
        SetVectors(head=Head(1, 3), side="query", positions=-1, value=vector),
        AddVectors(head=Head(1, 3), positions=[6, 8], value=several),
        RemoveWithin(head=Head(2, 0), side="query", subspace=_subspace(model, 3, seed=2)),
        SwapWithin(head=Head(2, 0), first=8, second=9, dose=0.5),
        SwapWithin(head=Head(2, 2), first=8, second=9),
    ]


def _written_out(edits: list[VectorEdit]):
    def edit(layer: int, queries: torch.Tensor, keys: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        queries, keys = queries.clone(), keys.clone()
        for each in edits:
            if each.head.layer == layer:
                target = queries if each.side == "query" else keys
                target[each.head.index] = each.apply(target[each.head.index])
        return queries, keys

    return edit


@pytest.mark.parametrize("padding", ["right", "left"])
def test_many_edits_in_one_pass_equal_attention_written_out(model: Model, exact: float, padding: str) -> None:
    edits = _edits(model)
    prompts = [IDS, prompts_of(14, seed=3)[0]]
    after = model.edit(prompts, edits, heads=model.heads, logits=None, padding=padding)  # pyright: ignore[reportArgumentType]
    for number, ids in enumerate(prompts):
        logits, _, _, patterns = obvious_forward(model, ids, _written_out(edits))
        untouched, _, _, _ = obvious_forward(model, ids)
        assert worst(after.logits[number, : len(ids)], logits) <= exact
        assert worst(after.pattern[number, :, : len(ids), : len(ids)], torch.cat(patterns)) <= exact
        assert worst(logits, untouched) > 1e-3  # the edits matter, so that the agreement means something


def test_an_edit_names_its_prompt(model: Model, exact: float) -> None:
    prompts = [IDS, IDS, IDS]
    edit = SwapWithin(head=Head(0, 1), first=9, second=7, prompt=1)
    after = model.edit(prompts, [edit], batch_size=2).logits
    before = model.capture(prompts, heads=(), logits="last").logits
    assert worst(after[[0, 2]], before[[0, 2]]) <= exact
    assert worst(after[1], before[1]) > 1e-4


@pytest.mark.parametrize("padding", ["right", "left"])
def test_copies_of_one_prompt_share_the_layers_below_their_edits(
    model: Model, exact: float, padding: str
) -> None:
    edits: list[Edit] = [
        SwapWithin(head=Head(2, 0), first=8, second=9, prompt=1),
        AddVectors(head=Head(3, 1), positions=7, value=torch.ones(model.d_head), seen_by=9, prompt=2),
        SetVectors(head=Head(2, 3), side="query", positions=-1, value=torch.ones(model.d_head), prompt=2),
    ]
    ran: list[int] = []
    hooks = [
        layer.register_forward_pre_hook(lambda _, args, number=number: ran.append(args[0][..., 0].numel()))
        for number, layer in enumerate(model.anatomy.layers)
    ]
    heads = [Head(2, 0), Head(3, 1)]
    together = model.edit([IDS] * 3, edits, heads=heads, queries=-1, padding=padding)  # pyright: ignore[reportArgumentType]
    for hook in hooks:
        hook.remove()
    # Positions 8 on are there three times from layer 2 on; hooks see layer 2 before or after its copies are made.
    one, packed = len(IDS), 8 + 3 * (len(IDS) - 8)
    assert ran in ([one, one, one, packed], [one, one, packed, packed])
    for number in range(3):
        own = [replace(edit, prompt=None) for edit in edits if edit.prompt == number]
        alone = model.edit([IDS], own, heads=heads, queries=-1)
        assert worst(together.logits[number], alone.logits[0]) <= exact
        assert worst(together.pattern[number], alone.pattern[0]) <= exact
    assert max(worst(together.logits[n], together.logits[0]) for n in (1, 2)) > 1e-4


def test_neighbours_that_share_a_key_keep_it(model: Model, exact: float) -> None:
    layer = [Head(1, index) for index in range(model.n_heads)]
    edit = SetVectors(head=Head(1, 0), positions=[7, 8, 9], value=torch.ones(model.d_head))
    before = model.capture([IDS], heads=layer, want=("pattern",)).pattern
    after = model.edit([IDS], [edit], heads=layer, logits="none").pattern
    assert worst(after[:, 1:], before[:, 1:]) <= exact
    assert worst(after[:, 0], before[:, 0]) > 1e-3


def test_keys_seen_by_one_row_change_that_row_alone(model: Model, exact: float) -> None:
    head = Head(1, 2)
    value = torch.linspace(-1, 1, model.d_head)
    whole = AddVectors(head=head, positions=[7, 9], value=value)
    limited = AddVectors(head=head, positions=[7, 9], value=value, seen_by=9)
    request = {"heads": [head], "want": ("pattern",), "logits": None}
    everywhere = model.edit([IDS], [whole], **request)
    one_row = model.edit([IDS], [limited], **request)
    before = model.edit([IDS], [], **request)
    assert worst(one_row.pattern[0, 0, :9], before.pattern[0, 0, :9]) <= exact
    assert worst(one_row.pattern[0, 0, 9], everywhere.pattern[0, 0, 9]) <= exact
    assert worst(one_row.logits[0, 9], everywhere.logits[0, 9]) > 0 or model.n_layers == 2
    assert worst(one_row.logits[0, :9], before.logits[0, :9]) <= exact
    # limited to every row that sees them, it is the whole edit again
    all_rows = AddVectors(head=head, positions=[7, 9], value=value, seen_by=list(range(10)))
    again = model.edit([IDS], [all_rows], **request)
    assert worst(again.pattern, everywhere.pattern) <= exact
    assert worst(again.logits, everywhere.logits) <= exact


@settings(max_examples=30, deadline=None)
@given(
    length=st.integers(2, 8),
    width=st.integers(2, 9),
    data=st.data(),
    dose=st.floats(0, 1),
    seed=st.integers(0, 99),
)
def test_swaps_conserve_what_they_move(
    length: int, width: int, data: st.DataObject, dose: float, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    vectors = torch.randn(length, width, generator=generator, dtype=torch.float64)
    first, second = data.draw(st.permutations(range(length)))[:2]
    rank = data.draw(st.integers(1, width))
    subspace = Subspace.spanned_by(torch.randn(width, rank, generator=generator, dtype=torch.float64))
    swap = SwapWithin(head=Head(0, 0), first=first, second=second, subspace=subspace)
    once, twice = swap.apply(vectors), swap.apply(swap.apply(vectors))
    part = SwapWithin(head=Head(0, 0), first=first, second=second, subspace=subspace, dose=dose).apply(
        vectors
    )
    assert torch.allclose(twice, vectors)
    assert torch.allclose(part.sum(0), vectors.sum(0))
    assert torch.allclose(subspace.project(once[first]), subspace.project(vectors[second]))
    others = [i for i in range(length) if i not in (first, second)]
    assert torch.equal(once[others], vectors[others])
    outside = once - subspace.project(once)
    assert torch.allclose(outside, vectors - subspace.project(vectors))


def test_two_models_and_threads_do_not_mix() -> None:
    models = [tiny("llama"), tiny("gemma2", seed=1), tiny("gpt2")]
    expected = [model.capture([IDS], want=("pattern",), logits="last") for model in models]
    wrong: list[str] = []

    def work(number: int) -> None:
        model = models[number % 3]
        for turn in range(8):
            if turn % 2:
                seen = model.capture([IDS], want=("pattern",), logits="last")
                if not torch.allclose(seen.pattern, expected[number % 3].pattern, atol=1e-5):
                    wrong.append(f"capture in thread {number}")
            else:
                with torch.no_grad():
                    bare = model.hf(torch.tensor([IDS])).logits[0, -1]
                if not torch.allclose(bare, expected[number % 3].logits[0, 0], atol=1e-4):
                    wrong.append(f"bare model in thread {number}")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_wrong_edits_get_one_line() -> None:
    model = tiny("llama")
    cases: dict[str, Edit] = {
        "L7H0 does not exist": SwapWithin(head=Head(7, 0), first=0, second=1),
        "L1H0 key position 10 is outside prompt 0": SwapWithin(head=Head(1, 0), first=0, second=10),
        "the vector has 3 dimensions but the head has 8": SetVectors(
            head=Head(1, 0), positions=0, value=torch.zeros(3)
        ),
        r"Subspace\(rank=1, d_head=3\) does not fit a head of 8": RemoveWithin(
            head=Head(1, 0), subspace=Subspace.spanned_by(torch.eye(3)[:, :1])
        ),
        "an edit names prompt 4 but there are 1 prompts": SwapWithin(
            head=Head(1, 0), first=0, second=1, prompt=4
        ),
    }
    for message, edit in cases.items():
        with pytest.raises(HeadwiseError, match=message):
            model.edit([IDS], [edit])
    with pytest.raises(HeadwiseError, match="'value' is not a side"):
        SwapWithin(head=Head(0, 0), side="value", first=0, second=1)  # pyright: ignore[reportArgumentType]
    with pytest.raises(HeadwiseError, match="seen_by limits edits of keys"):
        SwapWithin(head=Head(0, 0), side="query", first=0, second=1, seen_by=1)
