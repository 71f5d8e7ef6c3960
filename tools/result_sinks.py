"""The tables of docs/results/sinks.md."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from result_blocks import Blocks, percent, power, said, table

DROPPED = ("seconds", "clusters", "weight_hash")
SIDES = {"key": "key (source)", "query": "query (destination)"}


def kept_sinks(document: dict[str, Any], _: Path) -> dict[str, Any]:
    """What the study printed, less its single clusters and positions."""
    return {name: value for name, value in document.items() if name not in DROPPED} | {
        "positions": document["positions"][:4],
        "heads": [_parked(one) if one["parked"] else _short(one) for one in document["heads"]],
    }


def _parked(head: dict[str, Any]) -> dict[str, Any]:
    """With each claim's numbers; its null and group are the same for all heads, and on the page."""
    sides = [
        {name: side[name] for name in ("side", "distance", "ci", "others", "signals", "controlled")}
        | {"claim": _claim(side["claim"]), "matched": side["matched"] and _matched(side["matched"])}
        for side in head["sides"]
    ]
    return head | {"parks": _claim(head["parks"]), "sides": sides}


def _matched(one: dict[str, Any]) -> dict[str, Any]:
    return one | {"claim": _claim(one["claim"])}


def _claim(one: dict[str, Any]) -> dict[str, Any]:
    return {name: one[name] for name in ("p", "q", "supported")}


def _short(head: dict[str, Any]) -> dict[str, Any]:
    return {name: head[name] for name in ("head", "attention", "parked")} | {"sides": []}


def _sides(data: dict[str, Any], side: str) -> list[dict[str, Any]]:
    return [one for head in data["sinks"]["heads"] for one in head["sides"] if one["side"] == side]


def agreement(data: dict[str, Any]) -> Sequence[str]:
    """Whether a head's signal is the same in every prompt, by side."""
    rows = []
    for side, title in SIDES.items():
        found = _sides(data, side)
        low, middle, high = quantiles([one["distance"] for one in found], n=4)
        others = [one["others"] for one in found if one["others"] is not None]
        matched = [one["matched"] for one in found if one["matched"] is not None]
        rows.append(
            [
                title,
                f"{sum(one['controlled'] for one in found)} of {len(found)}",
                f"{middle:.2f} ({low:.2f}–{high:.2f})",
                f"{sum(one['ci'][1] < 0.5 for one in found)}",
                f"{median(others):.2f}",
                f"**{sum(one['claim']['supported'] for one in matched)} of {len(matched)}**",
                f"{median(one['signals'] for one in found):g}",
            ]
        )
    titles = ["side", "controlled", "distance, median (quartiles)", "upper end of the interval below 0.5"]
    other = ["same heads at other tokens, median", "beyond a frequent token, of those that have one"]
    return table([*titles, *other, "signals in a set, median"], rows)


def removed(data: dict[str, Any]) -> Sequence[str]:
    """Signals of single firings removed."""
    rows = [
        [
            f"{one['side']} signals",
            f"{one['attention']:.3f}",
            f"{one['predicted']:.3f}",
            f"{one['edited']:.3f} ({one['edited_ci'][0]:.3f}–{one['edited_ci'][1]:.3f})",
            power(one["error"]),
            f"{one['control']:.3f}",
        ]
        for one in data["sinks"]["removal"]["one_by_one"]
    ]
    titles = ["removed", "attention on the sink", "predicted", "edited (95 %)", "largest error"]
    return table([*titles, "as many unused channels"], rows)


def writers(data: dict[str, Any]) -> Sequence[str]:
    """Who writes the control signals of the key side."""
    rows = [
        [
            f"{one['component']}, at the first token" if one["size"] > 1 else one["component"],
            f"{one['size']}",
            percent(one["share"]),
            power(one["distance"]),
            f"{one['reading']:.2f}",
        ]
        for one in data["sinks"]["sources"]
        if one["side"] == "key"
    ]
    titles = ["key side: written by", "heads", "share of the signal", "distance of its write over prompts"]
    return table([*titles, "cosine to the heads' signals"], rows)


def shared(data: dict[str, Any]) -> Sequence[str]:
    """One direction out of all heads of a group at once."""
    rows = [
        [
            f"{one['side']}: {one['name']}",
            f"{len(one['heads'])}",
            f"{one['attention']:.3f}",
            f"{one['removed']:.3f} ({one['removed_low']:.3f}–{one['removed_high']:.3f})",
            f"{one['control']:.3f}",
            f"{one['loss_change']:+.2f} ({one['loss_low']:+.2f} to {one['loss_high']:+.2f})",
            f"{one['control_loss_change']:+.2f}",
            said(one["claim"]["supported"]),
        ]
        for one in data["sinks"]["removal"]["shared"]
    ]
    titles = ["direction", "heads", "attention on sinks", "without it (95 %)", "random", "loss (95 %)"]
    return table([*titles, "random", "frees more than random"], rows)


SINKS: Blocks = {"agreement": agreement, "writers": writers, "removed": removed, "shared": shared}
