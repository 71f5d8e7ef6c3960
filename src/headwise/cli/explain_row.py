"""``headwise explain --row``: a whole row at once, by writers, or by the features of a bank."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import typer

from headwise.cli import options
from headwise.cli.explain_more import ASKED
from headwise.cli.loading import load
from headwise.cli.outputs import finish
from headwise.errors import HeadwiseError
from headwise.files import write_json

if TYPE_CHECKING:
    from headwise.contrast.bank import FeatureBank

BOTH = ("row", *ASKED)
BY_WRITERS = {*BOTH, "top"} - {"html"}
BY_FEATURES = {*BOTH, "features", "unsupported", "method"}


def by_writers(context: typer.Context, text: str) -> None:
    """Which keys, and why each: one table of writers × keys."""
    options.refuse_unused(context, {*BY_WRITERS, *BY_FEATURES}, "is not used with --row")
    options.refuse_unused(context, BY_WRITERS, "is used with --row only together with --features BANK")
    given = context.params

    from headwise.progress import Working
    from headwise.tokens import chat_prompt
    from headwise.why.row import explain_row

    with Working("explaining") as progress:
        progress.stage("loading the model")
        loaded = load(given["model"])
        found = explain_row(
            loaded,
            chat_prompt(loaded.tokenizer, text) if given["chat"] else text,
            given["head"],
            query=given["query"],
            top=given["top"],
            start=given["start"],
            progress=progress.stage,
        )
    document = found.to_json()
    if given["save"] is not None:
        write_json(given["save"], document)

    def shown() -> Any:
        from headwise.show.why.row_terminal import row_explanation

        return row_explanation(found)

    finish(document, shown, as_json=given["as_json"], saved=given["save"])


def by_features(context: typer.Context, text: str, banks: list[FeatureBank]) -> None:
    """A row of logits, token by token, by the features of one bank."""
    options.refuse_unused(context, BY_FEATURES, "is not used with --row --features BANK")
    if len(banks) != 1:
        raise HeadwiseError(
            f"--row splits logits by one feature bank, and {len(banks)} were given: give --features BANK once"
        )
    from headwise.contrast.attribution import attribution_rows
    from headwise.tokens import chat_prompt, one_position

    given, (bank,) = context.params, banks
    head, start, html, save = given["head"], given["start"], given["html"], given["save"]
    if head is not None:
        bank.usable(head)
    loaded = load(given["model"])
    bank.require(loaded)
    prompt = chat_prompt(loaded.tokenizer, text) if given["chat"] else text
    place = one_position(loaded.tokens(prompt), given["query"] or "-1", "query")
    rows = attribution_rows(
        loaded, prompt, bank, heads=None if head is None else [head], query=place, start=start
    )
    document = {"prompt": text, "start": start, "query": place, "logits": [asdict(one) for one in rows]}
    if html is not None:
        from headwise.show.contrast.report import attribution_report

        attribution_report(rows, text).write(html)
    if save is not None:
        write_json(save, document)
    from headwise.show.contrast.terminal import attribution_tables

    finish(
        document,
        lambda: attribution_tables(rows, given["method"]),
        as_json=given["as_json"],
        page=html,
        saved=save,
    )
