"""The tables of docs/results/toys.md: alignment and training, and those of ``result_payload``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from result_blocks import Blocks, percent, said, table
from result_payload import PAYLOAD, kept_grid

CLAIMS = {
    "singular_first": "singular vectors turn first",
    "features_follow": "the pair's features follow",
    "loss_falls": "the pair's loss falls with the event",
    "vectors_compensate": "singular vectors make up for features that turn",
}
CASES = {"alignment-pair": "one pair", "alignment-pairs": "twenty pairs"}


def kept_toy(document: dict[str, Any], _: Path) -> dict[str, Any]:
    """The summary, and how pairs moved."""
    if "cells" in document:
        return kept_grid(document)
    made = {name: document[name] for name in ("case", "sweep", "summary") if name in document}
    if document.get("motion") is not None:
        made["motion"] = {name: document["motion"][name] for name in ("estimates", "claims")}
    if document.get("sweep") == "interference":
        made["variants"] = [
            {name: one[name] for name in ("interference", "theorem", "pairs")} for one in document["variants"]
        ]
    elif document.get("sweep") is not None:
        made["values"] = document["values"]
    if "checkpoints" in document:
        made["heads"] = document["heads"]
        made["first"], made["last"] = (document["checkpoints"][place] for place in (0, -1))
    return made


def alignment(data: dict[str, Any]) -> Sequence[str]:
    """The three cases beside the talk."""
    none, pair, pairs = (data[f"alignment-{case}"]["summary"] for case in ("none", "pair", "pairs"))
    rows = [
        [
            "one pair: cosine, weaker side, smallest",
            "≈ 0.999 ± 0.001",
            f"{pair['smallest_cosine']:.4f} (mean {pair['mean_cosine']:.4f})",
        ],
        [
            "one pair: second over first singular value, largest",
            "one dominant",
            f"{pair['second_to_first_singular_value']:.4f}",
        ],
        [
            "one pair: closed form Σ⁻¹w against the singular vector, smallest",
            "–",
            f"{pair['closed_form_cosine']:.4f}",
        ],
        [
            f"one pair: energy of other features in its plane ({pair['others_inside_by_chance']:.1f} by chance)",
            "orthogonal",
            f"{pair['others_inside']:.3f}",
        ],
        [
            "no head: largest cosine of any feature with the top singular vectors",
            "none",
            f"{none['largest_cosine_any_feature']:.2f} (mean {none['mean_largest_cosine_any_feature']:.2f})",
        ],
        ["twenty pairs: singular relation, smallest", "aligned", f"{pairs['smallest_relation']:.3f}"],
        [
            "twenty pairs: singular relation, smallest of the five most important",
            "–",
            f"{pairs['smallest_relation_top5']:.4f}",
        ],
        [
            "twenty pairs: mean cosine with one channel, weaker side",
            "aligned",
            f"{pairs['mean_cosine']:.3f}",
        ],
        [
            "twenty pairs: share at 0.95 or above with one channel",
            "–",
            percent(pairs["share_above_0.95"]),
        ],
        *(
            [f"twenty pairs: rank correlation of target logit and {what}", talk, f"{pairs[name]:.2f}"]
            for what, talk, name in (
                ("the pair's singular value", "ordered", "sigma_order_correlation"),
                (
                    "the step from which the *singular relation* stays above 0.9",
                    "earlier",
                    "alignment_order_correlation",
                ),
                ("the step at which the *logit* is learned", "earlier", "learning_order_correlation"),
                (
                    "the step from which the *cosine with one channel* does",
                    "earlier",
                    "channel_order_correlation",
                ),
            )
        ),
    ]
    return table(["", "talk", "ours"], rows)


def motion(data: dict[str, Any]) -> Sequence[str]:
    """Who moves first, and what each event does to the loss."""
    rows = []
    for name, title in CLAIMS.items():
        for case, shown in CASES.items():
            one = data[case]["motion"]["claims"][name]
            values = [one["null"], f"{one['p']:.3f}", f"{one['q']:.3f}", said(one["supported"])]
            rows.append([title, shown, *values])
    return table(["claim", "case", "null", "p", "q", "supported"], rows)


def shares(data: dict[str, Any]) -> Sequence[str]:
    """How far apart in time, and who closes the angle."""
    titles = {
        "lag": ("steps between half of the vector's turn and half of the feature's", 0),
        "lag_share": ("the same as a share of the time until the event", 2),
        "closed_by_singular": ("share of the cosine's rise that the singular vector brings", 2),
        "closed_by_feature": ("share that the feature brings", 2),
    }
    rows = []
    for name, (title, places) in titles.items():
        row = [title]
        for case in CASES:
            one = data[case]["motion"]["estimates"][name]
            low, high = one["ci"]
            row.append(f"{one['mean']:.{places}f} ({low:.{places}f} to {high:.{places}f})")
        rows.append(row)
    return table(["mean (95 % over seeds)", *CASES.values()], rows)


def theorem(data: dict[str, Any]) -> Sequence[str]:
    """How far features are from singular vectors as their covariance leaves isotropy."""
    variants = data["sweep-interference"]["variants"]
    rows = []
    for value in sorted({one["interference"] for one in variants}):
        group = [one for one in variants if one["interference"] == value]
        trained = min(min(p["cos_query"], p["cos_key"]) for one in group for p in one["pairs"])
        rows.append(
            [
                f"{value:g}",
                f"{mean(one['theorem']['condition'] for one in group):.2f}",
                f"{min(one['theorem']['least_cosine'] for one in group):.3f}",
                f"{min(one['theorem']['cosine'] for one in group):.4f}",
                f"{trained:.4f}",
            ]
        )
    titles = [
        "interference",
        "condition number of Σ",
        "bound on the cosine",
        "cosine of w and Σ⁻¹w, smallest",
    ]
    return table([*titles, "feature and singular vector of the trained head, smallest"], rows)


SWEPT = {
    "probability": "feature probability p",
    "lambda": "weight λ of attention",
    "features": "features N",
    "head": "head dimensions H",
    "sources": "sources",
}


def sweeps(data: dict[str, Any]) -> Sequence[str]:
    """What alignment depends on, value by value."""
    rows = []
    for study in ("probability", "lambda", "features", "head", "context"):
        for number, one in enumerate(data[f"sweep-{study}"]["values"]):
            column = next(name for name in SWEPT if name in one)
            second = one["second_to_first_singular_value"]
            rows.append(
                [
                    "" if number else SWEPT[column],
                    f"{one[column]:g}",
                    f"{one['smallest_cosine']:.4f}",
                    f"{one['mean_cosine']:.4f}",
                    # A head of one dimension has one singular value.
                    "–" if second is None else f"{second:.4f}",
                    f"{one['mean_logit']:.2f}",
                    f"{one['others_inside']:.3f}",
                ]
            )
    return table(["setting", "", "cosine, smallest", "mean", "σ2/σ1", "logit, mean", "inside"], rows)


SPARSE = {
    "sparsity": "sparsity of relative attention by channel (lower is sparser)",
    "isotropic": "isotropic Gaussian streams through the same weights",
    "matched": "Gaussian queries and keys of the head's own covariance",
    "unattended": "unattended keys of the same queries",
    "shuffled": "queries with keys of other sentences",
    "turned": "directions turned on each side, singular values kept",
    "rotated": "after rotating the channels (the published control)",
}


def training(data: dict[str, Any]) -> Sequence[str]:
    """A language model before and after training, beside its nulls."""
    found = data["training"]
    ends = [[found[end]["heads"][head] for head in found["heads"]] for end in ("first", "last")]
    rows = [
        [title, *(f"{mean(one[name] for one in end):.3f}" for end in ends)] for name, title in SPARSE.items()
    ]
    claimed = [found["summary"][f"supported_{end}"] * len(found["heads"]) for end in ("first", "last")]
    rows.append(
        ["heads that are sparser than by every null", *(f"{n:.0f} of {len(found['heads'])}" for n in claimed)]
    )
    needed = [found["summary"][f"channels_needed_{end}"] for end in ("first", "last")]
    rows.append(["channels needed for 90 % of relative attention (of 32)", *(f"{n:.1f}" for n in needed)])
    return table(
        [f"mean over the {len(found['heads'])} heads that attend to the answer", "untrained", "trained"], rows
    )


TOYS: Blocks = {
    **PAYLOAD,
    "alignment": alignment,
    "motion": motion,
    "shares": shares,
    "theorem": theorem,
    "sweeps": sweeps,
    "training": training,
}
