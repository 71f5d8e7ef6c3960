"""A contrastive study as one offline page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headwise.contrast.rows import AttributionRow, where
from headwise.show.contrast import figures, spaces
from headwise.show.kit.markdown import literal
from headwise.show.kit.report import Block, Figure, Report, Section, Table, Text

if TYPE_CHECKING:
    from headwise.contrast.result import FeaturesResult


def features_report(run: FeaturesResult, *, umap: bool = False) -> Report:
    """Heads, features, swaps with their controls, ranks, spaces and logits of a study.

    ``umap`` adds UMAP pictures of the larger subspaces, which take a minute each.
    """
    best = run.heads[0]
    strongest = max(run.features, key=lambda f: f.share_of_full)
    sections = [
        Section(
            "What to beware of",
            [Text("\n\n".join(map(literal, run.warnings)) or "Nothing was found wrong with the design.")],
        ),
        Section(
            "Heads", [_heads_text(run), Figure(figures.head_ranking(run), "The best heads, 95 % intervals.")]
        ),
        Section("Features", _features(run)),
    ]
    sections += [Section(f"Head {head}", _head(run, head, umap)) for head in run.chosen]
    if run.answers:
        sections.append(Section("In the running model", _answers(run)))
    sections.append(Section("Rank and design", _growth(run)))
    return Report(
        f"{run.task}: why do these heads attend here?",
        sections,
        subtitle=f"Contrastive query-key features in `{literal(run.model)}`, tested on words and wordings not "
        f"fitted on.",
        facts={
            "heads scanned": str(len(run.heads)),
            "best head": f"{best.head} ({best.score:.2f})",
            "prompts": str(run.settings.get("prompts", "")),
            "strongest swap": f"{strongest.head} {strongest.name}, {strongest.share_of_full:.0%} of full",
        },
    )


def _heads_text(run: FeaturesResult) -> Text:
    rule = (
        "Score: the share of prompts in which the right key gets most attention among the keys; heads "
        "from 30 % up "
        "are studied."
        if run.rule == "accuracy"
        else "Score: attention on the asked category's items over attention on all others; heads that "
        "give the items "
        "less than 5 % of their attention are not ranked with the rest."
    )
    return Text(
        f"{rule} Every head of the model was scanned in one pass. q-values come from shuffling the labels "
        f"inside each "
        "prompt, corrected over all heads (Benjamini–Hochberg)."
    )


def _features(run: FeaturesResult) -> list[Block]:
    columns = ("head", "name", "rank", "rank_energy", "rank_null", "rank_interaction",
               "rank_low", "rank_high", "saturated",
               "interaction_share", "superposition", "original", "target", "share_of_full", "share_low",
               "share_high", "percentile", "p_value", "random_share_99")  # fmt: skip
    rows = [tuple(getattr(f, c) for c in columns) for f in run.features]
    return [
        Text(
            "`rank_energy` is the published 99 % rule, `rank_null` counts directions above a sign-flip null, "
            "`rank_interaction` those of the matching part Cov(q, d) alone, "
            "`saturated` says that the design itself bounds the rank. `share_of_full` is the change of "
            "log-odds that "
            "swapping the subspace between original and target key makes, as a share of swapping the "
            "whole keys; "
            "`percentile` is its place among random subspaces of the same rank."
        ),
        Table(columns, rows),
        Figure(
            figures.share_bars(run), "Swaps as a share of a full key swap; grey: 99th percentile of random."
        ),
    ]


def _head(run: FeaturesResult, head: str, umap: bool) -> list[Block]:
    number = "7" if run.rule == "ratio" else "9"
    blocks: list[Block] = [
        Figure(
            figures.swap_bars(run, head),
            f"Swaps on unseen words (as Figure {number}); dots are random subspaces.",
        ),
        Figure(figures.controls(run, head), "Every edit and control, change of log-odds."),
        Figure(figures.dose_response(run, head), "Partial swaps."),
        Figure(figures.singular_values(run, head), "Singular values of ΔC against their null."),
    ]
    for f in where(run.features, head=head):
        if f.union and run.rule != "ratio":
            continue
        if not f.union and run.rule == "ratio" and f.rank < 2:
            continue
        figure = "6a" if run.rule == "ratio" else "8"
        blocks.append(
            Figure(
                spaces.subspace_pca(run, head, f.name),
                f"Keys and queries inside {literal(f.name)} (as Figure {figure}).",
            )
        )
        if f.union:
            blocks.append(Figure(spaces.keys_pca(run, head, f.name), "Keys alone (as Figure 6b)."))
        if f.rank > 3 and umap:
            blocks.append(
                Figure(spaces.subspace_umap(run, head, f.name), f"{literal(f.name)} by UMAP (as Figure 8).")
            )
    blocks.append(
        Figure(spaces.subspace_pca(run, head, None), "The same vectors, not projected (as Figure 17).")
    )
    if where(run.angles, head=head):
        blocks.append(
            Figure(figures.angles(run, head), "Principal angles between features, and halves of each.")
        )
    if where(run.attribution, head=head):
        shown = where(run.attribution, head=head)[0].explained
        blocks.append(
            Figure(
                figures.logit_bars(run.attribution, head),
                f"One test prompt's logits by feature (as Figure 10); "
                f"{shown:.0%} of their variation is explained.",
            )
        )
    return blocks


def _answers(run: FeaturesResult) -> list[Block]:
    columns = ("head", "name", "prompts", "logit_difference", "edited_logit_difference", "change",
               "change_se", "prefers_original", "flips", "error")  # fmt: skip
    return [
        Text(
            "The swap was made in the forward pass, for the query's row alone. `flips` is the share of "
            "prompts in "
            "which the order of the two answers turned around; `error` the largest difference between "
            "the predicted "
            "attention and that of the edited pass."
        ),
        Figure(figures.answers(run), "Change of the answer's logit difference, with 95 % intervals."),
        Table(columns, [tuple(getattr(a, c) for c in columns) for a in run.answers]),
    ]


def _growth(run: FeaturesResult) -> list[Block]:
    if not run.growth:
        return [Text("The design names no query values, so there is nothing to vary.")]
    return [
        Text(
            "rank(ΔC) cannot exceed the number of distinct queries. Where the curve follows the dotted "
            "line, the "
            "rank says something about the design and nothing about the head."
        ),
        Figure(figures.rank_growth(run), "Effective rank against distinct query values (as Figure 16)."),
    ]


def attribution_report(records: Sequence[AttributionRow], prompt: str) -> Report:
    """The bars of ``headwise explain --row``, one section per head."""
    sections = []
    for head in dict.fromkeys(r.head for r in records):
        blocks: list[Block] = []
        for method in dict.fromkeys(r.method for r in records if r.head == head):
            shown = next(r.explained for r in records if r.head == head and r.method == method)
            caption = f"{method}: {shown:.0%} of the logits' variation over tokens is explained."
            blocks.append(Figure(figures.logit_bars(records, head, method), caption))
        sections.append(Section(f"Head {head}", blocks))
    return Report("Logits by feature", sections, subtitle=literal(prompt))
