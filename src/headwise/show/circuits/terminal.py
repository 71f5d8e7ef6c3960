"""Channels, signals, circuits and interventions as tables for the terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import mean, median
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from headwise.show.kit.terminal import bar, quoted

if TYPE_CHECKING:
    from headwise.bases.cell import Channels, ChannelSplit
    from headwise.circuits.circuit import Circuit
    from headwise.circuits.faithfulness import Faithfulness
    from headwise.circuits.firing import FiringTrace
    from headwise.circuits.interventions import Effect


class _Plain(Table):
    """A table whose cells are text, never markup: tokens may hold square brackets."""

    def line(self, *cells: str) -> None:
        self.add_row(*(Text(cell) for cell in cells))


def _table(*columns: str, title: str = "", right: Sequence[str] = ()) -> _Plain:
    table = _Plain(title=title or None, title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left", overflow="fold")
    return table


def channels_table(
    split: ChannelSplit, channels: Channels, tokens: Sequence[str], top: int
) -> RenderableType:
    """One cell's logit and relative attention over the strongest channels."""
    total, cell = float(split.relative.sum()), split.cell
    head = Text(
        f"{cell.head}: {quoted(tokens[cell.query])} ({cell.query}) attends to {quoted(tokens[cell.key])} "
        f"({cell.key}) with {split.attention:.3f}",
        style="bold",
    )
    table = _table("channel", "σ", "logit", "relative", "", right=("channel", "σ", "logit", "relative"))
    order = split.relative.abs().argsort(descending=True)[:top].tolist()
    largest = float(split.relative.abs().max()) or 1.0
    for k in order:
        name = f"{k} (null)" if k >= channels.rank else str(k)
        value = float(split.relative[k])
        table.line(name, f"{float(channels.sigma[k]):.3f}", f"{float(split.logit[k]):+.3f}", f"{value:+.3f}",
                      bar(abs(value) / largest))  # fmt: skip
    lines = Text(
        f"logit {float(split.logit.sum()):.3f} and relative attention {total:.3f} in {channels.sigma.numel()} channels "
        f"(error {split.error:.1e}, condition {channels.condition:.3g})\n"
        f"channels that rebuild 90 % of the relative attention: {split.channels_needed}, "
        f"along rotated directions {split.control_channels_needed}\n"
        f"sparsity {split.sparsity:.3f} (lower is sparser), along rotated directions {split.control_sparsity:.3f}"
    )
    return Group(head, Text(), table, Text(), lines)


def firing_table(found: FiringTrace) -> RenderableType:
    """One firing: its signals on each side, and the counterfactuals."""
    tokens = found.tokens
    parts: list[RenderableType] = [
        Text(
            f"{found.head}: {quoted(tokens[found.query])} ({found.query}) attends to {quoted(tokens[found.key])} "
            f"({found.key}) with {found.attention:.3f}; threshold {found.tau:.3f}",
            style="bold",
        )
    ]
    for side, signals in found.sides.items():
        table = _table("component", "channel", "attention taken", "attribution", title=f"\n{side} side",
                       right=("channel", "attention taken", "attribution"))  # fmt: skip
        for one in signals.removed:
            writer, (channel,) = one.signal.writer, one.signal.channels
            name = str(writer) + (f" {quoted(tokens[writer.source])}" if writer.kind == "head" else "")
            table.line(name, str(channel), f"{one.drop:+.4f}", f"{one.attribution:+.4f}")
        parts.append(
            table
            if signals.resolved
            else Text(f"\n{side} side: no set of allowed size causes this attention")
        )
    table = _table("removed", "signals", "predicted", "edited pass", "unused channels", title="\nwithout them",
                   right=("signals", "predicted", "edited pass", "unused channels"))  # fmt: skip
    for c in found.counterfactuals:
        edited = "" if c.edited is None else f"{c.edited:.4f}"
        control = (
            f"{mean(c.controls):.4f} ({min(c.controls):.3f} to {max(c.controls):.3f})" if c.controls else ""
        )
        table.line(c.side, str(c.removed), f"{c.predicted:.4f}", edited, control)
    parts += [table, Text(f"\nparts sum to the model's own query and key within {found.error:.1e}")]
    return Group(*parts)


def circuit_summary(circuit: Circuit, top: int) -> RenderableType:
    """Sizes, the heaviest edges, and how well counterfactuals agree."""
    ranks = [len(e.channels) for e in circuit.edges if e.channels]
    kinds = Counter(node.kind for node in circuit.nodes)
    parts: list[RenderableType] = [Text(repr(circuit), style="bold")]
    parts += [Text(f"note: {line}") for line in circuit.notes]
    if not circuit.edges:
        return Group(*parts)
    counted = ", ".join(f"{n} {kind}" for kind, n in sorted(kinds.items(), key=lambda item: -item[1]))
    rank = f"; median channels per signal {median(ranks):g}" if ranks else ""
    parts.append(Text(f"nodes: {counted}{rank}; {circuit.seconds:.2f} s"))
    table = _table("from", "to", "side", "weight", "channels", right=("weight",))
    answer = [e for e in circuit.edges if e.target.startswith("answer")]
    inner = sorted((e for e in circuit.edges if e.channels), key=lambda e: -e.weight)[:top]
    for edge in (*sorted(answer, key=lambda e: -e.weight), *inner):
        side = edge.side if edge.channels else ""
        table.line(circuit.label(edge.source), circuit.label(edge.target), side, f"{edge.weight:.3f}",
                      " ".join(map(str, edge.channels)))  # fmt: skip
    parts += [Text(), table]
    if len(inner) < len(ranks):
        parts.append(Text(f"… and {len(ranks) - len(inner)} lighter edges"))
    checked = [abs(c.edited - c.predicted) for c in circuit.counterfactuals if c.edited is not None]
    if checked:
        parts.append(
            Text(
                f"\nverified: {len(checked)} counterfactuals agree with the edited pass within {max(checked):.1e}"
            )
        )
    return Group(*parts)


def effects_table(effects: Sequence[Effect], faithful: Faithfulness | None) -> RenderableType:
    """Sets of edges against their controls, and the whole circuit's faithfulness."""
    parts: list[RenderableType] = []
    numbers = ("attention", "unused", "logit diff", "unused ", "p(answer)", "stream")
    if effects:
        one = effects[0]
        title = f"{one.action} {one.scope}ly: change of attention and of the answer's logit difference"
        table = _table("edges", *numbers, title=title, right=numbers)
        for e in effects:
            name = e.edges[0] if len(e.edges) == 1 else f"all {len(e.edges)} edges together"
            table.line(
                name, f"{e.attention_change:+.3f}", f"{e.control_attention_change:+.3f}", f"{e.logit_change:+.3f}",
                f"±{e.control_logit_change:.3f}", f"{e.clean.probability:.3f} → {e.edited.probability:.3f}",
                f"{e.edited.norm_ratio:.3f}, cos {e.edited.cosine:.3f}",
            )  # fmt: skip
        parts.append(table)
    if faithful is not None:
        f = faithful
        random_kept, random_lost = (
            mean(f.random_outside_ablated) / f.clean,
            1 - mean(f.random_inside_ablated) / f.clean,
        )
        parts.append(
            Text(
                f"\nwhole circuit ({f.firings} firings), logit difference {f.clean:.3f}:\n"
                f"  everything outside ablated: {f.outside_ablated:.3f} ({f.kept:.0%} kept; "
                f"random circuits {random_kept:.0%}; no circuit at all {f.none:.3f})\n"
                f"  everything inside ablated:  {f.inside_ablated:.3f} ({f.destroyed:.0%} lost; "
                f"random circuits {random_lost:.0%})"
            )
        )
    return Group(*parts)
