"""What moved when singular vectors and features aligned, over seeds, and what the attention loss did meanwhile.

Four claims, each against a null that it can fail, corrected together: singular vectors move first; features turn
towards them; a pair's attention loss falls when the pair aligns; singular vectors must go on turning for the loss to
stay where it is while the other features leave the attended directions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from headwise.claims import claims, p_value, sign_flips
from headwise.intervals import estimate
from headwise.randomness import keyed
from headwise.toy.alignment import AlignmentRun, AlignmentSetup, attention_loss, strengths
from headwise.toy.alignment_path import AlignmentEvent, Course, events
from headwise.types import Claim, Estimate

HELD_OUT = 128
"""Held-out prompts per pair, all of which hold it."""
DRAWS = 999
"""Draws of the nulls that are drawn."""
GROUP = "the claims about how a pair aligns"


@dataclass(frozen=True, eq=False)
class Held:
    """From the last event of a variant to its end: the others leave the attended directions, and the loss?"""

    seed: int
    """The variant's seed."""
    step: int
    """The step from which every pair that ever aligns is aligned."""
    inside: tuple[float, float]
    """Energy of the unattended features in the attended directions, at that step and at the end."""
    loss: tuple[float, float]
    """Attention loss on held-out prompts, then and at the end."""
    loss_of_old_vectors: float
    """The same at the end, had the singular vectors stayed where they were (their strengths as at the end)."""
    largest_loss: float
    """The largest loss in between."""


@dataclass(frozen=True, eq=False)
class AlignmentMotion:
    """Every alignment event of a run, and what holds over all of them."""

    events: list[AlignmentEvent]
    """Every event of every variant."""
    losses: dict[int, Tensor]
    """[F, P] per seed: the attention loss at every frame on prompts that hold each pair."""
    pairs: list[tuple[int, int]]
    """The features (query, key) of each of these pairs."""
    steps: list[int]
    """The step of every frame."""
    drops: list[tuple[float, float]]
    """Per event, its pair's loss at half of its step and at the end of its window (twice its step)."""
    held: list[Held]
    """What followed after the last event, per variant that had one."""
    estimates: dict[str, Estimate]
    """``lag`` in steps, ``lag_share`` (the lag over the event's step), ``closed_by_singular`` and ``closed_by_feature``
    (of the cosine), ``drop`` (the share of a pair's loss that went); intervals over seeds."""
    claims: dict[str, Claim]
    """``singular_first``, ``features_follow``, ``loss_falls``, ``vectors_compensate``; those that could be tested."""

    def to_json(self) -> dict[str, Any]:
        """Events, estimates and claims as plain values."""
        return {
            "events": [
                event_json(e, before, after)
                for e, (before, after) in zip(self.events, self.drops, strict=True)
            ],
            "after": [
                {
                    "seed": h.seed,
                    "step": h.step,
                    "others_inside": list(h.inside),
                    "attention_loss": list(h.loss),
                    "largest_attention_loss": h.largest_loss,
                    "attention_loss_of_old_vectors": h.loss_of_old_vectors,
                }
                for h in self.held
            ],
            "estimates": {name: found.to_json() for name, found in self.estimates.items()},
            "claims": {name: found.to_json() for name, found in self.claims.items()},
        }


def event_json(event: AlignmentEvent, before: float, after: float) -> dict[str, Any]:
    """One event as plain values."""
    record: dict[str, Any] = {
        "seed": event.seed,
        "query": event.query,
        "key": event.key,
        "target": event.target,
        "step": event.step,
        "loss_before": before,
        "loss_after": after,
    }
    for name, side in (("query_side", event.query_turn), ("key_side", event.key_turn)):
        record[name] = {
            "singular_half": side.singular_half,
            "feature_half": side.feature_half,
            "lag": side.lag,
            "singular_angle": side.singular_angle,
            "feature_angle": side.feature_angle,
            "closed_by_singular": side.closed_by_singular,
            "closed_by_feature": side.closed_by_feature,
            "closed_by_others": sum(side.closed_by_others) / max(1, len(side.closed_by_others)),
        }
    return record


def find_motion(run: AlignmentRun, seed: int = 0) -> AlignmentMotion | None:
    """The events of a run that kept its path, all variants of one setup; None where no pair ever aligned."""
    if not run.path or not run.setups[0].targets:
        return None
    by_variant = [events(run, v) for v in range(len(run.setups))]
    found = [e for one in by_variant for e in one]
    if not found:
        return None
    losses = {setup.seed: pair_losses(run, v) for v, setup in enumerate(run.setups)}
    pairs = [(i, j) for i, j, _ in run.setups[0].targets]
    drops = [
        _drop(losses[e.seed], run.frame_steps, e.frame, e.end, pairs.index((e.query, e.key))) for e in found
    ]
    held = [after_events(run, v, one, losses[one[0].seed]) for v, one in enumerate(by_variant) if one]
    estimates, tests = _moves(found, seed)
    fallen = [_fallen(*drop) for drop in drops]
    estimates["drop"] = _over_seeds(fallen, found, seed, "drop")
    observed = sum(fallen) / len(fallen)
    drawn = _other_drops(found, losses, run.frame_steps, pairs, seed)
    null = "the losses of other pairs" if len(pairs) > 1 else "windows at other steps"
    tests["loss_falls"] = (p_value(observed, drawn), null, len(drawn))
    worse = torch.tensor([h.loss_of_old_vectors - h.loss[1] for h in held], dtype=torch.float64)
    p, draws = sign_flips(worse, torch.arange(len(worse)), draws=DRAWS, generator=keyed(seed, "old vectors"))
    tests["vectors_compensate"] = (p, "old and new singular vectors exchanged by seed", draws)
    return AlignmentMotion(found, losses, pairs, run.frame_steps, drops, held, estimates, _judged(tests))


def _judged(tests: dict[str, tuple[float, str, int]]) -> dict[str, Claim]:
    """All tests of a run, corrected together, each with its own null."""
    ps = [p for p, _, _ in tests.values()]
    return {
        name: claims(ps, null=null, draws=draws, group=GROUP)[at]
        for at, (name, (_, null, draws)) in enumerate(tests.items())
    }


def _moves(
    found: Sequence[AlignmentEvent], seed: int
) -> tuple[dict[str, Estimate], dict[str, tuple[float, str, int]]]:
    """Lags and who closed the angle; both sides of a pair are values."""
    turns = [(e, t) for e in found for t in e.turns]
    owners = [e for e, _ in turns]
    values = {
        "lag": [float(t.lag) for _, t in turns],
        "lag_share": [t.lag / max(1, e.step) for e, t in turns],
        "closed_by_singular": [t.closed_by_singular for _, t in turns],
        "closed_by_feature": [t.closed_by_feature for _, t in turns],
    }
    estimates = {name: _over_seeds(v, owners, seed, name) for name, v in values.items()}
    shares = torch.tensor(values["lag_share"], dtype=torch.float64)
    p, draws = sign_flips(shares, _seeds(owners), draws=DRAWS, generator=keyed(seed, "lag"))
    tests = {"singular_first": (p, "singular vector and feature exchanged by seed", draws)}
    if all(t.closed_by_others for _, t in turns):
        generator = keyed(seed, "others")
        drawn = torch.zeros(DRAWS, dtype=torch.float64)
        for _, t in turns:
            others = torch.tensor(t.closed_by_others, dtype=torch.float64)
            drawn += others[torch.randint(len(others), (DRAWS,), generator=generator)] / len(turns)
        observed = sum(values["closed_by_feature"]) / len(turns)
        tests["features_follow"] = (p_value(observed, drawn), "unattended features in their place", DRAWS)
    return estimates, tests


def _seeds(owners: Sequence[AlignmentEvent]) -> Tensor:
    return torch.tensor([e.seed for e in owners])


def _over_seeds(values: list[float], owners: Sequence[AlignmentEvent], seed: int, label: str) -> Estimate:
    return estimate(
        torch.tensor(values, dtype=torch.float64), seed, "alignment", label, clusters=_seeds(owners)
    )


def held_out_prompts(setup: AlignmentSetup, count: int = HELD_OUT) -> Tensor:
    """Strengths [P, count, 1 + m, N] of prompts that training never saw: the query and one source hold the pair."""
    f = strengths(setup, count * len(setup.targets), 0).reshape(
        len(setup.targets), count, 1 + setup.sources, setup.features
    )
    for at, (i, j, _) in enumerate(setup.targets):
        drawn = torch.rand(count, 2, generator=keyed(setup.seed, "alignment", "held out", at))
        f[at, :, 0, i], f[at, :, 1, j] = drawn.unbind(1)
    return f


def pair_losses(run: AlignmentRun, variant: int) -> Tensor:
    """The attention loss at every frame on held-out prompts that hold each pair [F, P]."""
    setup = run.setups[variant]
    f = held_out_prompts(setup)
    w_q, w_k, w = (run.path[name][:, variant] for name in ("w_q", "w_k", "w"))
    forms = (w_q @ w).mT @ (w_k @ w)
    return torch.stack([_own_loss(form[: setup.features, : setup.features], setup, f) for form in forms])


def _own_loss(form: Tensor, setup: AlignmentSetup, f: Tensor) -> Tensor:
    targets = torch.zeros(setup.features, setup.features)
    for i, j, logit in setup.targets:
        targets[i, j] = logit
    pairs = len(f)
    return attention_loss(form.float().expand(pairs, -1, -1), targets.expand(pairs, -1, -1), f)


def after_events(run: AlignmentRun, variant: int, found: Sequence[AlignmentEvent], losses: Tensor) -> Held:
    """What followed after the last event: where the other features went, and what the loss needed for it."""
    setup, course = run.setups[variant], Course.of(run, variant)
    frame = max(e.frame for e in found)
    attended = sorted({f for e in found for f in (e.query, e.key)})
    inside = [_others_inside(course.features[at], attended) for at in (frame, -1)]
    w = run.path["w"][-1, variant, :, : setup.features].double()
    omega = course.left[-1] * course.sigma[-1] @ course.right[-1].mT
    u, v = course.left[frame], course.right[frame]
    # The strengths that old directions would have at the end: the part of Ω that is diagonal in them.
    kept = u * (u * (omega @ v)).sum(0) @ v.mT
    which = [at for at, (i, j, _) in enumerate(setup.targets) if (i, j) in {(e.query, e.key) for e in found}]
    old = _own_loss(w.mT @ kept @ w, setup, held_out_prompts(setup))[which].mean()
    mine = losses[:, which].mean(1)
    return Held(
        setup.seed,
        course.steps[frame],
        (inside[0], inside[1]),
        (float(mine[frame]), float(mine[-1])),
        float(old),
        float(mine[frame:].max()),
    )


def _others_inside(features: Tensor, attended: list[int]) -> float:
    """Mean energy of the unattended unit features [D, N] in the span of the attended ones; 0 where there are none."""
    others = [f for f in range(features.shape[1]) if f not in set(attended)]
    basis = torch.linalg.qr(features[:, attended]).Q
    return float((basis.mT @ features[:, others]).square().sum(0).mean()) if others else 0.0


def _drop(losses: Tensor, steps: list[int], frame: int, end: int, pair: int) -> tuple[float, float]:
    """A pair's loss at half of an event's step and at the end of its window."""
    half = max(at for at, step in enumerate(steps) if step <= steps[frame] / 2)
    return float(losses[half, pair]), float(losses[end, pair])


def _fallen(before: float, after: float) -> float:
    """The share of a loss that went."""
    return 1 - after / max(before, 1e-12)


def _other_drops(
    found: Sequence[AlignmentEvent],
    losses: dict[int, Tensor],
    steps: list[int],
    pairs: list[tuple[int, int]],
    seed: int,
) -> list[float]:
    """Mean drops of the null: in each event's window the loss of another pair, or, of one pair, at another step."""
    generator = keyed(seed, "alignment", "drops")
    course_end = len(steps) - 1
    tried = []
    for e in found:
        own = pairs.index((e.query, e.key))
        if len(pairs) > 1:
            spots = [(e.frame, e.end, other) for other in range(len(pairs)) if other != own]
        else:
            ends = {
                at: max(b for b, s in enumerate(steps) if s <= 2 * steps[at]) for at in range(1, len(steps))
            }
            spots = [(at, end, own) for at, end in ends.items() if 2 * steps[at] <= steps[course_end]]
        drops = [_drop(losses[e.seed], steps, *spot) for spot in spots]
        shares = torch.tensor([_fallen(*drop) for drop in drops], dtype=torch.float64)
        tried.append(shares[torch.randint(len(shares), (DRAWS,), generator=generator)])
    return torch.stack(tried).mean(0).tolist()
