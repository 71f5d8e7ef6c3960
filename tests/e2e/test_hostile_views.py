"""Notebook views and saved pages of results whose every text is hostile, opened in a real browser: nothing runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from browsing import browsed, opened
from family_runs import edge, prompt_row, write_run
from tiny import prompts_of, tiny
from toy_answers import answer_lines, small_model, write_lines
from words import worded_model

import headwise
from headwise.circuits.circuit import Circuit, Edge, Node
from headwise.claims import claim
from headwise.contrast.roles import ROLES, HeadRole, HeadRoles, Role
from headwise.contrast.rows import AttributionRow
from headwise.contrast.unlabelled.pairs import FeaturePair
from headwise.corpus import Corpus
from headwise.naming.change import CausalEvidence, ChangeTest
from headwise.naming.result import CellExample, Words
from headwise.show.circuits.page import circuit_page
from headwise.show.contrast.report import attribution_report, features_report
from headwise.show.contrast.unlabelled import unlabelled_report
from headwise.show.families.report import families_report
from headwise.show.naming.page import names_page
from headwise.show.portraits.atlas import index_page
from headwise.show.portraits.page import portrait_report
from headwise.show.sinks.report import sinks_report
from headwise.show.sparsity.report import sparsity_report
from headwise.show.why.page import page as why_page
from headwise.sinks.matched import Matched
from headwise.toy.language import sentences
from headwise.types import Estimate, Head
from headwise.why.explain import explain
from headwise.why.explanation import Explanation
from headwise.why.vocabulary import TokenEnds

pytestmark = browsed
RUN = "alert(1);window.ran=1"
HOSTILE = (
    f'"><img src=x onerror="{RUN}">',
    f"</script><script>{RUN}</script>",
    f"<svg onload={RUN}>",
    "<a href='https://evil.example/'>here</a>",
    f"javascript:{RUN}",
    "{{data}}<!--",
    "\x1b[31m\x00\u2028\u202e",
)
ALL = " ".join(HOSTILE)
FOREIGN = "img, svg[onload], a[href*=evil], a[href^=javascript], iframe, object, embed, [onerror], [onload]"
"""What can only have come out of the data."""


@pytest.fixture
def inert(browser: Any, tmp_path: Path) -> Callable[[str], str]:
    """Open markup; it must ask for nothing, run nothing and hold no element that the data asked for."""

    def checked(markup: str) -> str:
        file = tmp_path / "page.html"
        file.write_text(markup, encoding="utf-8", errors="replace")
        tried: list[str] = []
        shown = opened(browser, file, tried)
        shown.wait_for_timeout(150)
        found = shown.locator(FOREIGN).count(), shown.evaluate("window.ran"), shown.inner_text("body")
        shown.close()
        assert tried == []
        assert found[:2] == (0, None)
        return found[2]

    return checked


def cell(view: str) -> str:
    """A notebook's page around a view. It has no policy: whatever is in the view may run."""
    return f'<!doctype html><meta charset="utf-8"><body>{view}</body>'


@pytest.fixture(scope="module")
def circuit() -> Circuit:
    nodes = (Node("embedding", -1, None, 0, 0), Node("head", 0, 1, 1, 0, 0.5), Node("answer", 2, None, 1, 1))
    edges = (
        Edge("embedding@0", "L0H1@1<-0", ALL, 0.5, (ALL,)),  # pyright: ignore[reportArgumentType]
        Edge("L0H1@1<-0", "answer@1", "query", 1.0),
    )
    return Circuit(
        nodes,
        edges,
        tokens=(ALL, ALL),
        prompt=ALL,
        answer=ALL,
        wrong=ALL,
        model=ALL,
        mode=ALL,
        notes=(ALL,),
        top=ALL,
    )


@pytest.fixture(scope="module")
def why() -> Explanation:
    plain = explain(tiny("llama"), prompts_of(12)[0], draws=5)
    answer = replace(plain.answer, text=ALL, wrong_text=ALL)
    return replace(plain, tokens=(ALL,) * len(plain.tokens), prompt=ALL, answer=answer)


def test_the_test_would_notice(inert: Callable[[str], str]) -> None:
    for markup in HOSTILE[:4]:
        with pytest.raises(AssertionError):
            inert(cell(markup))


def test_a_circuit(inert: Callable[[str], str], circuit: Circuit) -> None:
    assert "<img src=x" in inert(cell(circuit._repr_html_()))
    assert "<img src=x" in inert(circuit_page(circuit))


def test_a_portrait_and_an_atlas(inert: Callable[[str], str]) -> None:
    texts = tuple(s.text for s in sentences(8, 0, "hostile portraits"))
    corpus = Corpus("c", texts, ("c",) * len(texts))
    atlas = headwise.atlas(small_model(), "L1H1,L2H1", corpus=corpus, cells=2)

    def hostile(value: Any) -> Any:
        """The same value, every text of it hostile but what the program itself chose among."""
        if isinstance(value, str):
            return ALL
        if isinstance(value, tuple):
            return tuple(map(hostile, value))
        if is_dataclass(value) and not isinstance(value, type | Head):
            kept = ("picture", "basis", "role", "side", "writer", "pole", "reasons", "head", "config")
            changed = {f.name: hostile(getattr(value, f.name)) for f in fields(value) if f.name not in kept}
            return replace(value, **changed)
        return value

    spoiled = replace(hostile(atlas), config={**atlas.config, "corpus": ALL})
    one = spoiled.of("L1H1")
    assert one.looks.strongest[0].tokens[0] == ALL == one.account.cells[0].raised[0].token
    for markup in (cell(one._repr_html_()), cell(spoiled._repr_html_())):
        assert "<img src=x" in inert(markup)
    assert "<img src=x" in inert(portrait_report(one).html())
    assert "<img src=x" in inert(index_page(spoiled))


def test_an_explanation(inert: Callable[[str], str], why: Explanation) -> None:
    assert "<img src=x" in inert(cell(why._repr_html_()))
    assert "<img src=x" in inert(why_page(why))


def test_a_difference_between_two_prompts(inert: Callable[[str], str]) -> None:
    found = headwise.explain_difference(worded_model(), [4, 5, 6, 7, 8], [4, 9, 6, 7, 8], draws=19)
    here, there = (
        replace(one, prompt=ALL, predicted=ALL, tokens=(ALL,) * len(one.tokens))
        for one in (found.here, found.there)
    )
    answer = replace(found.answer, text=ALL, wrong_text=ALL, predicted=ALL)
    hostile = replace(found, model=ALL, here=here, there=there, answer=answer)
    assert "<img src=x" in inert(cell(hostile._repr_html_()))
    assert "<img src=x" in inert(hostile.to_html())


def test_one_head_over_many_prompts(inert: Callable[[str], str], tmp_path: Path) -> None:
    task = write_lines(tmp_path / "answers.jsonl", answer_lines(3))
    found = headwise.explain_many(small_model(), task, head="L1H0", query=-1, key=1)
    hostile = replace(found, model=ALL, task=ALL, notes=(ALL,), keys=((ALL, 3),), clusters=ALL)
    assert "<img src=x" in inert(cell(hostile._repr_html_()))
    assert "<img src=x" in inert(hostile.to_html())


def test_attribution(inert: Callable[[str], str]) -> None:
    rows = [
        AttributionRow(
            head="L1H1",
            method=method,
            position=position,
            token=ALL,
            feature=feature,
            logit=1.0,
            centred=0.5,
            explained=0.5,
        )
        for method in ("sequential", "shapley")
        for position in range(3)
        for feature in (ALL, "residual", "total")
    ]
    inert(attribution_report(rows, ALL).html())


def test_features(inert: Callable[[str], str]) -> None:
    found = headwise.find_features(worded_model(), "binding", heads="L1H2", prompts=40, test=12, scan=12)
    hostile = replace(found, task=ALL, model=ALL, warnings=(ALL,))
    assert "<img src=x" in inert(cell(hostile._repr_html_()))
    inert(features_report(hostile).html())


def test_families(inert: Callable[[str], str], tmp_path: Path) -> None:
    prompts = [
        prompt_row(i, {"kind": HOSTILE[i % 2], "<b>name</b>": ALL}, text=ALL, answer=ALL, wrong=ALL, top=ALL)
        for i in range(24)
    ]
    edges = [edge(i, f"L0H{j}", f"L2H{j}", "query", (j, j + 1 + i % 2)) for i in range(24) for j in range(4)]
    run = write_run(tmp_path / "run", prompts, edges, model=HOSTILE[0], task=HOSTILE[1])
    assert "<img src=x" in inert(cell(run._repr_html_()))
    found = headwise.find_families(tmp_path / "run", by="kind")
    assert "<img src=x" in inert(cell(found._repr_html_()))
    inert(families_report(found).html())


def _frequent(token: str) -> Matched:
    """A comparison with a frequent token of this text."""
    gap = Estimate(0.1, 0.0, 0.2, n=5, clusters=5)
    return Matched(token, 2, 5, 0.1, 0.2, gap, claim(0.5, null="none", draws=9))


def test_sinks(inert: Callable[[str], str]) -> None:
    texts = [one["prompt"] for one in answer_lines(6)]
    found = headwise.find_sinks(small_model(), texts, threshold=0.1, traced=2, proved=1)
    hostile = replace(
        found,
        model=ALL,
        config={**found.config, "texts": ALL},
        sinks=[replace(sink, token=ALL) for sink in found.sinks],
        gained=[(ALL, count) for _, count in found.gained] or [(ALL, 1)],
        matched={(head, "key"): _frequent(ALL) for head in found.parked},
    )
    assert hostile.matched
    assert "<img src=x" in inert(cell(hostile._repr_html_()))
    assert "<img src=x" in inert(sinks_report(hostile).html())


def test_sparsity(inert: Callable[[str], str], tmp_path: Path) -> None:
    task = write_lines(tmp_path / "answers.jsonl", answer_lines(3))
    found = headwise.find_sparsity(small_model(), task, prompts=3, rotations=1)
    hostile = replace(found, model=ALL, task=ALL, notes=(ALL,))
    assert "<img src=x" in inert(cell(hostile._repr_html_()))
    assert "<img src=x" in inert(sparsity_report(hostile).html())


def test_head_roles(inert: Callable[[str], str]) -> None:
    places: dict[Role, Estimate] = {role: Estimate(0.9, 0.8, 1.0, n=4, clusters=4) for role in ROLES}
    roles = HeadRoles(ALL, "0" * 64, 4, 8, 0, (HeadRole(Head(0, 0), places),))
    assert "<img src=x" in inert(cell(roles._repr_html_()))


def test_head_vocabulary(inert: Callable[[str], str]) -> None:
    found = headwise.head_vocabulary(worded_model(), "L1H1", channels=1, top=2)

    def hostile(ends: TokenEnds) -> TokenEnds:
        return TokenEnds(
            *(tuple(replace(one, token=ALL) for one in side) for side in (ends.most, ends.least))
        )

    moved = tuple(replace(one, reads=hostile(one.reads), writes=hostile(one.writes)) for one in found.outputs)
    assert "<img src=x" in inert(cell(replace(found, model=ALL, outputs=moved)._repr_html_()))


def test_names(inert: Callable[[str], str]) -> None:
    known = sorted(word for word in worded_model().tokenizer.get_vocab() if word.isalpha() and word.isascii())
    drawn = Random(0)
    texts = tuple(" ".join(drawn.choices(known, k=20)) for _ in range(120))
    found = headwise.find_names(
        worded_model(), "L0H0,L1H1", corpus=Corpus(ALL, texts, ("",) * len(texts)), tokens=20
    )
    words = Words(destination=ALL, source=ALL, relation=ALL, text=ALL, rule=((ALL,),), equally_good=(ALL,))
    example = CellExample(kind="missed", tokens=(ALL, ALL), destination=1, source=0, score=1.0, holds=False)
    changed = CausalEvidence((ChangeTest("break", 30, 0.01, examples=((ALL, ALL, ALL),)),), (0.01,))
    signals = tuple(
        replace(one, name=words, flags=(ALL,), examples=(*one.examples, example), causal=changed)
        for one in found.signals
    )
    hostile = replace(found, model=ALL, signals=signals)
    assert "<img src=x" in inert(cell(hostile._repr_html_()))
    assert "<img src=x" in inert(names_page(hostile))


def test_features_without_labels(inert: Callable[[str], str]) -> None:
    texts = tuple(f"{one.text} {one.answer}" for one in sentences(60, 0, "hostile"))
    corpus = Corpus(ALL, texts, ("",) * len(texts))
    found = headwise.find_features(small_model(), corpus, heads="L0H0")
    cell_in_text = replace(found.features[0].cells[0], tokens=(ALL, ALL), query=1, key=0)
    features = tuple(
        replace(one, name=ALL, keys=(ALL,), queries=(ALL,), cells=(cell_in_text,)) for one in found.features
    )
    only = (cell_in_text,)
    pair = FeaturePair(
        head=ALL,
        first=ALL,
        second=ALL,
        overlap=0.5,
        chance=0.2,
        swaps=None,
        writers=None,
        only_first=only,
        only_second=only,
    )
    hostile = replace(found, model=ALL, features=features, pairs=(pair,), warnings=(ALL,))
    assert "<img src=x" in inert(cell(hostile._repr_html_()))
    assert "<img src=x" in inert(unlabelled_report(hostile).html())


def test_every_view_is_in_this_file() -> None:
    """A type that learns to show itself in a notebook must be tried here too."""
    source = Path(headwise.__file__).parent
    views = {
        str(f.relative_to(source)) for f in source.rglob("*.py") if "def _repr_html_" in f.read_text("utf-8")
    }
    assert views == {
        "contrast/result.py",
        "contrast/roles.py",
        "contrast/unlabelled/result.py",
        "naming/result.py",
        "portraits/portrait.py",
        "portraits/result.py",
        "why/explanation.py",
        "why/many/result.py",
        "why/pair/result.py",
        "why/vocabulary.py",
        "circuits/circuit.py",
        "sinks/result.py",
        "sparsity/result.py",
        "survey/records.py",
        "families/result.py",
    }
