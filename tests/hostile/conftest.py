"""What a run of the hostile inputs says at its end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fuzzing import COUNTS


@pytest.fixture(scope="session")
def an_empty_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module", autouse=True)
def own_cache(an_empty_cache: Path) -> Iterator[None]:
    """Nothing that is tried here may reach the models that the user has; tests of other folders have theirs again."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEADWISE_CACHE", str(an_empty_cache))
        yield


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if not COUNTS:
        return
    terminalreporter.write_sep("-", "hostile inputs")
    for target in sorted({target for target, _ in COUNTS}):
        taken, refused = COUNTS[target, "taken"], COUNTS[target, "refused"]
        terminalreporter.write_line(
            f"{target}: {taken + refused} tried, {refused} refused in one line, {taken} taken"
        )
    terminalreporter.write_line(f"together: {sum(COUNTS.values())}")
