"""What is wrong with a design before any model runs, each warning with the number that triggered it."""

from __future__ import annotations

from collections import Counter

import numpy as np

from headwise.errors import HeadwiseError
from headwise.tasks.labelled.types import Contrast, Task

BALANCE = 2.0
"""Most frequent over least frequent value of a group."""
CORRELATION = 0.2
"""Labels that follow position more closely than this are warned of: a head could answer by position alone."""
FEW_VALUES = 4
"""With fewer values of the feature a warning says that they bound the rank that can be found."""


def design_warnings(task: Task) -> list[str]:
    """Balance of groups, label and position, distinct query values, leakage from fitting to testing."""
    found: list[str] = []
    few: dict[str, list[str]] = {}
    for contrast in (*task.fits, task.test):
        name = f"{contrast.name} ({'test' if contrast is task.test else 'fit'})"
        found += _balance(contrast, name)
        correlation = position_correlation(contrast)
        if abs(correlation) > CORRELATION:
            found.append(
                f"{name}: being positive correlates with position by {correlation:+.2f}: "
                "the feature may be a place, not a meaning"
            )
        if contrast is not task.test:
            found += _order_is_position(contrast, name)
            if contrast.distinct is not None and contrast.distinct < FEW_VALUES:
                value = "value" if contrast.distinct == 1 else "values"
                few.setdefault(
                    f"the query takes {contrast.distinct} {value}, which bounds the rank of ΔC", []
                ).append(contrast.name)
    found += [f"{', '.join(names)} (fit): {what}" for what, names in few.items()]
    return found + _leaks(task)


def require_clusters(task: Task) -> None:
    """Refuse a task whose test prompts are one cluster: nothing would say how others differ from them."""
    clusters = task.test.clusters()
    if len(clusters) < 2:
        raise HeadwiseError(
            f"the test prompts of {task.name!r} ({len(task.test)}) are a single {clusters.name}: "
            "give more, so that what is found can be told from what they share"
        )


def _balance(contrast: Contrast, name: str) -> list[str]:
    found = []
    groups = sorted({g for e in contrast.examples for g in e.groups})
    for group in groups:
        counts = Counter(e.groups[group] for e in contrast.examples if group in e.groups)
        # Chance alone unbalances small counts: the least must be too few beyond what chance explains.
        expected = sum(counts.values()) / len(counts)
        most, least = max(counts.values()), min(counts.values())
        if most / least > BALANCE and most - least > 6 * expected**0.5:
            found.append(
                f"{name}: group {group!r} is unbalanced, {most} prompts of one value and {least} of another"
            )
    return found


def position_correlation(contrast: Contrast) -> float:
    """Correlation between being a positive key and its position, positions counted within each prompt's keys."""
    label, place = [], []
    for e in contrast.examples:
        if e.other is not None:
            continue  # the two keys stand in two prompts, at the same place by construction
        ranks = np.argsort(np.argsort(e.keys)) / max(1, len(e.keys) - 1)
        label += [1.0] * len(e.positive) + [0.0] * len(e.negative)
        place += list(ranks)
    if len(set(place)) < 2 or len(set(label)) < 2:
        return 0.0
    return float(np.corrcoef(label, place)[0, 1])


def order_position_correlation(contrast: Contrast) -> float:
    """Correlation of a key's order with its token position, within prompts of one wording: 1 for a fixed length."""
    pairs: dict[str, list[tuple[int, int]]] = {}
    for e in contrast.examples:
        for order, key in zip(e.key_groups.get("order", ()), e.keys, strict=False):
            pairs.setdefault(e.groups.get("template", ""), []).append((int(order), key))
    each = [float(np.corrcoef(np.array(found).T)[0, 1]) for found in pairs.values() if len(found) > 2]
    return float(np.mean(each)) if each else 0.0


def _order_is_position(contrast: Contrast, name: str) -> list[str]:
    r = order_position_correlation(contrast) if contrast.varies == "order" else 0.0
    if r < 0.995:
        return []
    return [
        f"{name}: order and token position correlate by {r:.3f}: vary sentence lengths (jitter) to tell them apart"
    ]


def _leaks(task: Task) -> list[str]:
    found = []
    for group in task.held_out:

        def values(contrast: Contrast, group: str = group) -> set[str]:
            return {
                v for e in contrast.examples for v in (*e.key_groups.get(group, ()), e.groups.get(group, ""))
            } - {""}

        tested = values(task.test)
        shared = sorted(tested & {v for c in task.fits for v in values(c)})
        if shared:
            shown = ", ".join(shared[:3])
            found.append(
                f"{len(shared)} of {len(tested)} test values of {group!r} were fitted on too ({shown})"
            )
    prompts = {e.tokens for c in task.fits for e in c.examples}
    same = sum(e.tokens in prompts for e in task.test.examples)
    if same:
        found.append(f"{same} of {len(task.test)} test prompts are also fitting prompts")
    return found
