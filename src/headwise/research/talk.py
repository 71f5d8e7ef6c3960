"""The talk's claims, in its order: attention from first principles."""

from __future__ import annotations

from typing import Any

from headwise.research.parts import ResearchPart, ResearchReading, ResearchRuns
from headwise.research.studies import TALK as STUDIES

_SWEEPS = tuple(study.name for study in STUDIES if study.name.startswith("sweep-"))
_ANSWERS = tuple(study.name for study in STUDIES if study.name.startswith("circuits"))


def _baseline(runs: ResearchRuns) -> ResearchReading:
    one = runs["alignment-none"]["summary"]
    return ResearchReading(
        f"{one['variants']} seeds; no head is trained, so features have no singular vector to follow", None
    )


def _pair(runs: ResearchRuns) -> ResearchReading:
    one = runs["alignment-pair"]["summary"]
    return ResearchReading(
        f"|cos| with the first singular vectors: mean {one['mean_cosine']:.4f}, least {one['smallest_cosine']:.4f}; "
        f"second singular value {one['second_to_first_singular_value']:.1e} of the first",
        one["smallest_cosine"] >= 0.95 and one["second_to_first_singular_value"] <= 0.1,
        "every |cos| at least 0.95, one singular value dominates",
    )


def _theorem(runs: ResearchRuns) -> ResearchReading:
    one = runs["alignment-pair"]["summary"]
    return ResearchReading(
        f"Ωw₁ along w₀ and Ωᵀw₀ along w₁: at least {one['smallest_relation']:.4f}; singular vectors of the closed "
        f"form: |cos| {one['closed_form_cosine']:.4f}",
        one["smallest_relation"] >= 0.95,
        "the singular relation is at least 0.95",
    )


def _orthogonal(runs: ResearchRuns) -> ResearchReading:
    one = runs["alignment-pair"]["summary"]
    return ResearchReading(
        f"{one['others_inside']:.3f} of the other features lies in the attended plane, by chance "
        f"{one['others_inside_by_chance']:.3f}",
        one["others_inside"] < one["others_inside_by_chance"],
        "less than a random plane would hold",
    )


def _order(runs: ResearchRuns) -> ResearchReading:
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


def _many(runs: ResearchRuns) -> ResearchReading:
    one = runs["alignment-pairs"]["summary"]
    return ResearchReading(
        f"20 pairs: mean |cos| {one['mean_cosine']:.3f}, {one['share_above_0.95']:.0%} above 0.95; singular "
        f"relation at least {one['smallest_relation']:.3f}",
        one["share_above_0.95"] >= 0.9,
        "at least 90 % of the pairs above 0.95",
    )


def _robust(runs: ResearchRuns) -> ResearchReading:
    low = {name: runs[name]["summary"]["smallest_cosine"] for name in _SWEEPS}
    return ResearchReading(
        "least |cos|: "
        + ", ".join(f"{name.removeprefix('sweep-')} {value:.3f}" for name, value in low.items()),
        min(low.values()) >= 0.95,
        "every |cos| at least 0.95 in all five sweeps",
    )


def _rank_one(runs: ResearchRuns) -> ResearchReading:
    found = {name: runs[name]["median_signal_rank"] for name in _ANSWERS if name in runs.documents}
    told = ", ".join(
        f"{name.removeprefix('circuits').removeprefix('-') or 'ioi'} {rank:g}"
        for name, rank in found.items()
        if rank is not None
    )
    return ResearchReading(
        f"median rank: {told}",
        all(rank == 1 for rank in found.values() if rank is not None),
        "the median is 1 in every task (a rotated basis gives 1, too: see the page on sparsity)",
    )


def _traced(runs: ResearchRuns) -> ResearchReading:
    one = runs["circuits"]
    return ResearchReading(
        f"{one['n_traced']} of {one['n_prompts']} prompts have a circuit; median {one['median_firings']:g} firings, "
        f"{one['median_edges']:g} edges",
        one["n_traced"] > 0,
        "at least one circuit",
    )


def _families(runs: ResearchRuns) -> ResearchReading:
    one = runs["families"]
    labels = sorted(one["labels"], key=lambda label: -label["ami"])[:2]
    told = ", ".join(f"{label['label']} {label['ami']:.2f}" for label in labels)
    return ResearchReading(
        f"{one['n_families']} families (p {one['p_value']:.2f}); agreement with labels (AMI): {told}",
        one["n_families"] > 1,
        "more than one family beyond the null",
    )


def _representatives(runs: ResearchRuns) -> ResearchReading:
    found = runs["orders"]["families"]
    return ResearchReading(
        "; ".join(
            f"family {one['name']}: {one['prompt']!r}, mean distance {one['distance']:.2f}"
            for one in found[:3]
        ),
        None,
    )


def _same(runs: ResearchRuns) -> ResearchReading:
    heads = runs["orders"]["heads"]
    same = [one for one in heads if one["verdict"] == "the same"]
    return ResearchReading(
        f"{len(same)} of {len(heads)} heads and sides do the same: "
        + ", ".join(f"{one['head']} {one['side']} {one['cosine']:.2f}" for one in same[:4]),
        bool(same),
        "at least one cosine near 1, with its interval",
    )


def _opposite(runs: ResearchRuns) -> ResearchReading:
    heads = [one for one in runs["orders"]["heads"] if one["ci"][1] < 0]
    return ResearchReading(
        f"{len(heads)} heads and sides have a cosine below 0 with its whole interval: "
        + ", ".join(f"{one['head']} {one['side']} {one['cosine']:.2f}" for one in heads[:4]),
        bool(heads),
        "at least one cosine whose interval lies below 0",
    )


def _own(runs: ResearchRuns) -> ResearchReading:
    found = [one for one in runs["orders"]["causality"] if one["own"] and one["other"]]
    if not found:
        return ResearchReading("no family has signals of its own", None)
    told = "; ".join(
        f"own {one['own']['change']:+.2f}, other {one['other']['change']:+.2f} (gap {one['gap']:+.2f})"
        for one in found
    )
    return ResearchReading(
        told, all(one["gap_high"] < 0 for one in found), "every gap's interval lies below 0"
    )


def _named(runs: ResearchRuns) -> ResearchReading:
    one = runs["names"]
    share, chance = one["share_named"], one["controls"]
    return ResearchReading(
        f"{share['mean']:.0%} of {share['n']} signals have a name that passed "
        f"({share['low']:.0%}–{share['high']:.0%}); "
        + ", ".join(f"{name} {value['mean']:.0%}" for name, value in chance.items() if value is not None),
        share["low"] > max((value["high"] for value in chance.values() if value is not None), default=0),
        "more than of swapped and rotated signals, intervals apart",
    )


def _sparse(runs: ResearchRuns) -> ResearchReading:
    one = runs["sparsity"]["overall"]
    return ResearchReading(
        f"sparsity {one['sparsity']['mean']:.3f}, rotated {one['control']['mean']:.3f}; channels needed "
        f"{one['needed']['mean']:.1f}, rotated {one['control_needed']['mean']:.1f}",
        one["difference"]["ci"][1] < 0,
        "sparser than rotated directions, interval below 0 (Gaussian streams are, too: see the page on sparsity)",
    )


def _over_training(runs: ResearchRuns) -> ResearchReading:
    one = runs["training"]["summary"]
    return ResearchReading(
        f"sparsity {one['sparsity_first']:.2f} → {one['sparsity_last']:.2f}, rotated {one['rotated_first']:.2f} → "
        f"{one['rotated_last']:.2f}",
        one["sparsity_last"] < one["sparsity_first"],
        "sparser at the end of training than at its start",
    )


def _sinks(runs: ResearchRuns) -> ResearchReading:
    one = runs["sinks"]
    parked = sum(head["parked"] for head in one["heads"])
    controlled = sum(head["controlled"] for head in one["heads"])
    largest = max((cluster["size"] for cluster in one["clusters"]), default=0)
    return ResearchReading(
        f"{parked} of {len(one['heads'])} heads park; {controlled} are controlled; the largest cluster of one signal "
        f"has {largest} heads",
        largest > 1,
        "at least two heads share a signal",
    )


def _part(place: str, says: str, number: str, studies: Any, read: Any, figure: str = "") -> ResearchPart:
    names = (studies,) if isinstance(studies, str) else studies
    return ResearchPart("talk", place, says, number, names, read, figure)


_NONE = "no number"
TALK: tuple[ResearchPart, ...] = (
    _part(
        "Baseline: without attention",
        "features spread without a preferred direction",
        _NONE,
        "alignment-none",
        _baseline,
        "Seed 0: cosines between",
    ),
    _part(
        "Adding attention",
        "singular vectors of Ω align with the attended pair; one singular value dominates",
        "≈ 0.999",
        "alignment-pair",
        _pair,
        "Seed 0: |cos|",
    ),
    _part(
        "Loss geometry",
        "Ωw₁ ≈ α₀w₀ and Ωᵀw₀ ≈ α₁w₁, so that they become singular vectors",
        "exact under isotropy",
        "alignment-pair",
        _theorem,
        "Singular values of Ω",
    ),
    _part(
        "Orthogonal others",
        "features that are not attended leave the attended plane",
        _NONE,
        "alignment-pair",
        _orthogonal,
        "Seed 0: features projected",
    ),
    _part(
        "One pair at a time",
        "pairs align in the order of their importance",
        _NONE,
        "alignment-pairs",
        _order,
        "Seed 0, from the top",
    ),
    _part(
        "Signals are almost always rank 1",
        "the median number of channels in a signal is 1",
        "1 in all models and tasks",
        _ANSWERS,
        _rank_one,
    ),
    _part("Per-prompt circuits", "one pass traces one circuit per prompt", _NONE, "circuits", _traced),
    _part(
        "Circuit families",
        "prompts form distinct families of circuits",
        "by wording in Pythia-160M, by order in the others",
        "families",
        _families,
        "By number of families",
    ),
    _part(
        "Representatives",
        "each family has one circuit that is nearest to all its others",
        _NONE,
        "orders",
        _representatives,
        "The ",
    ),
    _part(
        "The same things",
        "some heads get the same signal in ABBA and BABA",
        "cosine ≈ 1 for three heads (GPT-2 small)",
        "orders",
        _same,
        "Signals into each head",
    ),
    _part(
        "Different things",
        "some heads get opposite signals in ABBA and BABA",
        "negative for L9H9 (GPT-2 small)",
        "orders",
        _opposite,
        "Signals into each head",
    ),
    _part(
        "Names that pass a test",
        "signals have names that pass a statistical test",
        "63 % GPT-2 small, 50 % Pythia-160M, 31 % Gemma-2 2B",
        "names",
        _named,
    ),
    _part(
        "Robust alignment",
        "alignment is robust to five hyperparameters",
        "≈ 0.999 ± 0.001",
        _SWEEPS,
        _robust,
        "Dots are seeds",
    ),
    _part(
        "Several features",
        "twenty pairs align, too",
        _NONE,
        "alignment-pairs",
        _many,
        "Seed 0: |cos|",
    ),
    _part(
        "Sparse decomposition",
        "attention splits over few singular channels, and over more rotated ones",
        _NONE,
        "sparsity",
        _sparse,
        "Every head beside",
    ),
    _part(
        "Sparse at the end of training",
        "there is no sparsity at the start of training",
        _NONE,
        "training",
        _over_training,
        "Top: the share",
    ),
    _part(
        "Attention sinks",
        "heads of many layers share one signal that makes their sink",
        _NONE,
        "sinks",
        _sinks,
        "Cosine distance between",
    ),
    _part(
        "Own and other cluster",
        "a family's own signals matter more to its prompts than to the other's",
        _NONE,
        "orders",
        _own,
        "95 % intervals over prompts",
    ),
)
