"""What alignment looks like once trained: cosines, spectra, geometry, order of arrival, and the closed form."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from headwise.toy.alignment import AlignmentRun, AlignmentSetup, pair_cosines, pair_strengths
from headwise.toy.planted import condition, least_cosine

LEARNED = 4.0
"""A pair counts as learned once the head gives it this logit: e⁴ : 1 against a source without the feature."""


def feature_covariance(setup: AlignmentSetup) -> float:
    """Variance of one feature's strength: active with probability p, then uniform in [0, 1]."""
    p = setup.probability
    return p / 3 - (p / 2) ** 2


def closed_form_vectors(features: Tensor, i: int, j: int, covariance: Tensor) -> tuple[Tensor, Tensor]:
    """u ∝ Σ⁻¹ w_i and v ∝ Σ⁻¹ w_j, unit vectors: the head of rank one that reads f_i(r) f_j(s) best, in
    least squares.

    ``features`` [D, N], ``covariance`` [D, D] of the tokens.
    """
    solved = torch.linalg.solve(covariance, features[:, [i, j]])
    u, v = torch.nn.functional.normalize(solved, dim=0).unbind(1)
    return u, v


def token_covariance(run: AlignmentRun, variant: int) -> Tensor:
    """Σ of tokens W f of one variant: features are independent, so it is Var(f) · W Wᵀ."""
    w = run.features(variant)
    return feature_covariance(run.setups[variant]) * w @ w.mT


def theorem(run: AlignmentRun, variant: int, i: int, j: int) -> dict[str, float]:
    """How near the best reader of a feature is to the feature itself: exact where tokens are isotropic.

    ``cosine`` is that of w and Σ⁻¹w, the weaker of features i and j; it can be no smaller than ``least_cosine``, which
    follows from the condition number of Σ alone.
    """
    covariance, w = token_covariance(run, variant), run.features(variant)
    unit = torch.nn.functional.normalize(w[:, [i, j]], dim=0)
    u, v = closed_form_vectors(w, i, j, covariance)
    number = condition(covariance)
    return {
        "condition": number,
        "cosine": min(float(u @ unit[:, 0]), float(v @ unit[:, 1])),
        "least_cosine": least_cosine(number),
    }


def study_variant(run: AlignmentRun, variant: int) -> dict[str, Any]:
    """One plain record: everything that figures and tables need of a variant."""
    setup = run.setups[variant]
    u, sigma, v = run.head(variant)
    w = run.features(variant)
    unit = torch.nn.functional.normalize(w, dim=0)
    pairs = pair_cosines(run, variant)
    record: dict[str, Any] = {
        "seed": setup.seed,
        "features": setup.features,
        "dims": setup.dims,
        "head": setup.head,
        "sources": setup.sources,
        "probability": setup.probability,
        "lambda": setup.weight,
        "interference": setup.interference,
        "reconstruction": run.history[-1]["reconstruction"][variant],
        "attention": run.history[-1]["attention"][variant],
        "spectrum": sigma.tolist(),
        "pairs": pairs,
        "largest_cosine": {
            "query": float((unit.mT @ u[:, 0]).abs().max()),
            "key": float((unit.mT @ v[:, 0]).abs().max()),
        },
    }
    if pairs:
        owned = torch.tensor(sorted({f for p in setup.targets for f in p[:2]}))
        rest = torch.tensor([f for f in range(setup.features) if f not in set(owned.tolist())])
        basis = torch.linalg.qr(w[:, owned]).Q
        # Energy of the other features inside the attended subspace: 0 where they keep out of it.
        inside = (basis.mT @ unit[:, rest]).square().sum(0) if len(rest) else torch.zeros(1)
        chance = len(owned) / setup.dims
        record["others_inside"] = float(inside.mean())
        record["others_inside_by_chance"] = min(1.0, chance)
        i, j, _ = max(setup.targets, key=lambda t: t[2])
        channel = int(max(pairs, key=lambda p: p["target"])["channel"])
        exact_u, exact_v = closed_form_vectors(w, i, j, token_covariance(run, variant))
        record["closed_form"] = {
            "query": float((exact_u @ u[:, channel]).abs()),
            "key": float((exact_v @ v[:, channel]).abs()),
        }
        record["theorem"] = theorem(run, variant, i, j)
        record["logits"] = pair_strengths(run, variant)
        record["arrival"] = arrivals(run, variant)
        record["related"] = arrivals(run, variant, "relations")
        record["learned"] = arrivals(run, variant, "strengths", LEARNED)
    return record


def arrivals(run: AlignmentRun, variant: int, kind: str = "cosines", level: float = 0.9) -> list[int | None]:
    """The step from which each pair's cosine (``relations``: its singular relation, ``strengths``: its logit)
    stays above ``level``; None if never.
    """
    steps = [h["step"] for h in run.history]
    found: list[int | None] = []
    for pair in range(len(run.setups[variant].targets)):
        course = [h[kind][variant][pair] for h in run.history]
        last_below = max((i for i, c in enumerate(course) if c < level), default=-1)
        found.append(steps[last_below + 1] if last_below + 1 < len(steps) else None)
    return found


def order_correlation(record: dict[str, Any], horizon: int, kind: str = "arrival") -> float | None:
    """Spearman correlation of target logit and arrival step; pairs that never arrived count as ``horizon``.

    Negative means that more important pairs come earlier. ``kind`` is ``arrival`` (cosine with one channel),
    ``related`` (singular relation, whatever the channel) or ``learned`` (logit).
    """
    from scipy.stats import spearmanr

    if len(record.get(kind, [])) < 3:
        return None
    steps = [horizon + 1 if a is None else a for a in record[kind]]
    if len(set(steps)) < 2:
        return None
    result: Any = spearmanr([p["target"] for p in record["pairs"]], steps)
    return float(result.statistic)


def summarise(records: list[dict[str, Any]], horizon: int) -> dict[str, Any]:
    """The case in a few numbers over its variants."""
    cosines = [[min(p["cos_query"], p["cos_key"]) for p in r["pairs"]] for r in records]
    summary: dict[str, Any] = {
        "variants": len(records),
        "largest_cosine_any_feature": max(max(r["largest_cosine"].values()) for r in records),
        "mean_largest_cosine_any_feature": sum(sum(r["largest_cosine"].values()) / 2 for r in records)
        / len(records),
        "second_to_first_singular_value": max(
            (s for r in records if (s := _second(r)) is not None), default=None
        ),
    }
    if cosines[0]:
        flat = [c for row in cosines for c in row]
        top = [c for row, r in zip(cosines, records, strict=True) for c in _top(row, r, 5)]
        relations = [[p["relation"] for p in r["pairs"]] for r in records]
        summary |= {
            "smallest_cosine": min(flat),
            "mean_cosine": sum(flat) / len(flat),
            "smallest_cosine_top5": min(top),
            "smallest_relation": min(c for row in relations for c in row),
            "smallest_relation_top5": min(
                c for row, r in zip(relations, records, strict=True) for c in _top(row, r, 5)
            ),
            "share_above_0.95": sum(c >= 0.95 for c in flat) / len(flat),
            "closed_form_cosine": min(min(r["closed_form"].values()) for r in records),
            "others_inside": sum(r["others_inside"] for r in records) / len(records),
            "others_inside_by_chance": records[0]["others_inside_by_chance"],
        }
        for name, kind in (
            ("alignment_order_correlation", "related"),
            ("channel_order_correlation", "arrival"),
            ("learning_order_correlation", "learned"),
        ):
            orders = [o for r in records if (o := order_correlation(r, horizon, kind)) is not None]
            summary[name] = sum(orders) / len(orders) if orders else None
        summary["sigma_order_correlation"] = _sigma_order(records)
    return summary


def by_value(records: list[dict[str, Any]], field: str) -> list[dict[str, Any]]:
    """A sweep over ``field`` of the records in a few numbers a value, seeds together."""
    found = []
    for value in sorted({r[field] for r in records}):
        mine = [r for r in records if r[field] == value]
        cosines = [min(p["cos_query"], p["cos_key"]) for r in mine for p in r["pairs"]]
        logits = [r["logits"][0] for r in mine]
        arrived = [a for r in mine for a in r["arrival"]]
        found.append(
            {
                field: value,
                "seeds": len(mine),
                "smallest_cosine": min(cosines),
                "mean_cosine": sum(cosines) / len(cosines),
                "second_to_first_singular_value": max(
                    (s for r in mine if (s := _second(r)) is not None), default=None
                ),
                "mean_logit": sum(logits) / len(logits),
                "others_inside": sum(r["others_inside"] for r in mine) / len(mine),
                "closed_form_cosine": min(min(r["closed_form"].values()) for r in mine),
                "condition": sum(r["theorem"]["condition"] for r in mine) / len(mine),
                "theorem_cosine": min(r["theorem"]["cosine"] for r in mine),
                "least_cosine": min(r["theorem"]["least_cosine"] for r in mine),
                "last_arrival": None if None in arrived else max(arrived),
            }
        )
    return found


def _second(record: dict[str, Any]) -> float | None:
    """Second over first singular value; None for a head of one dimension."""
    sigma = record["spectrum"]
    return sigma[1] / max(sigma[0], 1e-12) if len(sigma) > 1 else None


def _top(row: list[float], record: dict[str, Any], count: int) -> list[float]:
    order = sorted(range(len(row)), key=lambda i: -record["pairs"][i]["target"])
    return [row[i] for i in order[:count]]


def _sigma_order(records: list[dict[str, Any]]) -> float | None:
    """Spearman correlation of target logit and the pair's singular value, mean over variants."""
    from scipy.stats import spearmanr

    if len(records[0]["pairs"]) < 3:
        return None
    found = []
    for r in records:
        result: Any = spearmanr([p["target"] for p in r["pairs"]], [p["sigma"] for p in r["pairs"]])
        found.append(float(result.statistic))
    return sum(found) / len(found)
