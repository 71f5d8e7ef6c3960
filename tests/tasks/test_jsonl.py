"""Your own prompts: marks, offsets, held-out groups, and every bad line at once."""

import json

import pytest
from words import word_tokenizer

from headwise.errors import HeadwiseError
from headwise.tasks.labelled.jsonl import read_jsonl

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


def test_all_bad_lines_are_reported_at_once(tmp_path):
    bad = {
        2: "{not json",
        4: line(positive=None),
        5: line(positive=[]),
        6: line(negative=["nowhere"]),
        7: line(query=99),
        8: line(positive=["right"], negative=["right"]),
        9: line(positive=[[5, 5000]]),
        10: line(colour="red"),
    }
    records = [bad.get(i, line()) for i in range(1, 12)]
    with pytest.raises(HeadwiseError) as raised:
        read_jsonl(write(tmp_path / "t.jsonl", records), TOKENIZER)
    message = str(raised.value)
    assert "8 bad lines" in message
    assert "\n" not in message
    for number in bad:
        assert f"line {number}:" in message
    for reason in ("not JSON", "'positive' is missing", "set is empty", "'nowhere' is not a marked span",
                   "query 99 is outside", "both positive and negative",
                   "unknown field 'colour'"):  # fmt: skip
        assert reason in message


def test_too_few_prompts_and_unknown_group(tmp_path):
    with pytest.raises(HeadwiseError, match="has 1 prompts: give at least 8"):
        read_jsonl(write(tmp_path / "one.jsonl", [line()]), TOKENIZER)
    with pytest.raises(HeadwiseError, match="the group 'colour' is not given on every line"):
        read_jsonl(write(tmp_path / "t.jsonl", [line(e) for e in ENTITIES]), TOKENIZER, hold_out="colour")
