"""Shared fixtures: every tiny variant, both precisions, and the real default model."""

from __future__ import annotations

import os

# Every test process may use what the machine has, but must not wait for a network.
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import signal
from functools import lru_cache
from pathlib import Path

import half_precision  # noqa: F401  (first: it must act before torch is loaded)
import pytest
import torch
from pace import few_variants_of_most_tests, first_is_quick, long_ones_first
from tiny import VARIANTS, tiny

from headwise.model.model import Model

# A suite that was started in the background has inherited an ignored Ctrl-C, which the processes it interrupts would
# inherit from it.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    few_variants_of_most_tests(items)
    long_ones_first(items)


_cached_tiny = lru_cache(maxsize=None)(tiny)


@pytest.fixture(params=VARIANTS)
def variant(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(params=first_is_quick("float32", "float64"))
def model(request: pytest.FixtureRequest, variant: str) -> Model:
    """A tiny random model of each family and variant, in both precisions."""
    return _cached_tiny(variant, getattr(torch, request.param))


@pytest.fixture
def exact(model: Model) -> float:
    """The relative error an identity may show in the model's precision."""
    return 1e-9 if model.dtype == torch.float64 else 1e-5


@pytest.fixture(scope="session")
def smollm2() -> Model:
    """The real default model."""
    import headwise

    return headwise.load()


@pytest.fixture(scope="session")
def answer_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Prompts that the small trained model answers, with their answers."""
    from toy_answers import COUNT, answer_lines, write_lines

    return write_lines(tmp_path_factory.mktemp("prompts") / "mine.jsonl", answer_lines(COUNT))


@pytest.fixture(scope="session")
def whole_run(answer_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of many traces that nobody disturbed."""
    from toy_answers import small_model

    from headwise.survey.collect import trace_many

    out = tmp_path_factory.mktemp("whole") / "run"
    trace_many(small_model(), answer_file, out=out)
    return out
