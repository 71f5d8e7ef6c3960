"""One part of an explanation in full: every channel with its size and control, or every signal with its numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from headwise.show.kit.terminal import bar, quoted, table
from headwise.strings import counted
from headwise.why.sentence import spoken

if TYPE_CHECKING:
    from headwise.bases.cell import ChannelSplit
    from headwise.types import Component, Side
    from headwise.why.explain import Explanation


def what_in_full(why: Explanation, split: ChannelSplit, top: int) -> RenderableType:
    """The logit and the relative logit over the strongest channels, beside directions that are not the head's own."""
    parts, basis = why.what.channels, split.basis
    largest = max((abs(part.value) for part in parts), default=0.0) or 1.0
    rows = []
    for part in parts[:top]:
        null = " (null)" if part.channel >= int(basis.rank) else ""
        numbers = (float(basis.energies[part.channel]), part.logit, part.value)
        rows.append(
            (
                f"{part.channel}{null}",
                signed_bar(part.value / largest),
                f"{numbers[0]:.3f}",
                f"{numbers[1]:+.3f}",
                f"{numbers[2]:+.3f}",
            )
        )
    listed = table(
        ("channel", "", "σ" if basis.name.kind == "singular" else "energy", "logit", "relative logit"), rows
    )
    rest = len(parts) - len(rows)
    lines = [f"… and {counted(rest, 'smaller channel')}"] if rest else []
    lines += [
        "",
        f"logit {why.what.logit:.3f}, relative logit {why.what.relative:+.3f}, in "
        f"{counted(len(parts), 'channel')} (error {why.what.error:.1e}, condition {float(basis.condition):.3g})",
        f"channels that rebuild 90 % of the relative logit: {split.channels_needed}, along rotated directions "
        f"{split.control_channels_needed}",
        f"sparsity {split.sparsity:.3f} (lower is sparser), along rotated directions {split.control_sparsity:.3f}",
    ]
    return Group(_question(why), Text(), listed, *(Text(line) for line in lines))


def who_in_full(why: Explanation, top: int) -> RenderableType:
    """Both sides' signals in the order of their removal."""
    parts: list[RenderableType] = [_question(why)]
    sides: tuple[tuple[Side, int], ...] = (("query", why.query), ("key", why.key))
    for side, position in sides:
        signals = why.who.signals[side]
        place = f"{side} side, {quoted(why.tokens[position])} ({position})"
        if not signals.resolved:
            parts.append(Text(f"\n{place}: no set of allowed size causes this attention"))
            continue
        rows = []
        for one in signals.removed:
            channels = " ".join(map(str, one.signal.channels))
            writer = _writer(why, one.signal.writer)
            rows.append((writer, channels, f"{one.drop:+.4f}", f"{one.attribution:+.4f}"))
        title = (
            f"\n{place}: {counted(len(rows), 'signal')}; without "
            f"{'it' if len(rows) == 1 else 'them'} attention {signals.after:.4f}"
        )
        columns = ("writer", "channel", "attention taken", "attribution")
        parts.append(table(columns, rows[:top], title=title))
        if len(rows) > top:
            parts.append(Text(f"… and {len(rows) - top} more"))
    parts.append(Text(f"\nparts sum to the model's own query and key within {why.who.error:.1e}"))
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
