"""``headwise explain``: why does this head attend here? What made the score, who wrote it, and proof."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headwise.cli.outputs import print_json, refuse_unwritable
from headwise.cli.verb import new_app

app = new_app(
    "Say why a head attends from one token to another: what made the score, who wrote it, and proof."
)

PROMPT = "When John and Mary went to the store, John gave a drink to"


@app.command()
def explain(
    prompt: Annotated[str, typer.Argument(help="The text the model reads.")] = PROMPT,
    head: Annotated[
        str | None, typer.Option(help="The head (L22H4); default: the one that brings the answer.")
    ] = None,
    query: Annotated[str | None, typer.Option(help="The token that attends: position or text.")] = None,
    key: Annotated[str | None, typer.Option(help="The token it attends to: position or text.")] = None,
    features: Annotated[
        list[Path] | None, typer.Option(help="A feature bank made by headwise contrast; may be repeated.")
    ] = None,
    answer: Annotated[
        str | None, typer.Option(help="The answer's token; default: what the model predicts.")
    ] = None,
    wrong: Annotated[
        str | None, typer.Option(help="The token it is compared with; default: the next likeliest.")
    ] = None,
    tau: Annotated[
        float | None, typer.Option(help="Attention that a cause has to undercut; default 2.5 / keys.")
    ] = None,
    draws: Annotated[int, typer.Option(help="Random controls.")] = 20,
    seed: Annotated[int, typer.Option(help="Seed of the controls.")] = 0,
    model: Annotated[str | None, typer.Option(help="A known model, hub id, folder or .gguf.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write a page that opens offline.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    open_page: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
) -> None:
    """Say why a head attends from one token to another: what made the score, who wrote it, and proof."""
    page = Path("explanation.html") if open_page and html is None else html
    if page is not None:
        refuse_unwritable(page)

    from headwise.model.loading.load import load
    from headwise.model.progress import Progress
    from headwise.show.kit.terminal import console
    from headwise.why.explain import explain as explain_prompt

    with Progress("explaining") as progress:
        progress.stage("loading the model")
        loaded = load(model)
        why = explain_prompt(
            loaded,
            prompt,
            head=head,
            query=query,
            key=key,
            answer=answer,
            wrong=wrong,
            features=features or (),
            tau=tau,
            draws=draws,
            seed=seed,
            progress=progress.stage,
        )
    if page is not None:
        page.parent.mkdir(parents=True, exist_ok=True)
        why.save_html(page)
    if as_json:
        print_json(why.to_json())
    else:
        from headwise.show.why.terminal import explanation

        console().print(explanation(why))
        if page is not None:
            console().print(f"\nPage: {page.resolve()}", markup=False, soft_wrap=True)
    if open_page and page is not None:
        import webbrowser

        webbrowser.open(page.resolve().as_uri())
