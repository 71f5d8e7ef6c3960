"""Tables of a contrastive study for the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from headwise.claims import LEVEL
from headwise.contrast.alignment import AGAINST as ALIGNED
from headwise.contrast.alignment import GROUP as ALIGNMENTS
from headwise.contrast.heads import GROUP, MASS
from headwise.contrast.roles import LEAST, ROLES, HeadRoles
from headwise.contrast.rows import AttributionRow, HeadRow, where
from headwise.contrast.tables import AGAINST
from headwise.contrast.tables import GROUP as FEATURES
from headwise.show.contrast.matches import alignment_cells
from headwise.show.kit.terminal import quoted, table
from headwise.show.naming.known import names_lines
from headwise.strings import counted
from headwise.why.vocabulary import HINT, HeadVocabulary, vocabulary_rows

if TYPE_CHECKING:
    from headwise.contrast.heads import HeadScore
    from headwise.contrast.result import FeaturesResult
    from headwise.known_names import KnownNames
    from headwise.tasks.labelled.types import Contrast
    from headwise.types import Estimate


def heads_table(
    records: Sequence[HeadRow], rule: str, over: Contrast | None = None, *, asked: bool = False
) -> RenderableType:
    """Heads ranked on a task, those that do it marked, or those that were ``asked`` for; ``over`` are the prompts they
    were ranked on."""
    name = "right key" if rule == "accuracy" else "ratio"
    rows = [
        (
            r.head,
            "*" if r.chosen else "",
            f"{r.score:.3f}",
            f"{r.low:.3f}–{r.high:.3f}",
            f"{r.q_value:.4f}",
            f"{r.accuracy:.2f}",
            f"{r.ratio:.2f}",
            f"{r.mass:.2f}",
        )
        for r in records
    ]
    columns = ("head", "", name, "95 %", "q", "accuracy", "ratio", "attention on keys")
    does = f"does the task by its rule, beyond chance (q ≤ 0.05 over {GROUP}) and with attention on the keys ≥ {MASS}"
    said = "* was asked for" if asked else f"* {does}"
    if over is not None:
        clusters = over.clusters()
        each = (
            ""
            if clusters.name == "prompt"
            else f" in {counted(len(clusters), 'cluster')} of one {clusters.name}"
        )
        said += f"; {counted(len(over), 'prompt')}{each}"
    return Group(table(columns, rows), Text(), Text(said))


def roles_table(
    found: HeadRoles, top: int, task: str | None = None, scores: Sequence[HeadScore] = ()
) -> RenderableType:
    """The heads of each role, the clearest first; with a task also their ranks there, and its best heads."""
    ranks = {score.head: score.rank for score in scores}
    rows = []
    for role in ROLES:
        for one in found.with_role(role)[:top]:
            seen = one.attention[role]
            place = () if task is None else _rank(ranks[one.head])
            rows.append((role, str(one.head), f"{seen.mean:.3f}", f"{seen.low:.3f}–{seen.high:.3f}", *place))
    without = sum(one.role is None for one in found.heads)
    counts = ", ".join(f"{role} {number}" for role, number in found.counts.items())
    said = (
        f"\nheads of each role: {counts}; {without} have none. A role is a mean attention whose interval lies above "
        f"{LEAST}, and which is supported (q ≤ {LEVEL:g}) against the next most attended place and against text that "
        f"does not repeat, on {found.sequences} sequences of {found.length} random tokens that are read twice."
    )
    columns = ("role", "head", "attention", "95 %", *(() if task is None else (f"rank in {task}", "95 %")))
    parts: list[RenderableType] = [table(columns, rows), Text(said)]
    if task is not None:
        best = [
            (str(s.head), *_rank(s.rank), f"{s.score.mean:.3f}", found.of(s.head) or "") for s in scores[:top]
        ]
        parts += [
            Text(),
            table(("head", "rank", "95 %", "score", "role"), best, title=f"The best heads of {task}"),
        ]
    return Group(*parts)


def _rank(rank: Estimate) -> tuple[str, str]:
    return f"{rank.mean:.0f}", f"{rank.low:.0f}–{rank.high:.0f}"


def vocabulary_table(found: HeadVocabulary) -> RenderableType:
    """A head's channels and outputs in tokens, marked as a hint."""
    rows = [
        (name, through, " ".join(quoted(token) for token in tokens))
        for name, through, tokens in vocabulary_rows(found)
    ]
    said = (
        f"\n{HINT}. Of a channel's query and key, equal signs go together. Embedding: tokens whose embedding points "
        "that way; unembedding: tokens that a stream holding this alone would raise."
    )
    title = Text(f"{found.head} of {found.model} through the vocabulary", style="bold")
    return Group(title, table(("", "through", "tokens"), rows), Text(said))


def run_tables(run: FeaturesResult, names: KnownNames | None = None) -> RenderableType:
    """The best heads, the features with their swaps, answers if there are any, and what to beware of."""
    header, *rows = run.summary()
    parts: list[RenderableType] = [
        Text(f"{run.task} in {run.model}", style="bold"),
        Text(),
        heads_table(
            [h for i, h in enumerate(run.heads) if i < 6 or h.chosen],
            run.rule,
            asked=run.config.get("heads", "auto") != "auto",
        ),
        Text(),
        table(
            header, rows, title="Features, and attention on original and target after a swap, on unseen words"
        ),
    ]
    parts.append(
        Text(
            f"\nsupported: q ≤ 0.05, corrected over {FEATURES}\np: against {AGAINST}, "
            f"{run.features[0].against_draws} of each; rank: chosen on held-out halves of the fitting prompts"
        )
    )
    if run.alignment:
        columns, cells = alignment_cells(run)
        parts += [
            Text(),
            table(columns, cells, title="Do queries lie where the keys lie that they ask for?"),
            Text(f"against {ALIGNED}; q over {ALIGNMENTS}"),
        ]
    parts += [Text(one.sentence) for one in run.found_shapes]
    if names is not None:
        found = names.chosen(run.subjects).values()
        parts += [Text("\nNames of features, tested on other texts"), *names_lines(names, found)]
    if run.answers:
        shown = [
            (
                a.head,
                a.name,
                f"{a.logit_difference:+.2f} → {a.edited_logit_difference:+.2f}",
                f"{a.flips:.0%}",
                "" if a.error is None else f"{a.error:.0e}",
            )
            for a in run.answers
        ]
        columns = ("head", "swapped", "logit difference", "flips", "error of prediction")
        parts += [Text(), table(columns, shown, title="The same swaps in the running model")]
    if run.warnings:
        parts += [Text(), Text("Beware:"), *(Text(f"  {w}") for w in run.warnings)]
    return Group(*parts)


def attribution_tables(records: Sequence[AttributionRow], method: str) -> RenderableType:
    """A table for each head, by one method; sequential where there are too many features for the other."""
    parts = []
    for name in dict.fromkeys(row.head for row in records):
        chosen = where(records, head=name, method=method) or where(records, head=name, method="sequential")
        parts.append(attribution_table(name, chosen))
    return Group(*parts)


def attribution_table(head: str, records: Sequence[AttributionRow]) -> RenderableType:
    """Logits by token and feature."""
    names = [n for n in dict.fromkeys(r.feature for r in records) if n != "total"]
    places: dict[int, dict[str, float]] = {}
    tokens: dict[int, str] = {}
    for r in records:
        places.setdefault(r.position, {})[r.feature] = r.logit
        tokens[r.position] = r.token
    rows = [
        (str(p), quoted(tokens[p]), *(f"{v[n]:+.2f}" for n in names), f"{v['total']:+.2f}")
        for p, v in sorted(places.items())
    ]
    explained = records[0].explained
    title = f"{head}: logits by feature ({records[0].method}); {explained:.0%} of their variation explained"
    return table(("", "token", *names, "total"), rows, title=title)
