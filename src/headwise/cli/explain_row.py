"""``headwise explain --row``: a whole row at once, by writers, or by the features of a bank."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from headwise.cli import options
from headwise.cli.explain_more import ASKED, open_if, page_of
from headwise.cli.loading import load
from headwise.cli.outputs import finish
from headwise.errors import HeadwiseError
from headwise.files import write_json

if TYPE_CHECKING:
    from headwise.contrast.bank import FeatureBank
    from headwise.contrast.rows import AttributionRow
    from headwise.model.model import Model
    from headwise.show.kit.report import Report
    from headwise.why.row import RowExplanation

BOTH = ("row", *ASKED)
BY_WRITERS = {*BOTH, "top", "open_page"}
BY_FEATURES = {*BY_WRITERS, "features", "unsupported", "method"}


def by_writers(context: typer.Context, text: str) -> None:
    """Which keys, and why each: one table of writers × keys."""
    options.refuse_unused(context, BY_FEATURES, "is not used with --row")
    options.refuse_unused(context, BY_WRITERS, "is used with --row only together with --features BANK")
    given = context.params
    html = page_of(given["html"], given["open_page"], "row.html")
    found = _explained(given, text, ())

    def shown() -> Any:
        from headwise.show.why.row_terminal import row_explanation

        return row_explanation(found)

    _finish(found.to_json(), shown, lambda: _report(found), html, given)


def by_features(context: typer.Context, text: str, banks: list[FeatureBank]) -> None:
    """A row by the features of one bank: with a head, every key by writer and by feature; the logits token by token."""
    options.refuse_unused(context, BY_FEATURES, "is not used with --row --features BANK")
    if len(banks) != 1:
        raise HeadwiseError(
            f"--row splits logits by one feature bank, and {len(banks)} were given: give --features BANK once"
        )
    from headwise.contrast.attribution import attribution_rows
    from headwise.positions import one_position
    from headwise.tokens import chat_prompt

    given, (bank,) = context.params, banks
    head, start = given["head"], given["start"]
    html = page_of(given["html"], given["open_page"], "row.html")
    if head is not None:
        bank.usable(head)
    loaded = load(given["model"])
    bank.require(loaded)
    prompt = chat_prompt(loaded.tokenizer, text) if given["chat"] else text
    place = one_position(loaded.tokens(prompt), given["query"] or "-1", "query")
    rows = attribution_rows(
        loaded, prompt, bank, heads=None if head is None else [head], query=place, start=start
    )
    logits = [asdict(one) for one in rows]
    # A first token has nothing to choose from, and its logit can still be split.
    found = None if head is None or place == 0 else _explained({**given, "query": place}, text, banks, loaded)
    document = {"prompt": text, "start": start, "query": place, "logits": logits}
    if found is not None:
        document = found.to_json() | document

    def report() -> Report:
        if found is not None:
            return _report(found, rows)
        from headwise.show.contrast.report import attribution_report

        return attribution_report(rows, text)

    def shown() -> Any:
        from rich.console import Group

        from headwise.show.contrast.terminal import attribution_tables
        from headwise.show.why.row_terminal import row_explanation

        table = attribution_tables(rows, given["method"])
        return table if found is None else Group(row_explanation(found), "", table)

    _finish(document, shown, report, html, given)


def _explained(
    given: dict[str, Any], text: str, banks: Sequence[FeatureBank], loaded: Model | None = None
) -> RowExplanation:
    from headwise.progress import Working
    from headwise.tokens import chat_prompt
    from headwise.why.row import explain_row

    with Working("explaining") as progress:
        if loaded is None:
            progress.stage("loading the model")
            loaded = load(given["model"])
        return explain_row(
            loaded,
            chat_prompt(loaded.tokenizer, text) if given["chat"] else text,
            given["head"],
            query=given["query"],
            top=given["top"],
            start=given["start"],
            features=banks,
            progress=progress.stage,
        )


def _report(found: RowExplanation, logits: Sequence[AttributionRow] = ()) -> Report:
    from headwise.show.why.row import row_report

    return row_report(found, logits)


def _finish(
    document: dict[str, Any],
    shown: Callable[[], Any],
    report: Callable[[], Report],
    html: Path | None,
    given: dict[str, Any],
) -> None:
    """Page, file, and what is printed."""
    if html is not None:
        report().write(html)
    if given["save"] is not None:
        write_json(given["save"], document)
    page = None if html is None else html.resolve()
    finish(document, shown, as_json=given["as_json"], page=page, saved=given["save"])
    open_if(given["open_page"], page)
