"""Circuits whose truth is known: planted ones with an MLP in their path, and the small model that ships with the
package, whose edges are found by removing every writer. Prints the tables of docs/results/agreement.md.

python benchmarks/truth.py            both parts
python benchmarks/truth.py planted    circuits written into the weights
python benchmarks/truth.py small      the small trained model
"""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import mean

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "helpers"))

from planted_mlp import FAMILIES
from toy_answers import answer_lines, small_model

import headwise
from truth import Score, auc, carried_by, edges_of, forced, planted_circuits, scored, without

SEEDS, PROMPTS = 6, 4
NOISE = (0.0, 0.1, 0.2, 0.3, 0.4)
SHARES = (0.1, 0.2)
SENTENCES = 12
NECESSARY, HELPS = 0.5, 0.1
"""A writer is necessary if this share of the attention is gone without it, and helps from so many nats on."""


def planted() -> None:
    print(
        "| family | noise | circuits that work | edges planted | recall | precision | "
        + " | ".join(f"precision, {s:.0%} of the answer" for s in SHARES)
        + " | planted attention, without the head that feeds the MLP "
        "| extra heads at the answer: median share of the lead that goes with one |"
    )
    print("|---" * (8 + len(SHARES)) + "|")
    for family in FAMILIES:
        for noise in NOISE:
            total, parts = Score(), [Score() for _ in SHARES]
            before, after, extras, works = [], [], [], 0
            for model, made, circuit in planted_circuits(family, noise, SEEDS, PROMPTS):
                works += 1
                truth = made.edges | made.accounts
                total += scored(edges_of((*circuit.edges, *circuit.accounts)), truth)
                for place, share in enumerate(SHARES):
                    part = carried_by(circuit, share)
                    parts[place] += scored(edges_of((*part.edges, *part.accounts)), truth)
                seeds = [
                    n.cell for n in circuit.heads if any(e.unit == "answer" for e in circuit.out_of(n.id))
                ]
                others = [cell for cell in seeds if cell != made.attends]
                clean, (first, *rest) = without(model, made, [made.brings, *others])
                before.append(clean.attention)
                after.append(first.attention)
                extras += [1 - one.lead / clean.lead for one in rest]
            extra = f"{len(extras)}: {np.median(extras):.2f}" if extras else "0"
            print(
                f"| {family} | {noise:g} | {works} of {2 * SEEDS * PROMPTS} | {total.right + total.missed} "
                f"| {total.recall:.2f} | {total.precision:.2f} | "
                + " | ".join(f"{part.precision:.2f} (recall {part.recall:.2f})" for part in parts)
                + f" | {mean(before):.2f} → {mean(after):.2f} | {extra} |",
                flush=True,
            )


def small() -> None:
    model = small_model()
    necessary, found_lost, other_lost, ranks, first = Score(), [], [], [], []
    for line in answer_lines(SENTENCES):
        circuit = headwise.trace(model, line["prompt"], answer=line["answer"], wrong=line["wrong"])
        lost = forced(model, circuit)
        found = {edge for edge in edges_of(circuit.edges) if edge in lost}
        necessary += scored(found, {edge for edge, one in lost.items() if one.share >= NECESSARY})
        for side in {edge[1:] for edge in found}:
            here = {edge: one.nats for edge, one in lost.items() if edge[1:] == side}
            taken, left = ([n for e, n in here.items() if (e in found) == kind] for kind in (True, False))
            ranks.append(auc(taken, left))
            first.append(max(here, key=lambda e: here[e]) in found)
            found_lost += taken
            other_lost += left
    print(
        f"{SENTENCES} sentences, {len(ranks)} sides of firings, {len(found_lost) + len(other_lost)} removals"
    )
    print(
        f"writers without which half of the attention is gone: {necessary.right + necessary.missed}, ", end=""
    )
    print(f"found {necessary.recall:.1%}")
    print(f"the side's strongest writer is among those found: {mean(first):.1%}")
    print(f"log-odds lost without a writer, found against not found: AUC {mean(ranks):.3f} within a side")
    helps = mean(n >= HELPS for n in found_lost)
    print(
        f"writers found: {len(found_lost)}, of which {helps:.1%} take at least {HELPS:g} nats by themselves"
    )
    for name, values in (("found", found_lost), ("not found", other_lost)):
        low, middle, high = np.quantile(values, (0.25, 0.5, 0.75))
        print(
            f"nats lost without a writer that was {name}: median {middle:.2f}, quartiles {low:.2f} and {high:.2f}"
        )


if __name__ == "__main__":
    parts = {"planted": planted, "small": small}
    match sys.argv[1:]:
        case []:
            for part in parts.values():
                part()
        case [name] if name in parts:
            parts[name]()
        case _:
            raise SystemExit(__doc__)
