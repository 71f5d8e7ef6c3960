"""Circuits and interventions as tables for the terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import mean, median
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from headwise.circuits.named import names_in
from headwise.show.kit.terminal import table
from headwise.show.naming.known import names_lines
from headwise.strings import counted

if TYPE_CHECKING:
    from headwise.circuits.circuit import Circuit
    from headwise.circuits.faithfulness import Faithfulness
    from headwise.circuits.interventions import Effect
    from headwise.why.head_effects import HeadEffect


def circuit_summary(circuit: Circuit, top: int) -> RenderableType:
    """Sizes, the heaviest edges, and how well counterfactuals agree."""
    ranks = [len(e.channels) for e in circuit.edges if e.channels]
    kinds = Counter(node.kind for node in circuit.nodes)
    parts: list[RenderableType] = [Text(repr(circuit), style="bold")]
    parts += [Text(f"note: {line}") for line in circuit.notes]
    if not circuit.edges:
        return Group(*parts)
    sorts = ", ".join(f"{n} {kind}" for kind, n in sorted(kinds.items(), key=lambda item: -item[1]))
    rank = f"; median channels per signal {median(ranks):g}" if ranks else ""
    parts.append(Text(f"nodes: {sorts}{rank}; {circuit.seconds:.2f} s"))
    answer = [e for e in circuit.edges if not e.channels]
    inner = [e for e in circuit.edges if e.channels]
    # The answer's own edges come first; their weights are logits, those of the others attention.
    ordered = [*sorted(answer, key=lambda e: -e.weight), *sorted(inner, key=lambda e: -e.weight)]
    rows = [
        (
            circuit.label(edge.source),
            circuit.label(edge.target),
            edge.side if edge.channels else "",
            f"{edge.weight:.3f}",
            circuit.basis.listed(edge.channels),
        )
        for edge in ordered[:top]
    ]
    parts += [Text(), table(("from", "to", "side", "weight", "channels"), rows)]
    if len(ordered) > top:
        parts.append(Text(f"… and {counted(len(ordered) - top, 'more edge')}"))
    if circuit.accounts:
        parts += _through(circuit, top)
    if circuit.names is not None:
        found = names_in(circuit).values()
        parts += [Text("\nnames, tested on other texts:"), *names_lines(circuit.names, found, top=top)]
    checked = [abs(c.edited - c.predicted) for c in circuit.counterfactuals if c.edited is not None]
    if checked:
        parts.append(
            Text(
                f"\nverified: {counted(len(checked), 'counterfactual')}, predicted and in the edited pass the same "
                f"within {max(checked):.1e}"
            )
        )
    return Group(*parts)


def _through(circuit: Circuit, top: int) -> list[RenderableType]:
    """What the MLPs had read: an account, told apart from what was tested."""
    reached = len(circuit.nodes) - len(circuit.causal().nodes)
    said = f"{counted(len(circuit.accounts), 'account')} of what MLPs had read lead to {counted(reached, 'more node')}"
    heaviest = sorted(circuit.accounts, key=lambda e: (e.unit != "answer", -e.weight))
    rows = [
        (circuit.label(e.source), circuit.label(e.target), e.unit, e.side, f"{e.weight:.3f}")
        for e in heaviest[:top]
    ]
    columns = ("read", "by", "part of", "side", "weight")
    found: list[RenderableType] = [
        Text(f"\nthrough MLPs (an account: nothing was removed to find it): {said}"),
        table(columns, rows),
    ]
    if len(heaviest) > top:
        found.append(Text(f"… and {counted(len(heaviest) - top, 'more account')}"))
    return found


def head_effects_table(effects: Sequence[HeadEffect]) -> RenderableType:
    """Sets of heads against as many other heads of the same layers."""
    one = effects[0]
    title = f"{_DONE[one.action]}: change of the lead of {one.answer!r} over {one.wrong!r} ({one.clean.lead:+.3f})"
    rows = []
    for e in effects:
        control = e.control_lead_change
        rows.append(
            (
                e.heads[0] if len(e.heads) == 1 else f"all {len(e.heads)} heads together",
                f"{e.lead_change:+.3f}",
                "" if control is None else f"±{control:.3f} ({len(e.controls)})",
                f"{e.clean.probability:.3f} → {e.edited.probability:.3f}",
            )
        )
    return table(("heads", "lead", "other heads", "p(answer)"), rows, title=title)


_DONE = {
    "silence": "silenced",
    "mean": "set to what they write on average",
    "patch": "patched from the other prompt",
}


def effects_table(effects: Sequence[Effect], faithful: Faithfulness | None) -> RenderableType:
    """Sets of edges against their controls, and the whole circuit's faithfulness."""
    parts: list[RenderableType] = []
    numbers = ("attention", "unused", "logit diff", "unused ", "p(answer)", "stream")
    if effects:
        one = effects[0]
        title = f"{one.action} {one.scope}ly: change of attention and of the answer's logit difference"
        rows = [
            (
                e.edges[0] if len(e.edges) == 1 else f"all {len(e.edges)} edges together",
                f"{e.attention_change:+.3f}",
                f"{e.control_attention_change:+.3f}",
                f"{e.logit_change:+.3f}",
                f"±{e.control_logit_change:.3f}",
                f"{e.clean.probability:.3f} → {e.edited.probability:.3f}",
                f"{e.norm_ratio:.3f}, cos {e.cosine:.3f}",
            )
            for e in effects
        ]
        parts.append(table(("edges", *numbers), rows, title=title))
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
                f"  everything outside resampled: {f.resampled_outside:.3f} ({f.kept_resampled:.0%} kept; matched "
                f"circuits {mean(f.matched_resampled_outside) / f.clean:.0%}; all resampled {f.resampled_none:.3f})\n"
                f"  everything inside ablated:  {f.inside_ablated:.3f} ({f.destroyed:.0%} lost; "
                f"random circuits {random_lost:.0%})\n"
                f"against {f.necessary.draws} {f.necessary.null}:\n"
                + "\n".join(
                    # Beating matched circuits is all that was tested: 16 % kept may do so, and suffices for nothing.
                    f"  {name}: {'supported' if one.supported else 'not supported'} (p {one.p:.3f}, q {one.q:.3f})"
                    for name, one in (
                        ("more is lost without it", f.necessary),
                        ("it keeps more, everything outside resampled", f.sufficient),
                        ("it keeps more, everything outside at its mean", f.sufficient_by_means),
                    )
                )
            )
        )
    return Group(*parts)
