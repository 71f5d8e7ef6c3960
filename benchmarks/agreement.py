"""Do circuits name the heads that activation patching names? Prints the tables of docs/results/agreement.md.

    python benchmarks/agreement.py [--prompts 20] [--json FILE]

Every prompt has a counterpart of as many tokens whose answer is another one. The *effect* of a head is what the
answer's lead over the counterpart's answer loses when the head writes, at every position, what it writes in the
counterpart (patching), or what it writes on average over ordinary text (mean ablation). Attribution patching estimates
the same effects from one gradient. Heads of circuits, and as many heads that attribution patching puts first, are
judged by the size of the effects; and the heads' weights, by how well they find the heads with large effects.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import headwise
from headwise.bases.calibrate import calibrated
from headwise.circuits.circuit import Circuit
from headwise.circuits.counterfactual import outcomes
from headwise.intervals import estimate
from headwise.model.edits import SetOutput
from headwise.model.model import Model
from headwise.model.outputs import head_outputs
from headwise.model.stream import split
from headwise.tokens import answer_token
from headwise.tracing.search import Rules
from headwise.tracing.seeds import chosen_seeds
from headwise.tracing.through import MLPPart, MLPRules
from headwise.tracing.tracer import Traced, trace_down
from headwise.tracing.writes import PromptWrites
from headwise.types import AnswerIds

LARGE = 0.05
"""An effect is large from this part of the lead's change between the two prompts on (mean ablation: of the lead)."""
IOI = (
    ("When {} and {} went to the store, {} gave a drink to", "John", "Mary"),
    ("Then, {} and {} went to the office. {} gave a computer to", "Anna", "Tom"),
    ("After {} and {} had lunch at the school, {} sent a letter to", "Laura", "David"),
)
AGREEMENT = (
    ("key", "on the table"),
    ("dog", "near the gardens"),
    ("book", "behind the wall"),
    ("teacher", "with the red hats"),
)
FACTS = (
    ("Portugal", "Lisbon", "Germany", "Berlin"),
    ("Italy", "Rome", "France", "Paris"),
    ("Japan", "Tokyo", "China", "Beijing"),
    ("Spain", "Madrid", "Austria", "Vienna"),
)
PRONOUNS = (("Sarah", "Michael"), ("Anna", "David"), ("Mary", "Tom"))
OPPOSITES = (
    ("hot", "cold", "big", "small"),
    ("up", "down", "fast", "slow"),
    ("young", "old", "black", "white"),
)


@dataclass(frozen=True)
class Pair:
    """A prompt, its counterpart, and the answers of both."""

    task: str
    prompt: str
    other: str
    answer: str
    wrong: str


def pairs() -> list[Pair]:
    made = []
    for wording, a, b in IOI:
        for first, second in ((a, b), (b, a)):
            made.append(
                Pair(
                    "ioi",
                    wording.format(first, second, a),
                    wording.format(first, second, b),
                    f" {b}",
                    f" {a}",
                )
            )
    made += [
        Pair("agreement", f"The {noun}s {place}", f"The {noun} {place}", " are", " is")
        for noun, place in AGREEMENT
    ]
    made += [
        Pair("facts", f"The capital city of {a} is", f"The capital city of {b} is", f" {x}", f" {y}")
        for a, x, b, y in FACTS
    ]
    late = "Yesterday {} was late for work because"
    made += [Pair("pronouns", late.format(a), late.format(b), " she", " he") for a, b in PRONOUNS]
    opposite = "The opposite of {} is"
    made += [
        Pair("opposites", opposite.format(a), opposite.format(b), f" {x}", f" {y}")
        for a, x, b, y in OPPOSITES
    ]
    return made


# --- effects ---------------------------------------------------------------------------------------------------------


def effects(model: Model, token_ids: list[int], instead: Tensor, answer: AnswerIds) -> tuple[float, Tensor]:
    """The clean lead, and what it loses [layers, heads] when a head writes ``instead`` [layers, heads, T, d_head]."""
    rows = list(range(len(token_ids)))
    plans = [
        [SetOutput(head=head, positions=rows, value=instead[head.layer, head.index])] for head in model.heads
    ]
    with torch.no_grad():
        clean, *seen = outcomes(model, token_ids, [[], *plans], answer)
    lost = torch.tensor([clean.lead - one.lead for one in seen], dtype=torch.float64)
    return clean.lead, lost.view(model.n_layers, model.n_heads)


def written(model: Model, token_ids: list[int]) -> Tensor:
    """What every head writes: [layers, heads, T, d_head]."""
    found = head_outputs(model, token_ids, model.heads)[0]
    return torch.stack([found[head] for head in model.heads]).view(
        model.n_layers, model.n_heads, len(token_ids), model.d_head
    )


def gradient(model: Model, token_ids: list[int], answer: AnswerIds) -> Tensor:
    """How the lead changes with what every head writes: [layers, heads, T, d_head], by plain hooks of torch."""
    kept: list[Tensor] = []

    def keep(module: Any, args: tuple[Any, ...]) -> None:
        value = args[0]
        if not value.requires_grad:
            value.requires_grad_(True)
        value.retain_grad()
        kept.append(value)

    hooks = [
        getattr(attention, model.anatomy.family.output).register_forward_pre_hook(keep)
        for attention in model.anatomy.attention
    ]
    try:
        with torch.enable_grad():
            logits = model.hf(torch.tensor([token_ids])).logits[0, -1].double()
            answer.difference(logits).backward()
    finally:
        for hook in hooks:
            hook.remove()
    grads = []
    for value in kept:
        assert value.grad is not None
        grads.append(value.grad[0].view(len(token_ids), model.n_heads, model.d_head).transpose(0, 1))
    return torch.stack(grads)


# --- circuits --------------------------------------------------------------------------------------------------------


def weights(circuit: Circuit, model: Model) -> Tensor:
    """How much of the answer leads through each head [layers, heads].

    What reaches a node is shared among the edges into it by their weights, from the answer down; the two sides of a
    firing get half each, where both have a cause.
    """
    through = {node.id: float(node.kind == "answer") for node in circuit.nodes}
    top = {"head": 0, "mlp": 1, "answer": 2}
    for node in sorted(circuit.nodes, key=lambda n: (-n.layer, -top.get(n.kind, -1))):
        into = [edge for edge in circuit.into(node.id) if edge.weight > 0]
        groups: dict[tuple[str, str], list[Any]] = {}
        for edge in into:
            groups.setdefault((edge.side, edge.unit), []).append(edge)
        for some in groups.values():
            total = sum(edge.weight for edge in some)
            for edge in some:
                through[edge.source] += through[node.id] / len(groups) * edge.weight / total
    made = torch.zeros(model.n_layers, model.n_heads, dtype=torch.float64)
    for node in circuit.heads:
        assert node.head is not None
        made[node.layer, node.head] += through[node.id]
    return made


FOLLOWED: dict[str, MLPRules | None] = {
    "MLPs as leaves": None,
    "MLPs followed": MLPRules(),
    "parts of 1 % followed, too": MLPRules(least=0.01, floor=0.004),
}


class Ends:
    """Where the weight of a circuit's edges ends: in an MLP, or beyond it in what the MLP read."""

    def __init__(self, traced: Traced) -> None:
        self.parts: dict[tuple[int, int, str, str], list[MLPPart]] = {}
        for part in traced.parts:
            self.parts.setdefault((part.mlp.layer, part.position, part.side, part.unit), []).append(part)

    def passed(self, layer: int, position: int, side: str, unit: str) -> float:
        """The part of what an MLP's helping writers bring that is followed to writers that are no MLPs."""
        total = 0.0
        for part in self.parts.get((layer, position, side, unit), ()):
            below = part.writer.kind != "mlp" or self.passed(part.writer.layer, position, side, unit)
            total += part.weight / part.helping * below
        return total


def mlp_shares(model: Model, up: PromptWrites, answer: AnswerIds) -> dict[str, float]:
    """The share of the weight of edges into firings that ends in MLPs, where MLPs are leaves and where they are
    followed; and the same for the edges into the answer."""
    seeds, _ = chosen_seeds(up, answer.token, answer.wrong)
    made = {}
    for name, rules in FOLLOWED.items():
        (traced,) = trace_down(model, [up], [seeds], Rules(mlps=rules))
        ends = Ends(traced)
        all_, held = 0.0, 0.0
        for firing, sides in traced.signals.items():
            for side, signals in sides.items():
                for one in signals.by_writer():
                    all_ += one.drop
                    if one.signal.writer.kind == "mlp":
                        kept = 1 - ends.passed(one.signal.writer.layer, firing.at(side), side, "attention")
                        held += kept * one.drop
        made[f"attention, {name}"] = held / all_ if all_ else float("nan")
        last = up.tokens - 1
        into = [
            (s.weight, 1 - ends.passed(s.component.layer, last, "query", "answer"))
            for s in seeds
            if s.component.kind == "mlp"
        ]
        made[f"answer, {name}"] = sum(w * kept for w, kept in into) / sum(s.weight for s in seeds)
    return made


def auc(chosen: Tensor, values: Tensor) -> float:
    """How often a chosen head's value is above another head's; NaN where all or none are chosen."""
    a, b = values[chosen], values[~chosen]
    if not len(a) or not len(b):
        return float("nan")
    above = (a[:, None] > b[None]).double() + 0.5 * (a[:, None] == b[None]).double()
    return float(above.mean())


# --- the study -------------------------------------------------------------------------------------------------------


def judged(model: Model, pair: Pair, means: Tensor) -> dict[str, Any]:
    """All numbers of one prompt."""
    ids, other = model.prompt_ids(pair.prompt), model.prompt_ids(pair.other)
    if len(ids) != len(other):
        raise SystemExit(f"{pair.prompt!r} and {pair.other!r} differ in length")
    right, wrong = (
        answer_token(model.tokenizer, text, "answer", vocabulary=model.vocabulary)
        for text in (pair.answer, pair.wrong)
    )
    answer = AnswerIds(right, wrong)
    own, there, slope = written(model, ids), written(model, other), gradient(model, ids, answer)
    usual = means[:, :, None].expand_as(own)
    other_lead = float(answer.difference(model.capture(other, heads=(), logits="last").logits[0, 0].double()))
    circuits = {
        name: headwise.trace(model, pair.prompt, answer=pair.answer, wrong=pair.wrong, **options)
        for name, options in CIRCUITS.items()
    }
    flows = {name: weights(circuit, model).flatten() for name, circuit in circuits.items()}
    result: dict[str, Any] = {
        "task": pair.task,
        "prompt": pair.prompt,
        "answer": pair.answer,
        "wrong": pair.wrong,
    }
    for kind, instead in zip(KINDS, (there, usual), strict=True):
        lead, lost = effects(model, ids, instead, answer)
        size = lost.flatten().abs()
        guess = ((own - instead) * slope).sum((2, 3)).double().flatten()
        whole = lead - other_lead if kind == "patching" else lead
        large = size >= LARGE * abs(whole)
        row: dict[str, Any] = {"lead": lead, "whole": whole, "large": int(large.sum())}
        scores = {**flows, "attribution patching": guess.abs()}
        for name, flow in flows.items():
            chosen = flow > 0
            n = int(chosen.sum())
            best = torch.zeros_like(chosen)
            best[guess.abs().topk(n).indices] = True
            row[name] = {"heads": n, "chosen": auc(chosen, size), "as many": auc(best, size)}
        row["finding"] = {name: auc(large, score) for name, score in scores.items()}
        row["correlation"] = {
            name: float(torch.corrcoef(torch.stack((score, size)))[0, 1]) for name, score in scores.items()
        }
        result[kind] = row
    with torch.no_grad():
        result["ends in MLPs"] = mlp_shares(model, PromptWrites(split(model, ids), 0), answer)
    return result


KINDS = ("patching", "mean ablation")
CIRCUITS: dict[str, dict[str, Any]] = {
    "circuit": {},
    "MLPs as leaves": {"mlp_depth": 0},
    "published rules": {"mode": "published"},
}


def numbers(rows: Sequence[dict[str, Any]], *path: str) -> Tensor:
    """What is at a path in every row."""
    found: list[Any] = [reduce(getitem, path, row) for row in rows]
    return torch.tensor(found, dtype=torch.float64)


def shown(rows: Sequence[dict[str, Any]], *path: str) -> str:
    """The mean over prompts of the number at a path, with its interval by prompt."""
    one = estimate(numbers(rows, *path), 0, *path)
    return f"{one.mean:.2f} [{one.low:.2f}, {one.high:.2f}]"


def print_table(*rows: Sequence[str]) -> None:
    first, *rest = (f"| {' | '.join(row)} |" for row in rows)
    print("", first, "|---" * len(rows[0]) + "|", *rest, sep="\n")


def tables(rows: Sequence[dict[str, Any]]) -> None:
    def mean(*path: str) -> float:
        return float(numbers(rows, *path).mean())

    for kind in KINDS:
        print(
            f"\n{kind}, {len(rows)} prompts, {mean(kind, 'large'):.1f} heads with a large effect per prompt"
        )
        print_table(
            ("heads named by", "heads", "AUC of effect sizes", "as many by attribution patching"),
            *(
                (
                    name,
                    f"{mean(kind, name, 'heads'):.0f}",
                    shown(rows, kind, name, "chosen"),
                    shown(rows, kind, name, "as many"),
                )
                for name in CIRCUITS
            ),
        )
        print_table(
            ("score of a head", "AUC of finding large effects", "correlation with effect sizes"),
            *(
                (name, shown(rows, kind, "finding", name), shown(rows, kind, "correlation", name))
                for name in (*CIRCUITS, "attribution patching")
            ),
        )
    by_task = {
        task: [row for row in rows if row["task"] == task] for task in {row["task"]: None for row in rows}
    }
    print_table(
        ("task", "prompts", *(f"{kind}: circuit" for kind in KINDS), "patching: found by weight"),
        *(
            (
                task,
                str(len(some)),
                *(shown(some, kind, "circuit", "chosen") for kind in KINDS),
                shown(some, "patching", "finding", "circuit"),
            )
            for task, some in by_task.items()
        ),
    )
    print_table(
        ("weight that ends in MLPs", *FOLLOWED),
        *(
            (f"of {unit}", *(shown(rows, "ends in MLPs", f"{unit}, {how}") for how in FOLLOWED))
            for unit in ("attention", "answer")
        ),
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--prompts", type=int, default=20)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    model = headwise.load()
    means = calibrated(model)[0].outputs
    rows: list[dict[str, Any]] = []
    if given.json and given.json.exists():  # a run that was interrupted goes on
        rows = json.loads(given.json.read_text())
    for pair in pairs()[len(rows) : given.prompts]:
        rows.append(judged(model, pair, means))
        print(f"{pair.task}: {pair.prompt}", flush=True)
        if given.json:
            given.json.write_text(json.dumps(rows, indent=1))
    tables(rows)


if __name__ == "__main__":
    main()
