"""Families of circuits as one offline page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwise.families.causality import CONTROLS, OTHER_SHARE, OWN_SHARE
from headwise.families.cluster import LEVEL, SMALLEST_SHARE, STABLE
from headwise.families.compare import FEWEST_PROMPTS, OPPOSITE, SAME
from headwise.show.families import figures
from headwise.show.families.circuits import HEAVIEST, side_by_side
from headwise.show.families.terminal import composition, verdict
from headwise.show.kit.markdown import literal
from headwise.show.kit.report import Block, Figure, Report, Section, Table, Text
from headwise.show.kit.table import Cell

if TYPE_CHECKING:
    from headwise.families.result import FamilyRun

PAIRS = 3
"""Pairs of families with a picture of their own."""


def families_report(found: FamilyRun) -> Report:
    """Everything that ``headwise families`` found, on one page."""
    document = found.document()
    sections = [
        Section("Are there families?", _how_many(found)),
        Section("Distances", _distances(found)),
        Section("The families", _families(found)),
    ]
    if found.n_families > 1:
        sections += [
            Section("Representatives side by side", _representatives(found)),
            Section("Heads that do the same, something else, the opposite", _heads(found)),
            Section("Are they causal for their own?", _causality(found)),
        ]
    by = {"signals": "signals", "edges": "edges", "heads": "heads"}[found.settings["distance"]]
    p = document["p_value"]
    return Report(
        f"{document['task']}: families of circuits",
        sections,
        subtitle=f"Circuits of `{literal(document['model'])}`, compared by {by}. {_verdict(found)}.",
        facts={
            "prompts": str(document["n_prompts"]),
            "circuits": str(document["n_traced"]),
            "answered wrong": str(document["n_wrong"]),
            "families": str(document["n_families"]),
            "p, one family": "–" if p is None else f"{p:.3f}",
            **{f"AMI with {a.label}": f"{a.ami:z.2f}" for a in found.agreements if a.label in found.telling},
        },
    )


def _verdict(found: FamilyRun) -> str:
    said = literal(verdict(found))
    return said[:1].upper() + said[1:]


def _how_many(found: FamilyRun) -> list[Block]:
    text = Text(
        f"Average linkage, cut from the top. A cluster of at least {SMALLEST_SHARE:.0%} of the prompts is a family; "
        f"prompts of smaller ones (strays) join the nearest. A cut counts if its families come back when 80 % of the "
        f"prompts are clustered alone (stability, adjusted Rand index, at least {STABLE}) and if its nearest "
        "two families "
        f"are further apart than in data that are one family (p ≤ {LEVEL}, all numbers of families allowed "
        "for). Of those, "
        "the cut of the best silhouette is taken.\n\n"
        "**One family** means: circuits of the same sizes, features of the same frequency and with the same "
        "correlations, "
        "which vary continuously and have no gap. **Shuffled edges** only keep sizes and frequencies."
    )
    if not found.cuts or found.null is None:
        return [Text(f"{_verdict(found)}."), text]
    n = found.null.prompts
    whole = (
        "all prompts"
        if n == len(found.labels)
        else f"a random sample of {n} prompts, observed and null alike"
    )
    columns = (
        "families",
        "silhouette",
        "stability",
        "separation",
        "p_value",
        "p_value_shuffle",
        "smallest",
        "strays",
    )
    return [
        Text(f"{_verdict(found)}."),
        text,
        Figure(
            figures.numbers_of_families(found),
            f"By number of families; the dashed line is the chosen one. Separation and its null are of {whole}, "
            f"{len(found.null.null)} null data sets; where their band ends, too few of them can be cut so often, and "
            "more families are held against its end.",
            Table(columns, [tuple(c[name] for name in columns) for c in found.cuts]),
        ),
    ]


def _distances(found: FamilyRun) -> list[Block]:
    n = len(found.labels)
    shown = min(n, figures.CELLS)
    blocks = (
        f" Cells are means over blocks of {n / shown:.1f} × {n / shown:.1f} circuits." if shown < n else ""
    )
    kinds = {
        "signals": "(source, target head, side, channel)",
        "edges": "(source, target head, side)",
        "heads": "heads",
    }
    text = Text(
        f"Jaccard distance of sets of {kinds[found.settings['distance']]}; token positions, edges from "
        "embeddings, biases "
        "and offsets, and edges into the answer are left out. Two empty circuits have distance 0."
    )
    names = [f.name for f in found.families]
    mean = [
        (
            names[a],
            *(
                float(found.distances[found.labels == a][:, found.labels == b].mean())
                for b in range(len(names))
            ),
        )
        for a in range(len(names))
    ]
    order = (
        "in the order of the tree"
        if found.grouped_by is None
        else f"by {literal(found.grouped_by)}, then as in the tree"
    )
    caption = f"{n} circuits {order}, labels below.{blocks} Distances are rounded to 1 %."
    table = Table(("mean distance", *names), mean)
    return [text, Figure(figures.heat_map(found), caption, table)]


def _families(found: FamilyRun) -> list[Block]:
    rows: list[tuple[Cell, ...]] = [
        (f.name, f.size, f.strays, f.representative, f.prompt, f.features, f.core, f.union, f.distance, f.difference,
         f.top_is_answer, composition({name: f.labels[name] for name in found.telling}))
        for f in found.families
    ]  # fmt: skip
    columns = ("family", "prompts", "strays", "representative", "its prompt", "mean signals", "in half", "in a tenth",
               "mean distance", "lead", "top is answer", "made of")  # fmt: skip
    blocks: list[Block] = [
        Table(columns, rows, "“in half” and “in a tenth”: signals held by so many circuits of the family.")
    ]
    if found.telling and found.n_families > 1:
        blocks.append(Figure(figures.compositions(found), "Sizes, and prompts by label."))
    if found.agreements:
        listed = [
            (a.label, a.values, a.ami, a.low, a.high, a.p_value, a.silhouette) for a in found.agreements
        ]
        names = ("label", "values", "AMI", "low", "high", "p", "silhouette of the label itself")
        blocks.append(
            Table(
                names,
                listed,
                "Agreement of families with labels: adjusted mutual information, 95 % interval from half "
                "samples, p from permutations.",
            )
        )
    if found.accuracy:
        columns = ("label", "value", "prompts", "wrong", "traced", "accuracy")
        shown = {*found.telling, found.grouped_by}
        listed = [tuple(a[c] for c in columns) for a in found.accuracy if a["label"] in shown]
        caption = (
            "Prompts that the model answers wrong have no circuit, so that accuracy is counted by label."
        )
        blocks.append(Table(columns, listed, caption))
    return blocks


def _pairs(found: FamilyRun) -> list[tuple[int, int]]:
    order = sorted(found.families, key=lambda f: (-f.size, f.family))[:PAIRS]
    chosen = [(a.family, b.family) for i, a in enumerate(order) for b in order[i + 1 :]]
    return [(min(pair), max(pair)) for pair in chosen]


def _representatives(found: FamilyRun) -> list[Block]:
    blocks: list[Block] = [
        Text(
            "The representative of a family is its medoid: the circuit of least mean distance to the others. "
            "Token positions "
            "and sides are dropped, as in the distance; grey is in both circuits, colour in one of them alone."
        )
    ]
    for a, b in _pairs(found):
        names = [found.families[i] for i in (a, b)]
        caption = f"The {HEAVIEST} heaviest edges of each. " + " ".join(
            f"Family {literal(f.name)}: “{literal(f.prompt)}”." for f in names
        )
        blocks.append(Figure(side_by_side(found, a, b), caption))
    return blocks


def _heads(found: FamilyRun) -> list[Block]:
    blocks: list[Block] = [
        Text(
            "All signals into a head on one side are summed and made a unit vector, prompt by prompt. The "
            "cosine is that of "
            "the two families' mean vectors, with a 95 % bootstrap interval over prompts inside families. A "
            "head does **the "
            f"same** if the interval is above {SAME}, **the opposite** if it is below {OPPOSITE}, **something "
            "else** if it "
            f"lies between. At least {FEWEST_PROMPTS} prompts of each family must use the head. Strengths are "
            "taken after "
            "RoPE: on the query side the token's position is part of the signal."
        )
    ]
    for a, b in _pairs(found):
        if any((h.first, h.second) == (a, b) for h in found.heads):
            blocks.append(
                Figure(figures.cosines(found, a, b), "Signals into each head, two families compared.")
            )
    names = [f.name for f in found.families]
    rows = [
        (h.head, h.side, f"{names[h.first]} / {names[h.second]}", h.cosine, h.low, h.high, h.medoids, h.within_first,
         h.within_second, h.n_first, h.n_second, h.verdict)
        for h in sorted(found.heads, key=lambda h: h.cosine)
    ]  # fmt: skip
    columns = ("head", "side", "families", "cosine", "low", "high", "representatives", "inside first", "inside second",
               "prompts first", "prompts second", "does")  # fmt: skip
    if rows:
        blocks.append(Table(columns, rows[:60], f"The {min(60, len(rows))} least alike of {len(rows)}."))
    else:
        blocks.append(Text("No head is used by enough prompts of two families."))
    return blocks


def _causality(found: FamilyRun) -> list[Block]:
    if not found.causality:
        return [Text("Not tested: no model was loaded (`--no-causality`).")]
    names = [f.name for f in found.families]
    rows: list[tuple[Cell, ...]] = []
    for t in found.causality:
        for where, e in (("own", t.own), ("other", t.other)):
            if e is not None:
                rows.append(
                    (names[t.exclusive_to], names[t.against], t.features, where, e.prompts, e.clean, e.change, e.low,
                     e.high, e.control, e.flips, e.control_flips, e.size, t.gap, t.gap_low, t.gap_high)
                )  # fmt: skip
    columns = ("signals of", "not of", "signals", "measured in", "prompts", "lead", "change", "low", "high", "control",
               "flips", "control flips", "size to control", "own − other", "low", "high")  # fmt: skip
    blocks: list[Block] = [
        Text(
            f"Signals that at least {OWN_SHARE:.0%} of one family's circuits hold and at most "
            f"{OTHER_SHARE:.0%} of the "
            "other's are taken out at every token, in prompts of both families, in really edited passes. "
            "Control: as many "
            f"signals of the same components into the same heads along unused channels ({CONTROLS} draws). "
            "“size to control” "
            "says how much longer the removed vectors are than those of the controls."
        )
    ]
    if rows:
        blocks.append(
            Figure(figures.causality_bars(found), "95 % intervals over prompts.", Table(columns, rows))
        )
    none = [t for t in found.causality if t.own is None]
    if none:
        said = "; ".join(
            f"{literal(names[t.exclusive_to])} against {literal(names[t.against])}" for t in none
        )
        blocks.append(Text(f"No exclusive signals: {said}."))
    return blocks
