"""Your own prompts: marks, offsets, held-out groups, and every bad line at once."""

import json
import re
import time

import pytest
from fuzzing import line_is_fit
from hypothesis import given
from hypothesis import strategies as st
from words import word_tokenizer

from headwise.errors import HeadwiseError
from headwise.tasks.labelled.jsonl import read_jsonl, unmark

TOKENIZER = word_tokenizer()


def line(entity="jam", **changes):
    record = {
        "prompt": f"The {entity} is in Box [[right:A]]. The pen is in Box [[wrong:B]]. "
        f"The {entity} is in Box",
        "positive": ["right"],
        "negative": ["wrong"],
        "groups": {"entity": entity},
    }
    return {key: value for key, value in {**record, **changes}.items() if value is not None}


def write(path, records):
    path.write_text("\n".join(r if isinstance(r, str) else json.dumps(r) for r in records))
    return path


ENTITIES = ["jam", "hat", "cup", "key", "ring", "coin", "book", "lamp", "shoe"]


def test_marks_and_offsets_say_the_same(tmp_path):
    marked = [line(e) for e in ENTITIES]
    offsets = []
    for e in ENTITIES:
        plain = f"The {e} is in Box A. The pen is in Box B. The {e} is in Box"
        a, b = plain.index("A"), plain.index("B.")
        offsets.append(line(e, prompt=plain, positive=[[a, a + 1]], negative=[[b, b + 1]], query=-1))
    one, two = (
        read_jsonl(write(tmp_path / f"t{i}.jsonl", r), TOKENIZER) for i, r in enumerate((marked, offsets))
    )
    assert one.fits[0].examples == two.fits[0].examples
    first = one.fits[0].examples[0]
    assert [TOKENIZER.convert_ids_to_tokens(first.tokens[k]) for k in first.keys] == ["A", "B"]
    assert first.query == len(first.tokens) - 1


def test_groups_are_held_out(tmp_path):
    task = read_jsonl(write(tmp_path / "t.jsonl", [line(e) for e in ENTITIES * 2]), TOKENIZER)
    fitted = {e.groups["entity"] for e in task.fits[0].examples}
    tested = {e.groups["entity"] for e in task.test.examples}
    assert tested
    assert not fitted & tested
    assert task.held_out == ("entity",)


def test_several_features_make_a_union(tmp_path):
    records = [line(e, feature=f) for e in ENTITIES * 2 for f in ("order", "name")]
    task = read_jsonl(write(tmp_path / "t.jsonl", records), TOKENIZER)
    assert [c.name for c in task.fits] == ["order", "name"]
    assert task.unions == {"all features": ("order", "name")}


BAD = {
    2: ("{not json", "not JSON"),
    4: (line(positive=None), "the field 'positive' is missing"),
    5: (line(positive=[]), "the positive set is empty"),
    6: (line(negative=["nowhere"]), r"negative 'nowhere' is not a marked span \(marked: right, wrong\)"),
    7: (line(query=99), "query 99 is outside the prompt, which has 20 tokens"),
    8: (line(negative=["right"]), "position .* is both positive and negative"),
    9: (line(positive=[[5, 5000]]), r"positive \[5, 5000\] is outside the prompt, which has"),
    10: (line(colour="red"), "unknown field 'colour'"),
    11: (line(query=True), "query: true is neither the name of a marked span nor a pair of characters"),
    12: (line(query=10**30), "query 1000000000000000000000000000000 is outside"),
    13: (line(positive=[[0.5, 1]]), r"positive\[0\]: \[0.5, 1\] is neither"),
    14: (line(feature="f" * 1001), "feature has 1001 characters: at most 1000 are read"),
    15: (line(groups={"entity": None}), "groups.entity: null is not a label"),
}


@pytest.mark.parametrize("number", BAD)
def test_a_bad_line_is_named_with_its_reason(tmp_path, number):
    records = [BAD[number][0] if i == number else line() for i in range(1, 16)]
    with pytest.raises(HeadwiseError, match=f"has a bad line: line {number}: {BAD[number][1]}") as raised:
        read_jsonl(write(tmp_path / "t.jsonl", records), TOKENIZER)
    line_is_fit(str(raised.value))


def test_all_bad_lines_are_reported_at_once(tmp_path):
    records = [BAD[i][0] if i in BAD else line() for i in range(1, 16)]
    with pytest.raises(HeadwiseError) as raised:
        read_jsonl(write(tmp_path / "t.jsonl", records), TOKENIZER)
    message = str(raised.value)
    line_is_fit(message)
    assert "13 bad lines: line 2: not JSON" in message
    assert message.endswith("; also lines 8, 9, 10, 11, 12, 13, 14, 15")


def test_marks_are_read_in_time_that_grows_with_the_text():
    started = time.perf_counter()
    assert unmark("[[a:" * 50_000) == ("[[a:" * 50_000, {})
    assert time.perf_counter() - started < 1
    assert unmark("[[a:x\ny]] [[b:[[c:d]]") == ("[[a:x\ny]] [[c:d", {"b": [(10, 15)]})


def by_expression(text):
    """What a mark is, as one regular expression: slow where many marks are open, but plain."""
    plain, spans, end = "", {}, 0
    for match in re.finditer(r"\[\[(\w+):(.*?)\]\]", text):
        plain += text[end : match.start()]
        spans.setdefault(match[1], []).append((len(plain), len(plain) + len(match[2])))
        plain += match[2]
        end = match.end()
    return plain + text[end:], spans


PIECES = ["[[", "]]", "[", "]", "a", "b:", ":", "\n", " ", "[[x:", "y]]", "é"]


@given(st.lists(st.sampled_from(PIECES)).map("".join))
def test_marks_are_what_the_expression_says(text):
    assert unmark(text) == by_expression(text)


@pytest.mark.parametrize("piece", ["[[a:", "[[a:\n", "[[a:]", "[[", "[[a", "[[a:b]]"])
@pytest.mark.parametrize("end", ["", "]]", "\n]]"])
def test_a_text_full_of_marks_is_read_in_one_go(piece, end):
    started = time.perf_counter()
    unmark(piece * 200_000 + end)
    assert time.perf_counter() - started < 10  # a search for each mark would take minutes


def test_too_few_prompts_and_unknown_group(tmp_path):
    with pytest.raises(HeadwiseError, match="has 1 prompts: give at least 8"):
        read_jsonl(write(tmp_path / "one.jsonl", [line()]), TOKENIZER)
    with pytest.raises(HeadwiseError, match="the group 'colour' is not given on every line"):
        read_jsonl(write(tmp_path / "t.jsonl", [line(e) for e in ENTITIES]), TOKENIZER, hold_out="colour")
