"""What is said beside the pictures of a feature's subspace: do clusters match, and on what do ordered ones lie?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwise.contrast.alignment import AGAINST, GROUP
from headwise.contrast.geometry import GROUP as SHAPES_GROUP
from headwise.contrast.rows import AlignmentRow, where
from headwise.show.kit.markdown import Prose, literal
from headwise.show.kit.report import Block, Markdown, Table

if TYPE_CHECKING:
    from headwise.contrast.result import FeaturesResult

PROSE = Prose.read("contrast/report.md")
COLUMNS = {
    "head": "head",
    "name": "feature",
    "measure": "measure",
    "by": "classes of",
    "classes": "classes",
    "value": "value",
    "shuffled_value": "classes shuffled",
    "placebo_value": "placebo subspaces",
    "p_shuffled": "p, shuffled",
    "p_placebo": "p, placebo",
    "q_value": "q",
    "supported": "supported",
}


def alignment_cells(run: FeaturesResult) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """A table of text: every feature's retrieval and correlation, each beside the larger mean of its nulls."""
    header = ("head", "feature", "by", "retrieval", "null", "q", "correlation", "null", "q", "supported")
    rows = []
    for first in where(run.alignment, measure="retrieval"):
        (second,) = where(run.alignment, head=first.head, name=first.name, measure="correlation")
        rows.append(
            (
                first.head,
                first.name,
                first.by,
                f"{first.value:.2f}",
                f"{max(first.shuffled_value, first.placebo_value):.2f}",
                f"{first.q_value:.3f}",
                f"{second.value:+.2f}",
                f"{max(second.shuffled_value, second.placebo_value):+.2f}",
                f"{second.q_value:.3f}",
                _both(first, second),
            )
        )
    return header, rows


def _both(*rows: AlignmentRow) -> str:
    held = [row.measure for row in rows if row.supported]
    return "yes" if len(held) == len(rows) else f"{held[0]} alone" if held else "no"


SHOWN = 36
"""Alignments on the page; all are in the run's tables."""


def beside(run: FeaturesResult, head: str, name: str) -> str:
    """The numbers of one feature in sentences, for the caption of its picture; empty where there are none."""
    rows = where(run.alignment, head=head, name=name)
    said = []
    if rows:
        retrieval, correlation = rows
        said.append(
            PROSE(
                "beside space",
                retrieval=retrieval.value,
                chance=1 / retrieval.classes,
                retrieval_placebo=retrieval.placebo_value,
                retrieval_q=retrieval.q_value,
                correlation=correlation.value,
                correlation_placebo=correlation.placebo_value,
                correlation_q=correlation.q_value,
                verdict=_both(*rows),
            )
        )
    said += [f"{literal(one.sentence)}." for one in run.found_shapes if (one.head, one.name) == (head, name)]
    return " ".join(said)


def matches(run: FeaturesResult) -> list[Block]:
    """The section of the page: every alignment with its nulls, and the shapes of ordered classes."""
    if not run.alignment:
        return [Markdown(PROSE("no alignment"))]
    # Nine heads of thirteen categories have hundreds: a page holds those that say most, in the order of the run.
    last = sorted(a.q_value for a in run.alignment)[:SHOWN][-1]
    shown = [a for a in run.alignment if a.q_value <= last][:SHOWN]
    rows = [tuple(getattr(a, column) for column in COLUMNS) for a in shown]
    blocks: list[Block] = [
        Markdown(PROSE("alignment", against=AGAINST, group=GROUP)),
        Table(list(COLUMNS.values()), rows),
    ]
    if len(shown) < len(run.alignment):
        blocks.append(Markdown(PROSE("more alignment", shown=len(shown), all=len(run.alignment))))
    if run.shapes:
        lines = "\n".join(f"- {literal(one.sentence)}" for one in run.found_shapes)
        blocks += [Markdown(PROSE("shapes", group=SHAPES_GROUP)), Markdown(lines)]
        blocks.append(_tests(run))
    return blocks


def _tests(run: FeaturesResult) -> Table:
    columns = (
        "head",
        "feature",
        "side",
        "shape",
        "line share",
        "p, plane",
        "ordered, q",
        "irreducible, q",
        "closed, q",
    )
    rows = [
        (
            one.head,
            one.name,
            one.side,
            one.shape,
            one.tests[0].line_share,
            one.tests[0].p_plane,
            *(test.q_value for test in one.tests),
        )
        for one in run.found_shapes
    ]
    return Table(list(columns), rows)
