"""``headwise head``: everything known about one head on one page, or an atlas of all heads."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from headwise.cli import options, sharing
from headwise.cli.loading import load
from headwise.cli.outputs import finish, report_in
from headwise.cli.progress import stage_bars
from headwise.cli.verb import new_app
from headwise.errors import HeadwiseError

app = new_app("Everything known about one head on one page, or an atlas of all heads.", loads=True)


@app.command()
def head(
    context: typer.Context,
    head: Annotated[
        str | None,
        typer.Argument(
            help="The head, such as L23H3.", metavar="HEAD", callback=options.head, show_default=False
        ),
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Every head instead: with --out, a page each and an index.")
    ] = False,
    corpus: Annotated[
        str | None,
        typer.Option(
            help=f"Texts: {options.A_CORPUS}.",
            metavar="CORPUS",
        ),
    ] = None,
    task: options.TaskPrompts = None,
    texts: Annotated[
        int | None,
        typer.Option(
            min=1, help="Texts or prompts to read.", metavar="N", show_default="120 for one head, 400 for all"
        ),
    ] = None,
    tokens: Annotated[int, typer.Option(min=8, help="Tokens of each text to read.", metavar="N")] = 64,
    cells: Annotated[
        int, typer.Option(min=1, help="Cells of each head to explain, one per text.", metavar="N")
    ] = 16,
    basis: options.Basis = "singular",
    names: options.Names = None,
    seed: options.Seed = 0,
    model: options.Model = None,
    out: options.Out = None,
    html: options.Html = None,
    workers: sharing.MoreWorkers = None,
    ray: sharing.Ray = None,
    as_json: options.Json = False,
) -> None:
    """Everything known about one head on one page, or an atlas of all heads.

    Role, where it looks apart from sinks (strongest cells, tenth by tenth), place or content, who shapes its query and
    keys most often, its stable channels, and what it does with what it reads; with --names, names and their verdicts.
    """
    if (head is None) == (not every):
        raise HeadwiseError(
            "nothing says which head: give one, such as L23H3, or --all"
            if head is None
            else f"HEAD {head} and --all both say which heads: give one of them"
        )
    if corpus is not None and task is not None:
        raise HeadwiseError(f"--corpus {corpus} and --task {task} both say what to read: give one of them")
    if every and html is not None:
        raise HeadwiseError("--html is one page, and --all makes one per head: give --out DIR")
    from headwise.corpora.known import find_corpus

    held = find_corpus(corpus) if task is None else None
    if out is not None:
        from headwise.scale.place import refuse_taken

        refuse_taken(out, "atlas")
    from headwise.portraits.study import FEWER_TEXTS, TEXTS, atlas

    loaded = load(model)
    known = options.known_names(names, loaded)
    with stage_bars(lambda _: "text") as progress:
        found = atlas(
            loaded,
            None if head is None else [head],
            corpus=held,
            task=task,
            texts=texts or (TEXTS if every else FEWER_TEXTS),
            tokens=tokens,
            cells=cells,
            basis=basis,
            seed=seed,
            out=out,
            workers=sharing.share_work(workers, ray),
            progress=progress,
        )
    _finish(found, known, every, out, html, as_json)


def _finish(found: Any, known: Any, every: bool, out: Path | None, html: Path | None, as_json: bool) -> None:
    from headwise.show.portraits.terminal import atlas_tables, portrait_tables

    if out is not None:
        found.pages(out, known)
    if every:
        finish(
            found.to_json(known),
            lambda: atlas_tables(found, known),
            as_json=as_json,
            run=out,
            report=report_in(out),
        )
        return
    (one,) = found.portraits
    fitting = one.known(known)
    if html is not None:
        from headwise.show.portraits.page import portrait_report

        portrait_report(one, fitting).write(html)
    finish(
        one.to_json(known),
        lambda: portrait_tables(one, fitting),
        as_json=as_json,
        run=out,
        report=report_in(out),
        page=html,
    )
