"""What may be given as a prompt, a head or a position; all else is one line, never the wrong numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from tiny import tiny

import headwise
from headwise.bases.cell import split_cell
from headwise.contrast.attribution import attribute_prompt
from headwise.contrast.bank import FeatureBank
from headwise.errors import HeadwiseError
from headwise.model.batch import Batch
from headwise.model.check import examine
from headwise.model.model import Model
from headwise.types import Head
from headwise.why.attention import strongest_heads

IDS = [5, 9, 7, 3, 9]


def refusal(call: Callable[[], Any]) -> str:
    with pytest.raises(HeadwiseError) as caught:
        call()
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.fixture(scope="module")
def gpt2() -> Model:
    return tiny("gpt2")


@pytest.mark.parametrize(
    "same",
    [
        tuple(IDS),
        torch.tensor(IDS),
        torch.tensor(IDS, dtype=torch.uint8),
        np.array(IDS),
        [np.int64(one) for one in IDS],
        list(torch.tensor(IDS)),
    ],
)
def test_token_ids_of_every_integer_type(gpt2: Model, same: Any) -> None:
    expected = gpt2.capture(IDS).q
    assert torch.equal(gpt2.capture(same).q, expected)
    assert torch.equal(gpt2.capture([same]).q, expected)
    assert gpt2.prompt_ids(same) == IDS


def test_several_prompts_as_one_array(gpt2: Model) -> None:
    assert gpt2.token_ids(torch.tensor([IDS, IDS])) == gpt2.token_ids([IDS, np.array(IDS)]) == [IDS, IDS]


@pytest.mark.parametrize(
    ("prompt", "line"),
    [
        (
            [5, 61],
            "token 61 at position 1 of prompt 0 is not in the model's vocabulary, which has tokens 0 to 60",
        ),
        ([5, -1], "token -1 at position 1 of prompt 0 is not in the model's vocabulary"),
        ([5, 2**70], "token 1180591620717411303424 at position 1"),
        ([5, 10**5000], "token a number of thousands of digits at position 1"),
        ([5, 2.7], "2.7 at position 1 of prompt 0 is not a token id: ids are whole numbers"),
        ([5, 2.0], "2.0 at position 1"),
        ([5, True], "True at position 1"),
        ([True, False], "True at position 0"),
        ([5, None], "None at position 1"),
        ([5, "a"], "'a' at position 1"),
        (np.array([1.0, 2.0]), "1.0 at position 0"),
        (torch.tensor([True, False]), "tensor(True) at position 0"),
        (torch.zeros(1, 2, 3, dtype=torch.long), "prompt 0 has shape [2, 3]"),
        (torch.tensor(3), "prompt 0 has shape []"),
        (b"\x05\x09", "b'\\x05\\t' is not a prompt: give text or a list of token ids"),
        ({5: 9}, "{5: 9} is not a prompt"),
        (None, "None is not a prompt"),
        (5, "5 is not a prompt"),
        ([[5, 9], None], "None is not a prompt"),
        ("text", "this model has no tokenizer: give prompts as token ids"),
    ],
)
def test_what_is_no_prompt(gpt2: Model, prompt: Any, line: str) -> None:
    assert line in refusal(lambda: gpt2.capture(prompt))
    assert line in refusal(lambda: gpt2.split(prompt))


class Words:
    """A tokenizer of which every letter is a token; it knows letters that the model does not."""

    unk_token_id = None

    def __call__(self, text: str, **_: Any) -> Any:
        return type(
            "Encoded", (), {"input_ids": [ord(letter) - ord("a") for letter in text if letter.isalpha()]}
        )

    def decode(self, ids: list[int]) -> str:
        return "".join(chr(one + ord("a")) for one in ids)


def test_text_that_the_tokenizer_cannot_turn_into_the_models_tokens() -> None:
    model = Model(tiny("gpt2").hf, Words(), name="letters")
    assert model.tokens("abc") == ["a", "b", "c"]
    assert "makes no token of the prompt, '123'" in refusal(lambda: model.tokens("123"))
    assert "the tokenizer is of another model" in refusal(lambda: model.capture("aé"))
    assert "is not valid text (character 3 is half of a pair)" in refusal(lambda: model.capture("caf\udce9"))
    assert "is not valid text" in refusal(lambda: headwise.trace(model, "abc", answer="\ud800"))


ONE_PROMPT: dict[str, Callable[[Model, Any], Any]] = {
    "explain": headwise.explain,
    "tokens": lambda model, prompt: model.tokens(prompt),
    "prompt_ids": lambda model, prompt: model.prompt_ids(prompt),
    "look": strongest_heads,
    "channels": lambda model, prompt: split_cell(model, prompt, "L2H1", 4, 1),
    "attribute": lambda model, prompt: attribute_prompt(
        model, prompt, FeatureBank(task="t", model="m", weight_hash="", features=())
    ),
    "self-check": examine,
}


@pytest.mark.parametrize("call", ONE_PROMPT.values(), ids=list(ONE_PROMPT))
@pytest.mark.parametrize(
    "several", [["one text", "another"], ["one text"], [IDS, IDS], [IDS], torch.tensor([IDS])]
)
def test_a_list_where_one_prompt_is_meant_is_refused(gpt2: Model, call: Any, several: Any) -> None:
    assert f"one prompt is wanted here, not a list of {len(several)}" in refusal(lambda: call(gpt2, several))


def test_trace_knows_one_prompt_from_several(gpt2: Model) -> None:
    one: Any = torch.tensor(IDS)
    assert isinstance(headwise.trace(gpt2, one), headwise.Circuit)
    several: Any = [one]
    assert isinstance(headwise.trace(gpt2, several), list)
    half: Any = 2.5
    assert "answer 2.5 is not a token" in refusal(lambda: headwise.trace(gpt2, IDS, answer=half))
    seven: Any = np.int64(7)
    assert headwise.trace(gpt2, IDS, answer=seven).answer_id == 7


@pytest.mark.parametrize("heads", ["L2H1", "2.1", (2, 1), Head(2, 1), ["L2H1"], [(2, 1)], (np.int64(2), 1)])
def test_one_head_alone(gpt2: Model, heads: Any) -> None:
    seen = gpt2.capture(IDS, heads=heads, want="pattern")
    assert seen.heads == (Head(2, 1),)
    assert torch.equal(seen.pattern, gpt2.capture(IDS, want=("pattern",)).pattern[:, [9]])


@pytest.mark.parametrize(
    ("heads", "line"),
    [
        ((9, 9), "L9H9 does not exist"),
        ((-1, 0), "L-1H0 does not exist"),
        ((2, 1, 0), "'2' is not a head"),
        ([2, 1], "'2' is not a head: write it as L9H6"),
        ((True, 1), "'True' is not a head"),
        (7, "7 is not a head or a list of heads"),
        ("L" + "9" * 5000 + "H1", "is not a head"),
    ],
)
def test_what_is_no_head(gpt2: Model, heads: Any, line: str) -> None:
    assert line in refusal(lambda: gpt2.capture(IDS, heads=heads))


@pytest.mark.parametrize("queries", [np.int64(2), torch.tensor(2), np.array([2]), torch.tensor([[2]]), [[2]]])
def test_positions_of_every_integer_type(gpt2: Model, queries: Any) -> None:
    assert torch.equal(gpt2.capture(IDS, queries=queries).q, gpt2.capture(IDS, queries=2).q)


@pytest.mark.parametrize(
    ("queries", "line"),
    [
        (2.5, "query positions 2.5 are not whole numbers"),
        ([1, 2.5], "query position 2.5 is not a whole number"),
        (True, "query positions True are not whole numbers"),
        ("2", "query positions '2' are not whole numbers"),
        ([10**5000], "query position a number of thousands of digits is outside prompt 0"),
        ([[1], 2], "lists of query positions were given for 1 prompts"),
    ],
)
def test_what_is_no_position(gpt2: Model, queries: Any, line: str) -> None:
    assert line in refusal(lambda: gpt2.capture(IDS, queries=queries))


def test_heads_named_in_one_text_or_a_list(gpt2: Model) -> None:
    for named in ("L2H1, 0.3,L2H1", ["L2H1", (0, 3)], [Head(2, 1), "a0.h3"]):
        assert gpt2.heads_named(named) == [Head(2, 1), Head(0, 3)]
    assert gpt2.heads_named((2, 1)) == gpt2.heads_named(Head(2, 1)) == [Head(2, 1)]
    assert refusal(lambda: gpt2.heads_named([])) == (
        "no heads were named: give at least one, such as L18H6,L20H3"
    )
    assert "'' is not a head" in refusal(lambda: gpt2.heads_named("L2H1,"))
    assert "L9H9 does not exist" in refusal(lambda: gpt2.heads_named("L9H9"))


@pytest.mark.parametrize("padding", ["left", "right"])
def test_a_batch_knows_its_prompts_without_padding(padding: Any) -> None:
    prompts = [[5, 6, 7, 8], [9], [3, 3]]
    batch = Batch.of(prompts, padding)
    for number, prompt in enumerate(prompts):
        span = batch.span(number)
        assert batch.token_ids(number) == prompt == batch.ids[number, span].tolist()
        assert [batch.column(number, at) for at in range(len(prompt))] == list(range(span.start, span.stop))
