"""How many of the project's files one explanation runs through: a reader has to be able to follow it."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from tiny import prompts_of, tiny

import headwise
from headwise.circuits.trace import trace
from headwise.why.explain import explain

ROOT = str(Path(headwise.__file__).parent)


def _files(run: Callable[[], object]) -> set[str]:
    """Files of the project in which a function is called, module bodies (imports) left out."""
    seen: set[str] = set()

    def follow(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(ROOT) and code.co_name != "<module>":
            seen.add(code.co_filename[len(ROOT) + 1 :])

    before = sys.getprofile()
    threading.setprofile(follow)
    sys.setprofile(follow)
    try:
        run()
    finally:
        sys.setprofile(before)
        threading.setprofile(None)  # pyright: ignore[reportArgumentType]
    return seen


def test_one_explanation_runs_through_few_files() -> None:
    model, prompt = tiny("llama"), prompts_of(9)[0]
    found = _files(lambda: explain(model, prompt))
    assert {"why/explain.py", "why/what.py", "why/who.py", "why/proof.py", "model/attend.py"} <= found
    # The choice of a basis, the table of whole writers, what MLPs read, what the head does and the controls have a file
    # each; whatever one of them needs alone is in it.
    assert len(found) <= 36, sorted(found)
    # The five files that a newcomer is told to read: the command, and four that this very call runs through.
    guide = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text(encoding="utf-8")
    command, *told = re.findall(r"^\d\. `src/headwise/([\w/]+\.py)`", guide, re.MULTILINE)
    assert command == "cli/explain.py"
    assert len(told) == 4 and set(told) <= found


def test_one_trace_runs_through_few_files() -> None:
    model, prompt = tiny("llama"), prompts_of(9)[0]
    found = _files(lambda: trace(model, prompt))
    assert {"circuits/trace.py", "tracing/search.py", "model/attend.py"} <= found
    assert len(found) <= 26, sorted(found)
