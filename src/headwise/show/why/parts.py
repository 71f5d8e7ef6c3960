"""One part of an explanation in full: every channel with its size and control, or every writer and signal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from headwise.show.kit.terminal import bar, quoted, table
from headwise.strings import counted
from headwise.why.sentence import signed, spoken

if TYPE_CHECKING:
    from headwise.bases.cell import ChannelSplit
    from headwise.types import Component, Side
    from headwise.why.explanation import Explanation


def what_in_full(why: Explanation, split: ChannelSplit, top: int) -> RenderableType:
    """The log-odds and the logit over the strongest channels, beside directions that are not the head's own."""
    parts, basis = why.what.channels, split.basis
    largest = max((abs(part.log_odds) for part in parts), default=0.0) or 1.0
    stable, others = ([part for part in parts if part.stable is kept] for kept in (True, False))
    rows = []
    for part in stable[:top]:
        null = " (null)" if part.channel >= basis.rank else ""
        rows.append(
            (
                f"{part.channel}{null}",
                signed_bar(part.log_odds / largest),
                f"{float(basis.energies[part.channel]):.3f}",
                f"{part.logit:+.3f}",
                f"{part.log_odds:+.3f}",
            )
        )
    rest = len(stable) - len(rows)
    lines = [f"… and {counted(rest, 'smaller channel')}"] if rest else []
    if others:
        logit, log_odds = (sum(getattr(part, name) for part in others) for name in ("logit", "log_odds"))
        rows.append(
            (
                "other",
                signed_bar(max(-1.0, min(1.0, log_odds / largest))),
                "",
                f"{logit:+.3f}",
                f"{log_odds:+.3f}",
            )
        )
        lines.append(f"other: {counted(len(others), 'channel')} that change with the texts of the basis")
    listed = table(("channel", "", "energy", "logit", "log-odds"), rows)
    condition = float(basis.condition)
    lines += [
        "",
        f"log-odds {why.what.log_odds:+.3f} against an even row, logit {why.what.logit:.3f}, in "
        f"{counted(len(parts), 'channel')} (error {why.what.error:.1e}, allowed "
        f"{why.what.tolerance:.0e}; condition {condition:.3g})",
        f"channels that rebuild 90 % of the relative logit {why.what.relative:+.3f}: {split.channels_needed}, along "
        f"rotated directions {split.control_channels_needed}",
        f"sparsity {split.sparsity:.3f} (lower is sparser), along rotated directions {split.control_sparsity:.3f}",
    ]
    return Group(_question(why), Text(), listed, *(Text(line) for line in lines))


def who_in_full(why: Explanation, top: int) -> RenderableType:
    """Both sides' writers by the size of their part, and the signals of single channels in the order of removal."""
    parts: list[RenderableType] = [_question(why)]
    sides: tuple[Side, ...] = ("query", "key")
    stable = {part.channel for part in why.what.channels if part.stable}
    for side in sides:
        whole, cause = why.table(side), why.who.sets[side]
        numbers = zip(whole.writers, whole.rows.tolist(), strict=True)
        rows = [
            (("* " if one in cause.members else "  ") + _writer(why, one), signed(value, 3))
            for one, value in numbers
            if one is not None
        ]
        parts.append(table(("writer", "log-odds"), rows[:top], title=f"\n{side} side, whole writers"))
        if len(rows) > top:
            parts.append(Text(f"… and {len(rows) - top} more"))
        signals = why.who.signals[side]
        if not signals.resolved:
            parts.append(Text("no set of signals of allowed size causes this attention"))
            continue
        removed = [
            (
                _writer(why, one.signal.writer),
                " ".join(str(k) if k in stable else "other" for k in one.signal.channels),
                f"{one.drop:+.4f}",
                f"{one.attribution:+.4f}",
            )
            for one in signals.removed
        ]
        title = (
            f"\n{side} side, single channels: {counted(len(removed), 'signal')}; without "
            f"{'it' if len(removed) == 1 else 'them'} attention {signals.after:.4f}"
        )
        columns = ("writer", "channel", "attention taken", "attribution")
        parts.append(table(columns, removed[:top], title=title))
        if len(removed) > top:
            parts.append(Text(f"… and {len(removed) - top} more"))
    parts.append(
        Text(
            f"\nboth sides sum to the log-odds within {why.what.error:.1e} (allowed {why.what.tolerance:.0e}); "
            "* belongs to the cause"
        )
    )
    return Group(*parts)


def signed_bar(share: float, width: int = 20) -> str:
    """A bar for a number between -1 and 1, with a minus where it works against.

    >>> signed_bar(0.5, 4), signed_bar(-1, 4)
    (' ██  ', '-████')
    """
    return ("-" if share < 0 else " ") + bar(abs(share), width)


def _question(why: Explanation) -> Text:
    here, there = (f"{quoted(why.tokens[p])} ({p})" for p in (why.query, why.key))
    return Text(f"{why.head}: {here} attends to {there} with {why.attention:.3f}", style="bold")


def _writer(why: Explanation, component: Component) -> str:
    if component.kind != "head":
        return spoken(component)
    return f"{spoken(component)} reading {quoted(why.tokens[component.source])} ({component.source})"
