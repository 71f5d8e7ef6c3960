"""Documents of explanations that nobody computed, for pages: made of random numbers whose sums are right."""

from __future__ import annotations

import base64
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from headwise.show.kit.page import mounted

Document = dict[str, Any]
VISIBLE = ".side-table:not([hidden])"
"""The table of the side that a page shows."""
WORDS = (
    "When",
    " John",
    " and",
    " Mary",
    " went",
    " to",
    " the",
    " store",
    ",",
    " John",
    " gave",
    " a",
    " drink",
    " to",
)


def rows_of(data: Document, side: str) -> list[dict[str, Any]]:
    """The writers of one side of its table."""
    return [row for row in data["who"] if row["side"] == side]


def page_of(data: Document) -> str:
    return mounted("an explanation", data, "")


def document(
    tokens: Sequence[str] = WORDS, *, query: int = 13, key: int = 9, seed: int = 0, writers: int = 18
) -> Document:
    """The JSON of one explanation (schema 2), with the pattern that only pages have."""
    draw = np.random.default_rng(seed)
    attention = 0.71
    keys = query + 1
    total = math.log(attention / (1 - attention)) + math.log(max(1, keys - 1))
    channels = [0, 3, 17, 5, 9, 22, "others"]
    stable = [True, True, False, True, True, True, False]
    columns = draw.normal(0.3, 0.6, len(channels))
    columns += (total - columns.sum()) / len(channels)
    who = [row for side in ("query", "key") for row in _rows(draw, side, columns, channels, query, writers)]
    cause = {
        side: [{"writer": r["writer"], "reads": r["reads"]} for r in who if r["side"] == side and r["cause"]]
        for side in ("query", "key")
    }
    before = {"attention": attention, "probability": 0.62, "lead": 4.6, "log_probability": -0.478}
    return {
        "schema": 2,
        "model": "smollm2",
        "prompt": "".join(tokens),
        "tokens": list(tokens),
        "head": "L23H3",
        "role": "induction",
        "query": query,
        "key": key,
        "attention": attention,
        "logit": 4.2,
        "answer": {
            "text": " Mary",
            "wrong": " John",
            "probability": 0.62,
            "lead": 4.6,
            "predicted": " Mary",
            "measured_by": "log_probability",
        },
        "chosen_because": "L23H3 brings most of ' Mary' to the last token",
        "runners_up": [{"head": "L20H0", "query": query, "key": key, "score": 0.4}],
        "notices": [],
        "basis": {"kind": "balanced", "frame": "query", "hash": "3f2a90c1d4e5b677"},
        "log_odds": {
            "total": total,
            "baseline": -math.log(max(1, keys - 1)),
            "keys": keys,
            "error": 2e-7,
            "tolerance": 3e-4,
            **{side: _balance(r["log_odds"] for r in who if r["side"] == side) for side in ("query", "key")},
            "channels": _balance(columns),
        },
        "relative": {"logit": 5.1, "channels_needed": 5, "sparsity": 0.11},
        "numbered": [one for one, known in zip(channels, stable, strict=True) if known],
        "place": {"content": total - 0.2, "place": 0.5, "interaction": -0.3, "level": 0.0},
        "what": [
            {
                "channel": channel,
                "log_odds": float(value),
                "stable": known,
                "name": "salience" if channel == 0 else None,
                "vocabulary": {"query": _view(" she"), "key": _view(" Mary")} if channel == 3 else None,
                **({"count": 58} if channel == "others" else {}),
            }
            for channel, value, known in zip(channels, columns, stable, strict=True)
        ],
        "who": who,
        "cause": {
            "headline": "query",
            "threshold": 0.1786,
            **{
                side: {
                    "writers": named,
                    "order": "fixed",
                    "diffuse": False,
                    "after": 0.09,
                    "signals": [{**one, "channels": [3, 17], "drop": 0.3} for one in named],
                    "signals_after": 0.16,
                }
                for side, named in cause.items()
            },
        },
        "consequence": {
            "raised": [{"token": t, "logit": v} for t, v in ((" Mary", 0.8), (" Sarah", 0.4), (" her", 0.3))],
            "lowered": [
                {"token": t, "logit": v} for t, v in ((" John", -1.1), (" him", -0.6), (" Jack", -0.5))
            ],
            "direct": {"answer": 0.3, "lead": 1.3},
            "path": {"attention": 0.71, "probability": 0.4, "lead": 3.4, "log_probability": -0.92},
        },
        "proof": {
            "side": "query",
            "before": before,
            "after": {"attention": 0.09, "probability": 0.3, "lead": 2.2, "log_probability": -1.2},
            "predicted": 0.09,
            "error": 1e-7,
            "tolerance": 8e-5,
            "next": {
                "writers": [{"writer": "MLP18", "reads": None}, {"writer": "L18H2", "reads": 1}],
                "after": 0.4,
                "outcome": {"attention": 0.4, "probability": 0.5, "lead": 3.6, "log_probability": -0.7},
            },
        },
        "controls": [
            _control(draw, "channels", "the same writers in channels that the cause does not use", 0.7, 0.03),
            _control(draw, "writers", "as many other writers, scaled to the same length", 0.6, 0.15),
            _control(draw, "directions", "a random direction of the same length", 0.65, 0.1),
        ],
        "signals": {
            "side": "query",
            "after": 0.16,
            "controls": [_control(draw, "directions", "a random direction of the same length", 0.65, 0.1)],
            "specific": {"said": True, "value": 0.55, "p": 0.012},
        },
        "verdict": {
            "specific": {"said": True, "value": 0.62, "p": 0.012},
            "redundant": {"said": True, "value": 0.5, "p": None},
            "matters": {"said": True, "value": -0.72, "p": 0.0476},
        },
        "transfer": [],
        "rivals": [
            {
                "key": 1,
                "attention": 0.1,
                "gap": 1.9,
                "channels": [{"channel": 3, "value": 1.1}, {"channel": 17, "value": 0.7}],
            },
            {"key": 0, "attention": 0.05, "gap": 2.6, "channels": []},
        ],
        "features": None,
        "sentence": (
            "At ' to' (13), L23H3 reads ' John' (9) for what it is, not for where it is (content +3.3, place +0.5 "
            "of the log-odds). Without MLP 20 and L20H0 it attends 0.09 instead of 0.71."
        ),
        "seconds": 0.21,
        "pattern": pattern(len(tokens), draw),
        "quoted": ["' John'", "' to'"],
    }


def features() -> dict[str, Any]:
    """Two named features, whose names are as untrusted as a prompt."""
    names = ("<b>subject</b>", "position")
    outcome = {"attention": 0.2, "probability": 0.5, "lead": 1.0, "log_probability": -0.7}
    writer = {"name": "MLP20", "kind": "mlp", "layer": 20, "side": "query", "position": 13, "log_odds": 0.4}
    head = {
        "name": "L20H0",
        "kind": "head",
        "layer": 20,
        "head": 0,
        "source": 9,
        "side": "key",
        "position": 9,
    }
    return {
        "parts": [
            {"name": n, "rank": 2, "value": v, "logit": v} for n, v in zip(names, (2.0, -0.5), strict=True)
        ],
        "unexplained": 3.6,
        "unexplained_share": 0.7,
        "writers": [
            {
                "name": name,
                "log_odds": 1.0,
                "error": 0.0,
                "writers": [writer, {**head, "log_odds": 0.3}],
                "rest": {"query": 0.6, "key": 0.7},
            }
            for name in names
        ],
        "tests": [
            {
                "name": name,
                "kind": kind,
                "predicted": 0.2,
                "observed": outcome,
                "controls": [0.1, 0.3, 0.4],
                "percentile": 66.0,
            }
            for name in names
            for kind in ("ablation", "swap")
        ],
    }


def pattern(length: int, draw: np.random.Generator) -> dict[str, Any]:
    """A causal pattern as pages carry it."""
    whole = np.tril(np.exp(2 * draw.normal(size=(length, length))))
    half = (whole / whole.sum(-1, keepdims=True))[np.tril_indices(length)]
    cells = np.rint(half * 65535).astype("<u2")
    return {"bytes": 2, "cells": base64.b64encode(cells.tobytes()).decode()}


def _rows(
    draw: np.random.Generator, side: str, columns: np.ndarray, channels: list[Any], query: int, writers: int
) -> list[dict[str, Any]]:
    """Writers that sum to the columns."""
    names: list[tuple[str, int | None]] = [
        (f"MLP{22 - i}", None) if i % 2 else (f"L{22 - i}H{i % 4}", int(draw.integers(query + 1)))
        for i in range(writers - 1)
    ]
    names = [*names, ("embedding", None)]
    table = draw.normal(0.1, 0.35, (writers, len(columns))) * draw.gamma(1, 1, (writers, 1))
    sizes = [(i, float(table[i].sum())) for i in range(writers)]
    order = [i for i, _ in sorted(sizes, key=lambda one: -abs(one[1]))]
    best = [i for i in order if table[i].sum() > 0][:2]
    made = [_row(draw, side, names[i], table[i], channels, cause=i in best) for i in order]
    return [*made, _row(draw, side, ("others", None), columns - table.sum(0), channels, count=4000)]


def _row(
    draw: np.random.Generator,
    side: str,
    named: tuple[str, int | None],
    values: np.ndarray,
    channels: list[Any],
    *,
    cause: bool = False,
    count: int = 1,
) -> dict[str, Any]:
    writer, reads = named
    total = float(values.sum())
    parts = draw.dirichlet((1, 1, 1, 1)) * total
    mlp = writer.startswith("MLP")
    through = [("L20H0", 9), ("MLP3", None), ("constants", None), ("others", None)]
    return {
        "side": side,
        "writer": writer,
        "reads": reads,
        "log_odds": total,
        "count": count,
        "cause": cause,
        "role": "duplicate token" if writer == "L20H2" else None,
        "vocabulary": None if writer == "others" else _view("<b>" if mlp else " name"),
        "channels": [{"channel": c, "log_odds": float(v)} for c, v in zip(channels, values, strict=True)],
        "through": [
            {
                "writer": name,
                "reads": source,
                "log_odds": float(v),
                "effect": 1.2 * float(v) if source else None,
                "role": "duplicate token" if name == "L20H0" else None,
            }
            for (name, source), v in zip(through, parts, strict=True)
        ]
        if mlp
        else [],
        "neurons": [
            {"index": index, "log_odds": float(v)}
            for index, v in zip((411, 90, 1200, "others"), parts, strict=True)
        ]
        if mlp
        else [],
    }


def _view(token: str) -> dict[str, Any]:
    """A direction in tokens, which are as untrusted as a prompt."""
    ends = {
        "most": [{"token": token, "score": 0.4}, {"token": "⏎", "score": 0.3}],
        "least": [{"token": " not", "score": -0.3}],
    }
    return {"embedding": ends, "unembedding": ends}


def _balance(values: Any) -> dict[str, float]:
    all_ = [float(v) for v in values]
    return {"helps": sum(v for v in all_ if v > 0), "hinders": sum(v for v in all_ if v < 0)}


def _control(draw: np.random.Generator, name: str, text: str, mean: float, spread: float) -> dict[str, Any]:
    drawn = np.clip(draw.normal(mean, spread, 999), 0, 1)
    low, high = np.quantile(drawn, (0.05, 0.95))
    return {
        "name": name,
        "text": text,
        "draws": 999,
        "attention": {
            "mean": float(drawn.mean()),
            "low": float(low),
            "high": float(high),
            "histogram": np.histogram(drawn, 20, (0, 1))[0].tolist(),
        },
        "p": 0.004,
        "answer": {"draws": 20, "mean": -0.03, "low": -0.25, "high": 0.1, "p": 0.0476},
    }
