"""Which cells are drawn: only those that exist, of the level they are said to be, and never across halves."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from tiny import prompts_of, tiny

from headwise.basis_names import BasisName
from headwise.errors import HeadwiseError
from headwise.naming.activation import Activations
from headwise.naming.halves import halves_of, swapped
from headwise.naming.reservoir import Reservoir
from headwise.naming.sample import KINDS, CellsJob, Drawn, Levels, LevelsJob, Scored
from headwise.naming.signals import Subject
from headwise.scale.work import Chunk

SINGULAR = BasisName("singular", "query", "")
SUBJECTS = tuple(
    Subject.parse(text)
    for text in (
        "L3H1",
        "L2H0 sink",
        "L3H2 key MLP1",
        "L3H2 query L1H0",
        "L3H0 ch2 ++",
        "L1H1 query ch0+3 MLP0 --",
    )
)


class Tokens:
    """Token ids as ``Texts`` gives them."""

    def __init__(self, ids: list[list[int]]) -> None:
        self.ids, self.lengths = ids, np.array([len(one) for one in ids])

    def __len__(self) -> int:
        return len(self.ids)

    def ids_of(self, text: int) -> list[int]:
        return self.ids[text]


def halved(ids: list[list[int]], seed: int = 0) -> Any:
    texts: Any = Tokens(ids)
    return halves_of(texts, seed)


def chunk_of(ids: list[list[int]], first: int = 0) -> Chunk[Any]:
    return Chunk(0, tuple((number + first, tuple(one)) for number, one in enumerate(ids)))


@pytest.fixture(scope="module")
def drawn() -> Any:
    model = tiny("llama")
    ids = prompts_of(20, 20, 18, 20, 13, 20, 20, 16)
    measured = Scored(SUBJECTS, None, SINGULAR)
    levels = Levels.of(SUBJECTS, LevelsJob(measured, 0).make(model, chunk_of(ids), lambda _: None).scores)
    made = CellsJob(measured, levels, 0).make(model, chunk_of(ids, 100), lambda _: None)
    acts = Activations(model, SUBJECTS)
    stream = model.split(ids, layers=acts.layers)
    scores = torch.zeros(len(SUBJECTS), *stream.batch.ids.shape, stream.batch.ids.shape[1])
    for numbers, some, exists in acts.blocks(stream):
        scores[numbers] = some.masked_fill(~exists, torch.nan)
    return SimpleNamespace(made=made, levels=levels, scores=scores.numpy(), ids=ids)


def cells(found: Any, kind: str) -> Any:
    """(subject, text in the batch, destination, source, score, text that the positive is of) of every drawn cell."""
    number = KINDS.index(kind)  # pyright: ignore[reportArgumentType]
    made: Drawn = found.made
    for subject, text in zip(*np.nonzero(made.text[number] >= 0), strict=True):
        d, s = int(made.destination[number, subject, text]), int(made.source[number, subject, text])
        yield (
            subject,
            int(made.text[number, subject, text]) - 100,
            d,
            s,
            made.score[number, subject, text],
            text,
        )


@pytest.mark.parametrize("kind", KINDS)
def test_only_cells_that_exist_are_drawn_with_their_own_scores(drawn: Any, kind: str) -> None:
    seen = 0
    for subject, text, d, s, score, _ in cells(drawn, kind):
        assert 0 <= s <= d < len(drawn.ids[text])
        assert (s == 0) == SUBJECTS[subject].sink  # the first token is a stratum of its own
        assert score == pytest.approx(drawn.scores[subject, text, d, s], abs=1e-4)
        seen += 1
    assert seen >= 3


def test_kinds_are_of_their_levels(drawn: Any) -> None:
    at = drawn.levels
    bounds = {
        "positive": (at.theta, np.full_like(at.top, np.inf)),
        "near": (at.low, at.high),
        "middle": (at.high, at.theta),
        "upper": (at.theta, at.top),
        "top": (at.top, np.full_like(at.top, np.inf)),
        "own": (np.full_like(at.top, -np.inf), np.minimum(at.median, at.idle)),
        "random": (np.full_like(at.top, -np.inf), at.idle),
        "matched": (np.full_like(at.top, -np.inf), at.idle),
    }
    for kind, (low, high) in bounds.items():
        for subject, _, _, _, score, _ in cells(drawn, kind):
            assert low[subject] <= score < high[subject]


def test_no_positive_is_at_or_below_nothing(drawn: Any) -> None:
    for kind in ("positive", "top", "strongest"):
        for subject, _, _, _, score, _ in cells(drawn, kind):
            assert score > (np.log(0.3 / 0.7) - 1e-6 if SUBJECTS[subject].level in ("head", "sink") else 0)


def test_negatives_keep_what_they_are_to_keep(drawn: Any) -> None:
    positive = {(subject, text): (d, s) for subject, text, d, s, _, _ in cells(drawn, "positive")}
    for subject, text, d, s, _, _ in cells(drawn, "own"):
        d_of, s_of = positive[subject, text]
        query_sided = SUBJECTS[subject].side == "query" or SUBJECTS[subject].sink
        assert (s == s_of and d != d_of) if query_sided else (d == d_of and s != s_of)
    for subject, text, d, s, _, of in cells(drawn, "matched"):
        assert text != of
        assert (d, s) == positive[subject, of]
    assert all(text != of for _, text, _, _, _, of in cells(drawn, "random"))


def test_strongest_is_the_largest_of_its_text(drawn: Any) -> None:
    for subject, text, _, _, score, _ in cells(drawn, "strongest"):
        here = drawn.scores[subject, text].copy()
        here[:, 0] = here[:, 0] if SUBJECTS[subject].sink else np.nan
        here[:, 1:] = np.nan if SUBJECTS[subject].sink else here[:, 1:]
        assert score == pytest.approx(np.nanmax(here), abs=1e-4)


def test_what_is_drawn_of_a_text_does_not_depend_on_when(drawn: Any) -> None:
    model = tiny("llama")
    measured = Scored(SUBJECTS, None, SINGULAR)
    again = CellsJob(measured, drawn.levels, 0).make(model, chunk_of(drawn.ids, 100), lambda _: None)
    for name in ("text", "destination", "source", "score"):
        assert np.array_equal(getattr(again, name), getattr(drawn.made, name))
    content = CellsJob(measured, drawn.levels, 0).to_bytes(again)
    assert np.array_equal(CellsJob(measured, drawn.levels, 0).from_bytes(content).score, again.score)


def test_a_reservoir_keeps_pairs_together_and_stays_its_size(drawn: Any) -> None:
    kept = Reservoir("test", len(SUBJECTS))
    size = kept.text.nbytes
    for _ in range(40):
        kept.add(drawn.made)
    assert kept.text.nbytes == size
    for subject in range(len(SUBJECTS)):
        positive, own = kept.kept("positive", subject), kept.kept("own", subject)
        assert len(positive) == len(own) <= 80
        assert (positive.cells.text == own.cells.text).all()
        assert len(kept.kept("matched", subject)) == len(positive)
        strongest = kept.kept("strongest", subject).score
        assert (np.diff(strongest) <= 0).all()
    assert kept.seen[0, 0] == 40 * (drawn.made.text[0, 0] >= 0).sum()


# --- halves ------------------------------------------------------------------------------------------------------


def test_no_text_is_in_both_halves_and_near_duplicates_are_in_one() -> None:
    ids = prompts_of(*[30] * 60)
    copies = [
        [*one[:12], *two[:10]] for one, two in zip(ids[:20], prompts_of(*[30] * 20, seed=9), strict=True)
    ]
    found = halved([*ids, *copies])
    explore, test = set(found.explore.tolist()), set(found.test.tolist())
    assert not explore & test
    assert len(explore | test) == 80
    assert all((number in explore) == (60 + number in explore) for number in range(20))
    assert found.groups == 60
    assert 15 < len(explore) < 65


def test_halves_follow_from_content_alone() -> None:
    ids = prompts_of(*[30] * 40)
    one, two = halved(ids), halved(ids[::-1])
    assert {tuple(ids[i]) for i in one.explore} == {tuple(ids[::-1][i]) for i in two.explore}
    assert [ids[i] for i in one.test] == [ids[::-1][i] for i in two.test]
    assert {tuple(ids[i]) for i in halved(ids, 1).explore} != {tuple(ids[i]) for i in one.explore}


def test_swapped_texts_are_of_the_same_half_and_long_enough() -> None:
    ids = prompts_of(*[30] * 20, *range(12, 30))
    texts: Any = Tokens(ids)
    found = halves_of(texts)
    other = swapped(texts, found)
    for some in (found.explore, found.test):
        for number in some.tolist():
            assert other[number] != number
            assert other[number] in some
            assert texts.lengths[other[number]] >= texts.lengths[number]
    assert (texts.lengths[other] == texts.lengths)[:20].all()


@pytest.mark.parametrize("count", [0, 1])
def test_too_few_texts_are_one_line(count: int) -> None:
    with pytest.raises(HeadwiseError, match="of them unlike the others, leave"):
        halved(prompts_of(*[30] * count))
