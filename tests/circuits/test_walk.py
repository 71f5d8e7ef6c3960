"""A walk finds what a trace finds, no sooner than it is asked for."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from toy_answers import answer_lines, small_model

from headwise.circuits.circuit import Circuit, Edge
from headwise.circuits.trace import trace
from headwise.circuits.walk import Steps, walk
from headwise.errors import HeadwiseError
from headwise.types import Head
from headwise.why.question import PromptReading

PROMPT = answer_lines(6)[0]["prompt"]


@pytest.fixture(scope="module")
def read() -> PromptReading:
    return PromptReading.of(small_model(), PROMPT)


@pytest.fixture(scope="module")
def traced() -> Circuit:
    return trace(small_model(), PROMPT, mlp_depth=99, influence=0)


def walked(read: PromptReading, *opened: str, root: str | None = None) -> Circuit:
    return walk(read.up, read.logits, Steps.parse(opened, root))


def same(ours: Iterable[Edge], theirs: Iterable[Edge]) -> None:
    """The same edges with the same weights and channels."""
    found, wanted = ({one.id: one for one in edges} for edges in (ours, theirs))
    assert wanted and set(found) == set(wanted)
    for name, edge in wanted.items():
        assert found[name].weight == pytest.approx(edge.weight, abs=1e-6), name
        assert found[name].channels == edge.channels, name


def test_a_walk_begins_with_what_carries_the_answer(read: PromptReading, traced: Circuit) -> None:
    found = walked(read)
    same(found.edges, (one for one in traced.edges if one.target.startswith("answer@")))
    assert found.accounts == ()


def test_opening_a_head_shows_who_fed_it_and_nothing_more(read: PromptReading, traced: Circuit) -> None:
    first = next(node.id for node in traced.heads if traced.into(node.id))
    grown = walked(read, first, root=first)
    same(grown.edges, (one for one in traced.edges if one.target == first))


def test_opening_all_that_a_trace_opens_gives_its_circuit(read: PromptReading, traced: Circuit) -> None:
    targets = {one.target for one in (*traced.edges, *traced.accounts)}
    found = walked(read, *(one for one in targets if not one.startswith("answer@")))
    assert {node.id for node in found.nodes} == {node.id for node in traced.nodes}
    same((*found.edges, *found.accounts), (*traced.edges, *traced.accounts))


def test_what_was_opened_and_is_not_reached_is_left_out(read: PromptReading) -> None:
    whole = walked(read)
    strange = next(
        f"{head}@2<-1" for head in small_model().heads if head.layer and f"{head}@2<-1" not in whole.by_id
    )
    assert {node.id for node in walked(read, strange).nodes} == {node.id for node in whole.nodes}


def test_a_root_that_is_not_opened_stands_alone(read: PromptReading) -> None:
    found = walked(read, root="L1H0@5<-2")
    assert [node.id for node in found.nodes] == ["L1H0@5<-2"] and found.edges == ()
    assert found.nodes[0].attention == pytest.approx(
        float(read.up.stream.pattern(1, 5)[Head(1, 0).index, 2]), abs=1e-6
    )


@pytest.mark.parametrize(
    ("opened", "line"),
    [
        ("embedding@0", "cannot be opened"),
        ("L1H0@2<-5", "no cell"),
        ("L1H0@999<-5", "no cell"),
        ("L99H0@2<-1", "L99H0 does not exist"),
        ("MLP99@2", "is not there"),
        ("MLP0@999", "is not there"),
        ("<script>", "cannot be opened"),
    ],
)
def test_what_cannot_be_opened_is_one_line(read: PromptReading, opened: str, line: str) -> None:
    with pytest.raises(HeadwiseError, match=line):
        walked(read, opened)
