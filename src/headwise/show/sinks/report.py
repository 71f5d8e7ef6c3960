"""A study of sinks as one offline page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwise.show.kit.markdown import literal
from headwise.show.kit.report import Block, Figure, Report, Section, Table, Text
from headwise.show.kit.terminal import quoted
from headwise.show.sinks import figures
from headwise.sinks.find import AWAY
from headwise.sinks.signals import CONTROLLED, SIDES

if TYPE_CHECKING:
    from headwise.sinks.study import SinkStudy


def sinks_report(study: SinkStudy) -> Report:
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
        subtitle=f"Where `{literal(study.model)}` parks attention, what makes it, and what happens without that.",
        facts=facts,
    )


def _tokens(study: SinkStudy) -> list[Block]:
    rows = [(s.position, quoted(s.token), s.prompts, s.share, s.attention) for s in study.sinks]
    return [
        Text(
            f"A token is a sink of its prompt if the rows from {AWAY} positions later on give it, averaged "
            f"over them and over every head, at least {study.settings['threshold']:g} of their attention. No "
            "position is assumed."
        ),
        Figure(
            figures.received(study),
            "Mean attention received by position, over prompts; dashed: the threshold.",
        ),
        Table(("position", "token", "prompts", "share of prompts", "attention received"), rows[:40]),
    ]


def _heads(study: SinkStudy) -> list[Block]:
    return [
        Text(
            f"A head parks if it gives the sinks at least {study.settings['parked']:g} of its attention in "
            f"those rows, averaged over prompts: {len(study.parked)} of {study.attention.numel()} heads do."
        ),
        Figure(
            figures.parking_by_layer(study), "Attention on sinks by layer; dashed: a head parks from here on."
        ),
        Figure(figures.parking_map(study), "Attention on sinks, every head."),
    ]


def _agreement(study: SinkStudy) -> list[Block]:
    rows = [
        (str(head), side, float(study.attention[head.layer, head.index]), a.distance, a.low, a.high, a.others,
         a.shuffled, a.controlled, a.signals, a.firings)
        for (head, side), a in sorted(study.agreements.items(), key=lambda item: (item[0][0], item[0][1] == "key"))
    ]  # fmt: skip
    columns = ("head", "side", "attention", "distance", "low", "high", "at other tokens", "shuffled", "controlled",
               "signals", "firings")  # fmt: skip
    return [
        Text(
            "One parked firing of each head in each prompt was traced; its control signal is the sum of the "
            "signals whose removal takes the attention below the tracer's threshold, along the head's "
            "channels. `distance` is the mean cosine distance between the signals of two prompts (0: the "
            f"same, 1: unrelated); below {CONTROLLED:g} a head counts as controlled. Beside it: the same for "
            "firings of the same head on tokens that are no sinks, and for signals shuffled over channels."
        ),
        Figure(
            figures.agreement_by_layer(study),
            "Agreement over prompts, a dot a head; dashed: controlled below.",
        ),
        Table(columns, rows),
    ]


def _sharing(study: SinkStudy) -> list[Block]:
    blocks: list[Block] = [
        Text(
            "**Clusters**: mean signals put into the residual stream, average linkage on cosine distance, "
            "cut where signals of one head count as the same. A head reads only its own directions, so "
            "heads that read one vector may hold different parts of it. **Sources** therefore group heads "
            "by the component that writes most of their signal: `agreement` is how alike that component's "
            "writes are over prompts (cosine distance), `reading` the cosine between a head's signal and "
            "its reading of that write, `seen` how much of the (unit) write a head reads. `apart` is the mean "
            "distance between two heads' signals, `readings apart` that between their readings of the one "
            "write: where the two are alike, one vector explains the signals. Query heads of one group share "
            "their key: `read by` counts the different (key) heads of a cluster."
        )
    ]
    for sharing in study.sharing:
        if not sharing.heads:
            blocks.append(Text(f"No head is controlled on the {sharing.side} side."))
            continue
        silhouette = "–" if sharing.silhouette is None else f"{sharing.silhouette:.2f}"
        apart = "–" if sharing.mean_distance is None else f"{sharing.mean_distance:.2f}"
        blocks += [
            Text(
                f"**{sharing.side.capitalize()} side**: {len(sharing.heads)} controlled heads, "
                f"{len(sharing.clusters)} clusters, silhouette {silhouette}; two heads are {apart} apart on "
                "average."
            ),
            Figure(figures.writers_by_layer(study, sharing.side), f"Who writes the {sharing.side} side, by layer."),
            Figure(figures.distances(study, sharing.side), f"Distance between heads, {sharing.side} side."),
            Table(
                ("written by", "heads", "share", "agreement", "reading", "seen", "apart", "readings apart", "which"),
                [
                    (s.component, len(s.heads), s.share, s.agreement, s.reading, s.seen, s.apart, s.readings_apart,
                     _some(s.heads, 6))
                    for s in sharing.sources
                ],
                caption=f"Sources, {sharing.side} side",
            ),
            Table(
                ("heads", "read by", "distance", "writers", "which"),
                [
                    (len(c.heads), c.read_by, c.distance,
                     ", ".join(f"{w.component} {w.share:.0%}" for w in c.writers[:3]), _some(c.heads))
                    for c in sharing.clusters if len(c.heads) > 1
                ],
                caption=f"Clusters of more than one head, {sharing.side} side",
            ),
        ]  # fmt: skip
    return blocks


def _some(heads: tuple[object, ...], most: int = 12) -> str:
    more = f" and {len(heads) - most} more" if len(heads) > most else ""
    return ", ".join(map(str, heads[:most])) + more


def _removal(study: SinkStudy) -> list[Block]:
    blocks: list[Block] = [
        Text(
            "Each firing without its own signals: predicted by the algebra, and in a forward pass that was "
            "really edited, beside as many signals of channels that were not used. `to_next` is the part of "
            "the freed attention that goes to the token that stood next to the sink before, `to_itself` the "
            "part that goes to the query's own token."
        )
    ]
    if study.one_by_one:
        columns = ("side", "firings", "attention", "predicted", "edited", "control", "error", "signals", "to_next",
                   "to_top_gainer", "to_itself")  # fmt: skip
        blocks += [
            Figure(figures.removal_bars(study), "Attention on the sink, 95 % intervals over prompts."),
            Table(columns, [tuple(r[c] for c in columns) for r in study.one_by_one]),
        ]
    if study.shared:
        columns = ("side", "name", "heads", "attention", "removed", "removed_low", "removed_high", "control", "loss",
                   "loss_change", "loss_low", "loss_high", "control_loss_change")  # fmt: skip
        rows = [tuple(len(s.heads) if c == "heads" else getattr(s, c) for c in columns) for s in study.shared]
        blocks += [
            Text(
                "One direction projected out of everything that all heads of a group read on that side, in "
                "one pass: the mean write of a source, or the mean signal of the largest cluster. The "
                "control takes the same amounts out along random directions."
            ),
            Figure(figures.shared_bars(study), "All heads of a group at once."),
            Table(columns, rows),
        ]
    return blocks
