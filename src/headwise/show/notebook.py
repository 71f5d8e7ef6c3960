"""How results show themselves in a notebook: a sentence and tables, as markup without any script.

A notebook's page is not ours, so there is no policy to hold what gets into it: every string is escaped, and
nothing here needs to run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwise.contrast.roles import ROLES
from headwise.show.kit.escape import text
from headwise.show.kit.table import Table, TableColumn, notebook
from headwise.strings import counted
from headwise.why.sentence import spoken
from headwise.why.vocabulary import HINT, vocabulary_rows

if TYPE_CHECKING:
    from headwise.circuits.circuit import Circuit
    from headwise.contrast.result import FeaturesResult
    from headwise.contrast.roles import HeadRoles
    from headwise.contrast.unlabelled.result import UnlabelledResult
    from headwise.families.result import FamiliesResult
    from headwise.naming.result import NamesResult
    from headwise.portraits.portrait import HeadPortrait
    from headwise.portraits.result import Atlas
    from headwise.sinks.result import SinksResult
    from headwise.sparsity.result import SparsityResult
    from headwise.survey.records import CircuitRun
    from headwise.why.explanation import Explanation
    from headwise.why.many.result import ExplanationsResult
    from headwise.why.pair.result import PromptDifference
    from headwise.why.proof import Outcome
    from headwise.why.vocabulary import HeadVocabulary

EDGES = 30
"""Edges of a circuit that a notebook shows."""


def circuit(circuit: Circuit) -> str:
    """The circuit in a sentence, and its heaviest edges."""
    heaviest = sorted(circuit.edges, key=lambda e: -e.weight)[:EDGES]
    rows = [
        (
            circuit.label(e.source),
            circuit.label(e.target),
            e.side,
            e.weight,
            circuit.basis.listed(e.channels),
        )
        for e in heaviest
    ]
    lighter = len(circuit.edges) - len(rows)
    more = f"<p>… and {lighter} lighter edges</p>" if lighter else ""
    edges = Table(("from", "to", "side", TableColumn(name="weight", format=".3f"), "channels"), rows)
    notes = "".join(f"<p>{text(note)}</p>" for note in circuit.notes)
    return notebook(_said(circuit), notes, edges.html(bare=True), more)


def _said(circuit: Circuit) -> str:
    """A circuit in a sentence."""
    over = f" over {circuit.wrong!r}" if circuit.wrong else ""
    of = "The circuit" if circuit.answer is None else f"The circuit of {circuit.answer!r}{over}"
    through = (
        f", and {counted(len(circuit.accounts), 'account')} of what MLPs read" if circuit.accounts else ""
    )
    sizes = f"{len(circuit.heads)} head firings, {len(circuit.nodes)} nodes, {len(circuit.edges)} edges"
    return f"{of}: {sizes}{through}."


def prompt_difference(found: PromptDifference) -> str:
    """The sentence, both prompts, and the writers with the largest differences."""
    from headwise.show.why.difference import difference_tables

    return notebook(found.sentence, *(table.html(bare=True) for table in difference_tables(found)))


def explanations_result(found: ExplanationsResult) -> str:
    """The sentence, and the writers of both sides."""
    from headwise.show.why.many import SIDES, TOP, writers_table

    return notebook(found.sentence, *(writers_table(found, side, TOP).html(bare=True) for side in SIDES))


def features_result(run: FeaturesResult) -> str:
    """The best heads, the features, and what to beware of."""
    columns, *rows = run.summary()
    best = ", ".join(f"{h.head} {h.score:.2f}" for h in run.heads[:5])
    notes = "".join(f"<li>{text(warning)}</li>" for warning in run.warnings)
    numbers = ("rank", "99 %", "share", "placebo", "p", "q")
    features = Table([TableColumn(name=c, number=c in numbers) for c in columns], rows)
    sentence = f"{run.task} in {run.model}: the best heads are {best}."
    return notebook(sentence, features.html(bare=True), f"<ul>{notes}</ul>" if notes else "")


def sinks_result(found: SinksResult) -> str:
    """How many heads park where, and the tokens that are sinks."""
    rows = [(repr(s.token), s.position, s.prompts, s.share, s.attention) for s in found.sinks[:12]]
    share, attention = TableColumn(name="share", format=".0%"), TableColumn(name="attention", format=".2f")
    sinks = Table(("token", "position", "prompts", share, attention), rows)
    return notebook(f"Sinks in {found.model}: {found.parking_said}.", sinks.html(bare=True))


def head_portrait(found: HeadPortrait) -> str:
    """A head in sentences, its strongest cells, and who shapes it."""
    from headwise.portraits.sentence import sentences

    cells = Table(
        ("from", "to", TableColumn(name="attention", format=".2f")),
        [(repr(c.tokens[c.destination]), repr(c.tokens[c.source]), c.value) for c in found.looks.strongest],
        caption="Strongest cells apart from sinks",
    )
    blocks = [cells.html(bare=True)]
    if found.account is not None:
        often, part = (
            TableColumn(name="takes part in", format=".0%"),
            TableColumn(name="log-odds", format="+.2f"),
        )
        rows = [(w.side, w.writer.name, w.often.mean, w.log_odds.mean) for w in found.account.writers]
        blocks.append(Table(("side", "writer", often, part), rows, caption="Who shapes it").html(bare=True))
    return notebook(" ".join(sentences(found)), *blocks)


def atlas(found: Atlas) -> str:
    """How many heads there are of each kind, and the first of them."""
    rows = [
        (str(one.head), one.kind, None if one.on_sinks is None else one.on_sinks.mean, repr(token.token))
        for one in found.portraits
        for token in one.looks.to[:1]
    ]
    sinks = TableColumn(name="on sinks", format=".0%")
    kinds = ", ".join(f"{number} {kind}" for kind, number in found.kinds.items())
    shown = Table(("head", "kind", sinks, "attends to"), rows, limit=EDGES)
    return notebook(f"{len(found)} heads of {found.model}: {kinds}.", shown.html(bare=True))


def names_result(found: NamesResult) -> str:
    """How many subjects have a name beside the controls, and the first names."""
    rows = [
        (
            str(one.subject),
            one.verdict,
            None if one.balanced_accuracy is None else one.balanced_accuracy.mean,
            "–" if one.name is None else one.name.text,
        )
        for one in found.signals[:EDGES]
    ]
    accuracy = TableColumn(name="balanced accuracy", format=".2f")
    shares = [
        ("named", found.share_named),
        ("swapped control", found.swapped),
        ("rotated control", found.rotated),
    ]
    said = ", ".join(f"{word} {share.mean:.0%}" for word, share in shares if share is not None)
    table = Table(("signal", "verdict", accuracy, "name"), rows)
    return notebook(
        f"Names of {counted(len(found), 'subject')} in {found.model}: {said}.", table.html(bare=True)
    )


def head_roles(found: HeadRoles) -> str:
    """The heads of each role, the clearest first."""
    clear = [(role, one.head, one.attention[role]) for role in ROLES for one in found.with_role(role)]
    rows = [(role, str(head), seen.mean, f"{seen.low:.2f}–{seen.high:.2f}") for role, head, seen in clear]
    attention = TableColumn(name="attention", format=".2f")
    table = Table(("role", "head", attention, "95 %"), rows)
    said = f"Roles of {len(rows)} of {len(found.heads)} heads of {found.model}."
    return notebook(said, table.html(bare=True))


def head_vocabulary(found: HeadVocabulary) -> str:
    """A head's channels and outputs in tokens, marked as a hint."""
    rows = [
        (name, direction, ", ".join(map(repr, tokens))) for name, direction, tokens in vocabulary_rows(found)
    ]
    table = Table(("", "along", "tokens"), rows)
    return notebook(f"{found.head} of {found.model} through the vocabulary: {HINT}.", table.html(bare=True))


def sparsity_result(found: SparsityResult) -> str:
    """Every head's sparsity beside its nulls, and what is claimed."""
    rows = [
        (
            "all" if one.head is None else str(one.head),
            one.cells,
            one.sparsity.mean,
            min((null.sparsity.mean for null in one.nulls), default=None),
            one.claim.q,
            "yes" if one.claim.supported else "no",
            one.control.mean,
            one.needed.mean,
        )
        for one in (*found.heads, found.overall)
    ]
    sparsity, rotated = TableColumn(name="sparsity", format=".2f"), TableColumn(name="rotated", format=".2f")
    needed = TableColumn(name="channels needed", format=".1f")
    null, q = TableColumn(name="closest null", format=".2f"), TableColumn(name="q", format=".3f")
    heads = Table(("head", "cells", sparsity, null, q, "supported", rotated, needed), rows)
    return notebook(f"{found.task} in {found.model}: {found.traced} circuits.", heads.html(bare=True))


def unlabelled_result(found: UnlabelledResult) -> str:
    """The features of every head, with what may be said of each."""
    rows = [
        (one.head, one.name, one.rank, one.share, one.swap.mean, one.null_share, one.claim.q, one.verdict)
        for one in found.features
    ]
    numbers = [TableColumn(name=name, format=".2f") for name in ("attention", "swap", "placebo")]
    features = Table(
        ("head", "feature", "rank", *numbers, TableColumn(name="q", format=".3f"), "verdict"), rows
    )
    pairs = "".join(f"<p>{text(pair.sentence)}</p>" for pair in found.pairs)
    said = f"{found.corpus} in {found.model}: {counted(len(found.features), 'feature')} without labels."
    return notebook(said, features.html(bare=True), pairs)


def families_result(found: FamiliesResult) -> str:
    """The families, largest first, with the prompt that stands for each."""
    rows = [
        (f.name, f.size, f.share, f.core, f.distance, f.prompt)
        for f in sorted(found.families, key=lambda f: -f.size)
    ]
    share, distance = TableColumn(name="share", format=".0%"), TableColumn(name="distance", format=".2f")
    families = Table(("family", "circuits", share, "core", distance, "representative"), rows)
    how = f"by {found.grouped_by}" if found.grouped_by else "by clustering"
    sentence = f"{len(found.labels)} circuits in {found.n_families} families {how}."
    return notebook(sentence, families.html(bare=True))


def circuit_run(run: CircuitRun) -> str:
    """What became of the prompts."""
    status = run.prompts.column("status").to_pylist()
    prompts = Table(("prompts", "count"), [(name, status.count(name)) for name in dict.fromkeys(status)])
    return notebook(
        f"{run.config['task']} in {run.config['model']}: {len(run)} prompts.", prompts.html(bare=True)
    )


def explanation(why: Explanation) -> str:
    """What a person would say and three small tables: what, who, proof."""
    number = {
        name: TableColumn(name=name, number=True) for name in ("log-odds", "attention", "probability", "lead")
    }
    tables = (
        Table(("channel", number["log-odds"]), _what(why), "What"),
        Table(("writer", "side", "read", number["log-odds"], "cause"), _who(why), "Who"),
        Table(
            ("model", *(number[n] for n in ("attention", "probability", "lead")), "p"), _proof(why), "Proof"
        ),
    )
    boxes = "".join(table.html(bare=True) for table in tables)
    notices = "".join(f'<p style="margin:.3em 0">{text(notice)}</p>' for notice in why.question.notices)
    return notebook(
        why.sentence,
        notices,
        f'<div style="display:flex;flex-wrap:wrap;gap:8px 32px;align-items:flex-start">{boxes}</div>',
    )


def _what(why: Explanation) -> list[tuple[str, str]]:
    what = why.what
    parts = [part for part in what.shown if part.stable]
    rows = [(part.name or str(part.channel), f"{part.log_odds:+.2f}") for part in parts]
    if len(what.channels) > len(parts):
        rest = what.log_odds - sum(part.log_odds for part in parts)
        rows.append((f"{len(what.channels) - len(parts)} more", f"{rest:+.2f}"))
    rows += [(part.name, f"{part.value:+.2f}") for part in what.features]
    if what.features:
        rows.append(("unexplained", f"{what.unexplained:+.2f}"))
    return rows


def _who(why: Explanation) -> list[tuple[str, ...]]:
    return [
        (
            f"{row.count} others" if row.writer is None else spoken(row.writer),
            row.side,
            token(why, row.writer.source) if row.writer is not None and row.writer.kind == "head" else "",
            f"{row.log_odds:+.2f}",
            "yes" if row.cause else "",
        )
        for row in why.who.rows
    ]


def _proof(why: Explanation) -> list[tuple[str, ...]]:
    proof = why.proof
    rows: list[tuple[str, ...]] = [("as it is", *_outcome(proof.before), "")]
    if proof.after is not None:
        rows.append((f"without the cause ({proof.side} side)", *_outcome(proof.after), ""))
    if proof.next_best is not None:
        rows.append(("without the next best instead", *_outcome(proof.next_best.observed), ""))
    if proof.path is not None:
        rows.append(("without this cell", *_outcome(proof.path), ""))
    for control in proof.controls:
        rows.append((control.text, f"{control.attention.mean:.3f}", "", "", f"{control.p:.3f}"))
    rows += [(f"{t.name}, {t.kind}", *_outcome(t.observed), "") for t in proof.features]
    return rows


def _outcome(outcome: Outcome) -> tuple[str, str, str]:
    return f"{outcome.attention:.3f}", f"{outcome.probability:.3f}", f"{outcome.lead:+.2f}"


def token(why: Explanation, position: int) -> str:
    """A token with its place.

    >>> from types import SimpleNamespace
    >>> token(SimpleNamespace(tokens=("The", " cat")), 1)  # type: ignore[arg-type]
    "' cat' (1)"
    """
    return f"{why.tokens[position]!r} ({position})"
