"""A circuit run's summary for the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from headwise.show.kit.terminal import bar, table
from headwise.strings import counted


def summary_tables(summary: Mapping[str, Any]) -> RenderableType:
    """Counts and medians, then the wrong answers by wording, then the reasons of failures."""
    head = Text(
        f"{summary['task']} in {summary['model']}: {counted(summary['n_prompts'], 'prompt')}", style="bold"
    )
    rows = [
        ("traced to a circuit", summary["n_traced"]),
        ("answered wrong, set aside", summary["n_wrong"]),
        ("without a circuit", summary["n_empty"]),
        ("failed", summary["n_failed"]),
        ("firings in a circuit (median)", _plain(summary["median_firings"])),
        ("edges in a circuit (median)", _plain(summary["median_edges"])),
        ("channels of an edge (median)", _plain(summary["median_signal_rank"])),
        ("prompts per second", _plain(summary.get("prompts_per_second"))),
    ]
    counts = table(("", ""), [(name, str(value)) for name, value in rows], header=False)
    parts: list[RenderableType] = [head, Text(), counts]
    if summary["n_wrong"]:
        wrong = [
            (
                row["wording"] or "(none)",
                str(row["wrong"]),
                str(row["prompts"]),
                bar(row["wrong"] / row["prompts"]),
            )
            for row in summary["wrong_by_wording"]
        ]
        parts += [Text(), table(("wording", "wrong", "of", ""), wrong)]
    for failure in summary["failures"]:
        parts += [Text(), Text(f"failed, {counted(failure['prompts'], 'prompt')}: {failure['reason']}")]
    return Group(*parts)


def _plain(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g}" if value < 1000 else f"{value:.0f}"
