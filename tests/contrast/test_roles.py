"""Roles of heads: planted ones are found, files come back, the real model's known heads have their names."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from rich.console import Console
from tiny import tiny

import headwise
from headwise.contrast import roles as module
from headwise.contrast.heads import rank_heads
from headwise.contrast.role_claims import by_place, places_of, role_claims
from headwise.contrast.roles import LEAST, ROLES, HeadRoles, head_roles
from headwise.model.model import Model
from headwise.randomness import keyed
from headwise.show.contrast.terminal import roles_table
from headwise.types import Estimate, Head


def planted(role: int, length: int) -> tuple[torch.Tensor, list[int]]:
    """Patterns of two sequences, two heads: one looks where the role says, the other everywhere alike."""
    rows = list(range(length + 1, 2 * length))
    pattern = torch.zeros(2, 2, len(rows), 2 * length)
    for place, row in enumerate(rows):
        where = (row - 1, row - length, row - length + 1, 0, row)[role]
        pattern[:, 0, place, where] = 0.9
        pattern[:, 1, place, : row + 1] = 1 / (row + 1)
    return pattern, rows


@pytest.mark.parametrize("role", range(len(ROLES)))
def test_each_place_is_told_from_the_others(role: int) -> None:
    pattern, rows = planted(role, 12)
    found = by_place(pattern, rows, 12)[..., places_of(12)]
    assert found[:, 0].argmax(-1).tolist() == [role, role]
    assert found[0, 0].tolist() == pytest.approx([0.9 if i == role else 0.0 for i in range(5)])
    assert (found[:, 1] < 0.1).all()


def test_means_are_those_of_the_captured_patterns(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny("llama", torch.float64)
    asked: list[list[int]] = []
    inner = model.stream_capture

    def seen(prompts: list[list[int]], **request: object) -> object:
        asked.extend(prompts)
        return inner(prompts, **request)

    monkeypatch.setattr(model, "stream_capture", seen)
    found = head_roles(model, sequences=5, length=7, keep=False)
    assert len(asked) == 10 and all(len(set(ids[:7])) == 7 for ids in asked)
    asked, shuffled = asked[:5], asked[5:]
    assert all(ids[:7] == ids[7:] for ids in asked)
    assert all(sorted(ids[7:]) == sorted(ids[:7]) for ids in shuffled)
    pattern = model.capture(asked, heads="L2H1", want="pattern").pattern[:, 0]
    slow = torch.stack([pattern[:, row, row - 6] for row in range(8, 14)]).mean()
    one = next(one for one in found.heads if one.head == Head(2, 1))
    assert one.attention["induction"].mean == pytest.approx(float(slow))
    assert one.attention["induction"].low <= float(slow) <= one.attention["induction"].high
    for one in found.heads:
        clear = [role for role in ROLES if one.attention[role].low > LEAST and one.claims[role].supported]
        assert one.role in clear if clear else one.role is None
    again = head_roles(model, sequences=5, length=7, keep=False)
    assert again.to_json() == found.to_json()


def test_roles_are_kept_and_belong_to_their_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWISE_CACHE", str(tmp_path))
    model = tiny("gpt2")
    found = head_roles(model, sequences=4, length=6)
    monkeypatch.setattr(module, "_measured", None)
    assert head_roles(model, sequences=4, length=6).to_json() == found.to_json()
    path = tmp_path / "roles.json"
    found.save(path)
    assert HeadRoles.load(path, model).to_json() == found.to_json()
    assert list(found.to_pandas().columns) == ["head", "role", *ROLES]
    assert "16 heads" in repr(found) and "<table" in found._repr_html_()
    with pytest.raises(headwise.HeadwiseError, match="not of 'tiny-opt'"):
        HeadRoles.load(path, tiny("opt"))
    path.write_text(path.read_text().replace('"length": 6', '"length": "six"'))
    with pytest.raises(headwise.HeadwiseError, match="length is 'six', not a whole number"):
        HeadRoles.load(path)


def attention_at(places: dict[int, float], sequences: int, length: int, noise: float) -> torch.Tensor:
    """One head's mean attention by place, the rest shared out, a little different from sequence to sequence."""
    found = torch.full((sequences, 1, length + 2), 0.01, dtype=torch.float64)
    for place, value in places.items():
        found[:, 0, place] = value
    return found + noise * torch.rand(found.shape, generator=keyed(0, "by place"), dtype=torch.float64)


def test_a_role_goes_by_tokens_where_it_says_so() -> None:
    """A head that looks as far back whatever stands there is no induction head, though attention is above 0.4."""
    length, fit = 8, torch.ones(1, 5, dtype=torch.bool)
    there = attention_at({length - 1: 0.8}, 8, length, 0.05)
    nowhere = attention_at({}, 8, length, 0.05)
    g = keyed(0, "roles")
    by_token = role_claims(there, nowhere, length, fit, g)[0]
    by_distance = role_claims(there, there.flip(0), length, fit, g)[0]
    assert [one.supported for one in by_token] == [False, False, True, False, False]
    # all 256 turns of the signs of 8 sequences: only the one as it is does as much, and five places were asked of
    assert by_token[2].draws == 256 and by_token[2].p == 1 / 256 and by_token[2].q == pytest.approx(5 / 256)
    assert not any(one.supported for one in by_distance)
    assert by_distance[2].p > 0.3


def test_of_two_places_that_are_liked_as_much_none_is_the_role() -> None:
    length, fit = 8, torch.ones(1, 5, dtype=torch.bool)
    both = attention_at({1: 0.45, length + 1: 0.45}, 8, length, 0.05)
    assert not any(one.supported for one in role_claims(both, both, length, fit, keyed(0, "roles"))[0])


def test_ranks_on_a_task_stand_beside_the_roles() -> None:
    model = tiny("llama")
    found = head_roles(model, sequences=4, length=6, keep=False)
    clear = Estimate(0.9, 0.8, 0.95, n=4, clusters=4)
    attended = {**found.heads[5].attention, "induction": clear}
    assert replace(found.heads[5], attention=attended).role is None  # above 0.4, and not supported
    first = replace(found.heads[5], attention=attended, claims={})
    known = replace(found, heads=(*found.heads[:5], first, *found.heads[6:]))
    generator = torch.Generator().manual_seed(0)
    attention = torch.rand(40, len(model.heads), 3, generator=generator)
    attention[:, 5, 0] = 1.0
    labels = torch.tensor([[1, 0, 0]]).repeat(40, 1)
    scores = rank_heads(model.heads, attention, labels, rule="accuracy", generator=generator, permutations=99)
    console = Console(width=100, file=io.StringIO())
    with console.capture() as shown:
        console.print(roles_table(known, 3, "mine", scores))
    text = shown.get()
    assert "rank in mine" in text
    assert re.search(r"induction +L1H1 +0.900 +0.800–0.950 +1 +1–1", text)
    assert re.search(r"L1H1 +1 +1–1 +1.000 +induction", text)


def test_what_does_not_fit_is_one_line() -> None:
    model = tiny("llama")
    for request, message in (
        ({"sequences": 3}, "sequences=3 is too few for an interval: give 4 or more"),
        ({"length": 3}, "length=3 is too short to tell the places apart: give 4 or more"),
        ({"length": 33}, "length=33 is too long for 'tiny-llama': give at most 32"),
    ):
        with pytest.raises(headwise.HeadwiseError, match=message):
            head_roles(model, keep=False, **request)
    with pytest.raises(headwise.HeadwiseError, match="L9H0 is not a head of 'tiny-llama'"):
        head_roles(model, sequences=4, length=5, keep=False).of("L9H0")


@pytest.mark.real
def test_heads_that_are_known_have_their_roles(smollm2: Model) -> None:
    found = head_roles(smollm2, keep=False)
    assert found.of("L18H6") == "induction"
    assert found.of("L11H1") == "previous token"
    assert found.of("L14H3") == "duplicate token"
