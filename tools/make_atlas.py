"""Put the numbers of an atlas into docs/results/atlas.md.

    python tools/make_atlas.py RUN     read a finished run of `headwise head --all`, keep its numbers
    python tools/make_atlas.py         write the page's blocks from the kept numbers

Numbers are kept in docs/results/data/atlas.json, one row per head; a test holds the page against them. Prose is written
by hand between the blocks.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

from result_blocks import BLOCK

PAGE = Path(__file__).parent.parent / "docs" / "results" / "atlas.md"
DATA = PAGE.parent / "data" / "atlas.json"
ROLES = ("previous token", "duplicate token", "induction", "self")


def kept(run: Path) -> dict[str, Any]:
    """What is kept of a run: its settings, and a row per head."""
    document = json.loads((run / "atlas.json").read_text(encoding="utf-8"))
    return {
        "model": document["model"],
        "weights": document["weight_hash"],
        "corpus": document["settings"]["corpus"],
        "texts": document["texts"],
        "tokens": document["tokens"],
        "cells": document["settings"]["cells"],
        "heads": [row(one) for one in document["heads"]],
    }


def row(one: dict[str, Any]) -> dict[str, Any]:
    """A head in one row."""
    account, role, sinks = one["account"], one["role"], one["on_sinks"]
    made = {
        "head": one["head"],
        "kind": one["described"],
        "role": None if role is None else role["role"],
        "on_sinks": None if sinks is None else round(sinks["mean"], 3),
        "content": None,
        "copies": None,
        "suppresses": None,
    }
    if account is not None:
        made |= {
            "content": round(account["place"]["reasons"]["content"], 3),
            "copies": round(account["does"]["copies"]["mean"], 3),
            "suppresses": round(account["does"]["suppresses"]["mean"], 3),
        }
        for side in ("query", "key"):
            first = next((w for w in account["writers"] if w["side"] == side), None)
            if first is not None:
                made[side] = {
                    "writer": first["writer"],
                    "often": round(first["often"]["mean"], 3),
                    "log_odds": round(first["log_odds"]["mean"], 2),
                }
    return made


def percent(share: float | None) -> str:
    return "–" if share is None else f"{share:.0%}"


def shaped(one: dict[str, Any], side: str) -> str:
    """The writer that shapes a side most often."""
    found = one.get(side)
    return (
        "–" if found is None else f"{found['writer']} ({percent(found['often'])}, {found['log_odds']:+.1f})"
    )


def table(heads: list[dict[str, Any]]) -> list[str]:
    """A row per head."""
    lines = [
        "| head | kind | on sinks | by content | copies | query shaped by | keys shaped by |",
        "|---|---|---|---|---|---|---|",
    ]
    for one in heads:
        shares = " | ".join(percent(one[name]) for name in ("on_sinks", "content", "copies"))
        lines.append(
            f"| {one['head']} | {one['kind']} | {shares} | {shaped(one, 'query')} | {shaped(one, 'key')} |"
        )
    return lines


def layer(one: dict[str, Any]) -> int:
    return int(re.match(r"L(\d+)", one["head"])[1])  # type: ignore[index]


def kinds(heads: list[dict[str, Any]]) -> list[str]:
    """How many heads are of each kind, by thirds of the layers."""
    last = max(map(layer, heads)) + 1
    cuts = [0, last // 3, 2 * last // 3, last]
    thirds = list(pairwise(cuts))
    titles = " | ".join(f"layers {low} to {high - 1}" for low, high in thirds)
    lines = [f"| kind | heads | {titles} |", "|---|---|---|---|---|"]
    for kind, number in Counter(one["kind"] for one in heads).most_common():
        each = [
            sum(one["kind"] == kind and low <= layer(one) < high for one in heads) for low, high in thirds
        ]
        lines.append(f"| {kind} | {number} | {' | '.join(map(str, each))} |")
    return lines


def first_writers(heads: list[dict[str, Any]]) -> list[str]:
    """Who is most often the writer that shapes a side most often."""
    lines = [
        "| side | shaped most often by (of how many heads) | MLPs | heads | embedding and others |",
        "|---|---|---|---|---|",
    ]
    for side in ("query", "key"):
        found = Counter(one[side]["writer"] for one in heads if side in one)
        named = ", ".join(f"{name} ({number})" for name, number in found.most_common(6))
        mlps = sum(number for name, number in found.items() if name.startswith("MLP"))
        from_heads = sum(number for name, number in found.items() if name.startswith("L"))
        lines.append(f"| {side} | {named} | {mlps} | {from_heads} | {found.total() - mlps - from_heads} |")
    return lines


def blocks(data: dict[str, Any]) -> dict[str, list[str]]:
    """The generated parts of the page."""
    heads = data["heads"]
    copying = sorted((one for one in heads if (one["copies"] or 0) >= 0.5), key=lambda one: -one["copies"])
    return {
        "run": [
            f"`{data['model']}`, {len(heads)} heads, {data['texts']} texts of {data['corpus']}, "
            f"{data['tokens']:,} tokens; {data['cells']} cells of each head are explained."
        ],
        "kinds": kinds(heads),
        "roles": table([one for one in heads if one["kind"] in ROLES]),
        "writers": first_writers(heads),
        "copying": table(copying),
        "heads": table(heads),
    }


def filled(page: str, data: dict[str, Any]) -> str:
    """The page with its blocks made from the numbers."""
    made = blocks(data)
    return BLOCK.sub(lambda m: f"{m[1]}\n{chr(10).join(made[m[2]])}\n\n{m[3]}", page)


def main(*given: str) -> None:
    """Keep the numbers of the run that is given, and write the page."""
    if given:
        DATA.write_text(json.dumps(kept(Path(given[0])), indent=1) + "\n", encoding="utf-8")
    data = json.loads(DATA.read_text(encoding="utf-8"))
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), data), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
