"""The whole analysis of a run of circuits: distances, families, what they share, what differs, and proof."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from headwise.bases.basis import Bases
from headwise.errors import HeadwiseError
from headwise.families.agreement import agreement, usable_labels
from headwise.families.averaging import averaging
from headwise.families.causality import CONTROLS, PROMPTS, CausalQuestion, measure_causality
from headwise.families.cluster import Clustering, cluster, medoids, silhouettes
from headwise.families.compare import compare, incoming
from headwise.families.distance import jaccard
from headwise.families.incidence import Incidence, check_kind, incidence
from headwise.families.null import NullTest, largest_p, null_tests, sampled
from headwise.families.result import CORE, KIND, PRUNED, FamiliesResult, Family
from headwise.families.within import within_claims, wording_of, wording_test
from headwise.progress import Progress
from headwise.scale.folder import refuse_taken
from headwise.strings import counted, natural
from headwise.survey.records import CircuitRun
from headwise.tasks.clusters import units_of

if TYPE_CHECKING:
    from headwise.model.model import Model

FEWEST = 3
"""Circuits below which nothing can be said."""
COMPARED = 4
"""The largest families, of which all pairs are compared head by head."""
TESTED = 3
"""The largest families, of which all pairs are tested for causality."""


def find_families(
    runs: str | Path | CircuitRun | Sequence[str | Path],
    *,
    out: str | Path | None = None,
    distance: str = "signals",
    by: str | None = None,
    model: Model | None = None,
    sample: int = PROMPTS,
    seed: int = 0,
    progress: Progress | None = None,
) -> FamiliesResult:
    """Find the families of a run's circuits and what tells them apart: ``headwise families`` in Python.

    Parameters
    ----------
    runs:
        The folder that ``headwise circuits`` made, or several of one model, read as one.
    out:
        A folder for tables, one JSON document and a report.
    distance:
        What two circuits are compared by: ``signals`` (source, target, side, channel), ``edges`` (without the channel)
        or ``heads`` alone.
    by:
        A label whose values are treated as the families in everything after the clustering: representatives, heads,
        causality.
    model:
        The traced model; needed only to test causality, and without it that part is left out.
    sample:
        Prompts per family used for edited passes.
    seed:
        The seed of everything random.
    progress:
        Told the stage, how many of its parts are done, and how many there are.

    Returns
    -------
    FamiliesResult
        The families, their representatives, what differs between them, and whether that is causal.
    """
    began = time.perf_counter()
    check_kind(distance)
    if sample < 2:
        raise HeadwiseError(f"sample={sample} prompts give no interval: give 2 or more")
    tell = progress or (lambda stage, done, total: None)
    run = _loaded(runs)
    if model is not None:
        check_model(run, model)
    if out is not None:
        refuse_taken(out, KIND)
    tell("distances", 0, 1)
    compared, silent = with_signals(run)
    signals = incidence(run.edges, compared)
    chosen = signals if distance == "signals" else incidence(run.edges, compared, distance)
    distances = jaccard(chosen.matrix)
    groups = usable_labels([run.labels[p] for p in compared])
    tell("clustering", 0, 1)
    clustering = cluster(distances, seed=seed)
    null, within, shuffle = _nulls(chosen, clustering, groups, seed, tell)
    labels, names = _partition(clustering, largest_p(null, within), groups, by)
    values = silhouettes(distances, {0: labels})[0] if labels.max() else np.zeros(len(labels))
    largest = np.argsort(-np.bincount(labels), kind="stable").tolist()
    representatives = medoids(distances, labels)
    shared = units_of([run.labels[p] for p in compared])
    wordings, unit = shared.which.numpy(), shared.name
    tell("averaging", 0, 1)
    averaged = averaging(chosen.matrix, distances, labels, clusters=wordings, unit=unit, seed=seed)
    tell("comparing heads", 0, 1)
    pairs = list(combinations(sorted(largest[:COMPARED]), 2))
    entering = incoming(run.edges, compared)
    heads = compare(entering, labels, representatives, pairs, clusters=wordings, unit=unit, seed=seed)
    causality = []
    tested = list(combinations(sorted(largest[:TESTED]), 2))
    if model is not None and tested:
        causality = measure_causality(
            Bases.named(model, run.basis, "this run"),
            questions(run, compared),
            signals,
            labels,
            tested,
            heads=incidence(run.edges, compared, "heads"),
            clusters=wordings,
            unit=unit,
            sample=sample,
            controls=CONTROLS,
            seed=seed,
            tick=lambda done, total: tell("removing signals", done, total),
        )
    result = FamiliesResult(
        run=run,
        settings={
            "distance": distance,
            "by": by,
            "seed": seed,
            "sample": sample,
            "causality": model is not None,
        },
        incidence=chosen,
        signals=signals,
        distances=distances,
        clustering=clustering,
        null=null,
        within=within,
        shuffle=shuffle,
        labels=labels,
        groups=groups,
        families=_families(run, signals, distances, clustering, labels, names, representatives, groups, by),
        agreements=agreement(groups, labels, distances, clusters=wordings, unit=unit, seed=seed),
        within_wordings=within_claims(groups, distances, clusters=wordings, unit=unit, seed=seed),
        accuracy=_accuracy(run, silent),
        silent=tuple(silent),
        heads=heads,
        causality=causality,
        averaging=averaged,
        silhouettes=values,
    )
    result = replace(result, seconds=time.perf_counter() - began)
    if out is not None:
        result.save(out)
    return result


def check_model(run: CircuitRun, model: Model) -> None:
    """Refuse a model whose weights are not those that were traced."""
    again = "give the model that was traced, or leave out causality"
    model.require(run.config["weight_hash"], "this run of circuits", of=run.config["model"], do=again)


def with_signals(run: CircuitRun) -> tuple[list[int], list[int]]:
    """The traced prompts whose circuits hold a signal, and those whose circuits hold none.

    A circuit of nothing but edges into the answer has nothing to compare: two of them would be at distance 0, and at
    distance 1 from all others, a family made of what is missing.
    """
    sizes = incidence(run.edges, run.traced).sizes
    kept = [p for p, size in zip(run.traced, sizes, strict=True) if size]
    if len(kept) < FEWEST:
        raise HeadwiseError(
            f"{str(run.paths[0])!r} holds {counted(len(kept), 'circuit')} with signals of {len(run)} prompts "
            f"({len(run.traced) - len(kept)} have only edges into the answer): families need at least {FEWEST}; trace "
            "more prompts"
        )
    return kept, [p for p, size in zip(run.traced, sizes, strict=True) if not size]


def questions(run: CircuitRun, prompts: Sequence[int]) -> list[CausalQuestion]:
    """Some traced prompts with their answers."""
    columns = (run.prompts.column(name).to_pylist() for name in ("token_ids", "answer_id", "wrong_id"))
    rows = list(zip(*columns, strict=True))
    return [CausalQuestion(*rows[p]) for p in prompts]


def _loaded(runs: str | Path | CircuitRun | Sequence[str | Path]) -> CircuitRun:
    if not isinstance(runs, CircuitRun):
        paths = [runs] if isinstance(runs, (str, Path)) else list(runs)
        runs = CircuitRun.load(*paths)
    n = len(runs.traced)
    if n < FEWEST:
        raise HeadwiseError(
            f"{str(runs.paths[0])!r} holds {n} {'circuit' if n == 1 else 'circuits'} of {len(runs)} prompts: families "
            f"need at least {FEWEST}; trace more prompts"
        )
    return runs


def _nulls(
    chosen: Incidence,
    clustering: Clustering,
    groups: dict[str, np.ndarray],
    seed: int,
    tell: Progress,
) -> tuple[NullTest | None, NullTest | None, NullTest | None]:
    if not clustering.cuts:
        return None, None, None
    rows = sampled(len(chosen.prompts), seed)
    cut = {k: one.labels[rows] for k, one in clustering.cuts.items()}
    matrix, wording = chosen.rows(rows).matrix, wording_of(groups)
    one, shuffled = null_tests(
        matrix, cut, seed=seed, tick=lambda done, total: tell("null data", done, total)
    )
    within = None if wording is None else wording_test(matrix, cut, groups[wording][rows], seed=seed)
    return one, within, shuffled


def _partition(
    clustering: Clustering, p_values: dict[int, float], groups: dict[str, np.ndarray], by: str | None
) -> tuple[np.ndarray, list[str]]:
    """The family of every circuit, and the families' names."""
    if by is None:
        labels = clustering.labels(clustering.choose(p_values))
        return labels, [str(k) for k in range(int(labels.max()) + 1)]
    if by not in groups:
        known = ", ".join(groups) or "none"
        raise HeadwiseError(
            f"the prompts have no label {by!r} with 2 to 50 values to group them by (available labels: {known})"
        )
    names, labels = np.unique(groups[by], return_inverse=True)
    return labels.astype(np.int64), names.tolist()


def _families(
    run: CircuitRun,
    signals: Incidence,
    distances: np.ndarray,
    clustering: Clustering,
    labels: np.ndarray,
    names: list[str],
    representatives: list[int],
    groups: dict[str, np.ndarray],
    by: str | None,
) -> list[Family]:
    table = run.prompts.take(signals.prompts.tolist())
    text, answer, top = (table.column(name).to_pylist() for name in ("text", "answer", "top"))
    difference, edges = (
        table.column(name).to_numpy(zero_copy_only=False) for name in ("difference", "n_edges")
    )
    right = np.array([a == t for a, t in zip(answer, top, strict=True)])
    cut = clustering.cuts.get(len(names)) if by is None else None
    strays = np.zeros(len(labels), dtype=bool) if cut is None else cut.strays
    found = []
    for number, name in enumerate(names):
        members = np.flatnonzero(labels == number)
        n, share = len(members), signals.frequency(members)
        inside = distances[np.ix_(members, members)].sum(dtype=np.float64) / max(1, n * (n - 1))
        found.append(
            Family(
                family=number,
                name=name,
                size=n,
                share=n / len(labels),
                strays=int(strays[members].sum()),
                representative=int(signals.prompts[representatives[number]]),
                prompt=text[representatives[number]],
                labels={g: _counted(values[members]) for g, values in groups.items()},
                features=float(signals.sizes[members].mean()),
                edges=float(edges[members].mean()),
                core=int((share >= CORE).sum()),
                union=int((share >= PRUNED).sum()),
                distance=float(inside),
                difference=float(np.nanmean(difference[members].astype(np.float64))),
                top_is_answer=float(right[members].mean()),
            )
        )
    return found


def _counted(values: np.ndarray) -> dict[str, int]:
    """How often each value occurs, the commonest first."""
    return dict(sorted(Counter(values.tolist()).items(), key=lambda item: (-item[1], natural(item[0]))))


def _accuracy(run: CircuitRun, silent: Sequence[int]) -> list[dict[str, Any]]:
    """Prompts in no family can only be counted by label: wrong, or right without a circuit, or without a signal."""
    status = np.array(run.prompts.column("status").to_pylist(), dtype=object)
    status[list(silent)] = "silent"
    rows = []
    for name, values in usable_labels(run.labels).items():
        for value in sorted(np.unique(values).tolist(), key=natural):
            mine = status[values == value]
            wrong, failed = int((mine == "wrong").sum()), int((mine == "failed").sum())
            asked = len(mine) - failed
            rows.append(
                {
                    "label": name,
                    "value": value,
                    "prompts": len(mine),
                    "wrong": wrong,
                    "empty": int((mine == "empty").sum()),
                    "silent": int((mine == "silent").sum()),
                    "compared": int((mine == "traced").sum()),
                    "accuracy": (asked - wrong) / asked if asked else None,
                }
            )
    return rows
