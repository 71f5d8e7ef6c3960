"""A study of features as one offline page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headwise.contrast.rows import AttributionRow, where
from headwise.contrast.tables import AGAINST, GROUP
from headwise.show.contrast import figures, ranks, spaces
from headwise.show.contrast.matches import beside, matches
from headwise.show.kit.markdown import Prose, literal
from headwise.show.kit.report import Block, Figure, Markdown, Report, Section, Table
from headwise.show.naming.blocks import names_blocks
from headwise.strings import percent

if TYPE_CHECKING:
    from headwise.contrast.result import FeaturesResult
    from headwise.known_names import KnownNames

PROSE = Prose.read("contrast/report.md")
SPACES = 4
"""Heads whose spaces and logits are drawn; they are most of a page's size."""
FEATURES = {
    "head": "head",
    "name": "feature",
    "supported": "supported",
    "rank": "rank",
    "share_of_full": "share of full",
    "share_low": "low",
    "share_high": "high",
    "placebo_share": "placebo",
    "placebo_high": "placebo, 95 %",
    "p_value": "p",
    "q_value": "q",
    "p_placebo": "p, placebo",
    "p_covariance": "p, covariance",
    "prompts": "prompts",
    "clusters": "clusters",
    "original": "on original",
    "target": "on target",
    "rank_interaction": "matching",
    "rank_null": "null",
    "rank_energy": "99 %",
    "saturated": "saturated",
    "interaction_share": "matching share",
    "superposition": "superposition",
    "superposition_null": "placebo",
    "percentile": "percentile",
    "p_uniform": "p, uniform",
}
"""TableColumns of the table of features, the most telling first, and what they are called on the page."""
ANSWERS = {
    "head": "head",
    "name": "swapped",
    "prompts": "prompts",
    "logit_difference": "logit difference",
    "edited_logit_difference": "after the swap",
    "change": "change",
    "change_se": "its standard error",
    "prefers_original": "prefers original",
    "flips": "flips",
    "error": "error",
}


def features_report(run: FeaturesResult, *, umap: bool = False, names: KnownNames | None = None) -> Report:
    """Heads, features, swaps with their controls, ranks, spaces and logits of a study; a head is a line that unfolds.

    ``umap`` adds UMAP pictures of the larger subspaces, which take a minute each.
    """
    best = run.heads[0]
    supported = sum(f.supported for f in run.features)
    warnings = "\n".join(f"- {literal(warning)}" for warning in run.warnings)
    sections = [
        Section("What to beware of", [Markdown(warnings or PROSE("nothing wrong"))]),
        Section(
            "Heads",
            [
                Markdown(f"{PROSE(run.rule)} {PROSE('scan')}"),
                Figure(figures.head_ranking(run), PROSE("heads figure")),
            ],
        ),
        Section("Features", _features(run)),
        Section("Do clusters match?", matches(run)),
    ]
    sections += [
        Section(f"Head {head}", _head(run, head, umap), fold=True, note=_note(run, head))
        for head in run.chosen
    ]
    if names is not None:
        sections.insert(4, Section("Names", names_blocks(names, run.subjects)))
    if run.answers:
        sections.append(Section("In the running model", _answers(run)))
    sections.append(Section("Rank and design", _growth(run)))
    return Report(
        f"{run.task}: why do these heads attend here?",
        sections,
        subtitle=PROSE("subtitle", model=run.model),
        facts={
            "heads scanned": str(len(run.heads)),
            "best head": f"{best.head} ({best.score:.2f})",
            "prompts": str(run.settings.get("prompts", "")),
            "supported features": f"{supported} of {len(run.features)}",
        },
    )


def _note(run: FeaturesResult, head: str) -> str:
    """A head in a line: its features, strongest first."""
    found = sorted(where(run.features, head=head), key=lambda f: -f.share_of_full)
    held = [f"{literal(f.name)} {percent(f.share_of_full)}" for f in found if f.supported]
    if not held:
        return f"none of its {len(found)} features is supported"
    return f"share of a full swap: {', '.join(held[:4])}{', …' if len(held) > 4 else ''}"


def _features(run: FeaturesResult) -> list[Block]:
    rows = [tuple(getattr(f, column) for column in FEATURES) for f in run.features]
    return [
        Markdown(PROSE("features", against=AGAINST, group=GROUP)),
        Figure(figures.share_bars(run), PROSE("features figure")),
        Table(list(FEATURES.values()), rows),
    ]


def _head(run: FeaturesResult, head: str, umap: bool) -> list[Block]:
    ratio = run.rule == "ratio"
    blocks: list[Block] = [
        Figure(figures.swap_bars(run, head), PROSE("swaps figure", number=7 if ratio else 9)),
        Figure(figures.controls(run, head), PROSE("controls figure")),
        Figure(figures.dose_response(run, head), PROSE("doses figure")),
        Figure(ranks.rank_curves(run, head), PROSE("curves figure")),
        Figure(ranks.singular_values(run, head), PROSE("spectrum figure", floor=ranks.FLOOR)),
    ]
    drawn = run.chosen.index(head) < SPACES
    for f in where(run.features, head=head) if drawn else ():
        if (f.union and not ratio) or (not f.union and ratio and f.rank < 2):
            continue
        caption = PROSE("space figure", name=f.name, number="6a" if ratio else "8")
        said = beside(run, head, f.name)
        blocks.append(
            Figure(spaces.subspace_pca(run, head, f.name), f"{caption} {said}" if said else caption)
        )
        if f.union:
            blocks.append(Figure(spaces.keys_pca(run, head, f.name), PROSE("keys figure", name=f.name)))
        # Three components hide most of what tells many words apart, whatever the rank.
        if umap and (f.rank > 3 or (f.name == "lexical" and f.rank > 1)):
            blocks.append(Figure(spaces.subspace_umap(run, head, f.name), PROSE("umap figure", name=f.name)))
    if drawn:
        blocks.append(Figure(spaces.subspace_pca(run, head, None), PROSE("whole figure")))
    else:
        blocks.append(Markdown(PROSE("not drawn", heads=SPACES)))
    if where(run.angles, head=head):
        blocks.append(Figure(ranks.angles(run, head), PROSE("angles figure")))
    if drawn and where(run.attribution, head=head):
        first = where(run.attribution, head=head)[0]
        caption = PROSE("logits figure", explained=first.explained, null=first.explained_null or 0.0)
        blocks.append(Figure(figures.logit_bars(run.attribution, head), caption))
    return blocks


def _answers(run: FeaturesResult) -> list[Block]:
    rows = [tuple(getattr(a, column) for column in ANSWERS) for a in run.answers]
    return [
        Markdown(PROSE("answers")),
        Figure(figures.answers(run), PROSE("answers figure")),
        Table(list(ANSWERS.values()), rows),
    ]


def _growth(run: FeaturesResult) -> list[Block]:
    if not ranks.growing(run):
        return [Markdown(PROSE("no growth"))]
    return [Markdown(PROSE("growth")), Figure(ranks.rank_growth(run), PROSE("growth figure"))]


def attribution_report(records: Sequence[AttributionRow], prompt: str) -> Report:
    """The bars of ``headwise explain --row``, one section per head."""
    sections = []
    for head in dict.fromkeys(r.head for r in records):
        blocks: list[Block] = []
        for method in dict.fromkeys(r.method for r in records if r.head == head):
            explained = next(r.explained for r in records if r.head == head and r.method == method)
            caption = PROSE("attribution figure", method=method, explained=explained)
            blocks.append(Figure(figures.logit_bars(records, head, method), caption))
        sections.append(Section(f"Head {head}", blocks))
    return Report("Logits by feature", sections, subtitle=literal(prompt))
