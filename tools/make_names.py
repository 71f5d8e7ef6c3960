"""Put the numbers of naming runs into docs/results/names.md.

    python tools/make_names.py KIND=RUN [KIND=RUN ...]     read finished runs of `headwise name`, keep their numbers
    python tools/make_names.py                             write the page's blocks from the kept numbers

Numbers are kept in docs/results/data/names.json; a test holds the page against them. Prose is written by hand between
the blocks.
"""

from __future__ import annotations

import json
import re
import statistics
import sys
import textwrap
from collections import Counter
from pathlib import Path
from typing import Any

from result_blocks import BLOCK

PAGE = Path(__file__).parent.parent / "docs" / "results" / "names.md"
DATA = PAGE.parent / "data" / "names.json"


def kept(run: Path) -> dict[str, Any]:
    """What is kept of one run: shares, controls, and a row per subject."""
    document = json.loads((run / "names.json").read_text(encoding="utf-8"))
    settings = document["settings"]
    rows = []
    for one in document["signals"]:
        accuracy, matched = one["balanced_accuracy"], one["position_matched"]
        rotated = one["controls"]["rotated"]
        rows.append(
            {
                "signal": one["signal"],
                "verdict": one["verdict"],
                "name": None if one["name"] is None else one["name"]["text"],
                "accuracy": None if accuracy is None else round(accuracy["mean"], 3),
                "matched": None if matched is None else round(matched["mean"], 3),
                "rotated": None if rotated is None else rotated["balanced_accuracy"],
                "strongest": sum(e["kind"] == "strongest" and bool(e["holds"]) for e in one["examples"]),
                "shown": sum(e["kind"] == "strongest" for e in one["examples"]),
                "recall": one["recall"],
                "false_alarms": one["false_alarms"],
            }
        )
    return {
        "corpus": settings["corpus"],
        "texts": document["texts"],
        "tokens": document["tokens_scored"],
        "predicates": settings["predicates"],
        "weights": document["weight_hash"],
        "named": document["share_named"],
        "beyond": document["share_beyond_chance"],
        "swapped": document["controls"]["swapped"],
        "rotated": document["controls"]["rotated"],
        "difference": document["difference"],
        "rows": rows,
    }


def percent(share: dict[str, Any] | None) -> str:
    """A share with its interval."""
    return "–" if share is None else f"{share['mean']:.0%} ({share['low']:.0%} to {share['high']:.0%})"


def shares(data: dict[str, Any]) -> list[str]:
    """One row per run: what was named, and its controls."""
    lines = [
        "| what | n | named | beyond chance | swapped, named | rotated, named | named less rotated | accuracy "
        "| rotated |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for kind, one in data.items():
        accuracy = statistics.median(row["accuracy"] for row in one["rows"] if row["accuracy"] is not None)
        turned = [row["rotated"] for row in one["rows"] if row["rotated"] is not None]
        d = one["difference"]
        lines.append(
            f"| {kind} | {one['named']['n']} | {percent(one['named'])} | {percent(one['beyond'])} | "
            f"{percent(one['swapped'])} | {percent(one['rotated'])} | "
            f"{d['mean']:+.0%} ({d['low']:+.0%} to {d['high']:+.0%}) | {accuracy:.2f} | "
            f"{statistics.median(turned):.2f} |"
        )
    return lines


def table(rows: list[dict[str, Any]], *, reasons: bool = False) -> list[str]:
    """A row per subject; with ``reasons`` also how many of its strongest cells the name fits, and where it fails."""
    titles = [
        "signal",
        "verdict",
        *["fits"] * reasons,
        "accuracy",
        "matched",
        "name",
        *["where it fails"] * reasons,
    ]
    lines = [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    for row in rows:
        numbers = ["–" if row[key] is None else f"{row[key]:.2f}" for key in ("accuracy", "matched")]
        name = "–" if row["name"] is None else row["name"].replace("|", "\\|").replace("\n", " ")
        fits, why = ([f"{row['strongest']} of {row['shown']}"], [reason(row)]) if reasons else ([], [])
        lines.append(f"| {' | '.join([row['signal'], row['verdict'], *fits, *numbers, name, *why])} |")
    return lines


def reason(row: dict[str, Any]) -> str:
    """In which of three ways a name is wrong, where it is."""
    alarms = [
        one
        for name, one in (row["false_alarms"] or {}).items()
        if name != "position-matched" and one is not None
    ]
    said = []
    if row["recall"] is not None and row["recall"] < 0.8:
        said.append(f"misses {1 - row['recall']:.0%} of the cells where it acts")
    if alarms and statistics.mean(alarms) > 0.1:
        said.append(f"holds in {statistics.mean(alarms):.0%} of those where it does not")
    if row["matched"] is not None and row["accuracy"] - row["matched"] > 0.1:
        said.append("rests on positions")
    return "; ".join(said) or "hardly"


def strongest(kind: str, run: dict[str, Any]) -> list[str]:
    """The first named subjects of a run, strongest first."""
    named = [row for row in run["rows"] if row["verdict"] == "named"][:10]
    return [f"### {kind[0].upper()}{kind[1:]}", "", *table(named, reasons=True), ""]


def wrapped(line: str) -> list[str]:
    """A paragraph as pages have it."""
    return textwrap.wrap(line, 120, break_on_hyphens=False, break_long_words=False)


def fits_strongest(row: dict[str, Any]) -> bool:
    """Whether a name holds in at least 18 of the 20 cells that are shown."""
    return row["verdict"] == "named" and row["shown"] == 20 and row["strongest"] >= 18


def count_fitting(heads: list[dict[str, Any]]) -> str:
    """How many names fit what is shown of them."""
    named = sum(row["verdict"] == "named" for row in heads)
    return (
        f"The names of {sum(map(fits_strongest, heads))} heads, of {named} that are named, fit at least 18 of their 20 "
        "strongest cells in texts that the search did not see. Ten of them, each with another beginning:"
    )


def mentioned(heads: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The heads that most of the explanations of the results page mention, whether as the head or as a writer."""
    explanations = json.loads((DATA.parent / "explanations.json").read_text(encoding="utf-8")).values()
    counts = Counter(
        head
        for one in explanations
        if one["model"] == "smollm2"
        for head in set(re.findall(r"L\d+H\d+", json.dumps(one, ensure_ascii=False)))
    )
    most = sorted(counts, key=lambda head: (-counts[head], head))[:12]
    return [row for head in most for row in heads if row["signal"] == head]


def blocks(data: dict[str, Any]) -> dict[str, list[str]]:
    """The generated parts of the page."""
    heads = data["heads"]["rows"]
    tested = [row for row in heads if row["accuracy"] is not None]
    known = [row for row in tested if row["matched"] is not None]
    beyond = sum(row["matched"] >= 0.65 for row in known)
    every = [row for one in data.values() for row in one["rows"]]
    fitting = [
        row for row in every if row["verdict"] == "named" and row["shown"] == 20 and row["strongest"] >= 18
    ]
    best = sorted((row for row in fitting if row["matched"] is not None), key=lambda row: -row["matched"])
    # one of each beginning: many heads share the first name
    fits = list({str(row["name"])[:36]: row for row in reversed(best)}.values())[::-1]
    fits = sorted(fits, key=lambda row: -row["matched"])[:10]
    fails = sorted(tested, key=lambda row: row["accuracy"])[:10]
    told = data["heads"]["texts"]
    return {
        "corpus": wrapped(
            f"{data['heads']['corpus']}: {told['explore']} texts explored and {told['test']} tested for heads, "
            f"{data['heads']['tokens']:,} tokens scored."
        ),
        "shares": shares(data),
        "position": wrapped(
            f"Of {len(tested)} heads with a tested name the median balanced accuracy is "
            f"{statistics.median(row['accuracy'] for row in tested):.2f}; against cells at the same two positions "
            f"it is {statistics.median(row['matched'] for row in known):.2f} in the {len(known)} heads that have "
            f"such cells, and {beyond} of them keep 0.65 or more."
        ),
        "fits": [*wrapped(count_fitting(heads)), "", *table(fits, reasons=True)],
        "fails": table(fails, reasons=True),
        "signals": [line for kind, one in data.items() if kind != "heads" for line in strongest(kind, one)],
        "mentioned": table(mentioned(heads)),
        "heads": table(heads),
    }


def filled(page: str, data: dict[str, Any]) -> str:
    """The page with its blocks made from the numbers."""
    made = blocks(data)
    return BLOCK.sub(lambda m: f"{m[1]}\n{chr(10).join(made[m[2]])}\n\n{m[3]}", page)


def main(*given: str) -> None:
    """Keep the numbers of the runs that are given, and write the page."""
    data = json.loads(DATA.read_text(encoding="utf-8")) if DATA.exists() else {}
    for one in given:
        kind, _, run = one.partition("=")
        data[kind] = kept(Path(run))
    DATA.parent.mkdir(exist_ok=True)
    DATA.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), data), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
