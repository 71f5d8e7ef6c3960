"""``headwise attention``: which heads attend from one token to another?"""

from __future__ import annotations

from typing import Annotated

import typer

from headwise.cli import options
from headwise.cli.loading import load
from headwise.cli.outputs import print_json
from headwise.cli.prompts import read_prompt
from headwise.cli.verb import new_app

app = new_app("Show the model's answer and the heads that attend most strongly to each token.", loads=True)


@app.command()
def attention(
    prompt: options.Prompt = None,
    to: Annotated[
        list[str] | None,
        typer.Option(
            "--to", help="A token to look at, as text or position; may be repeated.", metavar="TOKEN"
        ),
    ] = None,
    query: options.Query = "-1",
    top: options.Top = 5,
    sinks: Annotated[bool, typer.Option("--sinks", help="Show the tokens that heads rest on, too.")] = False,
    prompt_file: options.PromptFile = None,
    chat: options.Chat = False,
    start: options.Start = 0,
    model: options.Model = None,
    as_json: options.Json = False,
) -> None:
    """Show the model's answer and the heads that attend most strongly to each token."""
    text = read_prompt(prompt, prompt_file)
    from headwise.show.kit.terminal import attention_table, console, quoted
    from headwise.strings import joined
    from headwise.tokens import chat_prompt
    from headwise.why.attention import strongest_heads

    loaded = load(model)
    given = chat_prompt(loaded.tokenizer, text) if chat else text
    found = strongest_heads(
        loaded, given, to=to, query="-1" if query is None else query, top=top, sinks=sinks, start=start
    )
    if as_json:
        print_json(found.to_json())
        return
    out = console()
    out.print(f"Prompt: {text}", markup=False)
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
