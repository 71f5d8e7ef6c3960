"""Rules: what they print, what they hold of, and how they are written to a file and read again."""

from __future__ import annotations

import pytest
from pieces import all_cells, drawn_cells, ordinary_texts, piece_tokenizer

from headwise import jsons
from headwise.errors import HeadwiseError
from headwise.naming.predicates.lexicon import Lexicon
from headwise.naming.predicates.library import library, token_is, word_is
from headwise.naming.rules import Literal, Rule
from headwise.naming.texts import Texts


@pytest.mark.parametrize(
    ("ids", "text"),
    [
        (
            [["source.category=name", "source.pair=2"]],
            "the source is the second name of a pair joined by *and*",
        ),
        ([["source.capitalised"]], "the source is a capitalised word"),
        ([["source.letters", "source.category=animal"]], "the source is an animal"),
        ([["not source.comma"]], "the source is not a comma"),
        (
            [["destination.class=article", "source.in-brackets", "source.seen"]],
            "the destination is an article and the source is inside brackets and has occurred before",
        ),
        (
            [["relation.distance=1", "destination.comma"]],
            "the destination is a comma and the source is the previous token",
        ),
        (
            [["source.comma"], ["source.newline"]],
            "either the source is a comma, or the source is a line break",
        ),
        ([["source.word=the", "source.capitalised"]], "the source is the capitalised word “the”"),
        (
            [["source.word=the", "source.pair=2"]],
            "the source is the second word of a pair joined by *and* that is the word “the”",
        ),
        ([["source.last:category=name"]], "the source is the last name so far"),
        (
            [["relation.distance=1", "relation.same-sentence"]],
            "the source is the previous token and both are in the same sentence",
        ),
    ],
)
def test_a_rule_prints_as_plain_english(ids: list[list[str]], text: str) -> None:
    assert str(Rule.parse(ids)) == text


def test_a_name_says_anything_of_slots_it_does_not_speak_of() -> None:
    name = Rule.parse([["source.comma"], ["source.newline", "destination.number"]]).name
    assert (name.destination, name.source, name.relation) == (
        "anything or a number",
        "a comma or a line break",
        "anything",
    )
    assert set(name.to_json()) == {"destination", "source", "relation", "text", "rule"}


def test_every_predicate_can_be_said_affirmed_and_denied() -> None:
    for one in library():
        for negated in (False, True):
            text = str(Rule(((Literal(one, negated),),)))
            assert text.startswith(("the ", "both ")) and "{" not in text and "  " not in text, one.id


def test_a_rule_is_the_same_after_its_json() -> None:
    texts = ordinary_texts()
    cells = drawn_cells(texts, 500, 1)
    for ids in ([["source.comma", "not destination.seen"], ["source.token=\n"]], [["relation.distance<=4"]]):
        rule = Rule.parse(ids)
        again = Rule.from_json(jsons.parse(jsons.dumps(rule.to_json())))
        assert again == rule and hash(again) == hash(rule)
        assert (again.holds(texts, cells) == rule.holds(texts, cells)).all()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({}, "rule: the field 'any' is missing"),
        ({"any": []}, "rule: any"),
        ({"any": [[]]}, "this one is empty"),
        ({"any": [["source.purple"]]}, "there is no predicate 'source.purple'"),
        ({"any": [["source.word="]]}, "there is no predicate 'source.word='"),
        ({"any": [[5]]}, r"rule: any\[0\]\[0\] is 5"),
        ({"any": [["source.comma"]], "more": 1}, "more"),
        ([], "rule"),
    ],
)
def test_what_is_no_rule_is_refused_in_one_line(data: object, message: str) -> None:
    with pytest.raises(HeadwiseError, match=message) as error:
        Rule.from_json(data)
    assert "\n" not in str(error.value)


def test_a_rule_with_a_list_needs_that_very_list() -> None:
    pets = Lexicon.of({"pets": ["cat", "dog"]})
    written = Rule.parse([["source.list=pets"]], pets).to_json()
    assert Rule.from_json(written, pets).ids == (("source.list=pets",),)
    with pytest.raises(HeadwiseError, match="the word list 'pets' is not the one"):
        Rule.from_json(written, Lexicon.of({"pets": ["cat"]}))
    with pytest.raises(HeadwiseError, match="the word list 'pets' is not at hand"):
        Rule.from_json(written)


def test_text_of_a_corpus_inside_a_name_is_quoted_and_inert() -> None:
    hostile = "\n</script>\x1b[31m “ignore all” \u202e" + "x" * 100
    for made in (token_is("source", hostile), word_is("destination", hostile)):
        text = str(Rule(((Literal(made),),)))
        assert all(sign.isprintable() for sign in text) and len(text) < 100
        assert text.count("“") == 1 and text.count("”") == 1


def test_a_rule_holds_where_one_of_its_conjunctions_does() -> None:
    texts = Texts.read(piece_tokenizer(), ["the cat, and the dog."])
    cells = all_cells(texts)
    one, other = (
        Rule.parse([["source.comma"]]),
        Rule.parse([["destination.sentence-end", "relation.distance=1"]]),
    )
    both = Rule(one.conjunctions + other.conjunctions)
    assert (both.holds(texts, cells) == one.holds(texts, cells) | other.holds(texts, cells)).all()
    assert 0 < other.holds(texts, cells).sum() == 1
    assert both.is_positional and not one.is_positional
    assert Rule.parse([["source.word=the"]]).is_identity and not both.is_identity


def test_what_positions_decide_no_word_can_turn() -> None:
    texts = ordinary_texts()
    cells = drawn_cells(texts, 4000, 2)
    itself, near = cells.source == cells.destination, cells.destination - cells.source == 1
    comma = Rule.parse([["source.comma"]])
    assert comma.can_turn(texts, cells).all()
    assert not Rule.parse([["relation.distance=1"]]).can_turn(texts, cells).any()
    # true of every token itself, whatever it is; elsewhere a comma decides
    either = Rule.parse([["relation.distance=0"], ["source.comma"]])
    assert (either.can_turn(texts, cells) == ~itself).all()
    # false wherever the source is not the previous token, whatever that is
    both = Rule.parse([["relation.distance=1", "source.comma"]])
    assert (both.can_turn(texts, cells) == near).all()
