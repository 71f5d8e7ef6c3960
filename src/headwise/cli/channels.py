"""``headwise channels``: which channels of a head make it attend here?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headwise.cli.outputs import print_json
from headwise.cli.verb import new_app

app = new_app("Split one attention over the channels (singular pairs) of its head.")


@app.command()
def channels(
    prompt: Annotated[str, typer.Argument(help="The text the model reads.")],
    head: Annotated[str, typer.Option(help="The head, as L9H6, 9.6 or a9.h6.")],
    key: Annotated[str, typer.Option(help="The token attended to, as text or position.")],
    query: Annotated[str, typer.Option(help="The token that attends, as text or position.")] = "-1",
    top: Annotated[int, typer.Option(min=1, help="How many channels to show.")] = 10,
    model: Annotated[str | None, typer.Option(help="A known model, hub id, folder or .gguf.")] = None,
    cache: Annotated[
        Path | None, typer.Option(help="A folder that keeps channels, by hash of the weights.")
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Draw it on a page that opens offline.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Split one attention over the channels (singular pairs) of its head."""
    from headwise.bases.cell import Channels, split_cell
    from headwise.model.loading.load import load
    from headwise.show.circuits.terminal import channels_table
    from headwise.show.kit.terminal import console
    from headwise.tokens import one_cell

    loaded = load(model)
    tokens = loaded.tokens(prompt)
    d, s = one_cell(tokens, query, key)
    split = split_cell(loaded, prompt, head, d, s, cache=cache)
    found = Channels.of(loaded, head, cache=cache)
    if html is not None:
        from headwise.show.bases.page import channels_report

        channels_report(split, found, tokens).write(html)
    if as_json:
        document = {
            "head": str(split.cell.head), "query": d, "key": s, "attention": split.attention,
            "sigma": found.sigma.tolist(), "rank": found.rank, "condition": found.condition,
            "logit": split.logit.tolist(), "relative": split.relative.tolist(), "control": split.control.tolist(),
            "sparsity": split.sparsity, "control_sparsity": split.control_sparsity,
            "channels_needed": split.channels_needed, "error": split.error,
        }  # fmt: skip
        print_json(document)
        return
    console().print(channels_table(split, found, tokens, top))
