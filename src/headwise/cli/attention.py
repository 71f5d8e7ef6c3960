"""``headwise attention``: which heads attend from one token to another?"""

from __future__ import annotations

from typing import Annotated

import typer

from headwise.cli.outputs import print_json
from headwise.cli.verb import new_app

app = new_app("Show the model's answer and the heads that attend most strongly to each token.")


@app.command()
def attention(
    prompt: Annotated[str, typer.Argument(help="The text the model reads.")],
    to: Annotated[
        list[str] | None,
        typer.Option("--to", help="A token to look at, as text or position; may be repeated."),
    ] = None,
    query: Annotated[str, typer.Option(help="The token that attends, as text or position.")] = "-1",
    top: Annotated[int, typer.Option(min=1, help="How many heads to show for each token.")] = 5,
    sinks: Annotated[bool, typer.Option("--sinks", help="Show the tokens that heads rest on, too.")] = False,
    model: Annotated[str | None, typer.Option(help="A known model, hub id, folder or .gguf.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Show the model's answer and the heads that attend most strongly to each token."""
    from headwise.model.loading.load import load
    from headwise.show.kit.terminal import attention_table, console, quoted
    from headwise.strings import joined
    from headwise.why.attention import strongest_heads

    found = strongest_heads(load(model), prompt, to=to, query=query, top=top, sinks=sinks)
    if as_json:
        print_json(found.to_json())
        return
    out = console()
    out.print(f"Prompt: {prompt}", markup=False)
    answers = ", ".join(f"{quoted(token)} {probability:.2f}" for token, probability in found.answers)
    out.print(f"Answer: {answers}", markup=False)
    for place in found.places:
        out.print()
        title = (
            f"{quoted(found.query_token)} ({found.query}) attends to {quoted(place.token)} ({place.position})"
        )
        out.print(attention_table(title, [(str(head), share) for head, share in place.heads]))
    if found.hidden:
        where = joined([f"{quoted(sink.token)} ({sink.position})" for sink in found.hidden])
        cells = f"{found.hidden_cells} cell{'s' if found.hidden_cells != 1 else ''}"
        out.print(
            f"\n{cells} hidden: heads whose strongest attention rests on {where}; --sinks shows them.",
            markup=False,
        )
