"""The rows of a study's tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from headwise.contrast.bank import BankFeature
from headwise.contrast.features import Fitted, Record, superposition
from headwise.contrast.heads import HeadScore
from headwise.contrast.swap_tests import DOSES, as_edited
from headwise.contrast.swaps import Edited, swap_test
from headwise.randomness import keyed
from headwise.types import Head


def head_record(score: HeadScore, chosen: bool) -> Record:
    """One head's row."""
    return {
        "head": str(score.head),
        "score": score.score,
        "low": score.ci[0],
        "high": score.ci[1],
        "p_value": score.p_value,
        "q_value": score.q_value,
        "accuracy": score.accuracy,
        "ratio": score.ratio,
        "mass": score.mass,
        "chosen": chosen,
    }


def feature_record(
    item: BankFeature,
    place: int,
    fitted: Mapping[str, Fitted],
    siblings: Sequence[BankFeature],
    measured: Mapping[str, Tensor],
    *,
    seed: int,
) -> Record:
    """One feature's row: ranks, and its swap against random subspaces with intervals."""
    reports = [fitted[part].reports[place] for part in (item.parts or (item.name,))]
    name = f"{item.head}|{item.name}"
    test = swap_test(
        as_edited(measured[f"{name}|swap"]),
        as_edited(measured[f"{item.head}|full"]),
        as_edited(measured[f"{name}|random"]),
        generator=keyed(seed, "bootstrap", name),
    )
    salience = sum(r.salience_energy for r in reports)
    interaction = sum(r.interaction_energy for r in reports)
    single = reports[0] if not item.parts else None
    return {
        "head": str(item.head),
        "name": item.name,
        "union": bool(item.parts),
        "rank": item.rank,
        "rank_energy": item.rank_energy,
        "rank_null": item.rank_null,
        "rank_interaction": single.rank_interaction if single else None,
        "rank_low": single.rank_interval[0] if single else None,
        "rank_high": single.rank_interval[1] if single else None,
        "stable_rank": single.stable_rank if single else None,
        "bound": single.bound if single else None,
        "saturated": any(r.saturated for r in reports),
        "interaction_share": interaction / (salience + interaction) if salience + interaction else 0.0,
        "superposition": superposition(siblings),
        "original": test.original,
        "original_low": test.original_interval[0],
        "original_high": test.original_interval[1],
        "target": test.target,
        "target_low": test.target_interval[0],
        "target_high": test.target_interval[1],
        "share_of_full": test.share_of_full,
        "share_low": test.share_interval[0],
        "share_high": test.share_interval[1],
        "percentile": test.percentile,
        "p_value": test.p_value,
        "random_original": test.random_original,
        "random_target": test.random_target,
        "random_share_99": float(torch.quantile(torch.tensor(test.random_shares), 0.99)),
    }


def swap_tables(
    heads: Sequence[Head],
    features: Mapping[Head, Sequence[BankFeature]],
    measured: Mapping[str, Tensor],
    *,
    seed: int,
) -> dict[str, list[Record]]:
    """Every condition, random draw and dose of every feature, means over the test prompts."""
    swaps: list[Record] = []
    draws: list[Record] = []
    doses: list[Record] = []
    for head in heads:
        whole = as_edited(measured[f"{head}|full"]).log_odds.mean()
        for condition in ("none", "full"):
            swaps.append(_condition(head, "", condition, measured[f"{head}|{condition}"], whole, seed))
        for f in features[head]:
            name = f"{head}|{f.name}"
            for key in measured:
                condition = key.removeprefix(f"{name}|")
                if condition == key or "|" in condition or condition in ("random", "dose"):
                    continue
                swaps.append(_condition(head, f.name, condition, measured[key], whole, seed))
            means = measured[f"{name}|random"].double().mean(-1)
            for number, (original, target, odds) in enumerate(means.tolist()):
                draws.append(
                    {"head": str(head), "name": f.name, "draw": number, "original": original,
                     "target": target, "share": odds / float(whole)}
                )  # fmt: skip
            for dose, values in zip(DOSES, measured[f"{name}|dose"].double().mean(-1).tolist(), strict=True):
                doses.append(
                    {"head": str(head), "name": f.name, "dose": dose, "original": values[0],
                     "target": values[1], "share": values[2] / float(whole)}
                )  # fmt: skip
    return {"swaps": swaps, "draws": draws, "doses": doses}


def _condition(head: Head, name: str, condition: str, values: Tensor, whole: Tensor, seed: int) -> Record:
    edited: Edited = as_edited(values)
    n = values.shape[-1]
    picks = torch.randint(0, n, (500, n), generator=keyed(seed, "condition", str(head), name, condition))
    columns = torch.stack([edited.original, edited.target, edited.log_odds])
    means = columns[:, picks].mean(-1)
    ends = torch.quantile(means, torch.tensor([0.025, 0.975], dtype=means.dtype), dim=1)
    record: Record = {"head": str(head), "name": name, "condition": condition}
    for i, column in enumerate(("original", "target", "log_odds")):
        record |= {
            column: float(columns[i].mean()),
            f"{column}_low": float(ends[0, i]),
            f"{column}_high": float(ends[1, i]),
        }
    return record | {"share": float(columns[2].mean() / whole)}
