"""Many prompts in a run folder: killed or shared, the same bytes; and every architecture's tables add up."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest
import torch
from forked import Forked
from tiny import tiny
from toy_answers import answer_lines, contents, kept, small_model, write_lines
from words import tokenizer_with

from headwise.bases.basis import Bases
from headwise.model.model import Model
from headwise.scale.folder import WORK
from headwise.scale.work import CHUNKS
from headwise.tasks.answers.types import AnswerPrompt, AnswerSet
from headwise.toy.small_lm import DATA
from headwise.tracing.table import log_odds_table
from headwise.tracing.writes import PromptWrites
from headwise.types import Cell
from headwise.why.many.study import explain_many

HEAD, PROMPTS = "L1H0", 40


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_lines(tmp_path_factory.mktemp("task") / "answers.jsonl", answer_lines(PROMPTS))


@pytest.fixture(scope="module")
def whole(task: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of a run that nobody disturbed."""
    out = tmp_path_factory.mktemp("whole") / "run"
    explain_many(small_model(), task, head=HEAD, out=out)
    return contents(out)


@pytest.mark.parametrize("stage", ["which MLPs", "tables"])
def test_an_interrupted_run_goes_on_to_the_same_bytes(
    stage: str, task: Path, whole: dict[str, bytes], tmp_path: Path
) -> None:
    out = tmp_path / "run"

    def interrupt(name: str, done: int, total: int) -> None:
        if name == stage and done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        explain_many(small_model(), task, head=HEAD, out=out, progress=interrupt)
    assert kept(out)
    told: list[tuple[str, int]] = []
    explain_many(
        small_model(), task, head=HEAD, out=out, progress=lambda name, done, _: told.append((name, done))
    )
    assert contents(out) == whole
    assert [done for name, done in told if name == stage][1] > 0  # what was kept is not made again


@pytest.mark.slow
def test_a_killed_run_goes_on_to_the_same_bytes(task: Path, whole: dict[str, bytes], tmp_path: Path) -> None:
    out = tmp_path / "run"
    # One prompt per chunk would be another run, so the model is slowed instead: the process is there to be killed.
    slow = (
        "import time; import headwise.why.many.parts as p; q = p._parts\n"
        "p._parts = lambda *given: (time.sleep(0.02), q(*given))[1]\n"
        "from headwise.cli.main import run; run()"
    )
    asked = ["explain", "--task", str(task), "--head", HEAD, "--model", str(DATA), "--out", str(out)]
    process = Forked(asked, code=slow)
    deadline = time.monotonic() + 300
    while len(list((out / WORK).glob(CHUNKS))) < 3 and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    _, told = process.communicate()
    assert process.returncode == -signal.SIGKILL, told.decode()
    assert kept(out)
    explain_many(small_model(), task, head=HEAD, out=out)
    assert contents(out) == whole


@pytest.mark.slow
def test_two_workers_find_the_same(task: Path, whole: dict[str, bytes], tmp_path: Path) -> None:
    explain_many(small_model(), task, head=HEAD, out=tmp_path / "run", workers=2)
    assert contents(tmp_path / "run") == whole


def test_every_architecture_gives_the_mean_of_its_prompts(variant: str) -> None:
    words = [f"w{number}" for number in range(56)]
    made = tiny(variant, torch.float64)
    model = Model(made.hf, tokenizer_with(["<unk>", "<s>", "<u>", "</u>", "<a>", *words]), name=made.name)
    texts = ["w3 w14 w15 w9 w2 w6 w5", "w35 w8 w9 w7 w9", "w3 w2 w38 w4 w6 w26 w43 w38"]
    task = AnswerSet("words", tuple(AnswerPrompt(text, "w7", "w9", {}, 12, 14) for text in texts))
    head = model.head("L3H1")
    found = explain_many(model, task, head=head, key=-2)
    sums = {side: dict[str, float]() for side in ("query", "key")}
    totals = []
    for text in texts:
        ids = model.prompt_ids(text)
        up = PromptWrites(model.split([ids]), 0, Bases.of(model))
        table = log_odds_table(up, Cell(head, len(ids) - 1, len(ids) - 2))
        totals.append(table.total)
        for side, by_name in sums.items():
            one = table.side(side)  # type: ignore[arg-type]
            for row, part in enumerate(one.rows.tolist()):
                name = one.writer(row).name
                by_name[name] = by_name.get(name, 0.0) + part / len(texts)
    assert found.log_odds.mean == pytest.approx(sum(totals) / len(texts), abs=1e-9)
    assert found.error < 1e-8
    for one in found.writers:
        if one.writer != "others":
            assert one.log_odds.mean == pytest.approx(sums[one.side][one.writer], abs=1e-9)
