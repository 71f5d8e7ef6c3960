"""Families of circuits for the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from headwise.show.kit.terminal import table
from headwise.show.naming.known import names_lines
from headwise.strings import counted

if TYPE_CHECKING:
    from headwise.families.causal_test import CausalTest, FamilyEffect
    from headwise.families.named import NamedFamilies
    from headwise.families.result import FamiliesResult

SHOWN = 12


def family_tables(found: FamiliesResult, named: NamedFamilies | None = None) -> RenderableType:
    """The verdict, the families, agreement with labels, heads that differ, causality."""
    parts: list[RenderableType] = [Text(verdict(found), style="bold")]
    if aside := set_aside(found):
        parts.append(Text(aside))
    rows = [
        (
            f.name,
            str(f.size),
            str(f.representative),
            f"{f.features:.0f}",
            str(f.core),
            f"{f.difference:+.2f}",
            f"{f.top_is_answer:.0%}",
            composition({name: f.labels[name] for name in found.telling[:2]}),
        )
        for f in found.families[:SHOWN]
    ]
    columns = ("family", "prompts", "representative", "signals", "core", "lead", "top is answer", "made of")
    parts += [Text(), table(columns, rows)]
    if len(found.families) > SHOWN:
        parts.append(Text(f"… and {len(found.families) - SHOWN} smaller ones"))
    if found.agreements:
        shown = [
            (
                a.label,
                f"{a.ami.mean:.2f}",
                f"{a.ami.low:.2f}–{a.ami.high:.2f}",
                f"{a.p_value:.3f}",
                "" if a.claim is None else f"{a.claim.q:.3f}{'*' if a.claim.supported else ''}",
                a.unit,
                f"{a.silhouette:.2f}",
            )
            for a in found.agreements
        ]
        columns = ("label", "AMI", "95 %", "p", "q (* supported)", "by", "its own silhouette")
        parts += [Text(), table(columns, shown)]
    parts += [Text(), Text(averaged(found))]
    if found.within_wordings:
        within = [
            (name, f"{one.p:.3f}", f"{one.q:.3f}", "yes" if one.supported else "no")
            for name, one in found.within_wordings.items()
        ]
        null = "; ".join(dict.fromkeys(one.null for one in found.within_wordings.values()))
        title = f"Do circuits of one wording differ by a label? ({null})"
        parts += [Text(), table(("label", "p", "q", "supported"), within, title=title)]
    if found.heads:
        parts += [Text(), *_heads(found)]
    if found.causality:
        parts += [Text(), *_causality(found)]
    if named is not None:
        parts += [Text("\nIn words, by names that were tested on other texts", style="bold")]
        parts += [Text(one) for one in named.differences.paragraphs]
        told = {one.name.signal: one.name for one in named.differences.entries}
        parts += [Text(), *names_lines(named.known, told.values(), top=SHOWN)]
    return Group(*parts)


def verdict(found: FamiliesResult) -> str:
    """One or two sentences: are there families, how many, how sure."""
    document = found.to_json()
    n, k = document["n_compared"], document["n_families"]
    if document["p_value"] is None:
        return f"{n} circuits: too few, or too similar, to separate"
    inside = document["p_value_within"]
    wording = "" if inside is None else f"{inside:.3f} against each wording as one family, "
    numbers = (
        f"silhouette {document['silhouette']:.2f}, stability {document['stability']:.2f}, separation "
        f"{document['separation']:.1f}, p {document['p_value_one_family']:.3f} against one family, {wording}"
        f"{document['p_value_shuffle']:.3f} against shuffled edges"
    )
    if k > 1:
        said = f"{n} circuits fall into {k} families ({numbers})"
    else:
        said = f"no families found: {n} circuits stay together, as no cut is stable and separated (tightest: {numbers})"
    return said if found.grouped_by is None else f"{said}; below they are grouped by {found.grouped_by}"


def averaged(found: FamiliesResult) -> str:
    """How much averaged circuits vary from sample to sample, in a sentence or two."""
    one = found.averaging
    said = (
        f"averaged circuits (mean distance of two resamples): all prompts as one {one.all_prompts:.2f}, holding "
        f"{one.shared:.0%} of a prompt's circuit"
    )
    if one.steadier is None:
        return said
    holds = "vary less" if one.steadier.supported else "do not vary less"
    return (
        f"{said}; family by family {one.families:.2f}, holding {one.family_shared:.0%}; representatives "
        f"{one.representatives:.2f}. Families {holds} than random groups of their sizes ({one.random_mean:.2f}, "
        f"p {one.steadier.p:.3f})"
    )


def set_aside(found: FamiliesResult) -> str:
    """Prompts that are in no family, by why; empty if there are none."""
    counts, silent = found.counts, len(found.silent)
    reasons = {
        "answered wrong": counts["wrong"],
        "right without a circuit": counts["empty"],
        "right with edges into the answer alone": silent,
        "failed": counts["failed"],
    }
    told = [f"{n} {why}" for why, n in reasons.items() if n]
    return f"in no family: {', '.join(told)}" if told else ""


def composition(labels: dict[str, dict[str, int]], most: int = 2) -> str:
    """What a family's prompts are, the commonest values first.

    >>> composition({"order": {"ABBA": 9, "BABA": 1}})
    'order ABBA 90 %, BABA 10 %'
    """
    parts = []
    for name, counts in labels.items():
        total = sum(counts.values())
        listed = ", ".join(f"{v} {n / total:.0%}".replace("%", " %") for v, n in list(counts.items())[:most])
        parts.append(f"{name} {listed}" + (", …" if len(counts) > most else ""))
    return "; ".join(parts)


def _heads(found: FamiliesResult) -> list[RenderableType]:
    count: dict[str, int] = {}
    for h in found.heads:
        count[h.verdict] = count.get(h.verdict, 0) + 1
    said = ", ".join(f"{n} {name}" for name, n in sorted(count.items(), key=lambda item: -item[1]))
    least = sorted(found.heads, key=lambda h: h.cosine.mean)[:SHOWN]
    names = [f.name for f in found.families]
    rows = [
        (
            h.head,
            h.side,
            f"{names[h.first]} / {names[h.second]}",
            f"{h.cosine.mean:+.2f}",
            f"{h.cosine.low:+.2f} to {h.cosine.high:+.2f}",
            f"{h.within_first:.2f}, {h.within_second:.2f}",
            h.verdict,
        )
        for h in least
    ]
    columns = ("head", "side", "families", "cosine", "95 %", "inside each", "does")
    title = f"Signals into heads, least alike first (heads, sides and pairs: {said})"
    return [table(columns, rows, title=title)]


def _causality(found: FamiliesResult) -> list[RenderableType]:
    names = [f.name for f in found.families]
    rows = []
    for t in found.causality:
        gap = "" if t.gap is None else f"{t.gap.mean:+.2f} ({t.gap.low:+.2f} to {t.gap.high:+.2f})"
        rows.append(
            (
                counted(t.features, t.kind[:-1]),
                names[t.exclusive_to],
                names[t.against],
                _effect(t.own) + _claimed(t, "own"),
                _effect(t.other),
                gap + _claimed(t, "gap"),
            )
        )
    columns = (
        "removed",
        "of",
        "not of",
        "in own prompts (control)",
        "in the other's (control)",
        "own − other",
    )
    title = (
        "Change of the lead when what is exclusive to a family leaves; chosen on other prompts; * supported"
    )
    return [table(columns, rows, title=title)]


def _claimed(test: CausalTest, name: str) -> str:
    one = test.claims.get(name)
    return "" if one is None else f" q {one.q:.3f}{'*' if one.supported else ''}"


def _effect(effect: FamilyEffect | None) -> str:
    return "–" if effect is None else f"{effect.change.mean:+.2f} ({effect.control.mean:+.2f})"
