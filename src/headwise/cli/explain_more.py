"""What else ``headwise explain`` answers: two prompts, many prompts, a whole row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from headwise.cli import options
from headwise.cli.outputs import finish
from headwise.files import refuse_unwritable, write_json

ASKED = ("prompt", "prompt_file", "chat", "start", "head", "query", "model", "as_json", "html", "save")
"""Options that every question about prompts takes."""
AGAINST = (
    *("against", "align", "key", "answer", "wrong", "basis", "draws", "seed", "open_page"),
    *ASKED,
)


def page_of(html: Path | None, open_page: bool, name: str) -> Path | None:
    """Where the page is written: where the user says, or beside them if it is only to be opened."""
    if open_page and html is None:
        html = Path(name)
        refuse_unwritable(html)
    return html


def explain_against(context: typer.Context, text: str, against: str) -> None:
    """Two prompts: why here, and not there?"""
    options.refuse_unused(context, AGAINST, "is not used with --against")
    given = context.params
    html = page_of(given["html"], given["open_page"], "difference.html")

    from headwise.model.loading.load import load
    from headwise.progress import Working
    from headwise.tokens import chat_prompt
    from headwise.why.pair.explain import explain_difference

    with Working("explaining") as progress:
        progress.stage("loading the model")
        loaded = load(given["model"])
        both = [chat_prompt(loaded.tokenizer, one) if given["chat"] else one for one in (text, against)]
        found = explain_difference(
            loaded,
            *both,
            **{name: given[name] for name in ("head", "query", "key", "answer", "wrong", "basis", "draws")},
            align=None if given["align"] is None else options.alignment(given["align"]),
            seed=given["seed"],
            start=given["start"],
            progress=progress.stage,
        )

    def shown() -> Any:
        from headwise.show.why.difference_terminal import difference

        return difference(found)

    _finish(found, shown, html, given)


def _finish(found: Any, shown: Any, html: Path | None, given: dict[str, Any]) -> None:
    """Page, file, and what is printed, as every question has them."""
    if html is not None:
        found.save_html(html)
    if given["save"] is not None:
        write_json(given["save"], found.to_json())
    page = None if html is None else html.resolve()
    finish(found.to_json(), shown, as_json=given["as_json"], page=page, saved=given["save"])
    if given["open_page"] and page is not None:
        import webbrowser

        webbrowser.open(page.as_uri())
