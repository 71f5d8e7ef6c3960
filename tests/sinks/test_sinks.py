"""Sinks: measured where they are, signals compared by hand, removal proved in edited passes."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from planted_sink import SINK, by_hand, plant_sink, planted_prompts
from tiny import prompts_of, tiny

import headwise
from headwise.bases.basis import directions
from headwise.cli.main import main
from headwise.errors import HeadwiseError
from headwise.model.model import Model
from headwise.model.reading import side_maps
from headwise.model.stream import split
from headwise.sinks.clusters import cut, share_signals
from headwise.sinks.find import AWAY, MIN_ROWS, Parking, find_parking, on_sinks, tokens_received
from headwise.sinks.proof import ProjectOut, _rotations, free_one_by_one, projection
from headwise.sinks.result import SinksResult
from headwise.sinks.signals import (
    agreements,
    head_space,
    sink_bases,
    trace_parked,
)
from headwise.sinks.study import find_sinks
from headwise.sinks.texts import TEXTS
from headwise.types import Head, Side

FAMILIES = ["gpt2", "gpt_neox", "llama", "llama-yarn", "mistral", "qwen3", "gemma2"]


@pytest.fixture(scope="module")
def planted() -> SinksResult:
    return find_sinks(plant_sink(), planted_prompts(), traced=8, proved=3)


# --- which tokens, which heads ---------------------------------------------------------------------------------------


def test_sinks_are_measured_and_not_assumed_to_stand_first(planted: SinksResult) -> None:
    assert [(s.position, s.token, s.prompts) for s in planted.sinks] == [(2, str(SINK), 8)]
    assert planted.sinks[0].share == 1.0


def test_received_and_given_attention_equal_the_obvious_loops(
    smallest: tuple[torch.Tensor, torch.Tensor],
) -> None:
    pattern, visible = smallest
    heads, t, _ = pattern.shape
    received = tokens_received(pattern, visible)
    for s in range(t):
        cells = [
            float(pattern[h, d, s])
            for h in range(heads)
            for d in range(s + AWAY, t)
            if bool(visible[h, d, s])
        ]
        rows = {d for h in range(heads) for d in range(s + AWAY, t) if bool(visible[h, d, s])}
        if len(rows) < MIN_ROWS:
            assert received[s].isnan()
        else:
            assert float(received[s]) == pytest.approx(sum(cells) / len(cells), abs=1e-6)
    given = on_sinks(pattern, visible, [0, 3])
    for h in range(heads):
        total = []
        for d in range(t):
            seen = [s for s in (0, 3) if d - s >= AWAY and bool(visible[h, d, s])]
            if seen:
                total.append(sum(float(pattern[h, d, s]) for s in seen))
        wanted = sum(total) / len(total) if total else float("nan")
        assert float(given[h]) == pytest.approx(wanted, abs=1e-6, nan_ok=True)


@pytest.fixture(params=["llama", "mistral"])
def smallest(request: pytest.FixtureRequest) -> tuple[torch.Tensor, torch.Tensor]:
    """Patterns and masks of every head (with and without a window)."""
    got = tiny(request.param).capture(prompts_of(15), want=("pattern",))
    return got.pattern[0], got.visible[0]


def test_parking_of_prompts_of_different_lengths_equals_one_by_one() -> None:
    model, prompts = plant_sink(), [*planted_prompts(3), *planted_prompts(2, length=11)]
    together = find_parking(model, prompts)
    for i, prompt in enumerate(prompts):
        alone = find_parking(model, [prompt])
        assert together.sinks[i] == alone.sinks[0]
        torch.testing.assert_close(together.attention[i], alone.attention[0], atol=1e-6, rtol=1e-5)


# --- control signals --------------------------------------------------------------------------------------------------


def test_the_planted_control_signal_is_found_on_both_sides_with_its_writers(planted: SinksResult) -> None:
    expected: dict[Side, str] = {"query": "offset", "key": "embedding"}
    for side, writer in expected.items():
        found = dict(planted.of(side))
        assert len(found) >= 6
        assert all(a.controlled and a.distance.mean < 0.05 for a in found.values())
        assert planted.writers(side)[0].component == writer
        assert planted.writers(side)[0].share > 0.8
    key = next(s for s in planted.sharing if s.side == "key")
    assert key.sources[0].component == "embedding"
    assert key.sources[0].distance < 1e-6
    # every head's key hears the one direction that the embedding shouts
    assert len(key.clusters) == 1 and key.sources[0].reading > 0.99


@pytest.mark.parametrize("name", FAMILIES)
def test_a_signal_in_the_stream_is_read_as_the_signal_that_was_removed(name: str) -> None:
    """`written`, put into the stream along u_k or v_k, goes through the head's own map and rotation to `read`."""
    model = tiny(name, torch.float64)
    parking = by_hand(model, prompts_of(13, 10))
    traced = trace_parked(model, parking, [0, 1], model.heads, per_head={"other": 1})
    assert traced
    for one in traced:
        stream = split(model, parking.token_ids[one.prompt])
        rotary = stream.layers[one.head.layer].rotary
        channels = sink_bases(model).head(one.head)
        if int(channels.rank) < model.d_head:
            continue
        for side, written in one.written.items():
            basis = directions(model, one.head, channels, side)
            index = one.head.index if side == "query" else one.head.index // model.anatomy.group
            vector = side_maps(model, one.head.layer, side, torch.float64).matrix[index] @ (basis @ written)
            position = one.cell.at(side)
            if rotary is not None:
                here = rotary.at(torch.tensor([[position]]))
                vector = here.turn(vector[None, None, None])[0, 0, 0]
            wanted = head_space(sink_bases(model).layer(one.head.layer), one.head.index, side, one.read[side])
            torch.testing.assert_close(vector, wanted, atol=1e-8, rtol=1e-6)


# --- proof ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FAMILIES)
def test_predicted_attention_is_that_of_the_edited_pass(name: str) -> None:
    model = tiny(name)
    parking = by_hand(model, prompts_of(13, 11))
    traced = trace_parked(model, parking, [0, 1], model.heads, per_head={"sink": 2, "other": 1})
    freed = free_one_by_one(model, parking, traced, [0, 1], draws=1)
    assert freed
    for one in freed:
        assert one.edited == pytest.approx(one.predicted, abs=1e-5)
        assert one.predicted < one.attention


def test_removal_frees_the_planted_sink_and_unused_channels_do_not(planted: SinksResult) -> None:
    for record in planted.one_by_one:
        assert record["attention"] > 0.5
        assert record["error"] < 1e-5
        assert record["edited"] < 0.35
        assert record["control"] > record["edited"] + 0.2
        assert 0 < record["to_next"] <= record["to_top_gainer"] <= 1


def test_one_shared_direction_frees_every_head_at_once(planted: SinksResult) -> None:
    shared = next(s for s in planted.shared if s.side == "key" and s.name == "embedding")
    assert shared.removed.mean < 0.3 < shared.control
    assert shared.attention > 0.5


@pytest.mark.parametrize("name", ["gpt2", "llama", "llama-yarn", "qwen3"])
@pytest.mark.parametrize("side", ["query", "key"])
def test_projecting_out_is_what_a_head_would_read_of_the_projected_stream(name: str, side: Side) -> None:
    model = tiny(name, torch.float64)
    ids = prompts_of(9)[0]
    head = Head(2, 3)
    channels = sink_bases(model).head(head)
    direction = torch.randn(model.d_model, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    edit = projection(model, head, side, direction, _rotations(model, [head], len(ids))[2], len(ids))
    assert isinstance(edit, ProjectOut)
    got = model.capture([ids], heads=[head], want=("q", "k"))
    vectors = (got.q if side == "query" else got.k)[0, 0].double()
    edited = edit.apply(vectors)
    basis = directions(model, head, channels, side)
    part = torch.nn.functional.normalize(basis.mT @ direction, dim=0)
    # by hand: undo the rotation, find the stream vector that the head reads there, project, read it again
    rotary = split(model, ids).layers[2].rotary
    index = head.index if side == "query" else head.index // model.anatomy.group
    matrix = side_maps(model, 2, side, torch.float64).matrix[index]
    plain = vectors if rotary is None else rotary.undo(vectors[None, None])[0, 0]
    stream = plain @ torch.linalg.pinv(matrix).mT
    unit = basis @ part
    projected = (stream - (stream @ unit)[:, None] * unit) @ matrix.mT
    wanted = projected if rotary is None else rotary.turn(projected[None, None])[0, 0]
    torch.testing.assert_close(edited, wanted, atol=1e-8, rtol=1e-6)
    torch.testing.assert_close(edit.apply(edited), edited, atol=1e-8, rtol=1e-6)


# --- the whole -------------------------------------------------------------------------------------------------------


def test_clusters_keep_apart_what_is_apart() -> None:
    near, far = 0.2, 0.9
    block = torch.full((5, 5), far)
    block[:3, :3] = near
    block[3:, 3:] = near
    block.fill_diagonal_(0.0)
    labels = cut(block)
    assert labels[0] == labels[1] == labels[2] != labels[3] == labels[4]


def test_no_controlled_head_gives_no_clusters() -> None:
    model = tiny("llama")
    parking = by_hand(model, prompts_of(12, 12))
    traced = trace_parked(model, parking, [0, 1], model.heads, per_head={"other": 1})
    found = share_signals(model, parking, traced, agreements(parking, traced[:1], [], 0))
    assert [len(s.clusters) for s in found] == [0, 0]


def test_the_same_study_twice_is_the_same_document(planted: SinksResult) -> None:
    again = find_sinks(plant_sink(), planted_prompts(), traced=8, proved=3).to_json()
    first = planted.to_json()
    for document in (first, again):
        document.pop("seconds")
    assert json.dumps(first) == json.dumps(again)


def test_the_report_holds_every_section(planted: SinksResult, tmp_path: Path) -> None:
    from headwise.show.kit.terminal import console
    from headwise.show.sinks.report import sinks_report
    from headwise.show.sinks.terminal import sinks_tables

    page = sinks_report(planted).write(tmp_path / "report.html").read_text(encoding="utf-8")
    assert "Which tokens" in page and "Do heads share it" in page and page.count('class="plot"') >= 7
    console().print(sinks_tables(planted))


def test_our_texts_are_sixty_and_begin_differently() -> None:
    assert len(TEXTS) == len(set(TEXTS)) == 60
    assert len({text.split()[0] for text in TEXTS}) >= 40


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"threshold": 0.99}, "there is no sink"),
        ({"threshold": 1.5}, "threshold=1.5 is not an attention"),
        ({"parked": 0}, "parked=0 is not an attention"),
        ({"traced": 1}, "traced=1 prompts are too few"),
    ],
)
def test_what_cannot_be_measured_is_one_line(options: dict[str, float], said: str) -> None:
    with pytest.raises(HeadwiseError, match=said) as caught:
        find_sinks(plant_sink(), planted_prompts(2), **options)  # pyright: ignore[reportArgumentType]
    assert "\n" not in str(caught.value)


def test_heads_that_do_not_park_are_one_line() -> None:
    with pytest.raises(HeadwiseError, match=r"no head gives sinks 0.99 of its attention \(the most is 0\."):
        find_sinks(tiny("llama"), prompts_of(14, 14), threshold=0.02, parked=0.99)


def test_bad_commands_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    empty, folder = tmp_path / "empty.txt", tmp_path / "file"
    empty.write_text("\n\n", encoding="utf-8")
    folder.write_text("", encoding="utf-8")
    for arguments, said in (
        (["iou"], "there is no task 'iou'"),
        (["--texts", str(tmp_path / "no.txt")], "cannot read"),
        (["--texts", str(empty)], "has no texts"),
        (["ioi", "--texts", str(empty)], "give one of them"),
        (["--out", str(folder)], "cannot be written"),
        (["--prompts", "61"], "61 prompts are more than the 60 texts that come with headwise"),
    ):
        assert main(["sinks", *arguments]) == 2
        error = capsys.readouterr().err
        assert said in error and error.count("\n") == 1


@pytest.mark.real
def test_the_default_model_parks_by_one_written_vector(
    smollm2: Model, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    load: Callable[..., Model] = lambda _name=None: smollm2  # noqa: E731
    monkeypatch.setattr("headwise.model.loading.load.load", load)
    arguments = ["sinks", "--prompts", "6", "--traced", "4", "--proved", "1", "--parked", "0.75", "--json"]
    assert main([*arguments, "--out", str(tmp_path / "run")]) == 0
    document = json.loads(capsys.readouterr().out)
    assert {s["position"] for s in document["sinks"]} == {0}
    assert document["prompts_with_sinks"] == 6
    largest = max((s for s in document["sources"] if s["side"] == "key"), key=lambda s: s["size"])
    assert largest["share"] > 0.5 and largest["distance"] < 0.01
    for record in document["removal"]["one_by_one"]:
        assert record["error"] < 1e-5
        assert record["edited"] < 0.5 < record["control"]
    shared = next(s for s in document["removal"]["shared"] if s["name"] == largest["component"])
    assert shared["removed"] < shared["control"] - 0.2
    assert 1_000_000 < (tmp_path / "run" / "report.html").stat().st_size < 2_000_000
    assert headwise.find_sinks is find_sinks


def test_a_folder_of_another_run_is_refused_before_the_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from headwise.scale.folder import RunFolder

    def loads(*_: Any, **__: Any) -> Any:
        raise AssertionError("the model is not needed to refuse a folder")

    monkeypatch.setattr("headwise.model.loading.load.load", loads)
    with RunFolder(tmp_path / "run", "sparsity", {}) as folder:
        folder.write_json("sparsity.json", {})
        folder.finish("sparsity.json")
    assert main(["sinks", "--out", str(tmp_path / "run")]) == 2
    assert "holds another run (sparsity, not sinks)" in capsys.readouterr().err
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "a.txt").write_text("mine")
    assert main(["sinks", "--out", str(tmp_path / "mine")]) == 2
    assert "holds other files" in capsys.readouterr().err


def test_a_result_comes_back_from_its_folder(planted: SinksResult, tmp_path: Path) -> None:
    again = SinksResult.load(planted.save(tmp_path / "run"))
    assert again.to_json() == {**planted.to_json(), "seconds": 0.0}
    for one, two in zip(again.traced, planted.traced, strict=True):
        assert one.cell == two.cell
        assert repr(one.signals) == repr(two.signals)
        assert all(torch.equal(one.read[side], two.read[side]) for side in two.read)
    assert torch.equal(again.attention.nan_to_num(-1), planted.attention.nan_to_num(-1))
    again.save(tmp_path / "again")
    for name in ("sinks.json", "result.safetensors", "manifest.json"):
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "run" / name).read_bytes()
    assert "heads park there" in planted._repr_html_()
    untested = {where: replace(one, claim=None) for where, one in planted.agreements.items()}
    assert replace(planted, agreements=untested).agreeing_said("key") == "–"
    assert planted.agreeing_said("key") == f"{len(planted.agreeing('key'))} of {len(planted.of('key'))}"


def test_that_a_head_parks_is_an_exact_sign_test_over_prompts() -> None:
    """All of six fair coins fall on one side once in 64, five or more 7 times; a prompt without a sink says nothing."""
    given = torch.tensor(
        [[0.9] * 6, [0.9] * 5 + [0.1], [0.9] * 3 + [0.2] * 3, [0.6] * 2 + [0.0] * 4]
    ).double()
    attention = torch.cat([given.mT[:, None], torch.full((1, 1, 4), torch.nan).double()])
    parking = Parking([[0]] * 7, [(0,)] * 6 + [()], [torch.zeros(1)] * 7, attention)
    found = parking.parks(0.5)
    assert [found[Head(0, head)].p for head in range(4)] == pytest.approx([1 / 64, 7 / 64, 42 / 64, 57 / 64])
    assert found[Head(0, 0)].q == pytest.approx(4 / 64) and not any(one.supported for one in found.values())
    alone = Parking(parking.token_ids, parking.sinks, parking.received, attention[..., :1]).parks(0.5)
    assert alone[Head(0, 0)].supported
    unseen = attention[..., :1].clone()
    unseen[0] = torch.nan
    assert (
        Parking(parking.token_ids, parking.sinks, parking.received, unseen).parks(0.5)[Head(0, 0)].p == 1 / 32
    )
