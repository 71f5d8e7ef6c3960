"""Runs of features on prompts about boxes, small and cut into many shards, for tests of their folders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from words import worded_model

from headwise.contrast.result import FeaturesResult
from headwise.contrast.study import find_features
from headwise.scale import work
from headwise.scale.folder import WORK

MODEL = worded_model()
WORDS = ("jam", "pen", "key", "map", "cup", "hat", "tea", "egg")


def lines(features: tuple[str, ...] = ("box",)) -> list[dict[str, Any]]:
    return [
        {
            "prompt": f"The [[right:{a}]] is in Box A . The [[wrong:{b}]] is in Box B . The {a} is in Box",
            "positive": ["right"],
            "negative": ["wrong"],
            "groups": {"entity": a},
            "feature": features[i % len(features)],
        }
        for a in WORDS
        for i, b in enumerate(w for w in WORDS if w != a)
    ]


def go(file: Path, out: Path, **options: Any) -> FeaturesResult:
    return find_features(MODEL, file, heads="L1H2,L2H0", out=out, **options)


def stopped(file: Path, out: Path, stage: str, at: int) -> list[Path]:
    """Interrupt a run in a stage; the chunks that it keeps."""

    def stop(now: str, done: int, total: int) -> None:
        if now == stage and done >= at:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        go(file, out, progress=stop)
    return sorted((out / WORK).glob(work.CHUNKS))
