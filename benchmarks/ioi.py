"""Circuits of indirect-object prompts on the default model, with every number of docs/results/ioi-circuit.md.

python benchmarks/ioi.py [FOLDER]     writes ioi.json, and circuit.json and circuit.html of the first prompt
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from statistics import mean, median

import headwise
from headwise.circuits.faithfulness import faithfulness
from headwise.circuits.interventions import choose_edges, intervene
from headwise.show.circuits.page import write_circuit_page

WORDINGS = (
    "When {} and {} went to the store, {} gave a drink to",
    "Then, {} and {} went to the office. {} gave a computer to",
    "Friends {} and {} found a ring at the station. {} gave it to",
    "After {} and {} had lunch at the school, {} sent a letter to",
)
PAIRS = (("John", "Mary"), ("Tom", "Anna"), ("Paul", "Sarah"), ("David", "Laura"))
DRAWS = 20


def prompts() -> list[tuple[str, str, str, str]]:
    """(wording and order, prompt, answer, wrong): the second clause repeats the first name (BABA) or the second."""
    made = []
    for number, (wording, (a, b)) in enumerate(zip(WORDINGS, PAIRS, strict=True), 1):
        made.append((f"{number} BABA", wording.format(a, b, a), f" {b}", f" {a}"))
        made.append((f"{number} ABBA", wording.format(b, a, a), f" {b}", f" {a}"))
    return made


def study(
    model: headwise.Model, name: str, prompt: str, answer: str, wrong: str
) -> tuple[dict, headwise.Circuit]:
    circuit = headwise.trace(model, prompt, answer=answer, wrong=wrong, verify=True)
    row: dict = {
        "name": name,
        "prompt": prompt,
        "answer": answer,
        "wrong": wrong,
        "notes": list(circuit.notes),
        "firings": len(circuit.heads),
        "edges": len(circuit.edges),
    }
    inner = [e for e in circuit.edges if e.channels]
    if not inner:
        return row, circuit
    row["ranks"] = [len(e.channels) for e in inner]
    row["agreement"] = max(
        abs(c.predicted - c.edited) for c in circuit.counterfactuals if c.edited is not None
    )
    top = choose_edges(circuit, top=5)
    sets = [[e] for e in top] + [inner]
    for scope in ("local", "global"):
        *single, whole = intervene(model, circuit, sets, scope=scope, draws=DRAWS)
        row[scope] = {
            "clean": whole.clean.lead,
            "p": whole.clean.probability,
            "edited": whole.edited.lead,
            "edited_p": whole.edited.probability,
            "control": mean(c.lead for c in whole.controls),
            "control_low": min(c.lead for c in whole.controls),
            "control_p": mean(c.probability for c in whole.controls),
            "attention": whole.clean.attention,
            "edited_attention": whole.edited.attention,
            "control_attention": mean(c.attention for c in whole.controls),
            "norm_ratio": whole.norm_ratio,
            "cosine": whole.cosine,
            "single": [
                {
                    "edge": e.edges[0],
                    "attention": e.attention_change,
                    "control_attention": e.control_attention_change,
                    "logit": e.logit_change,
                    "control_logit": e.control_logit_change,
                }
                for e in single
            ],
        }
    f = faithfulness(model, circuit, draws=DRAWS)
    row["faithfulness"] = {
        "clean": f.clean,
        "none": f.none,
        "outside": f.outside_ablated,
        "inside": f.inside_ablated,
        "random_outside": mean(f.random_outside_ablated),
        "random_inside": mean(f.random_inside_ablated),
    }
    return row, circuit


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    model = headwise.load()
    rows = []
    for number, (name, prompt, answer, wrong) in enumerate(prompts()):
        start = time.perf_counter()
        row, circuit = study(model, name, prompt, answer, wrong)
        rows.append(row)
        if number == 0:
            circuit.save(folder / "circuit.json")
            write_circuit_page(circuit, folder / "circuit.html")
        print(name, circuit, f"{time.perf_counter() - start:.0f} s", flush=True)
        (folder / "ioi.json").write_text(json.dumps(rows, indent=1))
    ranks = [rank for row in rows for rank in row.get("ranks", ())]
    print(f"signals {len(ranks)}, median rank {median(ranks):g}, rank one {mean(r == 1 for r in ranks):.0%}")
    print(f"counterfactuals agree within {max(row.get('agreement', 0) for row in rows):.1e}")


if __name__ == "__main__":
    if sys.argv[1:] and sys.argv[1].startswith("-"):
        # An option must not become a folder of that name.
        sys.exit("usage: python benchmarks/ioi.py [FOLDER]")
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "runs/ioi"))
