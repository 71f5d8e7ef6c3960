"""Sparsity of relative attention by channel over a series of checkpoints, beside nulls without features."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from headwise.bases import (
    QKSVD,
    channel_logits,
    channels_needed,
    qk_svd,
    relative_attention,
    rotated,
    sparsity,
)
from headwise.bases.basis import Basis
from headwise.claims import claims
from headwise.errors import HeadwiseError
from headwise.model.loading.checkpoints import name_and_revision, require_series
from headwise.model.reading import side_maps
from headwise.randomness import keyed
from headwise.sparsity.nulls import (
    ALL_FIVE,
    NULLS,
    CellVectors,
    cell_vectors,
    null_cells,
    sparser_than,
    strictest,
)
from headwise.strings import whole_number
from headwise.tasks.clusters import clusters_of
from headwise.toy.language import Sentence, sentences
from headwise.types import Claim, Head

LEAST = 0.3
"""Attention on the answer that makes a head one of the task's heads."""


@dataclass(frozen=True)
class Point:
    """One checkpoint: task accuracy, and what is known of its heads."""

    name: str
    """What the checkpoint is called."""
    step: int
    """Steps of training before it."""
    accuracy: float
    """Share of the prompts that it completes with the right name."""
    heads: dict[str, dict[str, float]]
    """Per head attention on the answer, sparsity, that of every null and of the rotation, channels needed."""
    claims: dict[str, Claim] = field(default_factory=dict)
    """Per head, that its attention on the answer is sparser than by every null; corrected over the heads."""


def head_channels(model: Any, layer: int) -> QKSVD:
    """Channels of all query heads of a layer; the norm's gain belongs to the weights."""
    query, key = (side_maps(model, layer, side, torch.float64).matrix for side in ("query", "key"))
    return qk_svd(query, key.repeat_interleave(model.anatomy.group, 0))


def answer_position(tokens: Sequence[str], name: str) -> int:
    """Where a name first stands among a prompt's tokens (its first token, if it has several)."""
    for i, token in enumerate(tokens):
        text = token.strip()
        if text and (text == name or (len(text) > 1 and name.startswith(text))):
            return i
    raise HeadwiseError(f"{name!r} is not among the prompt's tokens: {' '.join(tokens)!r}")


def measure(model: Any, prompts: Sequence[Sentence], name: str, step: int, *, rotations: int = 8) -> Point:
    """Measure one checkpoint at the prompts' last token, with the answer's name as the attended key.

    Sparsity is (mean|v|)² / mean v² of relative attention by channel, averaged over prompts; the control
    averages it over random rotations that leave every logit as it is.
    """
    texts = [p.text for p in prompts]
    tokens = [model.tokens(p.text) for p in prompts]
    source, rival = (
        torch.tensor([answer_position(t, name) for t, name in zip(tokens, names, strict=True)])
        for names in ([p.answer for p in prompts], [p.wrong for p in prompts])
    )
    captured = model.capture(texts, queries=-1, want=("q", "k", "pattern"), logits="last")
    q, k, visible = captured.q[:, :, 0].double(), captured.k.double(), captured.visible[:, :, 0]
    goal = torch.tensor(
        [model.tokenizer.encode(_as_next(model, p), add_special_tokens=False)[0] for p in prompts]
    )
    accuracy = float((captured.logits[:, 0].argmax(-1).cpu() == goal).double().mean())
    rows = torch.arange(len(prompts))
    found: dict[str, dict[str, float]] = {}
    tests: dict[str, tuple[float, int]] = {}
    shared = clusters_of([{"wording": str(p.wording)} for p in prompts]).which
    for layer in range(model.n_layers):
        part = slice(layer * model.n_heads, (layer + 1) * model.n_heads)
        scale = float(captured.scale[part.start])
        channels = head_channels(model, layer)
        seen = visible[:, part]
        split = _relative(channels, q[:, part], k[:, part], visible[:, part], source, scale)
        g = keyed(0, "rotation", layer)
        turned = [
            sparsity(
                _relative(
                    rotated(channels, generator=g), q[:, part], k[:, part], visible[:, part], source, scale
                )
            )
            for _ in range(rotations)
        ]
        plain, control, needed = (
            sparsity(split).mean(0),
            torch.stack(turned).mean((0, 1)),
            channels_needed(split),
        )
        for h in range(model.n_heads):
            pattern = captured.pattern[rows, part.start + h, 0].double()
            found[str(Head(layer, h))] = {
                "attention": float(pattern[rows, source].mean()),
                "on_other_name": float(pattern[rows, rival].mean()),
                "relative_attention": float(split[:, h].sum(-1).mean()),
                "sparsity": float(plain[h]),
                "rotated": float(control[h]),
                "channels_needed": float(needed[:, h].double().median()),
            }
            cells = _cells(q[:, part.start + h] * scale, k[:, part.start + h], source, seen[:, h], pattern)
            basis = Basis.of(model, Head(layer, h), frame="absolute")
            nulls = null_cells(cells, basis, rows, 0, str(Head(layer, h)))
            found[str(Head(layer, h))] |= {null: float(nulls.each[null].nanmean()) for null in NULLS}
            tests[str(Head(layer, h))] = strictest(
                sparser_than(sparsity(split[:, h]), nulls, rows, shared, 0, str(Head(layer, h)))
            )
    return Point(name, step, accuracy, found, _claims(tests))


def _claims(tests: Mapping[str, tuple[float, int]]) -> dict[str, Claim]:
    """One claim per head, corrected over all heads of the checkpoint."""
    made = claims(
        [p for p, _ in tests.values()],
        null=ALL_FIVE,
        draws=max(draws for _, draws in tests.values()),
        group="all heads of the checkpoint",
    )
    return dict(zip(tests, made, strict=True))


def _cells(q: Tensor, k: Tensor, source: Tensor, seen: Tensor, pattern: Tensor) -> CellVectors:
    """The cells of one head at the last token of every prompt."""
    return CellVectors.cat(
        [
            cell_vectors(q[i], k[i], int(source[i]), seen[i].cpu(), pattern[i], keyed(0, "unattended", i))
            for i in range(len(q))
        ]
    )


def _as_next(model: Any, prompt: Sentence) -> str:
    """The answer as it would follow the prompt: with a space where the tokenizer marks them."""
    return prompt.answer if len(model.tokenizer) < 1000 else f" {prompt.answer}"


def _relative(channels: QKSVD, q: Tensor, k: Tensor, visible: Tensor, source: Tensor, scale: float) -> Tensor:
    split = channel_logits(channels, q, k, scale=scale)
    return relative_attention(split, source[:, None].expand(q.shape[:2]), visible)


def measure_series(
    checkpoints: Sequence[str | Path],
    *,
    prompts: int = 200,
    seed: int = 0,
    progress: Callable[[int, str], None] | None = None,
) -> list[Point]:
    """Measure every checkpoint: model folders, or hub names as ``name@revision``."""
    from headwise.model.loading.load import load

    require_series(checkpoints)
    asked = sentences(prompts, seed, "test")
    points = []
    for i, checkpoint in enumerate(checkpoints):
        name, revision = name_and_revision(str(checkpoint))
        model = load(name, revision=revision or None)
        label = revision or Path(name).name
        step = whole_number("".join(c for c in label if c.isdigit()))
        points.append(measure(model, asked, label, i if step is None else step))
        if progress:
            progress(i + 1, label)
    return points


def task_heads(point: Point, *, least: float = LEAST) -> list[str]:
    """Heads that attend to the answer at this checkpoint, strongest first; the top one if none reaches
    ``least``.

    ``on_other_name`` in their records says whether they prefer it to the other name or merely attend to
    names.
    """
    order = sorted(point.heads, key=lambda h: -point.heads[h]["attention"])
    return [h for h in order if point.heads[h]["attention"] >= least] or order[:1]


def closest_null(head: Mapping[str, float]) -> float:
    """The sparsest of a head's nulls at a checkpoint."""
    return min(head[name] for name in NULLS)


def course_summary(points: Sequence[Point]) -> dict[str, float]:
    """Means over the task's heads, first checkpoint against last; ``null`` is that of each head's closest null."""
    heads = task_heads(points[-1])
    ends = {"first": points[0], "last": points[-1]}
    found = {f"accuracy_{end}": p.accuracy for end, p in ends.items()}
    for end, point in ends.items():
        found[f"null_{end}"] = sum(closest_null(point.heads[h]) for h in heads) / len(heads)
        held = [point.claims[h].supported for h in heads if h in point.claims]
        found[f"supported_{end}"] = sum(held) / max(1, len(held))
    for kind in ("sparsity", "rotated", "channels_needed"):
        found |= {
            f"{kind}_{end}": sum(p.heads[h][kind] for h in heads) / len(heads) for end, p in ends.items()
        }
    return found
