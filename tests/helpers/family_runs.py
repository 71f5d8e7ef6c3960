"""Run folders of synthetic circuits, as ``headwise circuits`` would have written them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from headwise.scale.folder import RunFolder
from headwise.survey.records import CircuitRun
from headwise.survey.records import write_run as write_files
from headwise.survey.schema import table_of
from headwise.types import Head

LAYERS = 4


def edge(
    prompt: int,
    source: str,
    target: str,
    side: str,
    channels: Sequence[int],
    *,
    at: int = 3,
    weight: float = 0.1,
    strengths: Sequence[float] | None = None,
) -> dict[str, Any]:
    """One row of the table of edges."""
    head = None if source.startswith(("MLP", "e", "b", "o")) else Head.parse(source)
    goal = None if target == "answer" else Head.parse(target)
    kind = "head" if head else "mlp" if source.startswith("MLP") else source.rstrip("0123456789")
    layer = head.layer if head else int(source[len(kind) :] or -1) if source[len(kind) :] else -1
    return {
        "prompt": prompt,
        "source": source,
        "source_kind": kind,
        "source_layer": layer,
        "source_head": head.index if head else None,
        "source_query": at,
        "source_key": at - 1 if head else at,
        "target": target,
        "target_layer": goal.layer if goal else LAYERS,
        "target_head": goal.index if goal else None,
        "target_query": at,
        "target_key": at - 1,
        "side": side,
        "weight": weight,
        "channels": list(channels),
        "strengths": list(strengths if strengths is not None else [1.0] * len(channels)),
    }


def prompt_row(prompt: int, labels: Mapping[str, str], **other: Any) -> dict[str, Any]:
    """One row of the table of prompts."""
    ids = [5 + (prompt * 7 + i) % 50 for i in range(6)]
    return {
        "prompt": prompt,
        "text": f"prompt {prompt}",
        "token_ids": ids,
        "tokens": [f"t{i}" for i in ids],
        "answer": " yes",
        "wrong": " no",
        "answer_id": 7,
        "wrong_id": 9,
        "labels": json.dumps(dict(labels)),
        "status": "traced",
        "reason": None,
        "difference": 1.5,
        "top": " yes",
        "n_firings": 0,
        "n_edges": 0,
        "notes": [],
        **other,
    }


def write_run(
    path: Path, prompts: Sequence[Mapping[str, Any]], edges: Sequence[Mapping[str, Any]], **config: Any
) -> CircuitRun:
    """A finished run folder of these rows."""
    settings = {
        "model": "tiny-llama",
        "weight_hash": "0" * 64,
        "dtype": "float32",
        "task": "planted",
        "settings": {},
        "mode": "exact",
        "tau": None,
        "seed": 0,
        "prompts": len(prompts),
        **config,
    }
    counts = (
        np.bincount([e["prompt"] for e in edges], minlength=len(prompts)) if edges else np.zeros(len(prompts))
    )
    rows = [{**p, "n_edges": int(counts[i])} for i, p in enumerate(prompts)]
    ordered = sorted(edges, key=lambda e: e["prompt"])
    empty: list[dict[str, Any]] = []
    tables: dict[str, pa.Table] = {
        "prompts": table_of("prompts", rows),
        "edges": table_of("edges", ordered),
        "firings": table_of("firings", empty),
    }
    with RunFolder(path, "circuits", settings) as folder:
        write_files(folder, [tables])
    return CircuitRun.load(path)


def planted_run(path: Path, n: int = 90, *, families: int = 2, seed: int = 0, **config: Any) -> CircuitRun:
    """Families that differ in channels alone, beside shared and random signals; the label ``kind`` is the truth."""
    generator = np.random.default_rng(seed)
    prompts, edges = [], []
    for prompt in range(n):
        family = prompt % families
        wrong = prompt >= n - 4
        prompts.append(
            prompt_row(
                prompt,
                {"kind": f"k{family}", "noise": str(generator.integers(3)), "name": f"n{prompt}"},
                status="wrong" if wrong else "traced",
            )
        )
        if wrong:
            continue
        for i in range(40):
            own = generator.random() < 0.8
            if own:
                # In the last layer the two families ask for opposite things, elsewhere for the same.
                sign = -1.0 if family == 1 else 1.0
                noise = 0.1 * generator.normal(size=2)
                target = f"L3H{i % 4}"
                edges.append(
                    edge(
                        prompt,
                        f"L{i % 3}H{i % 4}",
                        target,
                        "query",
                        (i % 8, (i + family) % 8),
                        strengths=(sign * (1 + noise[0]), sign * noise[1]),
                    )
                )
            if generator.random() < 0.05:
                edges.append(edge(prompt, f"MLP{i % 2}", f"L2H{i % 4}", "key", (i % 8,)))
            if own and i < 16:
                source = f"L0H{(i + 2 * family) % 4}"
                edges.append(edge(prompt, source, f"L{1 + i % 2}H{i // 4}", "key", (i % 4 + 4 * family,)))
        edges.append(edge(prompt, "L3H0", "answer", "query", ()))
    return write_run(path, prompts, edges, **config)
