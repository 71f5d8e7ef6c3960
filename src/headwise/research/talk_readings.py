"""How the results of the talk's studies are read, claim by claim."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from headwise.research.parts import ResearchReading, ResearchRuns
from headwise.research.studies import TALK as STUDIES
from headwise.strings import counted

SWEEPS = tuple(study.name for study in STUDIES if study.name.startswith("sweep-"))[:5]
EFFECTS = tuple(study.name for study in STUDIES if study.name.startswith("effects-"))
ANSWERS = tuple(study.name for study in STUDIES if study.name.startswith("circuits"))


def baseline(runs: ResearchRuns) -> ResearchReading:
    one = runs["alignment-none"]["summary"]
    return ResearchReading(
        f"{one['variants']} seeds; no head is trained, so features have no singular vector to follow", None
    )


def pair(runs: ResearchRuns) -> ResearchReading:
    one = runs["alignment-pair"]["summary"]
    return ResearchReading(
        f"|cos| with the first singular vectors: mean {one['mean_cosine']:.4f}, least {one['smallest_cosine']:.4f}; "
        f"second singular value {one['second_to_first_singular_value']:.1e} of the first",
        one["smallest_cosine"] >= 0.95 and one["second_to_first_singular_value"] <= 0.1,
        "every |cos| at least 0.95, one singular value dominates",
    )


def theorem(runs: ResearchRuns) -> ResearchReading:
    one = runs["alignment-pair"]["summary"]
    return ResearchReading(
        f"Ωw₁ along w₀ and Ωᵀw₀ along w₁: at least {one['smallest_relation']:.4f}; singular vectors of the closed "
        f"form: |cos| {one['closed_form_cosine']:.4f}",
        one["smallest_relation"] >= 0.95,
        "the singular relation is at least 0.95",
    )


def orthogonal(runs: ResearchRuns) -> ResearchReading:
    one = runs["alignment-pair"]["summary"]
    return ResearchReading(
        f"{one['others_inside']:.3f} of the other features lies in the attended plane, by chance "
        f"{one['others_inside_by_chance']:.3f}",
        one["others_inside"] < one["others_inside_by_chance"],
        "less than a random plane would hold",
    )


def order(runs: ResearchRuns) -> ResearchReading:
    one = runs["alignment-pairs"]["summary"]
    found = one["alignment_order_correlation"]
    if found is None:
        return ResearchReading("too few pairs align to say in which order", None)
    return ResearchReading(
        f"rank correlation of target logit and time of alignment {found:.2f} (learning "
        f"{one['learning_order_correlation']:.2f})",
        found <= -0.5,
        "larger targets align earlier: correlation of at most −0.5",
    )


def many(runs: ResearchRuns) -> ResearchReading:
    one = runs["alignment-pairs"]["summary"]
    return ResearchReading(
        f"20 pairs: mean |cos| {one['mean_cosine']:.3f}, {one['share_above_0.95']:.0%} above 0.95; singular "
        f"relation at least {one['smallest_relation']:.3f}",
        one["share_above_0.95"] >= 0.9,
        "at least 90 % of the pairs above 0.95",
    )


def robust(runs: ResearchRuns) -> ResearchReading:
    low = {name: runs[name]["summary"]["smallest_cosine"] for name in SWEEPS}
    return ResearchReading(
        "least |cos|: "
        + ", ".join(f"{name.removeprefix('sweep-')} {value:.3f}" for name, value in low.items()),
        min(low.values()) >= 0.95,
        "every |cos| at least 0.95 in all five sweeps",
    )


def condition(runs: ResearchRuns) -> ResearchReading:
    found = runs["sweep-interference"]["variants"]
    theorem = [(one["interference"], one["theorem"]) for one in found if one["theorem"] is not None]
    exact = [one["least_cosine"] for value, one in theorem if not value]
    rest = [one["least_cosine"] for value, one in theorem if value]
    return ResearchReading(
        f"least |cos| without interference {min(exact, default=float('nan')):.6f}, with it down to "
        f"{min(rest, default=float('nan')):.3f}",
        min(exact, default=0.0) >= 0.999,
        "|cos| of at least 0.999 where features do not interfere",
    )


def motion(*names: str) -> Any:
    words = {
        "singular_first": "singular vectors move first",
        "features_follow": "features follow",
        "loss_falls": "the attention loss falls with each event",
        "vectors_compensate": "singular vectors make up for features that turn",
    }

    def read(runs: ResearchRuns) -> ResearchReading:
        claims = runs["alignment-pairs"]["motion"]["claims"]
        told = ", ".join(
            f"{words[name]}: {'yes' if claims[name]['supported'] else 'no'} (q {claims[name]['q']:.3f})"
            for name in names
            if claims.get(name) is not None
        )
        held = [claims[name]["supported"] for name in names if claims.get(name) is not None]
        return ResearchReading(
            told or "no pair aligned", all(held) if held else None, "each claim's own null (q ≤ 0.05)"
        )

    return read


def behaviour(runs: ResearchRuns) -> ResearchReading:
    found = {name: runs[name] for name in EFFECTS if name in runs.documents}
    told = "; ".join(
        f"{one['task']}: lead falls by {one['estimates']['share']['mean']:.0%} (controls "
        f"{one['estimates']['control_share']['mean']:.0%}), the stream moves by "
        f"{one['estimates']['moved']['mean']:.0%} (controls {one['estimates']['control_moved']['mean']:.0%})"
        for one in found.values()
    )
    return ResearchReading(
        told,
        all(one["claims"]["behaviour"]["supported"] for one in found.values()),
        "removing signals moves the answer more than removing matched controls, in every task (q ≤ 0.05)",
    )


def averaged(runs: ResearchRuns) -> ResearchReading:
    given = [runs[name]["averaging"] for name in ("families", "orders")]
    one = next((found for found in given if found is not None and found["steadier"] is not None), None)
    if one is None or one["families"] is None:
        return ResearchReading("there are too few circuits to average", None)
    return ResearchReading(
        f"structure of averaged circuits varies by {one['all_prompts']:.2f} over all prompts, by "
        f"{one['families']:.2f} within families, by {one['random_groups']:.2f} in random groups of their sizes",
        one["steadier"]["supported"],
        "averages within families vary less than in random groups of the same sizes",
    )


def rank_one(runs: ResearchRuns) -> ResearchReading:
    found = {name: runs[name]["median_signal_rank"] for name in ANSWERS if name in runs.documents}
    told = ", ".join(
        f"{name.removeprefix('circuits').removeprefix('-') or 'ioi'} {rank:g}"
        for name, rank in found.items()
        if rank is not None
    )
    return ResearchReading(
        f"median rank: {told}; in the default model a rotated basis gives 1 to 2, so that this is hardly evidence",
        None,
    )


def traced(runs: ResearchRuns) -> ResearchReading:
    one = runs["circuits"]
    return ResearchReading(
        f"{one['n_traced']} of {one['n_prompts']} prompts have a circuit; median {one['median_firings']:g} firings, "
        f"{one['median_edges']:g} edges",
        None,
    )


def families(runs: ResearchRuns) -> ResearchReading:
    one = runs["families"]
    claimed = one["claim"]
    held = "nothing to test" if claimed is None else f"p {claimed['p']:.3f}"
    count = "one family" if one["n_families"] == 1 else f"{one['n_families']} families"
    labels = sorted(one["labels"], key=lambda label: -label["ami"])[:2]
    told = ", ".join(f"{label['label']} {label['ami']:.2f}" for label in labels)
    return ResearchReading(
        f"{count} ({held}); agreement with labels (AMI): {told}",
        claimed is not None and claimed["supported"],
        "families further apart than one family that varies continuously, and inside wordings too",
    )


def representatives(runs: ResearchRuns) -> ResearchReading:
    found = runs["orders"]["families"]
    return ResearchReading(
        "; ".join(
            f"family {one['name']}: {one['prompt']!r}, mean distance {one['distance']:.2f}"
            for one in found[:3]
        ),
        None,
    )


def _listed(parts: Iterable[str]) -> str:
    """What a sentence goes on with, if anything."""
    told = ", ".join(parts)
    return f": {told}" if told else ""


def same(runs: ResearchRuns) -> ResearchReading:
    heads = runs["orders"]["heads"]
    same = [one for one in heads if one["verdict"] == "the same"]
    return ResearchReading(
        f"{len(same)} of {len(heads)} heads and sides do the same"
        + _listed(f"{one['head']} {one['side']} {one['cosine']:.2f}" for one in same[:4]),
        bool(same),
        "at least one cosine near 1, with its interval",
    )


def opposite(runs: ResearchRuns) -> ResearchReading:
    heads = [one for one in runs["orders"]["heads"] if one["ci"][1] < 0]
    return ResearchReading(
        f"heads and sides with a cosine below 0, its whole interval, too: {len(heads)}"
        + _listed(f"{one['head']} {one['side']} {one['cosine']:.2f}" for one in heads[:4]),
        bool(heads),
        "at least one cosine whose interval lies below 0",
    )


def own(runs: ResearchRuns) -> ResearchReading:
    found = [one for one in runs["orders"]["causality"] if one["own"] and one["other"]]
    if not found:
        return ResearchReading("no family has signals of its own", None)
    told = "; ".join(
        f"{one['features']} {one['kind']}: own {one['own']['change']:+.2f}, other {one['other']['change']:+.2f} "
        f"(gap {one['gap']:+.2f}, q {one['claims']['gap']['q']:.3f})"
        for one in found
    )
    return ResearchReading(
        f"{told}; chosen on one half of the prompts, tested on the other",
        all(one["claims"]["gap"]["supported"] for one in found if one["kind"] == "signals"),
        "signals of every family matter more to its own prompts than to the other's, on prompts of another half",
    )


def named(runs: ResearchRuns) -> ResearchReading:
    one = runs["names"]
    share, chance = one["share_named"], one["controls"]
    return ResearchReading(
        f"{share['mean']:.0%} of {share['n']} signals have a name that passed "
        f"({share['low']:.0%}–{share['high']:.0%}); "
        + ", ".join(f"{name} {value['mean']:.0%}" for name, value in chance.items() if value is not None),
        share["low"] > max((value["high"] for value in chance.values() if value is not None), default=0),
        "more than of swapped and rotated signals, intervals apart",
    )


def sparse(runs: ResearchRuns) -> ResearchReading:
    one = runs["sparsity"]["overall"]
    return ResearchReading(
        f"sparsity {one['sparsity']['mean']:.3f}, rotated {one['control']['mean']:.3f}; channels needed "
        f"{one['needed']['mean']:.1f}, rotated {one['control_needed']['mean']:.1f}; beyond rotation: "
        f"{'yes' if one['against_rotation']['supported'] else 'no'}",
        one["claim"]["supported"],
        "sparser than the closest of Gaussian streams, unattended keys, shuffled pairs and rotations (q ≤ 0.05)",
    )


def over_training(runs: ResearchRuns) -> ResearchReading:
    one = runs["training"]["summary"]
    return ResearchReading(
        f"sparsity {one['sparsity_first']:.2f} → {one['sparsity_last']:.2f}, rotated {one['rotated_first']:.2f} → "
        f"{one['rotated_last']:.2f}; the closest null without features {one['null_first']:.2f} → "
        f"{one['null_last']:.2f}; "
        f"heads beyond it {one['supported_first']:.0%} → {one['supported_last']:.0%}",
        one["supported_last"] > one["supported_first"],
        "more heads are sparser than nulls without features at the end of training than at its start",
    )


def sinks(runs: ResearchRuns) -> ResearchReading:
    one = runs["sinks"]
    controlled = sum(head["controlled"] for head in one["heads"])
    tested = all("parks" in head for head in one["heads"])  # not in runs of before that was
    parked = sum(head["parks"]["supported"] if tested else head["parked"] for head in one["heads"])
    park = "park (supported)" if tested else "park"
    largest = max((cluster["size"] for cluster in one["clusters"]), default=0)
    return ResearchReading(
        f"{parked} of {len(one['heads'])} heads {park}; {controlled} are controlled; the largest cluster of one signal "
        f"has {counted(largest, 'head')}",
        None,
    )
