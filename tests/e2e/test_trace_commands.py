"""Parts of explanations, traces and interventions as a user asks for them, on the real default model."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from statistics import mean, median
from typing import NamedTuple

import pytest
import torch
from reference_tracer import LiteralTracer
from tiny import tiny

import headwise
from headwise.circuits.circuit import Circuit
from headwise.circuits.faithfulness import faithfulness
from headwise.cli.main import main
from headwise.model.model import Model

PROMPT = "When John and Mary went to the store, John gave a drink to"

# several wordings, both orders: prompt, answer, wrong
IOI = [
    (PROMPT, " Mary", " John"),
    ("When Mary and John went to the store, John gave a drink to", " Mary", " John"),
    ("Then, Tom and Anna went to the office. Tom gave a computer to", " Anna", " Tom"),
    ("Then, Anna and Tom went to the office. Tom gave a computer to", " Anna", " Tom"),
]


class Done(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


Command = Callable[..., Done]


@pytest.fixture
def command(smollm2: Model, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Run a command line in this process, with the model that is loaded already."""
    monkeypatch.setattr("headwise.model.loading.load.load", lambda _name=None: smollm2)

    def run(*arguments: str) -> Done:
        capsys.readouterr()
        code = main(arguments)
        out, err = capsys.readouterr()
        return Done(code, out, err)

    return run


@pytest.fixture(scope="module")
def circuits(smollm2: Model) -> list[Circuit]:
    prompts, answers, wrongs = zip(*IOI, strict=True)
    return headwise.trace(smollm2, list(prompts), answer=answers, wrong=wrongs, verify=True)


@pytest.mark.real
def test_indirect_objects_have_circuits_whose_counterfactuals_are_real(circuits: list[Circuit]) -> None:
    for circuit in circuits:
        assert all("of the answer passes" in note for note in circuit.notes)
        assert len(circuit.heads) >= 3
        assert circuit.counterfactuals
        for c in circuit.counterfactuals:
            assert c.edited == pytest.approx(c.predicted, abs=1e-4)
    ranks = [len(e.channels) for circuit in circuits for e in circuit.edges if e.channels]
    assert median(ranks) == 1


@pytest.mark.real
def test_removing_the_signals_moves_attention_and_answer_far_more_than_controls(
    smollm2: Model, circuits: list[Circuit]
) -> None:
    circuit = circuits[0]
    inner = [e for e in circuit.edges if e.channels]
    (effect,) = headwise.intervene(smollm2, circuit, [inner], draws=6)
    assert effect.attention_change < 5 * min(effect.control_attention_change, -0.02)
    assert effect.logit_change < -0.5 * effect.clean.lead
    assert abs(effect.logit_change) > 10 * effect.control_logit_change
    assert effect.cosine > 0.98
    whole = faithfulness(smollm2, circuit, draws=6)
    assert whole.destroyed > 1
    # Seventy random firings weigh something, too: an eighth of the lead when this was measured.
    assert abs(1 - mean(whole.random_inside_ablated) / whole.clean) < 0.15


@pytest.mark.real
@pytest.mark.parametrize(
    ("prompt", "right", "other"),
    # the reference materialises every candidate's row: half a minute for the longest
    [
        (PROMPT, " Mary", " John"),
        ("The capital of France is", " Paris", " London"),
        ("When John and Mary left, John told", " Mary", " John"),
    ],
)
def test_the_published_mode_is_the_literal_reference(
    smollm2: Model, prompt: str, right: str, other: str
) -> None:
    circuit = headwise.trace(smollm2, prompt, answer=right, wrong=other, mode="published")
    answer, wrong = circuit.answer_id, circuit.wrong_id
    assert answer is not None and wrong is not None
    weight = smollm2.hf.get_output_embeddings().weight
    reference = LiteralTracer(smollm2, smollm2.split(prompt)).trace(weight[answer] - weight[wrong])
    assert reference.edges

    def node(id: str) -> tuple:
        n = circuit.by_id[id]
        return ("head", n.layer, n.head, n.query, n.key) if n.kind == "head" else (n.kind, n.layer, n.query)

    mine = {(node(e.source), node(e.target), e.side): e for e in circuit.edges if e.channels}
    assert mine.keys() == reference.edges.keys()
    for edge, (weight_, channels) in reference.edges.items():
        assert mine[edge].channels == channels
        assert mine[edge].weight == pytest.approx(weight_, abs=1e-5)


@pytest.mark.real
def test_trace_writes_every_file_and_intervene_reads_it(command: Command, tmp_path: Path) -> None:
    files = {name: tmp_path / name for name in ("c.json", "c.html", "c.graphml", "ag.json")}
    written = {
        "--save": "c.json",
        "--html": "c.html",
        "--graphml": "c.graphml",
        "--attribution-graph": "ag.json",
    }
    options = [word for option, name in written.items() for word in (option, str(files[name]))]
    done = command("trace", PROMPT, "--answer", " Mary", "--wrong", " John", *options)
    assert done.returncode == 0, done.stderr
    assert "median channels per signal 1" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 100
    assert all(file.stat().st_size > 1000 for file in files.values())
    data = json.loads(files["c.json"].read_text())
    assert (data["answer"], data["wrong"], data["prompt"]) == (" Mary", " John", PROMPT)
    done = command("intervene", str(files["c.json"]), "--top", "2", "--draws", "2", "--json")
    assert done.returncode == 0, done.stderr
    effects = json.loads(done.stdout)["effects"]
    assert [len(e["edges"]) for e in effects] == [1, 1, 2]
    assert effects[0]["edited"]["cells"][0] < effects[0]["clean"]["cells"][0] - 0.2


@pytest.mark.real
def test_the_parts_of_an_explanation_in_full(command: Command) -> None:
    asked = ("explain", PROMPT, "--head", "L22H4", "--key", " Mary")
    done = command(*asked, "--only", "what", "--top", "64")
    assert done.returncode == 0, done.stderr
    assert "L22H4: ' to' (13) attends to ' Mary' (3) with 0.67" in done.stdout
    assert "rotated directions" in done.stdout
    rows = [line for line in done.stdout.splitlines() if re.match(r" *\d+ ", line)]
    assert len(rows) == 64
    for row in rows:
        # A channel that works against the attention is drawn with a minus.
        value = float(row.split()[-1])
        assert ("-█" in row) == (value < 0 and "█" in row)
    done = command(*asked, "--only", "who", "--top", "3")
    assert "query side, single channels: 8 signals; without them attention 0.16" in done.stdout
    assert "* L20H0 reading ' John' (9)    +1.056" in done.stdout
    assert done.stdout.count("… and ") == 4


@pytest.fixture
def other_circuit(tmp_path: Path) -> Path:
    """The circuit of a model that is not the default one."""
    path = tmp_path / "other.json"
    headwise.trace(tiny("llama", torch.float64), [[5, 6, 7, 8]])[0].save(path)
    return path


@pytest.mark.real
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["trace", PROMPT, "--answer", " Maryland house"], "answer ' Maryland house' is 2 tokens"),
        (["trace", "", "--answer", " Mary"], "the prompt is empty"),
        (
            ["trace", PROMPT, "--head", "L20H0", "--key", "3"],
            "`headwise trace --head` is now `headwise explain",
        ),
        (["trace", PROMPT, "--json", "circuit.json"], "write it to a file with `headwise trace --save FILE`"),
        (["intervene", "absent.json"], "cannot read 'absent.json'"),
    ],
)
def test_wrong_requests_are_one_line(command: Command, arguments: list[str], message: str) -> None:
    done = command(*arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert "Traceback" not in done.stderr


@pytest.mark.real
def test_a_circuit_of_another_model_is_refused(command: Command, other_circuit: Path) -> None:
    done = command("intervene", str(other_circuit))
    assert done.returncode == 2
    assert "is of 'tiny-llama' (weights " in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.real
def test_an_answer_that_is_not_predicted_gets_a_clear_line(command: Command) -> None:
    done = command("trace", PROMPT, "--answer", " John", "--wrong", " Mary")
    assert done.returncode == 0
    assert "' John' is not what the model predicts: it says ' Mary'" in done.stdout
