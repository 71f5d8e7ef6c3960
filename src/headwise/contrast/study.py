"""The whole study: find heads, fit features, test them on what was held out. Every stage can be resumed.

With a run folder, each stage leaves its shards there as it goes; the same command finds them and continues.
The shards are cut at fixed places, so an interrupted run ends with the very numbers of one that was not.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from headwise.contrast.bank import BankFeature, FeatureBank
from headwise.contrast.collect import Pairs, collect_pairs
from headwise.contrast.edited_passes import through_model as through
from headwise.contrast.example import attribution_records
from headwise.contrast.features import (
    Fitted,
    angle_records,
    fit_contrast,
    growth_records,
    probe,
    spectrum_records,
    unite,
)
from headwise.contrast.heads import MOST, HeadScore, choose_heads, label_attention, rank_heads
from headwise.contrast.result import KIND, ContrastRun, Record, gallery_labels, pad_keys
from headwise.contrast.swap_tests import DOSES, capture_rows, join, measure
from headwise.contrast.tables import feature_record, head_record, swap_tables
from headwise.errors import HeadwiseError
from headwise.randomness import keyed
from headwise.scale.disk import disk_trouble_told, refuse_small_disk
from headwise.scale.folder import RunFolder, package_versions
from headwise.scale.manifest import ModelShape
from headwise.scale.tensors import from_bytes, to_bytes
from headwise.scale.work import cut
from headwise.tasks.labelled.design import design_warnings
from headwise.tasks.labelled.make import make_task
from headwise.tasks.labelled.types import Contrast, Example, Task
from headwise.types import Head

if TYPE_CHECKING:
    from headwise.model.model import Model

SHARD = 128
"""Prompts between two saves; even, so that test prompts stay with their partners."""
GALLERY = 240
"""Test prompts whose vectors are kept for pictures."""


class Progress(Protocol):
    """Told which stage is under way, how many of its prompts are done, and how many there are."""

    def __call__(self, stage: str, done: int, total: int, /) -> None: ...


def contrast(
    model: Model,
    task: str | Path | Task = "binding",
    *,
    heads: str | Sequence[Head | str] = "auto",
    out: str | Path | None = None,
    draws: int = 100,
    energy: float = 0.99,
    max_rank: int = 9,
    through_model: int = 0,
    seed: int = 0,
    progress: Progress | None = None,
    **options: Any,
) -> ContrastRun:
    """Find the heads of a task, fit its features in them and test them on unseen items.

    ``task`` is ``binding``, ``filter``, the path of a JSONL file, or a :class:`headwise.tasks.Task`;
    ``options`` go to it (``prompts``, ``format``, ``jitter`` …). ``heads`` are chosen by scanning unless
    named. ``max_rank`` limits the subspaces, so that a swap of one stays far from a swap of the whole keys.
    ``through_model`` is the number of test prompts on which swaps are also made in the running model. With
    ``out`` the run is kept there and continued if it was interrupted.
    """
    began = time.perf_counter()
    if draws < 100:
        raise HeadwiseError(f"draws={draws} random subspaces are too few for a percentile: give at least 100")
    if not 1 <= max_rank <= model.d_head:
        raise HeadwiseError(f"max_rank={max_rank} is outside 1..{model.d_head}, the head's dimensions")
    made = make_task(task, model.tokenizer, seed=seed, **options)
    named = None if heads == "auto" else _named(model, heads)
    config = {
        "model": model.name,
        "weight_hash": model.weight_hash,
        "shape": ModelShape.of(model).model_dump(),
        "dtype": str(model.dtype).removeprefix("torch."),
        "task": made.name,
        "settings": dict(made.settings),
        "examples": made.digest,
        "shard": SHARD,
        "heads": "auto" if named is None else [str(h) for h in named],
        "draws": draws,
        "energy": energy,
        "max_rank": max_rank,
        "through_model": through_model,
        "seed": seed,
    }
    if out is None:
        return _Study(model, made, None, config, progress).run(named, began)
    path = Path(out)
    folder = RunFolder(
        path, KIND, config, versions=package_versions("headwise", "transformers", "safetensors", "numpy")
    )
    if not folder.finished:
        refuse_small_disk(path, _needed_bytes(model, made, len(named) if named else MOST, draws))
        with folder:
            study = _Study(model, made, folder, config, progress)
            with disk_trouble_told(path, study.kept):
                if not folder.finished:
                    study.run(named, began).save(folder)
    folder.clean()
    return replace(ContrastRun.load(path), seconds=time.perf_counter() - began)


def _needed_bytes(model: Model, task: Task, heads: int, draws: int) -> int:
    """About how much the shards of all stages take, and the pictures' vectors and tables that are made of them."""
    keys = max(len(e.keys) for e in task.scan.examples)
    scan = len(task.scan) * keys * (4 * len(model.heads) + 8)
    fits = sum(len(item) for item in task.fits) * heads * model.d_head * 8 * 4
    conditions = 3 * 8 * (draws + len(DOSES) + 10)
    test = len(task.test) * heads * len(task.names) * conditions
    vectors = min(GALLERY + SHARD, len(task.test)) * heads * model.d_head * 4 * (keys + 1)
    return scan + fits + test + 2 * vectors + 100 * draws * heads * len(task.names) + 1_000_000


def scan_heads(
    model: Model, task: Task, *, seed: int = 0, progress: Progress | None = None
) -> list[HeadScore]:
    """Every head of the model ranked on the task's scanning prompts."""
    return _Study(model, task, None, {"seed": seed}, progress).scan()


def _named(model: Model, heads: str | Sequence[Head | str]) -> list[Head]:
    parts = heads.split(",") if isinstance(heads, str) else list(heads)
    found = list(dict.fromkeys(model.head(part) for part in parts))
    if not found:
        raise HeadwiseError("no heads were named: write --heads auto or a list such as L18H6,L20H3")
    return found


def _rank_warnings(fitted: Mapping[str, Fitted]) -> list[str]:
    """What the rank reports warn of: one line a warning, with every head and feature it holds for."""
    found: dict[str, dict[str, list[str]]] = {}
    for name, item in fitted.items():
        for head, report in zip(item.heads, item.reports, strict=True):
            for what, numbers in report.findings:
                found.setdefault(what, {}).setdefault(str(head), []).append(
                    f"{name} ({numbers})" if numbers else name
                )
    return [
        f"{what}: " + "; ".join(f"{head} {', '.join(where)}" for head, where in heads.items())
        for what, heads in found.items()
    ]


class _Study:
    """The stages of one study; each keeps its shards in the folder, if there is one."""

    def __init__(
        self, model: Model, task: Task, folder: RunFolder | None, config: Record, progress: Progress | None
    ) -> None:
        self.model, self.task, self.folder, self.config = model, task, folder, config
        self.progress = progress or (lambda stage, done, total: None)
        self.seed = int(config["seed"])
        self.stages = 0
        self.shards = 0

    # --- stages
    # -----------------------------------------------------------------------------------------------

    def scan(self) -> list[HeadScore]:
        whole = self.task.scan
        widest = max(len(e.keys) for e in whole.examples)

        def make(examples: Sequence[Example], start: int, tick: Callable[[int], None]) -> dict[str, Tensor]:
            attention, labels = label_attention(self.model, Contrast(whole.name, tuple(examples)), tick)
            extra = widest - labels.shape[1]
            return {
                "attention": torch.nn.functional.pad(attention, (0, extra)),
                "labels": torch.nn.functional.pad(labels, (0, extra), value=-1),
            }

        parts = self._shards("finding heads", whole.examples, make)
        return rank_heads(
            self.model.heads,
            torch.cat([p["attention"] for p in parts]),
            torch.cat([p["labels"] for p in parts]),
            rule=self.task.rule,
            generator=keyed(self.seed, "scan"),
        )

    def fit(self, item: Contrast, heads: Sequence[Head]) -> Fitted:
        def make(examples: Sequence[Example], start: int, tick: Callable[[int], None]) -> dict[str, Tensor]:
            return collect_pairs(self.model, examples, heads, tick).tensors()

        parts = self._shards(f"fitting {item.name}", item.examples, make)
        pairs = Pairs(**{name: torch.cat([p[name] for p in parts]) for name in parts[0]})
        energy, max_rank = self.config["energy"], self.config["max_rank"]
        return fit_contrast(item, heads, pairs, seed=self.seed, energy=energy, max_rank=max_rank)

    def run(self, named: list[Head] | None, began: float) -> ContrastRun:
        task, warnings = self.task, design_warnings(self.task)
        scores = self.scan()
        heads = named if named is not None else choose_heads(scores, task.rule)
        if not heads:
            heads = [scores[0].head]
            warnings.append(
                f"no head does the task by the rule: {heads[0]} is the best with {scores[0].score:.2f}"
            )
        heads = sorted(heads, key=[s.head for s in scores].index)
        fitted = {item.name: self.fit(item, heads) for item in task.fits}
        features = {h: self._features(h, place, fitted) for place, h in enumerate(heads)}
        probes = {
            h: [probe(f, fitted, place, seed=self.seed, draws=self.config["draws"]) for f in features[h]]
            for place, h in enumerate(heads)
        }

        def make(examples: Sequence[Example], start: int, tick: Callable[[int], None]) -> dict[str, Tensor]:
            rows = capture_rows(self.model, examples, heads, tick)
            found = measure(rows, probes, offset=start)
            if start < GALLERY:
                found["gallery|q"] = rows.q.transpose(0, 1).float().contiguous()
                keys = [rows.keys[i][:, list(e.keys)] for i, e in enumerate(examples)]
                found["gallery|k"] = pad_keys(keys).contiguous()
            return found

        parts = self._shards("testing swaps", task.test.examples, make)
        measured = join([{k: v for k, v in p.items() if not k.startswith("gallery|")} for p in parts])
        shown = [p for p in parts if "gallery|q" in p]
        gallery = task.test.examples[: sum(p["gallery|q"].shape[1] for p in shown)]
        vectors = {
            "q": torch.cat([p["gallery|q"] for p in shown], 1),
            "k": pad_keys([k for p in shown for k in p["gallery|k"].unbind(1)]),
        }
        tables = swap_tables(heads, features, measured, seed=self.seed)
        warnings += _rank_warnings(fitted)
        bank = FeatureBank(
            self.model.name,
            self.config["weight_hash"],
            task.name,
            tuple(f for h in heads for f in features[h]),
        )
        answers: list[Record] = []
        if self.config["through_model"]:
            tick = self._tick("running edits", min(self.config["through_model"], len(task.test)))
            answers = through(self.model, task, bank, self.config["through_model"], measured, tick)
        return ContrastRun(
            task=task.name,
            model=self.model.name,
            rule=task.rule,
            heads=[head_record(s, s.head in heads) for s in scores],
            features=[
                feature_record(f, place, fitted, features[h], measured, seed=self.seed)
                for place, h in enumerate(heads)
                for f in features[h]
            ],
            **tables,
            spectra=[r for f in fitted.values() for r in spectrum_records(f)],
            angles=[r for p, h in enumerate(heads) for r in angle_records(h, features[h], fitted, p)],
            growth=[
                r
                for f in fitted.values()
                for r in growth_records(f, seed=self.seed, energy=self.config["energy"])
            ],
            answers=answers,
            attribution=attribution_records(self.model, task.test.examples[0].tokens, bank),
            warnings=warnings,
            bank=bank,
            vectors=vectors,
            labels=gallery_labels(gallery, dict(task.colours)),
            seconds=time.perf_counter() - began,
            settings=self.config["settings"],
        )

    def _features(self, head: Head, place: int, fitted: dict[str, Fitted]) -> list[BankFeature]:
        return [f.features[place] for f in fitted.values()] + unite(self.task, fitted, head, place)

    # --- shards ---

    def _tick(self, stage: str, total: int, done: int = 0) -> Callable[[int], None]:
        count = done
        self.progress(stage, count, total)

        def tick(more: int) -> None:
            nonlocal count
            count += more
            self.progress(stage, min(count, total), total)

        return tick

    def _shards(
        self,
        stage: str,
        examples: Sequence[Example],
        make: Callable[[Sequence[Example], int, Callable[[int], None]], dict[str, Tensor]],
    ) -> list[dict[str, Tensor]]:
        """A stage's shards, read where they are already there, else made and kept."""
        parts: list[dict[str, Tensor]] = []
        tick = self._tick(stage, len(examples))
        keeper = self.folder.keeper(self.stages) if self.folder else None
        self.stages += 1
        for chunk in cut(examples, SHARD):
            if keeper is None:
                parts.append(make(chunk.items, chunk.start, tick))
                continue
            content = keeper.read(chunk)
            if content is not None:
                tick(len(chunk))
            else:
                content = to_bytes(make(chunk.items, chunk.start, tick))
                keeper.keep(chunk, content)
            # Also what was just made is read back, so that nothing can depend on who made it and when.
            parts.append(from_bytes(content)[0])
            self.shards += 1
        return parts

    def kept(self) -> str:
        """What an interruption leaves, in words."""
        return f"{self.shards} finished parts of the work are kept"
