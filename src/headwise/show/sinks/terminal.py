"""Tables of a study of sinks for the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from headwise.show.kit.terminal import bar, quoted, table
from headwise.show.naming.known import names_lines
from headwise.sinks.document import positions
from headwise.sinks.signals import SIDES
from headwise.strings import counted

if TYPE_CHECKING:
    from headwise.known_names import KnownNames
    from headwise.sinks.result import SinksResult


def sinks_tables(study: SinksResult, names: KnownNames | None = None, top: int = 10) -> RenderableType:
    """Sinks, heads by layer, agreement, sources, removal."""
    n = len(study.parking.token_ids)
    parts: list[RenderableType] = [
        Text(f"Sinks in {study.model}, {counted(n, 'prompt')}", style="bold"),
        Text(),
        _tokens(study),
        Text(),
        _layers(study),
        Text(),
        _agreement(study, top),
        Text(),
        _sources(study),
        Text(),
        _one_by_one(study),
    ]
    if study.shared:
        parts += [Text(), _shared(study)]
    if names is not None:
        found = names.chosen(study.subjects).values()
        parts += [
            Text("\nWhat makes heads rest there, by names tested on other texts"),
            *names_lines(names, found),
        ]
    return Group(*parts)


def _tokens(study: SinksResult) -> RenderableType:
    rows = [
        (str(r["position"]), str(r["sinks"]), f"{r['received']:.3f}")
        for r in positions(study.parking)
        if r["sinks"]
    ]
    tokens = ", ".join(f"{quoted(s.token)} {s.prompts}" for s in study.sinks[:8])
    columns = ("position", "sinks", "attention received")
    found = table(columns, rows, title="Tokens that receive much attention from far away")
    return Group(found, Text(f"most frequent: {tokens}"))


def _layers(study: SinksResult) -> RenderableType:
    means = study.attention.nanmean(1).tolist()
    rows = []
    for layer, mean in enumerate(means):
        parked = [h for h in study.parked if h.layer == layer]
        best = int(study.attention[layer].nan_to_num(0.0).argmax())
        value, low, high = (float(x[layer, best]) for x in (study.attention, study.low, study.high))
        rows.append(
            (
                f"L{layer}",
                bar(mean),
                f"{mean:.2f}",
                f"{len(parked)}/{study.attention.shape[1]}",
                f"L{layer}H{best} {value:.2f} ({low:.2f}–{high:.2f})",
            )
        )
    title = f"Attention on sinks by layer; {study.parking_said}"
    return table(("layer", "", "mean", "parked", "most (95 %)"), rows, title=title)


def _agreement(study: SinksResult, top: int) -> RenderableType:
    rows = []
    for side in SIDES:
        found = study.of(side)
        if not found:
            continue
        middle = sorted(a.distance.mean for _, a in found)[len(found) // 2]
        others = sorted(a.others for _, a in found if a.others is not None)
        beside = study.compared(side)
        frequent = sorted(one.frequent for one in beside)
        writers = ", ".join(f"{w.component} {w.share:.0%}" for w in study.writers(side)[:3])
        rows.append(
            (
                side,
                study.agreeing_said(side),
                f"{len(study.controlled(side))} of {len(found)}",
                f"{middle:.2f}",
                f"{others[len(others) // 2]:.2f}" if others else "–",
                f"{frequent[len(frequent) // 2]:.2f}" if frequent else "–",
                f"{sum(one.claim.supported for one in beside)} of {len(beside)}" if beside else "–",
                writers,
            )
        )
    columns = (
        "side",
        "agree",
        "controlled",
        "distance",
        "at other tokens",
        "at a frequent token",
        "nearer at sinks",
        "written by",
    )
    title = "Signals of a head over prompts: mean cosine distance (median over heads)"
    legend = (
        "agree: supported against the same strengths in random channels; controlled: a distance below 0.5, the "
        "published cut-off; nearer at sinks: supported against the frequent token"
    )
    return Group(table(columns, rows, title=title), Text(legend), *(Text(said) for said in study.said))


def _sources(study: SinksResult) -> RenderableType:
    rows = []
    for sharing in study.sharing:
        for s in sharing.sources[:3]:
            rows.append(
                (
                    sharing.side,
                    s.component,
                    str(len(s.heads)),
                    f"{s.share:.0%}",
                    f"{s.distance:.2g}",
                    f"{s.reading:.2f}",
                )
            )
    columns = (
        "side",
        "written by",
        "heads",
        "share",
        "distance over prompts",
        "cosine to the heads' signals",
    )
    clusters = "; ".join(
        f"{s.side} side {len(s.clusters)} clusters of {len(s.heads)} heads" for s in study.sharing
    )
    return Group(table(columns, rows, title="Heads by who writes most of their signal"), Text(clusters))


def _one_by_one(study: SinksResult) -> RenderableType:
    rows = [
        (
            r["side"],
            str(r["firings"]),
            f"{r['attention']:.3f}",
            f"{r['predicted']:.3f}",
            f"{r['edited']:.3f}",
            f"{r['error']:.0e}",
            f"{r['control']:.3f}",
            f"{r['to_next']:.0%}",
        )
        for r in study.one_by_one
    ]
    columns = ("side", "firings", "untouched", "predicted", "edited", "error", "unused", "to the runner-up")
    return table(columns, rows, title="Attention on the sink without a firing's own signals")


def _shared(study: SinksResult) -> RenderableType:
    rows = [
        (
            s.side,
            s.name,
            str(len(s.heads)),
            f"{s.attention:.3f}",
            f"{s.removed.mean:.3f}",
            f"{s.control:.3f}",
            f"{s.claim.q:.3f}{'*' if s.claim.supported else ''}",
            f"{s.loss_change.mean:+.2f} ({s.loss_change.low:+.2f} to {s.loss_change.high:+.2f})",
            f"{s.control_loss_change:+.2f}",
        )
        for s in study.shared
    ]
    columns = (
        "side",
        "direction",
        "heads",
        "untouched",
        "removed",
        "random",
        "q",
        "loss (95 %)",
        "random ",
    )
    title = "One direction out of all these heads' reads at once; * frees more than random directions"
    return table(columns, rows, title=title)
