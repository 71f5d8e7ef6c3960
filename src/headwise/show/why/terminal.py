"""An explanation in the terminal: one table of what × who, place, proof, and words, in 100 columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from headwise.show.kit.terminal import quoted, table
from headwise.show.naming.known import names_lines
from headwise.strings import counted
from headwise.why.names import names_of
from headwise.why.proof import Outcome, Proof
from headwise.why.sentence import signed, spoken, telling_role
from headwise.why.vocabulary import HINT

if TYPE_CHECKING:
    from headwise.types import Component, Head, Side
    from headwise.why.explanation import Explanation
    from headwise.why.vocabulary import VocabularyView
    from headwise.why.what import What
    from headwise.why.who import WriterRow

COLUMNS, TOP_WRITERS, TOP_FEATURE_WRITERS = 4, 8, 4
BAR = 8
NAMES = 8
SIDES: tuple[Side, ...] = ("query", "key")


def explanation(why: Explanation, *, vocabulary: bool = True) -> RenderableType:
    """The whole answer; tokens that only hint at a meaning can be left to the page, which shows them on request."""
    return Group(
        *_question(why),
        *_table_of(why),
        *_names(why),
        *_features(why),
        *_does(why),
        *_proof(why),
        *_transfer(why),
        *(_vocabulary(why) if vocabulary else ()),
        Text(),
        Text(why.sentence, style="bold"),
    )


def _question(why: Explanation) -> list[RenderableType]:
    question, answer, tokens = why.question, why.answer, why.tokens
    lines = [
        Text(
            f"Why does {why.head}{_role_of(why)} at {_place(tokens, why.query)} attend to {_place(tokens, why.key)}?",
            style="bold",
        ),
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
    lines += [Text(f"Note:   {notice}", style="yellow") for notice in question.notices]
    return list(lines)


# --- the table -------------------------------------------------------------------------------------------------------


def _table_of(why: Explanation) -> list[RenderableType]:
    """Both sides' writers by the strongest channels, with sums at the edges; the cause is marked."""
    what, who, place = why.what, why.who, why.place
    out: list[RenderableType] = [
        _heading("What × who, in log-odds"),
        Text(
            f"attention {what.attention:.3f} among {counted(what.keys, 'key')}: {signed(what.log_odds, 2)} against an "
            f"even row (logit {what.logit:.2f}, {signed(what.relative, 2)} against the mean of the others)"
        ),
    ]
    if what.keys < 2:
        return [*out, Text("it is the only key that the row sees: there is nothing to explain")]
    level = f", level {signed(place.level, 2)}" if abs(place.level) >= 0.005 else ""
    out.append(
        Text(
            f"content {signed(place.content, 2)}, place {signed(place.place, 2)}, their interplay "
            f"{signed(place.interaction, 2)}{level}"
        )
    )
    roles = any(row.writer and row.writer.kind == "head" and why.role(row.writer.head) for row in who.rows)
    shown = [n for n, part in enumerate(what.shown) if part.stable][
        : COLUMNS - roles
    ]  # names take their room
    largest = max((abs(row.log_odds) for row in who.rows if row.writer is not None), default=1.0) or 1.0
    for side in SIDES:
        totals, cause = who.totals[side], who.sets[side]
        at = f"at {_place(why.tokens, why.query)}" if side == "query" else "at every key"
        found = (
            f"without the {_writers(len(cause))} marked * {cause.after:.3f} (below {who.threshold:.3f})"
            + (", diffuse" if cause.diffuse else "")
            if cause.resolved
            else f"no set of writers takes it below {who.threshold:.3f}"
        )
        helps = f"helps {signed(totals.helping)}, hinders {signed(totals.hindering)}"
        out.append(Text(f"\n{side} side, {at}: {helps}; {found}"))
        out.append(_side(why, side, shown, largest))
    unstable = sum(not part.stable for part in what.channels)
    if unstable:
        out.append(
            Text(f"  {counted(unstable, 'channel')} change with the texts of the basis: they are in 'other'")
        )
    return out


def _side(why: Explanation, side: Side, shown: Sequence[int], largest: float) -> RenderableType:
    rows = list(why.who.of(side))
    kept = [row for row in rows if row.writer is not None]
    first = kept[:TOP_WRITERS] + [row for row in kept[TOP_WRITERS:] if row.cause]
    rest = [row for row in rows if row not in first]
    listed = [_row(why, row, shown, largest) for row in first]
    if rest:
        others = [sum(row.channels[n] for row in rest) for n in shown]
        total = sum(row.log_odds for row in rest)
        name = f"{sum(row.count for row in rest)} others"
        listed.append((name, "", signed(total, 2), "", *_cells(others, total)))
    what = [why.what.shown[n].log_odds for n in shown]
    listed.append(("together", "", signed(why.what.log_odds, 2), "", *_cells(what, why.what.log_odds)))
    names = [_channel_name(why.what, n) for n in shown]
    return _table(("writer", "reading", "log-odds", "", *names, "other"), listed)


def _row(why: Explanation, row: WriterRow, shown: Sequence[int], largest: float) -> tuple[str, ...]:
    assert row.writer is not None
    named = _with_role(why, row.writer.head) if row.writer.kind == "head" else spoken(row.writer)
    name = ("* " if row.cause else "  ") + named
    read = _place(why.tokens, row.writer.source) if row.writer.kind == "head" else _behind(why, row)
    cells = _cells([row.channels[n] for n in shown], row.log_odds)
    bar = ("-" if row.log_odds < 0 else "+") * max(1, round(BAR * abs(row.log_odds) / largest))
    return (name, read, signed(row.log_odds, 2), bar, *cells)


def _behind(why: Explanation, row: WriterRow) -> str:
    """What an MLP's part came from most, of its own sign."""
    if row.mlp is None or not row.mlp.writers:
        return ""
    sign = 1 if row.log_odds > 0 else -1
    best = max(row.mlp.writers, key=lambda one: sign * one.share)
    if best.writer.kind == "offset" or sign * best.share <= 0:
        return ""
    read = f" {_place(why.tokens, best.writer.source)}" if best.writer.kind == "head" else ""
    return f"via {_name(best.writer)}{read}"


def _cells(values: Sequence[float], total: float) -> list[str]:
    return [*(signed(value) for value in values), signed(total - sum(values))]


def _channel_name(what: What, n: int) -> str:
    part = what.shown[n]
    return part.name or f"ch {part.channel}"


# --- names -----------------------------------------------------------------------------------------------------------


def _names(why: Explanation) -> list[RenderableType]:
    """What of the table has been named: never a name without its verdict and its evidence."""
    if why.names is None:
        return []
    return [
        _heading("Names, tested on other texts"),
        *names_lines(why.names, names_of(why).values(), top=NAMES, indent=2),
    ]


# --- named features, consequence, proof ------------------------------------------------------------------------------


def _features(why: Explanation) -> list[RenderableType]:
    what, tokens = why.what, why.tokens
    if not what.features:
        return []
    parts = [(f"{part.name} (rank {part.rank})", signed(part.value, 2)) for part in what.features]
    parts.append((f"unexplained ({what.unexplained_share:.0%})", signed(what.unexplained, 2)))
    out: list[RenderableType] = [_heading("Named features"), _table(("", "log-odds"), parts)]
    for feature in why.who.features:
        out.append(Text(f"who wrote feature {feature.name!r} (log-odds {signed(feature.log_odds, 2)}):"))
        rows = []
        for side in SIDES:
            for writer in [w for w in feature.writers if w.side == side][:TOP_FEATURE_WRITERS]:
                source = writer.component.source
                read = f" reading {quoted(_short(tokens[source]))}" if writer.component.kind == "head" else ""
                rows.append((side, spoken(writer.component) + read, signed(writer.log_odds, 2)))
        out.append(_table(("side", "writer", "log-odds"), rows))
    return out


def _does(why: Explanation) -> list[RenderableType]:
    found = why.consequence
    lines = [
        f"{word} {', '.join(f'{quoted(_short(one.token))} {signed(one.logit, 2)}' for one in some)}"
        for word, some in (("raises", found.raised), ("lowers", found.lowered))
        if some
    ]
    if found.direct is not None:
        lead = f"{signed(found.direct.lead, 2)} of the lead over {quoted(why.answer.wrong_text)}"
        lines.append(f"adds {signed(found.direct.answer, 2)} to {quoted(why.answer.text)}, {lead}")
    for one in found.summed:
        without = ((one.path, "without this cell"), (one.after, "without its cause"))
        said = [f"{value:.2f} {word}" for value, word in without if value is not None]
        lines.append(
            f"{quoted(one.text)} as a whole: {', '.join([f'log-probability {one.before:.2f}', *said])}"
        )
    return [_heading("What it does with it"), *(Text(line) for line in lines)]


def _proof(why: Explanation) -> list[RenderableType]:
    proof, main = why.proof, why.who.headline
    columns = ("", "predicted", "attention", f"p({quoted(_short(why.answer.text))})", "lead", "p")
    rows = [("as it is", "", *_outcome(proof.before), "")]
    if proof.after is not None and main is not None:
        name = f"without the {_writers(len(main))} on the {main.side} side"
        rows.append((name, f"{proof.predicted:.4f}", *_outcome(proof.after), ""))
    if proof.next_best is not None:
        few = _writers(len(proof.next_best.writers))
        rows.append((f"without the next-best {few} instead", "", *_outcome(proof.next_best.observed), ""))
    if proof.path is not None:
        rows.append(("without this cell", "", *_outcome(proof.path), ""))
    for control in proof.controls:
        spread = control.attention
        left = f"{spread.mean:.3f} ({spread.low:.2f} to {spread.high:.2f})"
        rows.append((control.text, "", left, "", "", f"{control.p:.3f}"))
    for test in proof.features:
        name = f"{test.name}: " + (
            "removed from the query" if test.kind == "ablation" else "swapped with the rival"
        )
        rows.append((name, f"{test.predicted:.4f}", *_outcome(test.observed), f"{test.percentile:.0f} %"))
    return [_heading("Proof"), _table(columns, rows), *_notes(proof), *_finer(why), _exactness(why)]


def _exactness(why: Explanation) -> RenderableType:
    """Every identity's error beside its tolerance."""
    line = f"sums are within {why.what.error:.0e} of the log-odds (allowed {why.what.tolerance:.0e})"
    if why.proof.tolerance is not None:
        line += f", predicted attention within {why.proof.error:.0e} (allowed {why.proof.tolerance:.0e})"
    return Text(line)


def _finer(why: Explanation) -> list[RenderableType]:
    """The signals that refine the cause, with controls of their own."""
    test = why.proof.signals
    if test is None:
        return []
    number = counted(len(why.who.signals[test.side]), "signal")
    word = {None: "", True: "specific", False: "not specific"}[test.specific.said]
    against = ", ".join(f"{control.name} {control.p:.3f}" for control in test.controls)
    drawn = f" ({word}; p against {against})" if word else ""
    return [Text(f"in finer parts: {number} of single channels leave {test.after:.4f}{drawn}")]


def _transfer(why: Explanation) -> list[RenderableType]:
    if not why.transfer:
        return []
    rows = []
    for one in why.transfer:
        after, word = one.proof.after, one.holds
        rows.append(
            (
                quoted(_short("".join(one.tokens), 40)),
                f"{_place(one.tokens, one.cell.query)} → {_place(one.tokens, one.cell.key)}",
                f"{one.proof.before.attention:.4f}",
                "" if after is None else f"{after.attention:.4f}",
                "" if word.value is None else f"{word.value:.2f}",
                "" if word.p is None else f"{word.p:.3f}",
                {None: "cannot be said", True: "yes", False: "no"}[word.said],
            )
        )
    columns = ("other prompt", "cell", "attention", "without", "share", "p", "transfers")
    missing = sum(len(one.missing) for one in why.transfer)
    note = f"{counted(missing, 'writer')} left out: nothing there stands for the token they read"
    said = (
        "without: the same writers taken away there; share: the part of the attention that this takes, over the part "
        "that it takes here"
    )
    lines = [Text(said), *([Text(note)] if missing else [])]
    return [_heading("The same writers in other prompts"), _table(columns, rows), *lines]


def _vocabulary(why: Explanation) -> list[RenderableType]:
    """The writers of the cause and the strongest channels in tokens."""
    found = why.vocabulary
    if found is None:
        return []

    def line(name: str, view: VocabularyView) -> tuple[str, str, str]:
        ends = (view.embedding.most, view.unembedding.most)
        near, raised = (" ".join(quoted(_short(one.token)) for one in some[:4]) for some in ends)
        return name, near, raised

    rows = [
        line(f"{row.side}: {spoken(row.writer)}", found.writers[row.side, row.writer])
        for row in why.who.rows
        if row.cause and row.writer is not None and (row.side, row.writer) in found.writers
    ]
    numbered = set(why.what.numbered)
    for number, one in [pair for pair in found.channels.items() if pair[0] in numbered][:COLUMNS]:
        rows += [line(f"ch {number}, query", one.query), line(f"ch {number}, key", one.key)]
    columns = ("", "embeddings that point this way", "tokens it would raise")
    return [_heading("Through the vocabulary"), _table(columns, rows), Text(HINT)]


def _notes(proof: Proof) -> list[RenderableType]:
    said = []
    if proof.controls:
        # Of few other writers every set is taken once, and the kinds of control differ in number.
        numbers = [len(one.left) for one in proof.controls]
        few = "" if min(numbers) == max(numbers) else f"{min(numbers)} to "
        said.append(
            f"p: the share of removals, the cause's own and {few}{max(numbers)} others, that take at least as much "
            "attention away"
        )
    if proof.features:
        said.append(
            "A feature is removed from the query, or swapped between the key and its strongest rival; beside it the "
            "share of random subspaces of its rank that leave more attention."
        )
    return [Text(line) for line in said]


def _outcome(outcome: Outcome) -> list[str]:
    return [f"{outcome.attention:.4f}", f"{outcome.probability:.3f}", f"{outcome.lead:.2f}"]


def _heading(text: str) -> Text:
    return Text(f"\n{text}", style="bold underline")


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> RenderableType:
    """The parts of an explanation are indented under their headings."""
    return table(columns, rows, indent=2)


def _writers(number: int) -> str:
    """What follows "the": one writer needs no number."""
    return "writer" if number == 1 else f"{number} writers"


def _place(tokens: Sequence[str], position: int) -> str:
    return f"{quoted(_short(tokens[position]))} ({position})"


def _role_of(why: Explanation) -> str:
    role = telling_role(why, why.head)
    return "" if role is None else f" ({role})"


def _with_role(why: Explanation, head: Head) -> str:
    role = telling_role(why, head)
    return str(head) if role is None else f"{head}, {role}"


def _name(component: Component) -> str:
    return component.name if component.kind in ("head", "mlp") else component.kind


def _short(token: str, limit: int = 12) -> str:
    return token if len(token) <= limit else token[: limit - 1] + "…"
