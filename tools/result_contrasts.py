"""The tables of docs/results/binding.md and docs/results/filter.md."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from result_blocks import Blocks, power, said, table

HEADS = 8
DROPPED = ("seconds",)
CLAIM = ("null", "draws", "group")
"""The same for every row of a table, and on the page."""
CONTROLS = ("query", "both sides", "principal components", "mean difference")

Rows = Sequence[dict[str, Any]]


def kept_contrast(document: dict[str, Any], folder: Path) -> dict[str, Any]:
    """What the study printed, with the swaps of its folder and how much of the logits the features explain."""
    made = {name: value for name, value in document.items() if name not in DROPPED}
    made["heads"] = [_short(one) for one in document["heads"][:HEADS]]
    made["features"] = [_short(one) for one in document["features"]]
    made["alignment"] = [_short(one) for one in document["alignment"]]
    made["shapes"] = [
        one | {"claims": {name: _short(claim) for name, claim in one["claims"].items()}}
        for one in document["shapes"]
    ]
    wanted = ("none", "full", "swap", *CONTROLS)
    swaps = ("head", "name", "condition", "original", "target", "share")
    made["swaps"] = [
        {name: one[name] for name in swaps} for one in _read(folder, "swaps") if one["condition"] in wanted
    ]
    explained = ("head", "method", "explained", "explained_null", "explained_high")
    made["logits"] = list(
        {
            (one["head"], one["method"]): {name: one[name] for name in explained}
            for one in _read(folder, "attribution")
        }.values()
    )
    return made


def _read(folder: Path, name: str) -> Rows:
    return pq.read_table(folder / f"{name}.parquet").to_pylist()


def _short(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in CLAIM}


# --- tables of both pages --------------------------------------------------------------------------------------------


def heads(study: str) -> Callable[[dict[str, Any]], Sequence[str]]:
    """The best heads of a task."""

    def made(data: dict[str, Any]) -> Sequence[str]:
        rows = [
            [
                one["head"],
                f"{one['score']:.2f} ({one['ci'][0]:.2f}–{one['ci'][1]:.2f})",
                "" if one["test_score"] is None else f"{one['test_score']:.2f}",
                f"{one['q']:.2g}",
                said(one["supported"]),
            ]
            for one in data[study]["heads"]
        ]
        return table(["head", "score (95 %)", "on the test prompts", "q", "supported"], rows)

    return made


def features(study: str) -> Callable[[dict[str, Any]], Sequence[str]]:
    """What a swap of every feature moves, against its nulls."""

    def made(data: dict[str, Any]) -> Sequence[str]:
        rows = []
        for one in data[study]["features"]:
            swap = one["swap"]
            rows.append(
                [
                    one["head"],
                    one["name"],
                    f"{one['rank']}",
                    f"{one['rank_energy']}",
                    f"{swap['share_of_full']:.2f}",
                    f"{swap['placebo_share']:.2f} (95th {swap['placebo_high']:.2f})",
                    f"{swap['p_placebo']:.3f}",
                    f"{swap['p_covariance']:.3f}",
                    f"{one['q']:.3f}",
                    said(one["supported"]),
                ]
            )
        titles = ["head", "feature", "rank", "by 99 % of the energy", "share of a full key swap", "placebos"]
        return table([*titles, "p, placebos", "p, random subspaces", "q", "supported"], rows)

    return made


def swaps(study: str, names: Sequence[str]) -> Callable[[dict[str, Any]], Sequence[str]]:
    """Attention before and after, and what other exchanges of the same size do."""

    def made(data: dict[str, Any]) -> Sequence[str]:
        found = {(one["head"], one["name"], one["condition"]): one for one in data[study]["swaps"]}
        rows = []
        for head in dict.fromkeys(one["head"] for one in data[study]["swaps"]):
            before = found[head, "", "none"]
            for name in names:
                swap = found[head, name, "swap"]
                rows.append(
                    [
                        head,
                        name,
                        f"{before['original']:.3f} → {swap['original']:.3f}",
                        f"{before['target']:.3f} → {swap['target']:.3f}",
                        f"{swap['share']:.2f}",
                        *(f"{found[head, name, other]['share']:.2f}" for other in CONTROLS),
                    ]
                )
        titles = ["head", "feature", "on the original", "on the target", "keys", "query instead", "both"]
        return table([*titles, "principal components of the same rank", "mean difference"], rows)

    return made


def matches(data: dict[str, Any], study: str, names: Sequence[str]) -> Sequence[str]:
    """Whether clusters of queries and keys match."""
    found = {(one["head"], one["name"], one["measure"]): one for one in data[study]["alignment"]}
    rows = []
    for head, name in dict.fromkeys((one["head"], one["name"]) for one in data[study]["alignment"]):
        if name in names:
            both = [found.get((head, name, measure)) for measure in ("retrieval", "correlation")]
            rows.append([head, name, *(cell for one in both for cell in _match(one))])
    titles = ["head", "feature", "retrieval", "shuffled, placebo", "q", "supported"]
    return table([*titles, "correlation", "shuffled, placebo", "q", "supported"], rows)


def _match(one: dict[str, Any] | None) -> Sequence[str]:
    if one is None:
        return ["–"] * 4
    nulls = f"{one['shuffled_value']:.2f}, {one['placebo_value']:.2f}"
    return [f"{one['value']:.2f}", nulls, f"{one['q']:.3f}", said(one["supported"])]


# --- binding ---------------------------------------------------------------------------------------------------------


def shapes(data: dict[str, Any]) -> Sequence[str]:
    """On what the class means of the order lie."""
    rows = [
        [
            one["head"],
            one["name"],
            one["side"],
            f"{one['line_share']:.0%}".replace("%", " %"),
            *(f"{one['claims'][name]['q']:.3f}" for name in ("ordered", "irreducible", "closed")),
            one["shape"],
        ]
        for one in data["binding"]["shapes"]
        if one["name"] == "order"
    ]
    titles = ["head", "feature", "side", "on the best line", "q, ordered", "q, more than a line", "q, closed"]
    return table([*titles, "shape"], rows)


def answers(data: dict[str, Any]) -> Sequence[str]:
    """What swaps in the running model do to its answer."""
    found = data["binding"]["through_model"]
    names = list(dict.fromkeys(one["name"] for one in found))
    return _answers(found, names)


def _answers(found: Rows, names: Sequence[str]) -> Sequence[str]:
    rows = [
        [
            head,
            *(_moved(one) for name in names for one in found if (one["head"], one["name"]) == (head, name)),
        ]
        for head in dict.fromkeys(one["head"] for one in found)
    ]
    return table(["swapped in", *names], rows)


def _moved(one: dict[str, Any]) -> str:
    return f"{one['change']:+.3f} ({one['change_se']:.3f})"


def before(study: str) -> Callable[[dict[str, Any]], Sequence[str]]:
    """What the answer was before any swap."""
    return lambda data: _before(data[study]["through_model"])


def _before(found: Rows) -> Sequence[str]:
    one, error, turned = (
        found[0],
        max(row["error"] or 0.0 for row in found),
        max(row["flips"] for row in found),
    )
    rows = [
        [
            f"{one['prompts']}",
            f"{one['logit_difference']:.3f}",
            f"{one['prefers_original']:.2f}",
            f"{turned:.2f}",
            power(error),
        ]
    ]
    titles = ["prompts", "logit difference before", "share that prefer the right answer"]
    return table([*titles, "largest share that turns", "predicted and measured attention differ by"], rows)


def logits(study: str) -> Callable[[dict[str, Any]], Sequence[str]]:
    """How much of one prompt's logits the features explain."""

    def made(data: dict[str, Any]) -> Sequence[str]:
        rows = [
            [
                one["head"],
                one["method"],
                *(
                    f"{one[name]:.3f}" if one[name] is not None else "–"
                    for name in ("explained", "explained_null", "explained_high")
                ),
            ]
            for one in data[study]["logits"]
        ]
        return table(["head", "by", "explained", "placebos, mean", "placebos, 95th percentile"], rows)

    return made


BINDING: Blocks = {
    "heads": heads("binding"),
    "features": features("binding"),
    "swaps": swaps("binding", ("order", "lexical", "order+lexical")),
    "matches": lambda data: matches(data, "binding", ("order", "lexical", "reflexive")),
    "shapes": shapes,
    "before": before("binding"),
    "answers": answers,
    "logits": logits("binding"),
    "jitter heads": heads("jitter"),
    "jitter": features("jitter"),
}

# --- filter ----------------------------------------------------------------------------------------------------------

FILTER: Blocks = {
    "heads": heads("filter"),
    "features": features("filter"),
    "swaps": swaps("filter", ("category",)),
    "matches": lambda data: matches(data, "filter", ("category",)),
    "logits": logits("filter"),
    "thirteen heads": heads("filter-13"),
    "thirteen": lambda data: features("filter-13")(_unions(data)),
    "thirteen swaps": swaps("filter-13", ("category",)),
    "before": before("smaller"),
    "answers": lambda data: _answers(data["smaller"]["through_model"], ("category", "whole keys")),
}


def _unions(data: dict[str, Any]) -> dict[str, Any]:
    study = data["filter-13"]
    return {
        "filter-13": study | {"features": [one for one in study["features"] if one["name"] == "category"]}
    }
