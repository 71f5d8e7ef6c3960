"""``headwise app``: type a prompt, see every head, click a cell and see why; in the browser, on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headwise.cli import options
from headwise.cli.loading import asked, load
from headwise.cli.verb import new_app
from headwise.errors import HeadwiseError
from headwise.strings import well_formed

app = new_app("Open the app: type a prompt, see every head, click a cell and see why.", loads=True)


def _folders(values: list[Path] | None) -> list[Path]:
    for path in values or []:
        if not path.is_dir():
            raise HeadwiseError(f"--runs {str(path)!r} is not a folder: name a run folder")
    return values or []


def _no_file(value: Path | None) -> Path | None:
    if value is not None and value.exists() and not value.is_dir():
        raise HeadwiseError(
            f"--studies {str(value)!r} is not a folder: name a folder, or one that is to be made"
        )
    return value


@app.command("app")
def open_app(
    prompt: Annotated[str | None, typer.Argument(help="The text to begin with.", metavar="PROMPT")] = None,
    model: options.Model = None,
    also: Annotated[
        list[str] | None,
        typer.Option(help="Another model that the app may load; may be repeated.", metavar="M"),
    ] = None,
    runs: Annotated[
        list[Path] | None,
        typer.Option(help="A run folder to browse; may be repeated.", metavar="DIR", callback=_folders),
    ] = None,
    studies: Annotated[
        Path | None,
        typer.Option(
            help="Where studies begun in the app are kept, and found again; default: headwise-studies.",
            metavar="DIR",
            callback=_no_file,
        ),
    ] = None,
    port: Annotated[
        int,
        typer.Option(min=0, max=65535, help="The port to listen on; 0 takes any that is free.", metavar="N"),
    ] = 0,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open the link in the browser.")
    ] = True,
) -> None:
    """Open the app: type a prompt, see every head, click a cell and see why.

    It runs on this machine alone, at an address that is printed, until it is interrupted with Ctrl-C.
    """
    text = None if prompt is None else well_formed(prompt, "the prompt")
    try:
        from headwise.app.runs import Run
        from headwise.app.server import listening, serve
    except ModuleNotFoundError as error:
        if error.name not in ("starlette", "uvicorn"):
            raise
        raise HeadwiseError(
            f"the app needs the package {error.name!r}: install it with `pip install 'headwise[app]'`"
        ) from None
    from headwise.app.models import ModelChoices
    from headwise.app.session import Session
    from headwise.progress import Working

    folders = [Run.named(path) for path in runs or []]
    bound = listening(port)
    with Working("opening the app") as progress:
        progress.stage("loading the model")
        loaded = load(model)
        progress.stage("checking it")
        words, models = asked().words, ModelChoices(loaded.name, model, also or (), load)
        session = Session(loaded, folders, studies=studies, source=model, loading=words, models=models)

    def ready(link: str) -> None:
        print(f"headwise app: {link}", flush=True)
        if browser:
            import webbrowser

            webbrowser.open(link)

    try:
        serve(session, bound, query=None if text is None else {"p": text}, ready=ready)
    except KeyboardInterrupt:
        session.close()
