"""Portraits of heads: their numbers are those of the patterns and of explanations, and bad input is one line."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import numpy as np
import pytest
import torch
from run_folders import one_line
from toy_answers import answer_lines, small_model, write_lines

import headwise
from headwise.corpus import Corpus
from headwise.naming.activation import Activations, LayerReads
from headwise.naming.signals import Subject
from headwise.portraits.peaks import KEYS
from headwise.portraits.result import Atlas
from headwise.portraits.sentence import sentences
from headwise.show.kit.terminal import PlainConsole
from headwise.show.portraits.page import portrait_report
from headwise.show.portraits.terminal import atlas_tables, portrait_tables
from headwise.tokens import shown
from headwise.toy.language import sentences as sentences_of

SAID = [one.text for one in sentences_of(64, 0, "portraits")]
TEXTS = tuple(" . ".join(SAID[number : number + 4]) for number in range(0, 64, 4))
SENTENCES = Corpus("sentences", TEXTS, ("sentences",) * len(TEXTS))
HEAD = "L1H1"
QUIET = "L0H1"
# Words that the model does not know: some heads then give no token much.
STRANGE = Corpus(
    "strange", ("A pen is in Box A . A jam is in Box B . A key is in Box C . A pen is in Box",), ("strange",)
)


@pytest.fixture(scope="module")
def atlas() -> Atlas:
    return headwise.atlas(small_model(), corpus=SENTENCES, cells=4)


def test_rows_are_cut_into_tenths_of_the_sorted_attention(atlas: Atlas) -> None:
    """Against patterns that are read one text at a time."""
    model = small_model()
    number = model.heads.index(model.head(HEAD))
    peaks = []
    for text in TEXTS:
        pattern = model.capture([text], want=("pattern",)).pattern[0, number]
        # The first token is always left out; these texts have no other sink.
        peaks += [float(pattern[row, 1 : row + 1].max()) for row in range(KEYS - 1, len(pattern))]
    ordered = sorted(peaks, reverse=True)
    looks = atlas.of(HEAD).looks
    n = looks.rows
    assert n == len(peaks) and looks.most == pytest.approx(ordered[0], abs=1e-6)
    for tenth, decile in enumerate(looks.deciles):
        rows = ordered[tenth * n // 10 : (tenth + 1) * n // 10]
        assert (decile.high, decile.low) == pytest.approx((rows[0], rows[-1]), abs=1e-6)
        assert decile.cells and all(decile.low <= cell.value <= decile.high for cell in decile.cells)
    assert [cell.value for cell in looks.strongest] == sorted(
        (c.value for c in looks.strongest), reverse=True
    )
    assert len({cell.text for cell in looks.strongest}) == len(looks.strongest)


def test_shares_sum_to_one_and_tokens_are_those_of_the_cells(atlas: Atlas) -> None:
    for one in atlas.portraits:
        assert sum(d.share for d in one.looks.distances) == pytest.approx(1)
        assert sum(t.share for t in one.looks.to) <= 1 + 1e-9
        if one.account is not None:
            assert sum(one.account.place.reasons.values()) == pytest.approx(1)
            for habit in (*one.account.writers, *one.account.channels):
                assert 0 < habit.often.mean <= 1 and habit.often.n == len(one.account.cells) == 4


@pytest.mark.parametrize("head", ["L1H1", "L2H1"])
def test_the_aggregate_of_one_text_is_its_explanation(head: str) -> None:
    model = small_model()
    text = TEXTS[5]
    one = headwise.head_portrait(model, head, corpus=Corpus("one", (text,), ("x",)), cells=1)
    assert one.account is not None
    (cell,) = one.account.cells
    why = headwise.explain(model, text, head=head, query=cell.query, key=cell.key, draws=5)
    assert cell.cell.value == pytest.approx(why.what.attention, abs=1e-6)
    assert cell.log_odds == pytest.approx(why.what.log_odds, abs=1e-5)
    assert cell.place.to_json() == pytest.approx(why.place.to_json(), abs=1e-5)
    assert cell.raised == why.consequence.raised and cell.lowered == why.consequence.lowered
    for habit in one.account.writers:
        table = why.tables[habit.side]
        rows = zip(table.writers, table.rows.tolist(), strict=True)
        whole = sum(
            value for writer, value in rows if writer is not None and writer.name == habit.writer.name
        )
        assert habit.log_odds.mean == pytest.approx(whole, abs=1e-4)
    parts = {part.channel: part for part in why.what.channels}
    for habit in one.account.channels:
        assert habit.log_odds.mean == pytest.approx(parts[habit.channel].log_odds, abs=1e-4)
    place = one.account.place
    assert place.content.mean + place.place.mean + place.interaction.mean + place.level.mean == pytest.approx(
        cell.log_odds, abs=1e-4
    )


def test_a_writers_strongest_cells_are_where_it_acts_most(atlas: Atlas) -> None:
    model, one = small_model(), atlas.of("L2H1")
    assert one.account is not None
    habit = one.account.of("key")[0]
    acts = Activations(model, [Subject.parse(habit.signal(one.head))])
    best = []
    for text in TEXTS:
        with torch.no_grad():
            reads = LayerReads(model.split([text]), one.head.layer)
            alpha = acts.alpha(0, reads)[0].masked_fill(~reads.exists[0], -torch.inf)
        best.append(float(alpha[:, 1:].max()))
    found = [cell.value for cell in habit.strongest]
    assert found == pytest.approx(sorted(best, reverse=True)[: len(found)], abs=1e-4)
    assert len({cell.text for cell in habit.strongest}) == 3


def test_a_task_is_read_by_its_wordings(tmp_path: Path) -> None:
    file = write_lines(tmp_path / "answers.jsonl", answer_lines(20))
    one = headwise.head_portrait(small_model(), "L2H1", task=file, texts=20, cells=12)
    assert one.account is not None and one.texts == 20
    assert one.account.place.content.n == 12 > one.account.place.content.clusters
    lines = [{**line, "labels": {"wording": str(i % 3)}} for i, line in enumerate(answer_lines(20))]
    file = write_lines(tmp_path / "three.jsonl", lines)
    few = headwise.head_portrait(small_model(), "L2H1", task=file, texts=20, cells=12)
    assert few.account is not None and few.account.place.content.clusters == 3


def test_bad_input_is_one_line(tmp_path: Path) -> None:
    model = small_model()
    assert "L7H0 does not exist" in one_line(lambda: headwise.head_portrait(model, "L7H0", corpus=SENTENCES))
    line = one_line(lambda: headwise.head_portrait(model, QUIET, corpus=STRANGE, out=tmp_path / "run"))
    assert line.startswith(
        f"{QUIET} never gives 0.3 of its attention to a token that is no sink in 1 text (the most is 0."
    )
    assert not (tmp_path / "run").exists()
    assert "has 8 tokens" in one_line(
        lambda: headwise.head_portrait(model, HEAD, corpus=Corpus("none", (), ()))
    )
    short = Corpus("short", ("The pen",), ("x",))
    assert "no text of the corpus 'short' has 8 tokens" in one_line(
        lambda: headwise.atlas(model, corpus=short)
    )
    (tmp_path / "empty.txt").write_text("\n")
    assert "holds no text" in one_line(lambda: headwise.atlas(model, corpus=tmp_path / "empty.txt"))
    (tmp_path / "empty.jsonl").write_text("\n")
    assert "has no prompts" in one_line(
        lambda: headwise.head_portrait(model, QUIET, task=str(tmp_path / "empty.jsonl"))
    )
    assert "both say what to read" in one_line(lambda: headwise.atlas(model, corpus=SENTENCES, task="ioi"))
    assert "L9H9 is not in this atlas" in one_line(
        lambda: headwise.atlas(model, "L1H1,L2H1", corpus=SENTENCES, cells=1).of("L9H9")
    )


def test_pages_lead_to_one_another_and_say_what_is_known(atlas: Atlas, tmp_path: Path) -> None:
    index = atlas.pages(tmp_path).read_text(encoding="utf-8")
    assert len(list(tmp_path.glob("L*H*.html"))) == len(atlas) == 12
    for one in atlas.portraits:
        assert f'href="{one.head}.html"' in index
        page = (tmp_path / f"{one.head}.html").read_text(encoding="utf-8")
        assert 'href="report.html"' in page
        assert ("Who shapes it" in page) == (one.account is not None)
    assert len(atlas.pictured) == 24
    some = headwise.atlas(small_model(), [QUIET, HEAD], corpus=STRANGE, cells=1)
    assert some.of(QUIET).kind == "diffuse" and some.of(HEAD).account is not None
    quiet = portrait_report(some.of(QUIET)).html()
    assert "there is nothing to explain" in quiet


def test_the_terminal_and_the_sentences_say_the_same(atlas: Atlas) -> None:
    one = atlas.of(HEAD)
    console = PlainConsole(width=100, record=True, file=StringIO())
    console.print(portrait_tables(one))
    console.print(atlas_tables(atlas))
    shown = console.export_text()
    assert all(word in " ".join(shown.split()) for said in sentences(one) for word in said.split())
    assert shown.count("L1H1") >= 2


def test_a_picture_is_the_pattern(atlas: Atlas) -> None:
    model = small_model()
    number = model.heads.index(model.head(HEAD))
    text = [shown(model.tokenizer, model.prompt_ids(text))[:24] for text in TEXTS].index(atlas.pictured)
    pattern = model.capture([TEXTS[text]], want=("pattern",)).pattern[0, number, :24, :24]
    dots = np.array([list(bytes.fromhex(row)) for row in atlas.of(HEAD).picture]) / 255
    assert np.abs(dots - pattern.sqrt().numpy()).max() < 0.003


@pytest.mark.real
def test_a_name_mover_of_the_default_model_is_portrayed_as_one() -> None:
    """L23H3 looks from where a name is due back at names, by what they are."""
    one = headwise.head_portrait(headwise.load(), "L23H3", task="ioi", texts=24, cells=8)
    assert one.account is not None and one.account.place.reason == "content"
    assert one.on_sinks is not None and one.on_sinks.mean > 0.5
    names = [cell.tokens[cell.source].strip() for cell in one.looks.strongest]
    assert all(name[:1].isupper() and name.isalpha() for name in names)
    assert one.looks.of[0].token == " to"
    assert {habit.writer.kind for habit in one.account.of("key")} >= {"mlp"}
