"""A study of sinks as one offline page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwise.show.kit.markdown import Prose
from headwise.show.kit.report import Block, Figure, Report, Section, Table, Text
from headwise.show.kit.table import Column
from headwise.show.kit.terminal import quoted
from headwise.show.sinks import figures
from headwise.sinks.find import AWAY
from headwise.sinks.signals import CONTROLLED, SIDES

if TYPE_CHECKING:
    from headwise.sinks.result import SinksResult

PROSE = Prose.read("sinks/report.md")
SHOWN = 12
"""Heads and sides in the table of those that agree best."""


def sinks_report(study: SinksResult) -> Report:
    """Sinks, parked heads, agreement, sharing, writers and removal."""
    n, at = len(study.parking.token_ids), sum(s.prompts for s in study.sinks if s.position == 0)
    facts = {
        "prompts": f"{n} ({len(study.parking.with_sinks)} with a sink)",
        "sinks at the first token": f"{at} of {sum(s.prompts for s in study.sinks)}",
        "heads that park": f"{len(study.parked)} of {study.attention.numel()}",
    }
    for side in SIDES:
        facts[f"controlled, {side} side"] = f"{len(study.controlled(side))} of {len(study.of(side))}"
    return Report(
        "Attention sinks",
        [
            Section("Which tokens", _tokens(study)),
            Section("Which heads", _heads(study)),
            Section("Is it the same signal in every prompt?", _agreement(study)),
            Section("Do heads share it, and who writes it?", _sharing(study)),
            Section("Without the signal, does the attention leave?", _removal(study)),
        ],
        subtitle=PROSE("subtitle", model=study.model),
        facts=facts,
    )


def _tokens(study: SinksResult) -> list[Block]:
    rows = [(s.position, quoted(s.token), s.prompts, s.share, s.attention) for s in study.sinks]
    return [
        Text(PROSE("tokens", away=AWAY, threshold=study.settings["threshold"])),
        Figure(figures.received(study), PROSE("tokens figure")),
        Table(("position", "token", "prompts", "share of prompts", "attention received"), rows[:40]),
    ]


def _heads(study: SinksResult) -> list[Block]:
    counts = {"n": len(study.parked), "all": study.attention.numel()}
    return [
        Text(PROSE("heads", parked=study.settings["parked"], **counts)),
        Figure(figures.parking_by_layer(study), PROSE("heads figure")),
        Figure(figures.parking_map(study), PROSE("map figure")),
    ]


def _agreement(study: SinksResult) -> list[Block]:
    rows = [
        (
            str(head),
            side,
            float(study.attention[head.layer, head.index]),
            a.distance,
            a.low,
            a.high,
            a.others,
            a.shuffled,
            a.controlled,
            a.signals,
            a.firings,
        )
        for (head, side), a in sorted(
            study.agreements.items(), key=lambda item: (item[0][0], item[0][1] == "key")
        )
    ]
    columns = (
        "head",
        "side",
        "attention",
        "distance",
        "low",
        "high",
        "at other tokens",
        "shuffled",
        "controlled",
        "signals",
        "firings",
    )
    best = sorted(rows, key=lambda row: row[3])[:SHOWN]
    return [
        Text(PROSE("agreement", controlled=CONTROLLED)),
        Figure(figures.agreement_by_layer(study), PROSE("agreement figure"), Table(columns, rows)),
        Table(columns, best, PROSE("agreement table", shown=len(best), n=len(rows))),
    ]


def _sharing(study: SinksResult) -> list[Block]:
    blocks: list[Block] = [Text(PROSE("sharing"))]
    for sharing in study.sharing:
        side = sharing.side
        if not sharing.heads:
            blocks.append(Text(PROSE("no side", side=side)))
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
            Text(about),
            Figure(figures.writers_by_layer(study, side), PROSE("writers figure", side=side)),
            Figure(figures.distances(study, side), PROSE("distances figure", side=side)),
            Table(
                ("written by", "heads", "share", "agreement", "reading", "seen", "apart", "readings apart", "which"),
                [
                    (s.component, len(s.heads), s.share, s.agreement, s.reading, s.seen, s.apart, s.readings_apart,
                     _some(s.heads, 6))
                    for s in sharing.sources
                ],
                caption=f"Sources, {side} side",
            ),
            Table(
                ("heads", "read by", "distance", "writers", "which"),
                [
                    (len(c.heads), c.read_by, c.distance,
                     ", ".join(f"{w.component} {w.share:.0%}" for w in c.writers[:3]), _some(c.heads))
                    for c in sharing.clusters if len(c.heads) > 1
                ],
                caption=f"Clusters of more than one head, {side} side",
            ),
        ]  # fmt: skip
    return blocks


def _some(heads: tuple[object, ...], most: int = 12) -> str:
    more = f" and {len(heads) - most} more" if len(heads) > most else ""
    return ", ".join(map(str, heads[:most])) + more


def _removal(study: SinksResult) -> list[Block]:
    blocks: list[Block] = [Text(PROSE("removal"))]
    if study.one_by_one:
        rows = [
            (r["side"], r["firings"], r["attention"], r["predicted"], r["edited"], r["control"], r["error"],
             r["signals"], r["to_next"], r["to_top_gainer"], r["to_itself"])
            for r in study.one_by_one
        ]  # fmt: skip
        columns = (
            "side",
            "firings",
            "untouched",
            "predicted",
            "edited pass",
            "unused channels",
            "error of prediction",
            "signals",
            "to the next token",
            "to the top gainer",
            "to itself",
        )
        blocks += [Figure(figures.removal_bars(study), PROSE("removal figure")), Table(columns, rows)]
    if study.shared:
        columns = (
            "side",
            "direction",
            "heads",
            "untouched",
            Column(name="removed (95 %)", number=True),
            "random",
            "loss",
            Column(name="change of loss (95 %)", number=True),
            "change, random",
        )
        rows = [
            (
                s.side,
                s.name,
                len(s.heads),
                s.attention,
                f"{s.removed:.3f} ({s.removed_low:.3f} to {s.removed_high:.3f})",
                s.control,
                s.loss,
                f"{s.loss_change:+.3f} ({s.loss_low:+.3f} to {s.loss_high:+.3f})",
                s.control_loss_change,
            )
            for s in study.shared
        ]
        blocks += [
            Text(PROSE("shared")),
            Figure(figures.shared_bars(study), PROSE("shared figure")),
            Table(columns, rows),
        ]
    return blocks
