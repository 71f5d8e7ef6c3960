"""Controls take away as much as the cause does, do what an edited pass does, and say no where there is nothing."""

from __future__ import annotations

from dataclasses import replace
from math import comb

import pytest
import torch
from tiny import VARIANTS, prompts_of, tiny

from headwise.circuits.counterfactual import Removal, edited_attention, removal
from headwise.intervals import wilson
from headwise.model.model import Model
from headwise.randomness import keyed
from headwise.tracing.causes import attention, default_threshold
from headwise.tracing.search import LayerSearch, Rules, SideSignals
from headwise.tracing.table import LogOddsTable, log_odds_table
from headwise.tracing.writers import WriterSet, attention_without, writer_set
from headwise.tracing.writes import PromptWrites
from headwise.types import Cell, Head, Side
from headwise.why import controls as module
from headwise.why.controls import controls
from headwise.why.explain import explain
from headwise.why.proof import ControlTest, Word, _specific

SIDES: tuple[Side, ...] = ("query", "key")


def _tables(model: Model, count: int = 2) -> tuple[PromptWrites, list[LogOddsTable]]:
    up = PromptWrites(model.split(prompts_of(9)), 0)
    cells = [Cell(Head(3, h), 8, s) for h in range(up.n_heads) for s in range(9) if bool(up.visible(3)[8, s])]
    values = up.attention_at(cells)
    order = sorted(range(len(cells)), key=lambda i: -values[i])
    return up, [log_odds_table(up, cells[i]) for i in order[:count]]


def _cause(table: LogOddsTable, side: Side) -> WriterSet:
    return writer_set(table, side, default_threshold(table.attention, table.keys))


def test_every_draw_is_as_long_as_the_cause_and_is_what_an_edited_pass_does(variant: str) -> None:
    model = tiny(variant, torch.float64)
    up, tables = _tables(model, count=12)
    seen: set[str] = set()
    for table in tables:
        q = up.q[3, table.cell.head.index, 8]
        for side in SIDES:
            found = _cause(table, side)
            if not found.resolved:
                continue
            one = table.side(side)
            members = torch.tensor([one.row_of(member) for member in found.members])
            taken = one.written(members).sum(0)
            rows, gram = one.by_channel(taken)
            assert torch.allclose(rows.sum(0) * table.visible, one.logits(members).sum(0), atol=1e-9)
            assert float(gram.sum()) == pytest.approx(float(taken.norm() ** 2))
            made = controls(table, found, draws=3)
            seen |= {control.name for control in made}
            for control in made:
                assert control.left.shape == (3,) and control.tried.shape == (3, 9)
                assert torch.allclose(control.tried.sum(1), torch.ones(3, dtype=torch.float64))
                assert torch.equal(control.tried[:, table.cell.key], control.left)
            by_name = {control.name: control for control in made}
            directions = by_name["directions"]
            random = torch.special.ndtri(
                module._uniform(3, model.d_head, 0, "directions", str(table.cell), side)
            )
            random = random / random.norm(dim=1, keepdim=True)
            if side == "query":
                removal = Removal(table.cell, query=random[0] * taken.norm())
            else:
                # One rotation that turns the drawn direction into the query's, applied to every key's vector.
                turn = _rotation(random[0], q / q.norm())
                removal = Removal(table.cell, key=taken @ turn.mT)
                assert float((taken @ turn.mT).norm()) == pytest.approx(float(taken.norm()))
            observed = edited_attention(model, up.stream.token_ids[0], [removal])[0]
            assert observed == pytest.approx(float(directions.left[0]), abs=1e-9)
    assert seen >= {"writers", "directions"}


def _rotation(start: torch.Tensor, end: torch.Tensor) -> torch.Tensor:
    """An orthogonal matrix that maps one unit vector to another."""
    middle = start - end
    return torch.eye(len(start), dtype=start.dtype) - 2 * torch.outer(middle, middle) / (middle @ middle)


def test_other_writers_are_scaled_to_the_length_of_the_cause() -> None:
    up, tables = _tables(tiny("llama", torch.float64))
    table = tables[0]
    found = _cause(table, "query")
    taken = module._whole(table, found)
    labels = (str(table.cell), "query")
    both = module._writers(module.Pool.of(table.query), taken, 0, 50, labels, whole=True)
    assert both is not None
    rows, plain = both
    alone = module._writers(module.Pool.of(table.query), taken, 0, 50, labels, whole=False)
    assert alone is not None and torch.equal(alone, rows)
    # The second form is the same sets, as they are: only their lengths differ.
    cosine = torch.nn.functional.cosine_similarity(rows, plain, dim=1)
    assert torch.allclose(cosine, torch.ones(50, dtype=torch.float64))
    made = next(one for one in controls(table, found, draws=50) if one.name == "writers")
    # Each draw counts in the form that takes more.
    left = attention(table.logits - both * table.visible, table.visible, up.cap)[..., table.cell.key]
    assert torch.allclose(made.left, left.amin(0)) and made.text == module.WHOLE
    assert (left[0] < left[1]).any() and (left[1] < left[0]).any()
    keys = up.k[3, table.cell.head.index // up.group].double()
    # A row over nine keys tells the vector of eight dimensions behind it.
    vectors = torch.linalg.lstsq(float(up.scale[3]) * keys, rows.mT).solution.mT
    assert torch.allclose(vectors.norm(dim=1), taken.length.expand(50), rtol=1e-6)


def test_draws_are_keyed() -> None:
    _, tables = _tables(tiny("qwen3", torch.float64))
    found = _cause(tables[0], "key")
    first, again, other = (controls(tables[0], found, seed=seed, draws=40) for seed in (1, 1, 2))
    for few, many in zip(controls(tables[0], found, seed=1, draws=7), first, strict=True):
        assert torch.allclose(few.left, many.left[:7], atol=1e-12)  # draws do not hang on how many there are
    for a, b, c in zip(first, again, other, strict=True):
        assert torch.equal(a.left, b.left)
        assert not torch.equal(a.left, c.left)
        assert a.p == b.p == (1 + int((a.left <= found.after + 1e-9).sum())) / 41


def test_more_draws_are_more_tries_in_the_model_and_the_first_stay_the_same() -> None:
    """What is said of the answer honours the number of draws: 99 tries reach p .01, where 19 reach .05."""
    model, ids = tiny("llama"), prompts_of(9)[0]
    few, many = (explain(model, ids, head="L3H1", query=-1, draws=draws) for draws in (999, 4999))
    assert few.proof.controls and len(few.proof.controls) == len(many.proof.controls)
    for a, b in zip(few.proof.controls, many.proof.controls, strict=True):
        assert (len(a.left), len(a.effects), len(b.left), len(b.effects)) == (999, 19, 4999, 99)
        assert b.effects[:19] == pytest.approx(a.effects, abs=1e-5)
        assert b.answer_p is not None and round(b.answer_p * 100) == pytest.approx(b.answer_p * 100)
    claim = many.verdict.matters.claim
    assert claim is not None and claim.draws == 99


def test_of_too_few_writers_nobody_can_say_whether_it_is_these() -> None:
    """Low layers have few MLPs: the best of ten would be called specific one time in ten."""
    up, _ = _tables(tiny("llama", torch.float64))
    seen: dict[bool, int] = {True: 0, False: 0}
    for layer in (1, 2, 3):
        pattern = up.stream.pattern(layer, 8)
        for index in range(up.n_heads):
            table = log_odds_table(up, Cell(Head(layer, index), 8, int(pattern[index].argmax())))
            for side in SIDES:
                found = _cause(table, side)
                if not found.resolved:
                    continue
                one, taken = table.side(side), module._whole(table, found)
                carried = one.up.n_carried(layer)
                heads = int((taken.members < carried).sum())
                rest = len(found) - heads
                pool = len(one) - carried
                drawn = module._writers(module.Pool.of(one), taken, 0, 5, ("any",), whole=True)
                if not heads:
                    few = comb(pool, rest) < 20 or pool - rest <= rest
                    assert (drawn is None) >= few
                    seen[few] += 1
    assert seen[True] and Word(None, 0.5) == _specific(0.5, ())
    assert _specific(0.5, (ControlTest("directions", "", (0.9,), 0.001),)) == Word(None, 0.5)
    both = (ControlTest("writers", "", (0.9,) * 99, 0.04), ControlTest("directions", "", (0.9,) * 999, 0.001))
    word = _specific(0.5, both)
    assert word.claim is not None and word.said is word.claim.supported is True
    assert (word.p, word.claim.p, word.claim.q, word.claim.draws) == (0.04, 0.04, 0.04, 99)


def test_a_cause_that_is_the_only_writer_has_no_other_writers() -> None:
    model = tiny("llama", torch.float64)
    up = PromptWrites(model.split(prompts_of(9)), 0)
    table = log_odds_table(up, Cell(Head(0, 1), 8, int(up.stream.pattern(0, 8)[1].argmax())))
    found = _cause(table, "query")
    assert [member.kind for member in found.members] == ["embedding"]
    assert "writers" not in {control.name for control in controls(table, found, draws=5)}


def _signals(up: PromptWrites, table: LogOddsTable, side: Side) -> SideSignals:
    rules = Rules(tau=default_threshold(table.attention, table.keys))
    return LayerSearch(up.bases, table.cell.head.layer, rules, up.dtype).run(up, [table.cell])[0][side]


def test_signals_have_controls_as_whole_writers_have(variant: str) -> None:
    """What is taken is what the search took, and the channels to draw from are those that no signal is in."""
    up, tables = _tables(tiny(variant, torch.float64))
    seen: set[str] = set()
    for table in tables:
        for side in SIDES:
            found, one = _signals(up, table, side), table.side(side)
            if not found.resolved:
                continue
            taken = module._signals(table, found)
            left = attention(table.logits - taken.logits, table.visible, up.cap)[table.cell.key]
            assert float(left) == pytest.approx(found.after, abs=1e-9)
            slow = removal(up, table.cell, found.signals)
            vectors = slow.query[None] if side == "query" else slow.key * table.visible[:, None]  # type: ignore[index,operator]
            assert torch.allclose(taken.vectors, vectors.double(), atol=1e-9)
            used = {channel for signal in found.signals for channel in signal.channels}
            assert not used & set(taken.unused.tolist()) and taken.number == len(used)
            made = {control.name: control for control in controls(table, found, draws=40)}
            seen |= set(made)
            for control in made.values():
                as_much = int((control.left <= float(left) + 1e-12).sum())
                assert control.p == pytest.approx((1 + as_much) / 41)
            # With all channels of its writers a set of signals is a set of whole writers.
            every = torch.ones(len(taken.members), len(one.columns), dtype=torch.float64)
            whole = one.written(taken.members).sum(0)
            assert torch.allclose(one.within(taken.members, every), whole, atol=1e-9)
    assert seen >= {"directions", "channels"}


def test_an_explanation_says_whether_its_signals_are_specific() -> None:
    why = next(
        one
        for seed in range(20)
        for one in [explain(tiny("llama", seed=seed), prompts_of(9)[0], head="L3H1", query=-1, draws=99)]
        if one.proof.signals and one.proof.signals.specific.said is not None
    )
    document, test = why.to_json()["signals"], why.proof.signals
    assert test is not None and why.who.headline is not None
    assert document["side"] == why.who.headline.side
    assert document["after"] == why.to_json()["cause"][document["side"]]["signals_after"]
    drawn = any(control["name"] == "writers" for control in document["controls"])
    p = max(control["p"] for control in document["controls"]) if drawn else None
    taken = why.attention - document["after"]
    said = None if p is None else p <= 0.05
    claim = document["specific"].pop("claim")
    assert document["specific"] == {"said": said, "value": pytest.approx(taken), "p": p}
    assert (claim and claim["supported"]) == said and (claim and claim["p"]) == p
    assert [control["answer"] for control in document["controls"]] == [None] * len(document["controls"])


@pytest.mark.calibration
def test_random_sets_of_signals_are_rarely_called_specific() -> None:
    said, sets, measured = 0, 0, 0
    for seed in range(6):
        for name in VARIANTS:
            up, tables = _tables(tiny(name, seed=seed), count=3)
            for place, table in enumerate(tables):
                for side in SIDES:
                    found = _signals(up, table, side)
                    if not found.resolved:
                        continue
                    fake = _random_signals(table, found, keyed(seed, "random signals", name, place, side))
                    made = controls(table, fake, draws=199)
                    sets += 1
                    measured += any(control.name == "writers" for control in made)
                    # Stricter than the verdict, which says nothing where no other writers can be drawn.
                    said += bool(made) and all(control.p <= 0.05 for control in made)
    assert sets >= 300
    assert measured >= 100
    assert wilson(said, sets)[0] <= 0.05, (said, sets)


def _random_signals(table: LogOddsTable, found: SideSignals, generator: torch.Generator) -> SideSignals:
    """As many signals, each some channel of some writer."""
    one = table.side(found.side)
    others = one.possible.nonzero()[:, 0].tolist()
    chosen = torch.randperm(len(others) * len(one.columns), generator=generator)[: len(found)].tolist()
    removed = tuple(
        replace(
            real,
            signal=replace(
                real.signal,
                writer=one.writer(others[number // len(one.columns)]),
                channels=(number % len(one.columns),),
            ),
        )
        for real, number in zip(found.removed, chosen, strict=True)
    )
    return replace(found, removed=removed)


@pytest.mark.calibration
def test_random_sets_are_rarely_called_specific() -> None:
    said, sets, measured = 0, 0, 0
    for seed in range(10):
        for name in VARIANTS:
            model = tiny(name, seed=seed)
            _, tables = _tables(model, count=3)
            for place, table in enumerate(tables):
                for side in SIDES:
                    cause = _cause(table, side)
                    if not cause.resolved:
                        continue
                    one = table.side(side)
                    others = one.possible.nonzero()[:, 0].tolist()
                    generator = keyed(seed, "random set", name, place, side)
                    chosen = torch.randperm(len(others), generator=generator)[: len(cause)].tolist()
                    members = tuple(one.writer(others[i]) for i in chosen)
                    after = attention_without(table, side, members)
                    fake = WriterSet(side, table.attention, cause.threshold, after, members, (), "fixed")
                    made = controls(table, fake, draws=199)
                    sets += 1
                    measured += any(control.name == "writers" for control in made)
                    # Stricter than the verdict, which says nothing where no other writers can be drawn.
                    said += bool(made) and all(control.p <= 0.05 for control in made)
    assert sets >= 500
    assert measured >= 100
    assert wilson(said, sets)[0] <= 0.05, (said, sets)
