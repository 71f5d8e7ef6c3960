"""Families of circuits as one offline page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headwise.families.causality import CONTROLS, GROUP, OTHER_SHARE, OWN_SHARE
from headwise.families.cluster import LEVEL, SMALLEST_SHARE, STABLE
from headwise.families.compare import FEWEST_PROMPTS, OPPOSITE, SAME
from headwise.families.compare import GROUP as ALL_HEADS
from headwise.show.families import figures
from headwise.show.families.circuits import HEAVIEST, side_by_side
from headwise.show.families.heat_map import CELLS, heat_map
from headwise.show.families.page import name_of, page_name
from headwise.show.families.terminal import averaged, composition, verdict
from headwise.show.kit.markdown import Prose, literal
from headwise.show.kit.report import Block, Figure, Markdown, Report, Section, Table
from headwise.show.kit.table import TableColumn, TableColumns
from headwise.strings import counted

if TYPE_CHECKING:
    from headwise.families.agreement import LabelAgreement
    from headwise.families.causal_test import CausalTest, FamilyEffect
    from headwise.families.compare import HeadComparison
    from headwise.families.differences import Difference
    from headwise.families.named import NamedFamilies
    from headwise.families.result import FamiliesResult, Family

PROSE = Prose.read("families/report.md")
PAIRS = 3
"""Pairs of families with a picture of their own."""
SHOWN = 60
"""Heads in the table of comparisons: more than anyone reads, few enough for a page."""


def families_report(found: FamiliesResult, named: NamedFamilies | None = None) -> Report:
    """Everything that ``headwise families`` found, on one page; with a run of names, what families do in words."""
    document = found.to_json()
    sections = [
        Section("Are there families?", _how_many(found)),
        Section("Distances", _distances(found)),
        Section("The families", _families(found)),
        Section("Averaged circuits", _averaged(found)),
    ]
    if found.n_families > 1:
        sections += [
            Section("Representatives side by side", _representatives(found)),
            Section("Heads that do the same, something else, the opposite", _heads(found)),
            Section("Are they causal for their own?", _causality(found)),
        ]
    if named is not None:
        sections.insert(3, Section("In words", _in_words(found, named)))
    p = document["p_value"]
    return Report(
        f"{document['task']}: families of circuits",
        sections,
        subtitle=PROSE(
            "subtitle", model=document["model"], by=found.settings["distance"], verdict=_verdict(found)
        ),
        facts={
            "prompts": str(document["n_prompts"]),
            "circuits": str(document["n_compared"]),
            "answered wrong": str(document["n_wrong"]),
            "families": str(document["n_families"]),
            "p, families": "–" if p is None else f"{p:.3f}",
            **{
                f"AMI with {a.label}": f"{a.ami.mean:z.2f}"
                for a in found.agreements
                if a.label in found.telling
            },
        },
    )


def _in_words(found: FamiliesResult, named: NamedFamilies) -> list[Block]:
    """What the families do differently, the names behind it, and the edges of each family's circuit."""
    names, differences = [f.name for f in found.families], named.differences
    blocks: list[Block] = [Markdown(PROSE("in words", corpus=named.known.corpus))]
    blocks += [Markdown(literal(one)) for one in differences.paragraphs]
    columns: TableColumns[Difference] = {
        "what": lambda d: d.name.signal,
        "name": lambda d: d.name.text,
        "verdict": lambda d: d.name.verdict,
        "accuracy": lambda d: d.name.accuracy and d.name.accuracy.mean,
        "families": lambda d: f"{names[d.first]} / {names[d.second]}",
        "in the first": lambda d: d.share_first,
        "in the second": lambda d: d.share_second,
        "q": lambda d: d.q,
        "evidence": lambda d: d.name.evidence,
    }
    if differences.entries:
        blocks.append(Table.of(differences.entries[:SHOWN], columns, PROSE("in words table")))
    for circuit in named.circuits:
        rows = [
            (e.source, e.target, e.side, e.share, e.weight, name_of(circuit, e))
            for e in circuit.edges[:SHOWN]
        ]
        share = TableColumn(name="circuits", format=".0%")
        caption = PROSE(
            "family edges", name=circuit.family.name, page=page_name(circuit), least=circuit.pruned
        )
        blocks.append(Table(("from", "to", "side", share, "weight", "name"), rows, caption))
    return blocks


def _verdict(found: FamiliesResult) -> str:
    said = verdict(found)
    return said[:1].upper() + said[1:]


def _how_many(found: FamiliesResult) -> list[Block]:
    rules = Markdown(PROSE("how many", smallest=SMALLEST_SHARE, stable=STABLE, level=LEVEL))
    if not found.cuts or found.null is None:
        return [rules]
    n = found.null.prompts
    every = n == len(found.labels)
    whole = "all prompts" if every else f"a random sample of {n} prompts, observed and null alike"
    chosen = any(cut["chosen"] for cut in found.cuts)
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
    caption = PROSE(
        "how many figure",
        lines=PROSE("lines chosen" if chosen else "lines none"),
        whole=whole,
        draws=len(found.null.null),
    )
    table = Table(columns, [tuple(c[name] for name in columns) for c in found.cuts])
    return [rules, Figure(figures.numbers_of_families(found), caption, table)]


KINDS = {
    "signals": "signals (source, target head, side, channel)",
    "edges": "edges (source, target head, side)",
    "heads": "heads",
}


def _distances(found: FamiliesResult) -> list[Block]:
    n = len(found.labels)
    shown = min(n, CELLS)
    blocks = (
        f" Cells are means over blocks of {n / shown:.1f} × {n / shown:.1f} circuits." if shown < n else ""
    )
    names = [f.name for f in found.families]
    mean = [
        (
            a,
            *(
                float(found.distances[found.labels == i][:, found.labels == j].mean())
                for j in range(len(names))
            ),
        )
        for i, a in enumerate(names)
    ]
    by = found.grouped_by
    order = "in the order of the tree" if by is None else f"by {by}, then in the order of the tree"
    caption = PROSE("distances figure", n=n, order=order, blocks=blocks)
    return [
        Markdown(PROSE("distances", kind=KINDS[found.settings["distance"]])),
        Figure(heat_map(found), caption, Table(("mean distance", *names), mean)),
    ]


def _families(found: FamiliesResult) -> list[Block]:
    columns: TableColumns[Family] = {
        "family": lambda f: f.name,
        "prompts": lambda f: f.size,
        "strays": lambda f: f.strays,
        "representative": lambda f: f.representative,
        "its prompt": lambda f: f.prompt,
        "mean signals": lambda f: f.features,
        "in half": lambda f: f.core,
        "in a tenth": lambda f: f.union,
        "mean distance": lambda f: f.distance,
        "lead": lambda f: f.difference,
        "top is answer": lambda f: f.top_is_answer,
        "made of": lambda f: composition({name: f.labels[name] for name in found.telling}),
    }
    blocks: list[Block] = [Table.of(found.families, columns, PROSE("families table"))]
    if found.telling and found.n_families > 1:
        blocks.append(Figure(figures.compositions(found), "Sizes, and prompts by label."))
    if found.agreements:
        told: TableColumns[LabelAgreement] = {
            "label": lambda a: a.label,
            "values": lambda a: a.values,
            "AMI": lambda a: a.ami.mean,
            "low": lambda a: a.ami.low,
            "high": lambda a: a.ami.high,
            "p": lambda a: a.p_value,
            TableColumn(name="q", format=".3f"): lambda a: a.claim and a.claim.q,
            "supported": lambda a: a.claim and ("yes" if a.claim.supported else "no"),
            "by": lambda a: a.unit,
            "silhouette of the label itself": lambda a: a.silhouette,
        }
        blocks.append(Table.of(found.agreements, told, PROSE("agreement table")))
    if found.within_wordings:
        claimed = [
            (name, one.p, one.q, "yes" if one.supported else "no")
            for name, one in found.within_wordings.items()
        ]
        null = "; ".join(dict.fromkeys(one.null for one in found.within_wordings.values()))
        blocks.append(Table(("label", "p", "q", "supported"), claimed, PROSE("within table", null=null)))
    if found.accuracy:
        names = ("label", "value", "prompts", "wrong", "empty", "silent", "compared", "accuracy")
        shown = {*found.telling, found.grouped_by}
        listed = [tuple(a[c] for c in names) for a in found.accuracy if a["label"] in shown]
        blocks.append(Table(names, listed, PROSE("accuracy table")))
    return blocks


def _averaged(found: FamiliesResult) -> list[Block]:
    one = found.averaging
    rows: list[tuple[str, float | None, float | None]] = [("all prompts as one", one.all_prompts, one.shared)]
    if one.steadier is not None:
        rows += [
            ("family by family", one.families, one.family_shared),
            ("random groups of the families' sizes", one.random_mean, None),
            ("representatives of families", one.representatives, None),
        ]
        rows += [
            (f"family {family.name}", value, None)
            for family, value in zip(found.families, one.by_family, strict=True)
        ]
    columns = ("averaged over", "distance of two resamples", "share of a prompt's circuit")
    said = averaged(found)
    return [
        Markdown(literal(f"{said[:1].upper()}{said[1:]}.")),
        Table(columns, rows, PROSE("averaged table")),
    ]


def _pairs(found: FamiliesResult) -> list[tuple[int, int]]:
    order = sorted(found.families, key=lambda f: (-f.size, f.family))[:PAIRS]
    chosen = [(a.family, b.family) for i, a in enumerate(order) for b in order[i + 1 :]]
    return [(min(pair), max(pair)) for pair in chosen]


def _representatives(found: FamiliesResult) -> list[Block]:
    blocks: list[Block] = [Markdown(PROSE("representatives"))]
    for a, b in _pairs(found):
        names = [found.families[i] for i in (a, b)]
        caption = f"The {HEAVIEST} heaviest edges of each. " + " ".join(
            f"Family {literal(f.name)}: “{literal(f.prompt)}”." for f in names
        )
        blocks.append(Figure(side_by_side(found, a, b), caption))
    return blocks


def _heads(found: FamiliesResult) -> list[Block]:
    blocks: list[Block] = [
        Markdown(PROSE("heads", same=SAME, opposite=OPPOSITE, fewest=FEWEST_PROMPTS, group=ALL_HEADS)),
    ]
    for a, b in _pairs(found):
        if any((h.first, h.second) == (a, b) for h in found.heads):
            blocks.append(
                Figure(figures.cosines(found, a, b), "Signals into each head, two families compared.")
            )
    names = [f.name for f in found.families]
    columns: TableColumns[HeadComparison] = {
        "head": lambda h: h.head,
        "side": lambda h: h.side,
        "families": lambda h: f"{names[h.first]} / {names[h.second]}",
        "cosine": lambda h: h.cosine.mean,
        "low": lambda h: h.cosine.low,
        "high": lambda h: h.cosine.high,
        "representatives": lambda h: h.medoids,
        "inside first": lambda h: h.within_first,
        "inside second": lambda h: h.within_second,
        "prompts first": lambda h: h.n_first,
        "prompts second": lambda h: h.n_second,
        "does": lambda h: h.verdict,
        TableColumn(name="q", format=".3f"): lambda h: h.claim.q,
    }
    shown = sorted(found.heads, key=lambda h: h.cosine.mean)[:SHOWN]
    if shown:
        caption = f"The {len(shown)} least alike of {len(found.heads)}."
        blocks.append(Table.of(shown, columns, caption))
    else:
        blocks.append(Markdown(PROSE("no head")))
    return blocks


def _causality(found: FamiliesResult) -> list[Block]:
    if not found.causality:
        return [Markdown(PROSE("not causal"))]
    names = [f.name for f in found.families]
    measured = [
        (t, where, effect)
        for t in found.causality
        for where, effect in t.effects.items()
        if effect is not None
    ]
    columns: TableColumns[tuple[CausalTest, str, FamilyEffect]] = {
        "removed": lambda row: counted(row[0].features, row[0].kind[:-1]),
        "of": lambda row: names[row[0].exclusive_to],
        "not of": lambda row: names[row[0].against],
        "measured in": lambda row: row[1],
        "prompts": lambda row: row[2].prompts,
        "lead": lambda row: row[2].clean,
        "change": lambda row: row[2].change.mean,
        "low": lambda row: row[2].change.low,
        "high": lambda row: row[2].change.high,
        "control": lambda row: row[2].control.mean,
        "flips": lambda row: row[2].flips,
        "control flips": lambda row: row[2].control_flips,
        "size to control": lambda row: row[2].size,
        TableColumn(name="q, own", format=".3f"): lambda row: _of(row, "own", "q"),
        "supported": lambda row: _of(row, "own", "supported"),
        "own − other": lambda row: None if _seen(row) else row[0].gap and row[0].gap.mean,
        TableColumn(name="low"): lambda row: None if _seen(row) else row[0].gap and row[0].gap.low,
        TableColumn(name="high"): lambda row: None if _seen(row) else row[0].gap and row[0].gap.high,
        TableColumn(name="q, own − other", format=".3f"): lambda row: _of(row, "gap", "q"),
        TableColumn(name="supported"): lambda row: _of(row, "gap", "supported"),
    }
    blocks: list[Block] = [
        Markdown(PROSE("causality", own=OWN_SHARE, other=OTHER_SHARE, controls=CONTROLS, group=GROUP)),
    ]
    if measured:
        table = Table.of(measured, columns)
        blocks.append(Figure(figures.causality_bars(found), "95 % intervals over prompts.", table))
    none = [t for t in found.causality if t.own is None]
    if none:
        pairs = "; ".join(f"{t.kind} of {names[t.exclusive_to]} against {names[t.against]}" for t in none)
        blocks.append(Markdown(PROSE("nothing exclusive", pairs=pairs)))
    return blocks


def _seen(row: tuple[CausalTest, str, FamilyEffect]) -> bool:
    """Whether these are prompts that the choice was made on, of which nothing is claimed."""
    return row[1].endswith("chosen on")


def _of(row: tuple[CausalTest, str, FamilyEffect], name: str, what: str) -> Any:
    """q or verdict of one of the test's claims, in the row of its own held-out prompts."""
    if row[1] != "own":
        return None
    value = getattr(row[0].claims[name], what)
    return value if what == "q" else "yes" if value else "no"
