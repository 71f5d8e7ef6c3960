"""What a circuit run holds, in a few numbers."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from headwise.strings import whole_number
from headwise.survey.records import CircuitRun


def run_summary(run: CircuitRun) -> dict[str, Any]:
    """Counts by status, what was answered wrong by wording, and medians over the traced circuits.

    The signal rank of an edge is the number of channels it writes into; edges into the answer have none.
    """
    columns = {
        name: run.prompts.column(name).to_pylist() for name in ("status", "reason", "n_firings", "n_edges")
    }
    status = columns["status"]
    wordings = [labels.get("wording", "") for labels in run.labels]
    of_wording = Counter(wordings)
    wrong = Counter(w for w, s in zip(wordings, status, strict=True) if s == "wrong")
    failed = Counter(r for r, s in zip(columns["reason"], status, strict=True) if s == "failed")
    channels = run.edges.column("channels").combine_chunks()
    ranks = np.diff(channels.offsets.to_numpy()) if len(channels) else np.zeros(0)
    ranks = ranks[ranks > 0]

    def median(column: str) -> float | None:
        values = [columns[column][n] for n in run.traced]
        return float(np.median(values)) if values else None

    return {
        "model": run.config["model"],
        "task": run.config["task"],
        "mode": run.config["mode"],
        "n_prompts": len(run),
        "n_traced": len(run.traced),
        "n_wrong": sum(s == "wrong" for s in status),
        "n_empty": sum(s == "empty" for s in status),
        "n_failed": sum(s == "failed" for s in status),
        "wrong_by_wording": [
            {"wording": w, "wrong": wrong[w], "prompts": of_wording[w]}
            for w in sorted(of_wording, key=_by_number)
        ],
        "failures": [{"reason": reason, "prompts": count} for reason, count in failed.most_common()],
        "median_firings": median("n_firings"),
        "median_edges": median("n_edges"),
        "median_signal_rank": float(np.median(ranks)) if ranks.size else None,
    }


def _by_number(text: str) -> tuple[str, int, str]:
    """Wordings as people count them: 2 before 10, and each kind together."""
    head, _, tail = text.rpartition(" ")
    number = whole_number(tail)
    return (text, 0, text) if number is None else (head, number, "")
