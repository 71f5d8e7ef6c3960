"""The tables of docs/results/ioi-families.md."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from result_blocks import Blocks, between, table

CUTS = 6
DROPPED = ("seconds", "accuracy", "out", "bytes", "prompts_per_second")
CUT = (
    "families",
    "silhouette",
    "stability",
    "separation",
    "p_value_one_family",
    "p_value_within",
    "p_value_shuffle",
    "chosen",
)
FAMILY = (
    "family",
    "name",
    "size",
    "share",
    "prompt",
    "features",
    "edges",
    "core",
    "union",
    "distance",
    "difference",
)
HEAD = ("head", "side", "families", "cosine", "ci", "verdict", "within", "prompts")
LABELS = {"order": "order (ABBA / BABA)"}


def kept_families(document: dict[str, Any], _: Path) -> dict[str, Any]:
    """What the study printed, less what belongs to single words of the prompts."""
    made = {name: value for name, value in document.items() if name not in DROPPED}
    if "cuts" in made:
        made["cuts"] = [{name: one[name] for name in CUT} for one in made["cuts"] if one["families"] <= CUTS]
    if "heads" in made:
        made["heads"] = [
            {name: one[name] for name in HEAD}
            | {name: one["claim"][name] for name in ("p", "q", "supported")}
            for one in made["heads"]
        ]
    if "families" in made:
        made["families"] = [
            {name: one[name] for name in FAMILY}
            | {"labels": {"order": one["labels"].get("order")}}
            | {"wordings": one["labels"].get("wording")}
            for one in made["families"]
        ]
    return made


def cuts(data: dict[str, Any]) -> Sequence[str]:
    """Every number of families beside its nulls."""
    rows = [
        [
            f"**{one['families']}**" if one["chosen"] else f"{one['families']}",
            f"{one['silhouette']:.3f}",
            f"{one['stability']:.3f}",
            f"{one['separation']:.2f}",
            *(f"{one[name]:.2f}" for name in ("p_value_one_family", "p_value_within", "p_value_shuffle")),
        ]
        for one in data["families"]["cuts"]
    ]
    titles = ["families", "silhouette", "stability", "separation", "p, one family", "p, inside wordings"]
    return table([*titles, "p, shuffled edges"], rows)


def labels(data: dict[str, Any]) -> Sequence[str]:
    """What families follow."""
    inside = data["families"]["within_wordings"]
    rows = []
    for one in data["families"]["labels"]:
        low, high = one["ci"]
        claim = inside.get(one["label"])
        rows.append(
            [
                LABELS.get(one["label"], one["label"]),
                f"{one['ami']:.3f} ({between(low, high, 3)})",
                f"{one['p_value']:.3f}",
                "" if claim is None else f"{claim['p']:.3f}",
            ]
        )
    return table(
        ["label", "adjusted mutual information (95 %)", "p", "circuits of one wording differ by it: p"], rows
    )


def sizes(data: dict[str, Any]) -> Sequence[str]:
    """The families themselves."""
    rows = [
        [
            one["name"],
            f"{one['size']:,}",
            ", ".join(f"{name} {number:,}" for name, number in (one["labels"]["order"] or {}).items()),
            f"{one['features']:.0f}",
            f"{one['distance']:.2f}",
            f"{one['difference']:.2f}",
            f"*{one['prompt']}*",
        ]
        for one in data["families"]["families"]
    ]
    titles = ["family", "circuits", "orders", "signals, mean", "mean distance inside", "mean lead"]
    return table([*titles, "its representative"], rows)


def opposite(data: dict[str, Any]) -> Sequence[str]:
    """Sides of heads that get the opposite in the two orders."""
    rows = [
        [
            f"{one['head']}, {one['side']}",
            f"{one['cosine']:.2f} ({between(*one['ci'])})",
            *(f"{w:.2f}" for w in one["within"]),
        ]
        for one in data["families"]["heads"]
        if one["verdict"] == "the opposite"
    ]
    return table(["head and side", "cosine (95 %)", "inside family 0", "inside family 1"], rows)


def causality(data: dict[str, Any]) -> Sequence[str]:
    """What removing an order's own signals or heads does to it and to the other."""
    names = {one["family"]: one["name"] for one in data["orders"]["families"]}
    rows = []
    for one in data["orders"]["causality"]:
        if one["own"] is None:
            continue
        own, other, claims = one["own"], one["other"], one["claims"]
        rows.append(
            [
                f"{names[one['exclusive_to']]}, not of {names[one['against']]}",
                f"{one['features']} {one['kind']} ({one['heads']} heads)"
                if one["kind"] == "signals"
                else f"{one['features']} heads",
                f"{own['change']:+.2f} ({between(own['low'], own['high'])}) of {own['clean']:.2f}",
                f"{claims['own']['q']:.3f}",
                f"{other['change']:+.2f} ({between(other['low'], other['high'])}) of {other['clean']:.2f}",
                f"{own['control']:+.2f}",
                f"{one['gap']:+.2f} ({between(one['gap_low'], one['gap_high'])})",
                f"{claims['gap']['q']:.4f}",
            ]
        )
    titles = ["of", "what", "change of the lead in its own (95 %)", "q", "in the other (95 %)", "control"]
    return table([*titles, "own − other (95 %)", "q"], rows)


FAMILIES: Blocks = {
    "cuts": cuts,
    "labels": labels,
    "sizes": sizes,
    "opposite": opposite,
    "causality": causality,
}
