"""Prompts with answers: what the words and answers are for the tokenizer at hand, and what is refused."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
from fuzzing import line_is_fit
from toy_answers import answer_lines, write_lines

from headwise.errors import HeadwiseError
from headwise.tasks.answers import facts as facts_module
from headwise.tasks.answers import greater_than as years
from headwise.tasks.answers import ioi as ioi_module
from headwise.tasks.answers import pronouns as pronouns_module
from headwise.tasks.answers.make import ANSWER_TASKS, make_answers
from headwise.tasks.answers.types import AnswerPrompt, following, read_answers
from headwise.toy.language import tokenizer as toy_tokenizer


@lru_cache(maxsize=4)
def tokenizer(digits: str = "single", split_words: tuple[str, ...] = ()) -> Any:
    """Words as tokens, with their leading space; numbers split as asked: single digits, pairs, or left whole."""
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    pieces = {"single": r"\d", "pairs": r"\d{1,2}", "triples": r"\d{1,3}"}[digits]
    texts = [*ioi_module.WORDINGS, *years.WORDINGS, *pronouns_module.WORDINGS]
    texts += [w for ws in facts_module.WORDINGS.values() for w in ws]
    words = [*ioi_module.NAMES, *ioi_module.PLACES, *ioi_module.OBJECTS, *years.NOUNS, "he", "she"]
    words += [*pronouns_module.ADJECTIVES, *pronouns_module.ROLES]
    words += [n for ns in pronouns_module.NAMES.values() for n in ns]
    words += [w for known in facts_module.FACTS.values() for pair in known.items() for w in pair]
    split = pre_tokenizers.Split(Regex(r" ?[A-Za-z']+| ?" + pieces + r"|[^\sA-Za-z\d]| "), "isolated")
    found = [w for text in texts for begun in (text, f"x {text}") for w, _ in split.pre_tokenize_str(begun)]
    found += [f" {w}" for w in words] + list(words)
    found += [str(n) for n in range(10)] + [f" {n}" for n in range(10)]
    if digits == "pairs":
        found += [f"{s}{n:02d}" for n in range(100) for s in ("", " ")]
    if digits == "triples":
        found += [f"{s}{n:03d}" for n in range(1000) for s in ("", " ")]
    kept = [w for w in dict.fromkeys(found) if w.strip() not in split_words]
    vocabulary = {w: i for i, w in enumerate(["<unk>", *kept])}
    made = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    made.pre_tokenizer = split  # pyright: ignore[reportAttributeAccessIssue]
    return PreTrainedTokenizerFast(tokenizer_object=made, unk_token="<unk>")


@pytest.mark.parametrize("name", ANSWER_TASKS)
def test_answers_follow_their_prompts_as_one_token(name: str) -> None:
    words = tokenizer()
    made = make_answers(name, words, prompts=90)
    assert len(made) == 90
    assert len({p.prompt for p in made.prompts}) == 90
    assert not made.notes
    for prompt in made.prompts:
        assert prompt.wrong is not None
        answer, wrong = (following(words, prompt.prompt, text) for text in (prompt.answer, prompt.wrong))
        assert answer == (prompt.answer_id,)
        assert wrong == (prompt.wrong_id,)
        assert prompt.answer_id != prompt.wrong_id
        assert prompt.labels["wording"]
        assert prompt.labels == {str(k): str(v) for k, v in prompt.labels.items()}


@pytest.mark.parametrize("name", ANSWER_TASKS)
def test_a_seed_gives_its_prompts_and_more_begin_with_fewer(name: str) -> None:
    words = tokenizer()
    many = make_answers(name, words, prompts=60, seed=3)
    assert make_answers(name, words, prompts=60, seed=3) == many
    assert make_answers(name, words, prompts=20, seed=3).prompts == many.prompts[:20]
    other = make_answers(name, words, prompts=60, seed=4)
    assert other.prompts != many.prompts
    assert other.digest != many.digest


def test_ioi_fills_its_cells_evenly() -> None:
    made = make_answers("ioi", tokenizer(), prompts=75)
    cells = Counter((p.labels["wording"], p.labels["order"]) for p in made.prompts)
    assert len(cells) == 30
    assert set(cells.values()) == {2, 3}
    assert len(ioi_module.WORDINGS) == 15


def test_ioi_orders_differ_in_order_alone() -> None:
    made = make_answers("ioi", tokenizer(), prompts=60)
    assert {p.labels["order"] for p in made.prompts} == {"ABBA", "BABA"}
    for one, two in zip(made.prompts[::2], made.prompts[1::2], strict=True):
        assert (one.labels["order"], two.labels["order"]) == ("ABBA", "BABA")
        assert sorted(one.prompt) == sorted(two.prompt)
        assert (one.answer, one.wrong) == (two.answer, two.wrong)
    for p in made.prompts:
        answer, subject = p.labels["answer"], p.labels["subject"]
        text = p.prompt.replace(",", " ,").replace(".", " .").split()
        assert (text.count(answer), text.count(subject)) == (1, 2)
        assert (text.index(answer) < text.index(subject)) == (p.labels["order"] == "ABBA")


def test_ioi_uses_only_what_is_one_token() -> None:
    gone = ("Mary", "John", "store", "book")
    words = tokenizer(split_words=gone)
    made = make_answers("ioi", words, prompts=300)
    assert not any(word in p.prompt.split() for p in made.prompts for word in gone)


def year_of(p: AnswerPrompt) -> int:
    return int(p.labels["start"][2:])


def test_greater_than_asks_for_a_digit_where_digits_are_tokens() -> None:
    made = make_answers("greater-than", tokenizer("single"), prompts=200)
    for p in made.prompts:
        assert p.labels["split"] == "digits"
        answer, wrong = int(p.answer), int(p.wrong or "")
        # whatever the last digit, the year is later, or earlier
        assert min(answer * 10 + last for last in range(10)) > year_of(p)
        assert max(wrong * 10 + last for last in range(10)) < year_of(p)
        assert answer - year_of(p) // 10 == year_of(p) // 10 - wrong


def test_greater_than_asks_for_a_pair_where_pairs_are_tokens() -> None:
    made = make_answers("greater-than", tokenizer("pairs"), prompts=200)
    for p in made.prompts:
        assert p.labels["split"] == "pairs"
        assert int(p.answer) > year_of(p) > int(p.wrong or "")
        assert int(p.answer) - year_of(p) == year_of(p) - int(p.wrong or "")
        assert len(p.answer) == len(p.wrong or "") == 2


def test_greater_than_is_refused_where_years_are_split_otherwise() -> None:
    with pytest.raises(
        HeadwiseError, match=r"'greater-than' has no usable prompt .* neither into single digits"
    ):
        make_answers("greater-than", tokenizer("triples"), prompts=10)


def test_pronouns_agree_with_names() -> None:
    for p in make_answers("pronouns", tokenizer(), prompts=100).prompts:
        assert p.labels["name"] in pronouns_module.NAMES[p.answer.strip()]
        assert p.labels["name"] not in pronouns_module.NAMES[(p.wrong or "").strip()]


def test_facts_are_true_and_wrong_answers_false() -> None:
    made = make_answers("facts", tokenizer(), prompts=200)
    for p in made.prompts:
        known = facts_module.FACTS[p.labels["relation"]]
        assert known[p.labels["subject"]] == p.answer.strip() != (p.wrong or "").strip()
        assert p.answer not in p.prompt
    assert {p.labels["relation"] for p in made.prompts} == set(facts_module.FACTS)


def test_facts_of_several_tokens_stand_for_their_first() -> None:
    """In a tokenizer of letters every fact is several tokens."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    letters = {chr(i): i - 32 for i in range(32, 127)}
    made = Tokenizer(models.WordLevel(letters, unk_token="~"))
    made.pre_tokenizer = pre_tokenizers.Split("", "isolated")  # pyright: ignore[reportAttributeAccessIssue]
    words = PreTrainedTokenizerFast(tokenizer_object=made)
    with pytest.raises(HeadwiseError, match="'facts' has no usable prompt"):
        # after a space all begin with the same token, the space itself
        make_answers("facts", words, prompts=5)


def test_repeats_are_said_where_they_cannot_be_avoided() -> None:
    made = make_answers("facts", tokenizer(), prompts=2000)
    different = len({p.prompt for p in made.prompts})
    assert len(made) == 2000
    assert made.notes == (
        f"{2000 - different} prompts are repeated: the task has only {different} different ones for this tokenizer",
    )
    # none that can be had is left out
    possible = sum(
        len({w.format(x=s) for s in known if f" {known[s]}" not in w.format(x=s) and w.split().count(s) < 1})
        for kind, known in facts_module.FACTS.items()
        for w in facts_module.WORDINGS[kind]
    )
    assert different == possible


@pytest.mark.parametrize("name", ANSWER_TASKS)
def test_a_tokenizer_that_cannot_carry_a_task_is_refused(name: str) -> None:
    with pytest.raises(HeadwiseError, match=f"the task '{name}' has no usable prompt") as caught:
        make_answers(name, toy_tokenizer(), prompts=10)
    assert "\n" not in str(caught.value)


def test_wrong_requests_are_refused() -> None:
    with pytest.raises(HeadwiseError, match=r"no task 'iio': did you mean 'ioi'\?"):
        make_answers("iio", tokenizer())
    with pytest.raises(HeadwiseError, match=r"no task 'zzz': write ioi, greater-than"):
        make_answers("zzz", tokenizer())
    with pytest.raises(HeadwiseError, match=r"no file 'none\.jsonl'"):
        make_answers("none.jsonl", tokenizer())
    with pytest.raises(HeadwiseError, match="0 prompts cannot be traced"):
        make_answers("ioi", tokenizer(), prompts=0)
    with pytest.raises(HeadwiseError, match="no tokenizer"):
        make_answers("ioi", None)


# --- your own ---


def test_a_file_is_read(tmp_path: Path) -> None:
    lines = answer_lines(12)
    del lines[3]["wrong"], lines[4]["labels"]
    lines[5]["labels"] = {"fold": 2}
    made = read_answers(write_lines(tmp_path / "mine.jsonl", [*lines, ""]), toy_tokenizer())
    assert made.name == "mine"
    assert len(made) == 12
    assert made.prompts[3].wrong is made.prompts[3].wrong_id is None
    assert made.prompts[4].labels == {}
    assert made.prompts[5].labels == {"fold": "2"}
    first = made.prompts[0]
    assert toy_tokenizer().decode([first.answer_id]) == first.answer == lines[0]["answer"]
    assert len(read_answers(tmp_path / "mine.jsonl", toy_tokenizer(), 5)) == 5
    twice = read_answers(write_lines(tmp_path / "twice.jsonl", lines[:2] * 2), toy_tokenizer())
    assert twice.notes == ("2 prompts are repeated in the file",)


GOOD = answer_lines(1)[0]
BAD = [
    ("{", "not JSON"),
    ("[1]", "not a JSON object"),
    ({**GOOD, "extra": 1}, r"unknown field 'extra' \(known: prompt, answer, wrong, labels\)"),
    ({"prompt": "when anna"}, "the field 'answer' is missing"),
    ({**GOOD, "prompt": ""}, "prompt is empty"),
    ({**GOOD, "prompt": "a\x00b"}, r"prompt: it holds a NUL character \(at 1\): remove it"),
    ({**GOOD, "answer": "zebra"}, "answer 'zebra' is not in the model's vocabulary"),
    ({**GOOD, "answer": "anna ben"}, "answer 'anna ben' is 2 tokens"),
    ({**GOOD, "answer": 3}, "answer is 3, not text"),
    ({**GOOD, "wrong": ""}, "the wrong is empty"),
    ({**GOOD, "wrong": GOOD["answer"]}, "answer and wrong are the same token"),
    ({**GOOD, "labels": ["a"]}, r"labels is \['a'\], not an object"),
    ({**GOOD, "labels": {"a": {}}}, "labels.a: an object is not a label: give text or a number"),
    ({**GOOD, "labels": {"a": None}}, "labels.a: null is not a label"),
    ({**GOOD, "labels": {"a\nb": []}}, r"labels\['a\\nb'\]: \[\] is not a label"),
]


@pytest.mark.parametrize(("line", "reason"), BAD)
def test_a_bad_line_is_named_with_its_reason(tmp_path: Path, line: Any, reason: str) -> None:
    with pytest.raises(HeadwiseError, match=f"has a bad line: line 2: {reason}") as caught:
        read_answers(write_lines(tmp_path / "bad.jsonl", [GOOD, line]), toy_tokenizer())
    line_is_fit(str(caught.value))


def test_all_bad_lines_are_reported_at_once(tmp_path: Path) -> None:
    bad = [line for line, _ in BAD]
    with pytest.raises(HeadwiseError) as caught:
        read_answers(write_lines(tmp_path / "bad.jsonl", [GOOD, *bad]), toy_tokenizer())
    message = str(caught.value)
    line_is_fit(message)
    assert f"has {len(bad)} bad lines: line 2: not JSON" in message
    assert message.endswith("; also lines 8, 9, 10, 11, 12, 13, 14, 15, 16")


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(HeadwiseError, match="has no prompts"):
        read_answers(write_lines(tmp_path / "none.jsonl", [""]), toy_tokenizer())
