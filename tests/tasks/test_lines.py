"""Files of prompts: a line is what ends with a line feed, and whatever is in it, a refusal is one short line."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from fuzzing import NO_FILES, ends_well, line_is_fit, mutated
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from toy_answers import answer_lines
from words import word_tokenizer

from headwise.errors import HeadwiseError
from headwise.sinks.texts import read_texts
from headwise.tasks.answers.types import AnswerSet, read_answers
from headwise.tasks.labelled.jsonl import read_jsonl
from headwise.toy.language import tokenizer as toy_tokenizer

GOOD = answer_lines(4)
quick = settings(
    deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


def written(folder: Path, lines: list[Any], ending: str = "\n") -> Path:
    path = folder / "mine.jsonl"
    text = ending.join(
        line if isinstance(line, str) else json.dumps(line, ensure_ascii=False) for line in lines
    )
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    return path


@pytest.mark.parametrize("odd", ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\x1e"])
def test_a_line_ends_at_a_line_feed_alone(tmp_path: Path, odd: str) -> None:
    labelled = {**GOOD[0], "labels": {"order": f"a{odd}b"}}
    raw = json.dumps(labelled, ensure_ascii=odd < " ")
    made = read_answers(written(tmp_path, [raw, GOOD[1]]), toy_tokenizer())
    assert made.prompts[0].labels == {"order": f"a{odd}b"} and len(made) == 2
    (tmp_path / "texts.txt").write_text(f"one{odd}text\nanother\n", encoding="utf-8", newline="\n")
    assert read_texts(tmp_path / "texts.txt") == [f"one{odd}text", "another"]


def test_other_line_ends_and_a_byte_order_mark_are_read(tmp_path: Path) -> None:
    plain = read_answers(written(tmp_path, GOOD), toy_tokenizer())
    assert read_answers(written(tmp_path, [*GOOD, "", " \t"], "\r\n"), toy_tokenizer()) == plain
    path = written(tmp_path, GOOD)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert read_answers(path, toy_tokenizer()) == plain


ONE = json.dumps(GOOD[0])[:-1]
HOSTILE = {
    ONE + ', "prompt": "again"}': "not JSON (key 'prompt' occurs twice)",
    ONE[: ONE.index('"labels"')] + '"labels": {"a": NaN}}': "not JSON (NaN is not a number in JSON)",
    ONE[: ONE.index('"labels"')] + '"labels": {"a": 1e999}}': "not JSON (the number 1e999 is too large)",
    ONE[: ONE.index('"labels"')]
    + '"labels": {"a": "\\ud800"}}': "not JSON (a text holds half of a surrogate pair)",
    ONE[: ONE.index('"labels"')]
    + '"labels": {"a": '
    + "9" * 4300
    + "}}": "not JSON (a number has 4300 digits)",
    '{"prompt": ' + "[" * 100_000: "not JSON (it is nested too deeply)",
    '{"prompt": "a\\u0000b", "answer": "b"}': "prompt: it holds a NUL character (at 1): remove it",
    json.dumps({**GOOD[0], "x" * 10_000: 1}): "unknown field 'xxxx",
}


@pytest.mark.parametrize("line", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_lines_are_one_line(tmp_path: Path, line: str) -> None:
    with pytest.raises(HeadwiseError) as caught:
        read_answers(written(tmp_path, [GOOD[1], line]), toy_tokenizer())
    assert f"has a bad line: line 2: {HOSTILE[line]}" in str(caught.value)
    line_is_fit(str(caught.value))


def test_twenty_thousand_bad_lines_are_one_short_line_with_their_number(tmp_path: Path) -> None:
    with pytest.raises(
        HeadwiseError, match=r"has 20,000 bad lines: line 1: .* and 19,\d\d\d others$"
    ) as caught:
        read_answers(written(tmp_path, ['{"prompt": "anna"}'] * 20_000), toy_tokenizer())
    line_is_fit(str(caught.value))


@pytest.mark.parametrize("content", NO_FILES)
def test_files_that_hold_no_prompts_are_one_line(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_bytes(content)
    for read in (partial(read_answers, path, toy_tokenizer()), partial(read_jsonl, path, word_tokenizer())):
        with pytest.raises(HeadwiseError) as caught:
            read()
        line_is_fit(str(caught.value))


def test_what_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "absent.jsonl", "a\0b"):
        for read in (partial(read_answers, place, toy_tokenizer()), partial(read_texts, Path(place))):
            with pytest.raises(HeadwiseError, match="cannot be read"):
                read()


def as_given(made: AnswerSet, lines: list[Any]) -> bool:
    return [(p.prompt, p.answer, p.wrong, dict(p.labels)) for p in made.prompts] == [
        (
            one["prompt"],
            one["answer"],
            one.get("wrong"),
            {k: str(v) for k, v in one.get("labels", {}).items()},
        )
        for one in lines
    ]


@quick
@given(changed=st.sampled_from(GOOD).flatmap(mutated))
@pytest.mark.slow
def test_a_changed_line_is_read_as_it_is_or_refused(tmp_path: Path, changed: Any) -> None:
    lines = [GOOD[0], json.dumps(changed), GOOD[1]]
    made = ends_well("answers.jsonl", partial(read_answers, written(tmp_path, lines), toy_tokenizer()))
    if made is not None:
        assert as_given(made, [GOOD[0], changed, GOOD[1]])
