"""``headwise attribute``: a prompt's attention logits, token by token, by named feature."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from headwise.cli.outputs import print_json
from headwise.cli.verb import new_app

app = new_app("Split a head's attention logits by the features of a bank, token by token.")


@app.command()
def attribute(
    prompt: Annotated[str, typer.Argument(help="The text the model reads.")],
    features: Annotated[Path, typer.Option(help="The folder of a `headwise contrast` run, or its bank.")],
    head: Annotated[
        list[str] | None, typer.Option("--head", help="A head of the bank, such as L18H6; may be repeated.")
    ] = None,
    query: Annotated[str, typer.Option(help="The token that attends, as text or position.")] = "-1",
    method: Annotated[str, typer.Option(help="sequential or shapley.")] = "sequential",
    model: Annotated[str | None, typer.Option(help="A known model, hub id, folder or .gguf.")] = None,
    out: Annotated[Path | None, typer.Option(help="Also write the bars as an HTML page.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Split a head's attention logits by the features of a bank, token by token."""
    from headwise.contrast.attribution import attribution_rows
    from headwise.contrast.bank import FeatureBank
    from headwise.contrast.rows import where
    from headwise.errors import HeadwiseError
    from headwise.model.loading.load import load
    from headwise.tokens import one_position

    if method not in ("sequential", "shapley"):
        raise HeadwiseError(f"method {method!r} is not known: write sequential or shapley")
    bank = FeatureBank.load(features)
    for name in head or []:
        bank.of(name)
    loaded = load(model)
    bank.require(loaded)
    at = one_position(loaded.tokens(prompt), query, "query")
    rows = attribution_rows(loaded, prompt, bank, heads=head, query=at)
    if out is not None:
        from headwise.show.contrast.report import attribution_report

        attribution_report(rows, prompt).write(out)
    if as_json:
        document = {"prompt": prompt, "query": at, "logits": [asdict(row) for row in rows]}
        print_json(document)
        return
    from headwise.show.contrast.terminal import attribution_table
    from headwise.show.kit.terminal import console

    for name in dict.fromkeys(row.head for row in rows):
        chosen = where(rows, head=name, method=method) or where(rows, head=name, method="sequential")
        console().print(attribution_table(name, chosen))
    if out is not None:
        console().print(f"bars: {out}", markup=False, soft_wrap=True)
