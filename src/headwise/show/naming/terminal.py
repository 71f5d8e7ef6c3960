"""Names for the terminal: the shares with their controls, then every subject with its name and how it fared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from headwise.naming.change import KINDS, SAID
from headwise.show.kit.terminal import table
from headwise.strings import counted

if TYPE_CHECKING:
    from headwise.naming.result import NamedSubject, NamesResult
    from headwise.naming.selftest import SelfTest
    from headwise.naming.statistics import NamedShare

OBSERVATIONAL = "a name describes cells where it acts; nothing was changed to see whether they follow it"


def names_table(result: NamesResult, top: int = 40) -> RenderableType:
    """The shares, and a row per subject."""
    shown = result.signals[:top]
    told, lines, changed = result.texts, _lines(result), bool(result.config.get("causal"))
    columns = ("signal", "verdict", "accuracy (95 %)", "matched", *["causal"] * changed, "name")
    rows = [(str(one.subject), *_row(one, changed)) for one in shown]
    if result.beside is not None:
        lines = [f"by {word}: {line}" for word, some in _givers(result) for line in _lines(some)]
        columns, rows = ("signal", "by", *columns[1:]), list[tuple[str, ...]]()
        for one, other in zip(shown, result.beside.signals[:top], strict=True):
            rows += [(str(one.subject), one.by, *_row(one, changed)), ("", other.by, *_row(other, changed))]
    if result.second_look:
        lines.append(f"second look: split seed {result.config['split_seed']}")
    parts: list[RenderableType] = [
        Text(f"Names in {result.model}: {counted(len(result), 'subject')}", style="bold"),
        Text(
            f"{result.config['corpus']}: {told['explore']} texts explored, {told['test']} tested, "
            f"{result.tokens_scored:,} tokens scored"
        ),
        *(Text(line) for line in lines),
        Text(),
        table(columns, rows),
    ]
    if len(result) > len(shown):
        parts.append(Text(f"{len(result) - len(shown)} more in the JSON document and on the page"))
    parts += [
        Text(),
        Text(
            "accuracy: balanced, on texts that the search did not see; matched: against cells at the same positions\n"
            + (_told(shown) if changed else OBSERVATIONAL)
        ),
    ]
    return Group(*parts)


def _evidence(one: NamedSubject) -> str:
    if one.causal is None:
        return "–"
    return ", ".join(one.causal.passed) or ("too few" if one.causal.is_untried else "no")


def _told(shown: Sequence[NamedSubject]) -> str:
    """What the kinds of evidence mean that occur in the table, and what has none."""
    passed = [kind for kind in KINDS if any(one.causal and kind in one.causal.passed for one in shown)]
    said = [f"{kind}: {SAID[kind]}" for kind in passed]
    return "\n".join([*said, "no: changing the texts did not show that the signal follows the name"])


def _givers(result: NamesResult) -> list[tuple[str, NamesResult]]:
    """Who gave names, and what came of them."""
    asked = [] if result.beside is None else [(str(result.config["llm"]), result.beside)]
    return [("rules", result), *asked]


def _lines(result: NamesResult) -> list[str]:
    """The shares with their controls."""
    lines = [
        f"named {_share(result.share_named)}, beyond chance {_share(result.share_beyond_chance)}",
        f"controls, named: swapped {_share(result.swapped)}"
        + ("" if result.rotated is None else f", rotated {_share(result.rotated)}"),
    ]
    if result.difference is not None:
        d = result.difference
        lines.append(f"named less rotated {d.mean:+.0%} ({d.low:+.0%} to {d.high:+.0%} over heads)")
    if result.exam is not None:
        unread = sum(one.unread for one in result.signals)
        lines.append(
            f"judged by {result.config['llm']}: {result.exam.balanced_accuracy:.0%} right in its exam, "
            f"{counted(unread, 'answer')} about names not read"
        )
    return lines


def _row(one: NamedSubject, changed: bool) -> tuple[str, ...]:
    matched = "–" if one.position_matched is None else f"{one.position_matched.mean:.2f}"
    name = "–" if one.name is None else one.name.text
    return one.verdict, _accuracy(one), matched, *[_evidence(one)] * changed, name


def _accuracy(one: NamedSubject) -> str:
    a = one.balanced_accuracy
    return "–" if a is None else f"{a.mean:.2f} ({a.low:.2f} to {a.high:.2f})"


def _share(share: NamedShare) -> str:
    return f"{share.mean:.0%} ({share.low:.0%} to {share.high:.0%} of {share.n})"


def selftest_table(found: SelfTest) -> RenderableType:
    """What was planted, what came out, and how much noise was named."""
    rows = [
        ("yes" if one.recovered else "no", f"{one.agreement:.2f}", one.planted, one.found or "–")
        for one in found.planted
    ]
    return Group(
        Text(f"Self-test on {found.corpus}: {'passed' if found.passed else 'failed'}", style="bold"),
        table(("recovered", "agreement", "planted", "found"), rows),
        Text(f"noise named: {found.named} of {found.noise}"),
    )
