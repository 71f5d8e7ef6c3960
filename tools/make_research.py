"""Write docs/reference/research.md, the map from the paper and the talk to commands: ``python tools/make_research.py``.

The tables are made from what ``headwise reproduce`` runs, so the map cannot fall behind; a test compares them.
"""

from __future__ import annotations

import shlex
from pathlib import Path

from headwise.research.parts import Work
from headwise.research.presets import PRESETS
from headwise.research.reproduce import PARTS, Missing, study_words
from headwise.research.studies import STUDIES
from wrap_docs import wrapped

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "research.md"
PAGES = {
    "payload": "toys",
    "alignment": "toys",
    "sweep": "toys",
    "training": "toys",
    "filter": "filter",
    "binding": "binding",
    "circuits": "ioi-circuit",
    "effects": "ioi-circuit",
    "families": "ioi-families",
    "orders": "ioi-families",
    "names": "names",
    "sparsity": "sparsity",
    "sinks": "sinks",
}
"""The page with the results of a study, by the first word of its name."""
# The paper's equations: what computes them, and where the method's page has them.
EQUATIONS = (
    ("1, 2", "payload and selector from discrete latents", "toy payload --latents discrete", "toys"),
    ("3, 4", "the same from Gaussian latents", "toy payload --latents gaussian", "toys"),
    ("5, 6", "positive and negative covariance", "features", "contrastive"),
    ("7", "singular vectors of their difference", "features", "contrastive"),
    ("8, 9, 10", "swaps inside a subspace", "features", "contrastive"),
    ("11, 12", "interactions G of the latents", "toy payload", "contrastive"),
    ("13, 14, 15", "logits by feature, and the rest", "explain --features --row", "contrastive"),
)
INTRODUCTION = """\
The paper is Lee, Belinkov, Viégas and Wattenberg, *Decomposing Query-Key Feature Interactions Using Contrastive
Covariances* ([method](../method/contrastive.md)); the talk is Franco, *Understanding Attention from First Principles:
From Singular Vectors to Interpretable Causal Circuits* ([method](../method/tracing.md)). `headwise reproduce paper` and
`headwise reproduce talk` run everything below in this order and say, claim by claim, what came out and whether it
holds; `--quick` does so at a small size. Commands are those for the default model at full size; each also has `--out
DIR`.
"""


def research_page() -> str:
    """The whole page."""
    lines = ["# The paper and the talk, figure by figure\n", INTRODUCTION]
    for work in PARTS:
        lines += [f"## The {work}\n", "| where | what it says | command | results |", "|---|---|---|---|"]
        commands = _commands(work)
        for part in PARTS[work]:
            said = "<br>".join(dict.fromkeys(f"`headwise {commands[name]}`" for name in part.studies))
            kind = PAGES[part.studies[0].split("-")[0]]
            lines.append(
                f"| {part.place} | {table_cell(part.says)} | {said} | [{kind}](../results/{kind}.md) |"
            )
        lines.append("")
    lines += ["## The paper's equations\n", "| equation | what | command | page |", "|---|---|---|---|"]
    for numbers, what, command, page in EQUATIONS:
        place = f"../results/{page}.md" if page == "toys" else f"../method/{page}.md"
        lines.append(f"| {numbers} | {what} | `headwise {command}` | [{page}]({place}) |")
    lines += ["", "## Presets\n", "| `--model` | loads | prompts | from |", "|---|---|---|---|"]
    for preset in PRESETS.values():
        form = (
            "chat"
            if "chat" in preset.tasks["binding"]
            else "few-shot"
            if "few" in preset.tasks["binding"]
            else "plain"
        )
        source = f"the {preset.work}" if preset.work else "headwise"
        lines.append(f"| `{preset.name}` | {preset.model or 'the default model'} | {form} | {source} |")
    return wrapped("\n".join(lines).rstrip() + "\n")


def _commands(work: Work) -> dict[str, str]:
    found = {}
    for study in STUDIES[work]:
        words = study_words(study, PRESETS["smollm2"], Path("DIR"), quick=False)
        assert not isinstance(words, Missing)
        found[study.name] = shlex.join(words[: words.index("--out")])
    return found


def table_cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(research_page(), encoding="utf-8")
    print(PAGE.name)
