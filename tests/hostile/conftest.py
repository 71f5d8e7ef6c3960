"""What a run of the hostile inputs says at its end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from fuzzing import COUNTS


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Nothing that is tried here may reach the models that the user has."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEADWISE_CACHE", str(tmp_path_factory.mktemp("cache")))
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
