"""A study of sinks as one offline page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headwise.show.kit.markdown import Prose
from headwise.show.kit.report import Block, Figure, Markdown, Report, Section, Table
from headwise.show.kit.table import TableColumn, TableColumns
from headwise.show.kit.terminal import quoted
from headwise.show.naming.blocks import names_blocks
from headwise.show.sinks import figures
from headwise.sinks.find import AWAY
from headwise.sinks.matched import GROUP
from headwise.sinks.signals import CONTROLLED, SIDES
from headwise.strings import percent

if TYPE_CHECKING:
    from headwise.known_names import KnownNames
    from headwise.sinks.clusters import Cluster, Source
    from headwise.sinks.matched import Matched
    from headwise.sinks.proof import Shared
    from headwise.sinks.result import SinksResult
    from headwise.sinks.signals import Agreement
    from headwise.types import Head

PROSE = Prose.read("sinks/report.md")
SHOWN = 12
"""Heads and sides in the table of those that agree best."""
SOURCES: TableColumns[Source] = {
    "written by": lambda s: s.component,
    "heads": lambda s: len(s.heads),
    "share": lambda s: s.share,
    "distance": lambda s: s.distance,
    "reading": lambda s: s.reading,
    "seen": lambda s: s.seen,
    "apart": lambda s: s.apart,
    "readings apart": lambda s: s.readings_apart,
    "which": lambda s: _some(s.heads, 6),
}
CLUSTERS: TableColumns[Cluster] = {
    "heads": lambda c: len(c.heads),
    "read by": lambda c: c.read_by,
    "distance": lambda c: c.distance,
    "writers": lambda c: ", ".join(f"{w.component} {percent(w.share)}" for w in c.writers[:3]),
    "which": lambda c: _some(c.heads),
}
ONE_BY_ONE: TableColumns[dict[str, Any]] = {
    "side": lambda r: r["side"],
    "firings": lambda r: r["firings"],
    "untouched": lambda r: r["attention"],
    "predicted": lambda r: r["predicted"],
    "edited pass": lambda r: r["edited"],
    "unused channels": lambda r: r["control"],
    "error of prediction": lambda r: r["error"],
    "signals": lambda r: r["signals"],
    "to the runner-up": lambda r: r["to_next"],
    "to the top gainer": lambda r: r["to_top_gainer"],
    "to itself": lambda r: r["to_itself"],
}
SHARED: TableColumns[Shared] = {
    "side": lambda s: s.side,
    "direction": lambda s: s.name,
    "heads": lambda s: len(s.heads),
    "untouched": lambda s: s.attention,
    TableColumn(name="removed (95 %)", number=True): lambda s: (
        f"{s.removed.mean:.3f} ({s.removed.low:.3f} to {s.removed.high:.3f})"
    ),
    "random": lambda s: s.control,
    TableColumn(name="more than random (95 %)", number=True): lambda s: (
        f"{s.freed.mean:.3f} ({s.freed.low:.3f} to {s.freed.high:.3f})"
    ),
    TableColumn(name="q", format=".3f"): lambda s: s.claim.q,
    "supported": lambda s: "yes" if s.claim.supported else "no",
    "loss": lambda s: s.loss,
    TableColumn(name="change of loss (95 %)", number=True): lambda s: (
        f"{s.loss_change.mean:+.3f} ({s.loss_change.low:+.3f} to {s.loss_change.high:+.3f})"
    ),
    "change, random": lambda s: s.control_loss_change,
}


MATCHED: TableColumns[tuple[Head, str, Matched]] = {
    "head": lambda row: str(row[0]),
    "side": lambda row: row[1],
    "token": lambda row: quoted(row[2].token),
    "back": lambda row: row[2].back,
    "prompts": lambda row: row[2].firings,
    "at the sink": lambda row: row[2].sink,
    "at the token": lambda row: row[2].frequent,
    TableColumn(name="nearer (95 %)", number=True): lambda row: (
        f"{row[2].gap.mean:+.3f} ({row[2].gap.low:+.3f} to {row[2].gap.high:+.3f})"
    ),
    TableColumn(name="q", format=".3f"): lambda row: row[2].claim.q,
    "supported": lambda row: "yes" if row[2].claim.supported else "no",
}


def sinks_report(study: SinksResult, names: KnownNames | None = None) -> Report:
    """Sinks, parked heads, agreement, sharing, writers and removal."""
    n, at = len(study.parking.token_ids), sum(s.prompts for s in study.sinks if s.position == 0)
    facts = {
        "prompts": f"{n} ({len(study.parking.with_sinks)} with a sink)",
        "sinks at the first token": f"{at} of {sum(s.prompts for s in study.sinks)}",
        "heads that park": study.parking_said,
    }
    for side in SIDES:
        facts[f"signals agree, {side} side"] = (
            f"{study.agreeing_said(side)}; {len(study.controlled(side))} of {len(study.of(side))} closely (controlled)"
        )
    return Report(
        "Attention sinks",
        [
            Section("Which tokens", _tokens(study)),
            Section("Which heads", _heads(study)),
            Section("Is it the same signal in every prompt?", _agreement(study)),
            Section("Do heads share it, and who writes it?", _sharing(study)),
            Section("Without the signal, does the attention leave?", _removal(study)),
            *([] if names is None else [Section("Names", names_blocks(names, study.subjects))]),
        ],
        subtitle=PROSE("subtitle", model=study.model),
        facts=facts,
    )


def _tokens(study: SinksResult) -> list[Block]:
    rows = [(s.position, quoted(s.token), s.prompts, s.share, s.attention) for s in study.sinks]
    return [
        Markdown(PROSE("tokens", away=AWAY, threshold=study.settings["threshold"])),
        Figure(figures.received(study), PROSE("tokens figure")),
        Table(("position", "token", "prompts", "share of prompts", "attention received"), rows[:40]),
    ]


def _heads(study: SinksResult) -> list[Block]:
    return [
        Markdown(PROSE("heads", parked=study.settings["parked"], said=study.parking_said)),
        Figure(figures.parking_by_layer(study), PROSE("heads figure")),
        Figure(figures.parking_map(study), PROSE("map figure")),
    ]


def _agreement(study: SinksResult) -> list[Block]:
    columns: TableColumns[tuple[Head, str, Agreement]] = {
        "head": lambda row: str(row[0]),
        "side": lambda row: row[1],
        "attention": lambda row: float(study.attention[row[0].layer, row[0].index]),
        "distance": lambda row: row[2].distance.mean,
        "low": lambda row: row[2].distance.low,
        "high": lambda row: row[2].distance.high,
        "at other tokens": lambda row: row[2].others,
        "shuffled": lambda row: row[2].shuffled,
        "agree": lambda row: "–" if row[2].claim is None else "yes" if row[2].claim.supported else "no",
        "controlled": lambda row: row[2].controlled,
        "signals": lambda row: row[2].signals,
        "firings": lambda row: row[2].firings,
    }
    found = sorted(study.agreements.items(), key=lambda item: (item[0][0], item[0][1] == "key"))
    rows = [(head, side, agreement) for (head, side), agreement in found]
    best = sorted(rows, key=lambda row: row[2].distance.mean)[:SHOWN]
    return [
        Markdown(PROSE("agreement", controlled=CONTROLLED)),
        Figure(figures.agreement_by_layer(study), PROSE("agreement figure"), Table.of(rows, columns)),
        Table.of(best, columns, PROSE("agreement table", shown=len(best), n=len(rows))),
        *_matched(study),
    ]


def _matched(study: SinksResult) -> list[Block]:
    said = "\n".join(f"- {sentence}." for sentence in study.said)
    blocks: list[Block] = [Markdown(PROSE("matched")), Markdown(said)]
    if study.matched:
        rows = [(head, side, one) for (head, side), one in study.matched.items()]
        first = sorted(rows, key=lambda row: (row[2].claim.q, -row[2].gap.mean))
        blocks.append(Table.of(first, MATCHED, PROSE("matched table", group=GROUP)))
    return blocks


def _sharing(study: SinksResult) -> list[Block]:
    blocks: list[Block] = [Markdown(PROSE("sharing"))]
    for sharing in study.sharing:
        side = sharing.side
        if not sharing.heads:
            blocks.append(Markdown(PROSE("no side", side=side)))
            continue
        about = PROSE(
            "side",
            side=side.capitalize(),
            heads=len(sharing.heads),
            clusters=len(sharing.clusters),
            silhouette="–" if sharing.silhouette is None else f"{sharing.silhouette:.2f}",
            apart="–" if sharing.mean_distance is None else f"{sharing.mean_distance:.2f}",
        )
        blocks += [
            Markdown(about),
            Figure(figures.writers_by_layer(study, side), PROSE("writers figure", side=side)),
            Figure(figures.distances(study, side), PROSE("distances figure", side=side)),
            Table.of(sharing.sources, SOURCES, f"Sources, {side} side"),
            Table.of(
                [c for c in sharing.clusters if len(c.heads) > 1],
                CLUSTERS,
                f"Clusters of more than one head, {side} side",
            ),
        ]
    return blocks


def _some(heads: tuple[object, ...], most: int = 12) -> str:
    more = f" and {len(heads) - most} more" if len(heads) > most else ""
    return ", ".join(map(str, heads[:most])) + more


def _removal(study: SinksResult) -> list[Block]:
    blocks: list[Block] = [Markdown(PROSE("removal"))]
    if study.one_by_one:
        table = Table.of(study.one_by_one, ONE_BY_ONE)
        blocks += [Figure(figures.removal_bars(study), PROSE("removal figure")), table]
    if study.shared:
        blocks += [
            Markdown(PROSE("shared")),
            Figure(figures.shared_bars(study), PROSE("shared figure")),
            Table.of(study.shared, SHARED),
        ]
    return blocks
