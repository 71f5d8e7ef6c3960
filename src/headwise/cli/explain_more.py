"""What else ``headwise explain`` answers: two prompts, many prompts, a whole row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from headwise.cli import options, sharing
from headwise.cli.loading import load
from headwise.cli.outputs import finish
from headwise.errors import HeadwiseError
from headwise.files import refuse_unwritable, write_json

ASKED = ("prompt", "prompt_file", "chat", "start", "head", "query", "model", "as_json", "html", "save")
"""Options that every question about prompts takes."""
AGAINST = (
    *("against", "align", "key", "answer", "wrong", "basis", "draws", "seed", "open_page"),
    *ASKED,
)

TASK = (
    "task",
    "head",
    "query",
    "key",
    "prompts",
    "basis",
    "seed",
    "model",
    "out",
    "workers",
    "as_json",
    "html",
    "save",
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


def explain_task(context: typer.Context, task: str) -> None:
    """Many prompts: how often and how much does each writer take part?"""
    if context.params["prompt"] is not None:
        raise HeadwiseError("PROMPT and --task were both given: leave one of them out")
    options.refuse_unused(context, TASK, "is not used with --task")
    given = context.params

    from headwise.cli.outputs import report_in
    from headwise.cli.progress import stage_bars
    from headwise.why.many.study import explain_many

    loaded = load(given["model"])
    out, html, save = given["out"], given["html"], given["save"]
    with stage_bars() as progress:
        found = explain_many(
            loaded,
            task,
            head=given["head"],
            query=-1 if given["query"] is None else given["query"],
            **{name: given[name] for name in ("key", "prompts", "basis", "out", "seed")},
            workers=sharing.share_work(given["workers"], given["ray"]),
            progress=progress,
        )
    for page in (html, report_in(out)):
        if page is not None:
            found.save_html(page)
    if save is not None:
        write_json(save, found.to_json())

    def shown() -> Any:
        from headwise.show.why.many import explanations_table

        return explanations_table(found)

    places = {"page": html, "run": out, "report": report_in(out), "saved": save}
    finish(found.to_json(), shown, as_json=given["as_json"], **places)


def _finish(found: Any, shown: Any, html: Path | None, given: dict[str, Any]) -> None:
    """Page, file, and what is printed, as every question has them."""
    if html is not None:
        found.save_html(html)
    if given["save"] is not None:
        write_json(given["save"], found.to_json())
    page = None if html is None else html.resolve()
    finish(found.to_json(), shown, as_json=given["as_json"], page=page, saved=given["save"])
    open_if(given["open_page"], page)


def open_if(wanted: bool, page: Path | None) -> None:
    """Open a page in the browser, where that was asked for."""
    if wanted and page is not None:
        import webbrowser

        webbrowser.open(page.as_uri())
