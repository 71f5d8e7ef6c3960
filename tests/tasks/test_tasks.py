"""Labelled prompts say what they claim: positions, held-out words, counterfactuals, formats."""

import pytest
from words import word_tokenizer

from headwise.errors import HeadwiseError
from headwise.tasks.labelled.binding import FIT_CLAUSES, TEST_CLAUSES, binding
from headwise.tasks.labelled.design import design_warnings, order_position_correlation, position_correlation
from headwise.tasks.labelled.filter import FIT_WORDINGS, TEST_WORDINGS, filter
from headwise.tasks.labelled.make import make_task
from headwise.tasks.labelled.types import Example

TOKENIZER = word_tokenizer()


def text(tokens, at):
    return TOKENIZER.convert_ids_to_tokens(tokens[at])


@pytest.mark.parametrize("options", [{}, {"jitter": True}, {"format": "few-shot"}, {"format": "chat"}])
def test_binding_keys_are_box_labels_and_the_positive_one_answers(options):
    task = binding(TOKENIZER, prompts=18, test=6, scan=9, **options)
    for e in (*task.scan.examples, *task.test.examples, *task.fits[0].examples):
        assert [text(e.tokens, k) for k in e.keys] == list(e.key_groups["label"])
        assert e.key_groups["label"][0] == e.groups["label"]
        assert text(e.tokens, e.positive[0] - 1) == "Box"
        assert e.query == len(e.tokens) - 1
        assert text(e.tokens, e.query) == "Box"
        assert len(e.keys) == 9
        assert [TOKENIZER.convert_ids_to_tokens(a) for a in e.answers] == list(e.key_groups["label"])


def test_order_keeps_the_queried_entity_and_balances_the_orders():
    order = binding(TOKENIZER, prompts=27).fits[0]
    assert {e.groups["entity"] for e in order.examples} == {"hat"}
    assert sorted(order.values("order")) == [str(i) for i in range(1, 10)]
    assert order.distinct == 9
    assert len({frozenset(e.key_groups["entity"]) for e in order.examples}) == 1


@pytest.mark.parametrize("variant", ["triplet", "run"])
def test_lexical_negatives_differ_in_the_entity_alone(variant):
    lexical = binding(TOKENIZER, prompts=18, variant=variant, contrasts=("lexical",)).fits[0]
    for e in lexical.examples:
        assert e.negative == e.positive  # same place
        assert e.other is not None
        assert text(e.other, e.negative[0]) == text(e.tokens, e.positive[0])  # same label
        same = [a == b for a, b in zip(e.tokens, e.other, strict=False)]
        changed = [i for i, ok in enumerate(same) if not ok]
        assert text(e.tokens, changed[0]) == e.groups["entity"]
        if variant == "triplet":
            assert e.other_query is None
            assert len(e.other) == e.negative[0] + 1  # a key needs only what stands before it
            assert len(changed) == 1
        else:
            assert e.other_query == len(e.other) - 1
            assert len(changed) == 2  # in the clause and in the question


def test_reflexive_fixes_entity_and_place():
    reflexive = binding(TOKENIZER, prompts=27, contrasts=("reflexive",)).fits[0]
    assert {(e.groups["entity"], e.groups["order"]) for e in reflexive.examples} == {("hat", "5")}
    assert (reflexive.distinct or 0) > 5


@pytest.mark.parametrize("make", [binding, filter])
def test_nothing_tested_was_fitted_and_partners_ask_for_each_others_target(make):
    task = make(TOKENIZER, prompts=40, test=10)
    assert not [w for w in design_warnings(task) if "fitted on too" in w or "also fitting" in w]
    for number, e in enumerate(task.test.examples):
        partner = task.test.examples[e.partner]
        assert partner.partner == number
        assert partner.swap == e.swap[::-1]
        assert e.swap[0] in e.positive
        assert e.swap[1] in e.negative
        assert e.tokens[: e.keys[0]] == partner.tokens[: e.keys[0]]


@pytest.mark.parametrize("make", [binding, filter])
def test_prompts_come_in_wordings_enough_to_tell_them_from_the_feature(make):
    """Twelve to fit on and twelve others to test on, and they are the clusters of every contrast."""
    task = make(TOKENIZER, prompts=300, test=200)
    fitted = {e.groups["template"] for contrast in task.fits for e in contrast.examples}
    tested = {e.groups["template"] for e in task.test.examples}
    assert (len(fitted), len(tested)) == (12, 12) and not fitted & tested
    for contrast in (*task.fits, task.test):
        assert contrast.clusters().name == "template" and len(contrast.clusters()) >= 10
    texts = [tuple(w) for w in (*FIT_CLAUSES, *TEST_CLAUSES)]
    texts += [(w.opening, w.asking) for w in (*FIT_WORDINGS, *TEST_WORDINGS)]
    assert len(set(texts)) == len(texts) == 48


@pytest.mark.parametrize(("categories", "items"), [(5, 3), (13, 2), (["birds", "tools"], 4)])
def test_filter_marks_the_asked_category(categories, items):
    task = filter(TOKENIZER, prompts=60, test=6, categories=categories, items=items)
    count = categories if isinstance(categories, int) else len(categories)
    assert len(task.fits) == count
    for e in task.test.examples:
        assert len(e.positive) == items
        assert len(e.keys) == items * count
        assert set(e.key_groups["category"][:items]) == {e.groups["category"]}
        assert e.groups["category"] not in e.key_groups["category"][items:]
        assert [text(e.tokens, k) for k in e.keys] == list(e.key_groups["item"])


def test_chat_template_has_one_beginning():
    e = binding(TOKENIZER, prompts=4, format="chat").scan.examples[0]
    assert [TOKENIZER.convert_ids_to_tokens(t) for t in e.tokens].count("<s>") == 1
    plain = binding(TOKENIZER, prompts=4).scan.examples[0]
    assert text(plain.tokens, 0) == "<s>"


def test_jitter_loosens_order_from_position():
    fixed, loose = (binding(TOKENIZER, prompts=45, jitter=j).fits[0] for j in (False, True))
    assert order_position_correlation(fixed) == pytest.approx(1.0)
    assert order_position_correlation(loose) < 0.99
    warnings = design_warnings(binding(TOKENIZER, prompts=45))
    assert any("order and token position correlate by 1.000" in w for w in warnings)


def test_design_warnings_name_their_numbers():
    task = filter(TOKENIZER, prompts=40)
    assert any("the query takes 1 value" in w for w in design_warnings(task))
    first = task.fits[0]
    assert abs(position_correlation(first)) < 0.3


def test_same_seed_same_prompts():
    a, b, c = (binding(TOKENIZER, prompts=8, seed=s) for s in (1, 1, 2))
    assert a == b
    assert a.test != c.test


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"positive": (), "negative": (1,)}, "the positive set is empty"),
        ({"positive": (0,), "negative": (0,)}, "position 0 is both positive and negative"),
        ({"positive": (0,), "negative": (7,)}, "negative position 7 is outside the prompt"),
        ({"positive": (2,), "negative": (0,), "query": 1}, "positive position 2 comes after query 1"),
        ({"positive": (0,), "negative": (1,), "query": 3}, "query 3 is outside the prompt"),
    ],
)
def test_wrong_examples_say_why(given, message):
    with pytest.raises(HeadwiseError, match=message):
        Example((5, 6, 7), **{"query": 2, **given})


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("bindings", {}, "there is no task 'bindings'"),
        ("binding", {"prompts": 1}, "1 prompts are too few"),
        ("binding", {"contrasts": ("colour",)}, "contrast 'colour' is not known"),
        ("binding", {"format": "haiku"}, "format 'haiku' is not known"),
        ("filter", {"categories": 7}, "7 categories are not prepared"),
        ("filter", {"categories": ["fruits", "moons"]}, "category 'moons' is not known"),
        ("filter", {"pairs": 3}, "the task 'filter' does not take pairs=: leave it out"),
        ("nowhere.jsonl", {}, "there is no file 'nowhere.jsonl'"),
    ],
)
def test_wrong_tasks_are_one_line(name, options, message):
    with pytest.raises(HeadwiseError, match=message) as raised:
        make_task(name, TOKENIZER, **options)
    assert "\n" not in str(raised.value)
