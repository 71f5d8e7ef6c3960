"""What every verb's file starts from."""

from __future__ import annotations

import typer


def new_app(help: str) -> typer.Typer:
    """A typer app for one verb, with plain help: it opens at once, pipes well and leaves errors to ``main``.

    Give it one ``@app.command()`` for a verb without subcommands.
    """
    return typer.Typer(
        help=help,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
