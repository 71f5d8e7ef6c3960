"""Thousands of bad inputs: each ends in a result or in one line, never in a traceback, a hang or a wrong number."""

from __future__ import annotations

import json
import math
import shutil
import tempfile
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
import tiny_gguf
from fuzzing import damaged, ends_well, mutated, texts, tried, values
from hypothesis import given
from hypothesis import strategies as st
from toy_answers import answer_lines, labelled_lines, small_model

import headwise
from headwise.toy.small_lm import DATA

pytestmark = pytest.mark.hostile
PROMPT = answer_lines(1)[0]


@lru_cache(maxsize=1)
def scratch() -> Path:
    return Path(tempfile.mkdtemp(prefix="headwise-hostile-"))


def written(name: str, data: bytes | str) -> Path:
    path = scratch() / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data if isinstance(data, bytes) else data.encode("utf-8", "surrogatepass"))
    return path


def finite(value: Any) -> None:
    if isinstance(value, dict):
        for item in value.values():
            finite(item)
    elif isinstance(value, list | tuple):
        for item in value:
            finite(item)
    else:
        assert not isinstance(value, float) or math.isfinite(value)


# Prompts, heads and positions from Python


def things() -> st.SearchStrategy[Any]:
    return st.one_of(
        texts(),
        values(),
        st.lists(st.integers(-3, 10**6), max_size=8),
        st.floats(),
        st.just(object()),
        st.binary(max_size=4),
    )


@tried(0.10)
@given(
    st.sampled_from(["prompt", "head", "query", "key", "answer", "wrong", "tau", "draws", "seed"]), things()
)
def test_explanations_asked_for_with_anything(name: str, thing: Any) -> None:
    asked: dict[str, Any] = {
        "prompt": PROMPT["prompt"],
        "head": "L0H0",
        "query": -1,
        "key": 1,
        "answer": PROMPT["answer"],
        "draws": 2,
    }
    asked[name] = thing
    prompt = asked.pop("prompt")
    found = ends_well("explain, from Python", lambda: headwise.explain(small_model(), prompt, **asked))
    if found is not None:
        finite(found.to_json())


@tried(0.07)
@given(st.sampled_from(["prompt", "heads", "queries", "keys", "want", "logits"]), things())
def test_captures_asked_for_with_anything(name: str, thing: Any) -> None:
    asked: dict[str, Any] = {
        "prompt": PROMPT["prompt"],
        "heads": ["L0H0"],
        "queries": -1,
        "want": ("pattern",),
    }
    asked[name] = thing
    prompt = asked.pop("prompt")
    ends_well("capture, from Python", lambda: small_model().capture(prompt, **asked))


@tried(0.03)
@given(st.sampled_from(["prompt", "answer", "wrong", "mode", "rule", "tau", "top_k", "top_p"]), things())
def test_traces_asked_for_with_anything(name: str, thing: Any) -> None:
    asked: dict[str, Any] = {"prompt": PROMPT["prompt"], "answer": PROMPT["answer"], "wrong": PROMPT["wrong"]}
    asked[name] = thing
    prompt = asked.pop("prompt")
    ends_well("trace, from Python", lambda: headwise.trace(small_model(), prompt, **asked))


# Files of prompts


def jsonl(lines: list[Any], ending: str) -> str:
    return ending.join(line if isinstance(line, str) else json.dumps(line) for line in lines)


def file_of_lines(good: list[Any]) -> st.SearchStrategy[str]:
    one = st.one_of(st.sampled_from(good), st.sampled_from(good).flatmap(mutated), texts(), values())
    ending = st.sampled_from(["\n", "\r\n", "\u2028", "\x85", "\n\n"])
    return st.builds(jsonl, st.lists(one, max_size=6).map(lambda some: [*good, *some]), ending)


@tried(0.10)
@given(file_of_lines(answer_lines(3)))
def test_files_of_answers(text: str) -> None:
    from headwise.tasks.answers.make import make_answers

    path = written("answers.jsonl", text)
    ends_well("answers.jsonl", lambda: make_answers(str(path), small_model().tokenizer))


@tried(0.06)
@given(file_of_lines(labelled_lines()))
def test_files_of_labelled_prompts(text: str) -> None:
    from headwise.tasks.labelled.make import make_task

    path = written("labelled.jsonl", text)
    ends_well("labelled.jsonl", lambda: make_task(str(path), small_model().tokenizer))


# Files that headwise wrote


@lru_cache(maxsize=1)
def circuit_record() -> Any:
    circuit = headwise.trace(small_model(), PROMPT["prompt"], answer=PROMPT["answer"], wrong=PROMPT["wrong"])
    path = scratch() / "good.json"
    circuit.save(path)
    return json.loads(path.read_text(encoding="utf-8"))


@tried(0.10)
@given(st.deferred(lambda: mutated(circuit_record())))
def test_circuit_files(record: Any) -> None:
    path = written("circuit.json", json.dumps(record))
    circuit = ends_well("circuit files", lambda: headwise.Circuit.load(path, model=small_model()))
    if circuit is not None:
        again = scratch() / "again.json"
        circuit.save(again)
        assert headwise.Circuit.load(again, model=small_model()) == circuit


@tried(0.03)
@given(st.deferred(lambda: damaged((scratch() / "good.json").read_bytes() if circuit_record() else b"")))
def test_damaged_circuit_files(data: bytes) -> None:
    path = written("circuit.json", data)
    ends_well("damaged circuit files", lambda: headwise.Circuit.load(path, model=small_model()))


# Models


@lru_cache(maxsize=1)
def folder() -> Path:
    place = scratch() / "model"
    shutil.copytree(DATA, place)
    return place


def load_of(change: Callable[[Path], None]) -> Any:
    place = scratch() / "changed"
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(folder(), place)
    change(place)
    return ends_well("model folders", lambda: headwise.load(place))


@tried(0.05)
@given(st.deferred(lambda: mutated(json.loads((folder() / "config.json").read_text()))))
def test_model_configs(config: Any) -> None:
    load_of(lambda place: written(str(place / "config.json"), json.dumps(config)) and None)


@tried(0.02)
@given(st.deferred(lambda: damaged((folder() / "model.safetensors").read_bytes(), head=2000)))
def test_model_weights(data: bytes) -> None:
    load_of(lambda place: written(str(place / "model.safetensors"), data) and None)


@tried(0.02)
@given(st.deferred(lambda: mutated(json.loads((folder() / "tokenizer.json").read_text()))))
def test_model_tokenizers(record: Any) -> None:
    load_of(lambda place: written(str(place / "tokenizer.json"), json.dumps(record)) and None)


@lru_cache(maxsize=1)
def gguf_bytes() -> bytes:
    return tiny_gguf.write(tiny_gguf.tiny_model("llama"), scratch() / "good.gguf").read_bytes()


@tried(0.02)
@given(st.deferred(lambda: damaged(gguf_bytes(), head=3000)))
def test_gguf_files(data: bytes) -> None:
    path = written("damaged.gguf", data)
    ends_well("GGUF files", lambda: headwise.load(path))
