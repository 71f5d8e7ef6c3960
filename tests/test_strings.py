"""Text that looks like a number, numbers that are too long, seeds out of range: one line each."""

from __future__ import annotations

import pytest
import torch
from words import word_tokenizer

from headwise import HeadwiseError
from headwise.cli.features import task_options
from headwise.positions import find_positions
from headwise.randomness import seeded
from headwise.strings import natural
from headwise.tasks.labelled.make import make_task
from headwise.tasks.labelled.types import Contrast, Example
from headwise.tasks.names import check_answer_task, check_task_name
from headwise.toy.small_lm import LMSetup, build


@pytest.mark.parametrize("wanted", ["9" * 5000, "-" + "9" * 5000, 10**5000, "3", -4], ids=range(5))
def test_a_position_outside_the_prompt_is_one_short_line(wanted: str | int) -> None:
    with pytest.raises(HeadwiseError, match="is outside the prompt, which has 3 tokens") as error:
        find_positions(["a", "b", "c"], wanted)
    assert len(str(error.value)) < 200


@pytest.mark.parametrize("wanted", ["²", "١", "१", "--1", "1_0", "x" * 5000], ids=range(6))
def test_only_plain_digits_are_a_position(wanted: str) -> None:
    with pytest.raises(HeadwiseError, match="is not in the prompt") as error:
        find_positions(["a", "b", "c"], wanted)
    assert len(str(error.value)) < 200
    assert find_positions(["a", wanted, "c"], wanted) == [1]


@pytest.mark.parametrize("text", ["²", "①", "9" * 5000], ids=range(3))
def test_categories_are_a_plain_number_or_names(text: str) -> None:
    assert task_options("filter", categories="13") == {"categories": 13}
    with pytest.raises(HeadwiseError, match="is not known"):
        task_options("filter", categories=text)
    with pytest.raises(HeadwiseError, match="is not known"):
        make_task("filter", word_tokenizer(), categories=[text])


def test_labels_of_any_kind_have_an_order() -> None:
    labels = ["10", "b", "²", "9", "9" * 5000, "a"]
    examples = tuple(Example((1, 2, 3), 2, (0,), (1,), {"kind": label}) for label in labels)
    assert Contrast("c", examples).values("kind") == ["9", "10", "9" * 5000, "a", "b", "²"]
    assert sorted(["7", "07", "8", "007"], key=natural) == ["007", "07", "7", "8"]


@pytest.mark.parametrize("seed", [2**64, -(2**63) - 1])
def test_a_seed_out_of_range_is_one_line(seed: int) -> None:
    for use in (seeded, lambda seed: build(LMSetup(seed=seed))):
        with pytest.raises(HeadwiseError, match=f"seed {seed} is out of range"):
            use(seed)
    assert seeded(2**64 - 1).initial_seed() == 2**64 - 1
    assert torch.equal(
        torch.rand(3, generator=seeded(7)), torch.rand(3, generator=torch.Generator().manual_seed(7))
    )


@pytest.mark.parametrize("check", [check_task_name, check_answer_task])
@pytest.mark.parametrize("name", ["x" * 300 + ".jsonl", "a\x00b.jsonl"], ids=range(2))
def test_a_name_that_no_file_can_have_is_no_file(check, name: str) -> None:
    with pytest.raises(HeadwiseError, match="there is no file"):
        check(name)
