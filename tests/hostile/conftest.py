"""What a run of the hostile inputs says at its end."""

from __future__ import annotations

from typing import Any

from fuzzing import COUNTS


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
