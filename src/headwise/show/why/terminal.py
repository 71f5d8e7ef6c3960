"""An explanation in the terminal: what, who, proof, and one sentence, in at most 100 columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from headwise.show.kit.terminal import quoted, table
from headwise.strings import counted
from headwise.why.proof import Outcome, Proof
from headwise.why.sentence import spoken

if TYPE_CHECKING:
    from headwise.types import Side
    from headwise.why.explain import Explanation
    from headwise.why.who import Writer

TOP_CHANNELS, TOP_WRITERS, TOP_FEATURE_WRITERS = 6, 8, 4
BAR = 24


def explanation(why: Explanation) -> RenderableType:
    """The whole answer."""
    return Group(
        *_question(why),
        *_what(why),
        *_who(why),
        *_proof(why),
        Text(),
        Text(why.sentence, style="bold"),
    )


def _question(why: Explanation) -> list[RenderableType]:
    question, answer, tokens = why.question, why.answer, why.tokens
    here = f"{quoted(_short(tokens[why.query]))} ({why.query})"
    there = f"{quoted(_short(tokens[why.key]))} ({why.key})"
    lines = [
        Text(f"Why does {why.head} at {here} attend to {there}?", style="bold"),
        Text(
            f"{why.model} answers {quoted(answer.predicted)}; {quoted(answer.text)} has p {answer.probability:.3f} and "
            f"leads {quoted(answer.wrong_text)} by {answer.lead:.2f}"
        ),
        Text(f"Chosen: {question.because}."),
    ]
    if question.runners_up:
        rest = ", ".join(
            f"{head} {quoted(_short(tokens[query]))}→{quoted(_short(tokens[key]))} {score:.2f}"
            for (head, query, key), score in ((r.cell, r.score) for r in question.runners_up)
        )
        lines.append(Text(f"Next:   {rest}"))
    return list(lines)


def _what(why: Explanation) -> list[RenderableType]:
    what, tokens = why.what, why.tokens
    out: list[RenderableType] = [
        _heading("What"),
        Text(
            f"attention {what.attention:.3f}, logit {what.logit:.2f}; relative to the other keys {what.relative:+.2f}, "
            f"which {what.channels_needed} of {len(what.channels)} channels rebuild to 10%"
        ),
    ]
    shown = what.channels[:TOP_CHANNELS]
    rest = what.channels[TOP_CHANNELS:]
    rows = [(f"channel {part.channel}", part.value) for part in shown]
    if rest:
        rows.append((f"the other {len(rest)}", sum(part.value for part in rest)))
    out.append(_bars(rows))
    if what.features:
        features = [(f"{part.name} (rank {part.rank})", part.value) for part in what.features]
        features.append((f"unexplained ({what.unexplained_share:.0%})", what.unexplained))
        out += [Text("by named feature:"), _bars(features)]
    if what.rivals:
        rivals = [
            (
                f"{quoted(_short(tokens[rival.key]))} ({rival.key})",
                f"{rival.attention:.3f}",
                f"{rival.gap:.2f}",
                ("is ahead; loses in " if rival.gap < 0 else "")
                + ", ".join(
                    f"{part.channel} ({part.value:+.1f})" for part in rival.channels if part.value > 0
                ),
            )
            for rival in what.rivals[:4]
        ]
        out.append(_table(("strongest rival", "attention", "logit behind", "loses in channels"), rivals))
    return out


def _who(why: Explanation) -> list[RenderableType]:
    who, tokens = why.who, why.tokens
    out: list[RenderableType] = [_heading("Who")]
    places: tuple[tuple[Side, int], ...] = (("query", why.query), ("key", why.key))
    for side, position in places:
        place = f"{quoted(_short(tokens[position]))} ({position})"
        writers = who.of(side)
        if not writers:
            out.append(Text(f"{side} side, {place}: no set of allowed size causes this attention"))
            continue
        signals = sum(len(writer.channels) for writer in writers)
        after = who.signals[side].after
        without = "it" if signals == 1 else "them"
        out.append(
            Text(
                f"{side} side, {place}: {counted(signals, 'signal')}; without {without} attention {after:.3f} "
                f"(below {who.threshold:.3f})"
            )
        )
        out.append(_writers(writers, tokens))
    for feature in who.features:
        out.append(Text(f"who wrote feature {feature.name!r} (logit {feature.logit:+.2f}):"))
        rows = []
        for side in ("query", "key"):
            for writer in [w for w in feature.writers if w.side == side][:TOP_FEATURE_WRITERS]:
                source = writer.component.source
                read = f" reading {quoted(_short(tokens[source]))}" if writer.component.kind == "head" else ""
                rows.append((side, spoken(writer.component) + read, f"{writer.logit:+.2f}"))
        out.append(_table(("side", "writer", "logit"), rows))
    return out


def _writers(writers: Sequence[Writer], tokens: Sequence[str]) -> RenderableType:
    rows = []
    for writer in writers[:TOP_WRITERS]:
        source = writer.component.source
        read = f"{quoted(_short(tokens[source]))} ({source})" if writer.component.kind == "head" else ""
        channels = ", ".join(map(str, writer.channels[:4])) + (", …" if len(writer.channels) > 4 else "")
        rows.append(
            (spoken(writer.component), read, channels, f"{writer.share:.0%}", _bar(writer.share, 1.0))
        )
    if len(writers) > TOP_WRITERS:
        rest = sum(writer.share for writer in writers[TOP_WRITERS:])
        rows.append((f"{len(writers) - TOP_WRITERS} more", "", "", f"{rest:.0%}", ""))
    return _table(("writer", "reading", "channels", "share", ""), rows)


def _proof(why: Explanation) -> list[RenderableType]:
    proof = why.proof
    columns = ("", "predicted", "attention", f"p({quoted(_short(why.answer.text))})", "lead", "percentile")
    rows = [("now", "", *_outcome(proof.before), "")]
    names = {
        "query": "without query signals",
        "key": "without key signals",
        "both": "without both",
    }
    for test in proof.tests:
        percentile = "" if test.percentile is None else f"{test.percentile:.0f}"
        rows.append((names[test.name], f"{test.predicted:.4f}", *_outcome(test.observed), percentile))
    main = proof.main
    if main is not None and main.spread is not None:
        spread = main.spread
        cells = [f"{m:.3f} ± {s:.3f}" for m, s in (spread.attention, spread.probability)]
        lead = f"{spread.lead[0]:.2f} ± {spread.lead[1]:.2f}"
        rows.append((counted(len(main.controls), "random control"), "", *cells, lead, ""))
    for test in proof.features:
        name = f"{test.name}: " + (
            "removed from the query" if test.kind == "ablation" else "swapped with the rival"
        )
        rows.append((name, f"{test.predicted:.4f}", *_outcome(test.observed), f"{test.percentile:.0f}"))
    holds, words = proof.verdict
    return [
        _heading("Proof"),
        _table(columns, rows),
        Text(words, style="" if holds else "bold red"),
        *_notes(proof),
    ]


def _notes(proof: Proof) -> list[RenderableType]:
    if not proof.features:
        return []
    return [
        Text(
            "A feature is removed from the query, or swapped between the key and its strongest rival; percentile: "
            "share of random subspaces of its rank that leave more attention."
        )
    ]


def _outcome(outcome: Outcome) -> list[str]:
    return [f"{outcome.attention:.4f}", f"{outcome.probability:.3f}", f"{outcome.lead:.2f}"]


def _heading(text: str) -> Text:
    return Text(f"\n{text}", style="bold underline")


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> RenderableType:
    """The parts of an explanation are indented under their headings."""
    return table(columns, rows, indent=2)


def _bars(rows: Sequence[tuple[str, float]]) -> RenderableType:
    """Signed bars around a zero line."""
    largest = max((abs(value) for _, value in rows), default=1.0) or 1.0
    cells = [
        (name, f"{value:+.2f}", ("-" if value < 0 else " ") + _bar(abs(value), largest))
        for name, value in rows
    ]
    return _table(("", "relative logit", ""), cells)


def _bar(value: float, largest: float) -> str:
    return "█" * round(BAR * min(1.0, max(0.0, value / largest)))


def _short(token: str, limit: int = 16) -> str:
    return token if len(token) <= limit else token[: limit - 1] + "…"
