"""What every verb's file starts from."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperCommand

from headwise.cli import loading


class _LoadingCommand(TyperCommand):
    """A command that loads a model: its help ends with how."""

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Loading the model"):
            formatter.write_dl(loading.rows())


class _LoadingApp(typer.Typer):
    """A verb all of whose commands load a model."""

    def command(self, name: str | None = None, **given: Any) -> Any:
        return super().command(name, **{"cls": _LoadingCommand, **given})


def new_app(help: str, *, loads: bool = False) -> typer.Typer:
    """A typer app for one verb, with plain help: it opens at once, pipes well and leaves errors to ``main``.

    Give it one ``@app.command()`` for a verb without subcommands. ``loads`` says that it loads a model, by
    :func:`headwise.cli.loading.load`, and so takes the options that say how.
    """
    return (_LoadingApp if loads else typer.Typer)(
        help=help,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )


def loads(app: Any) -> bool:
    """Whether a verb takes the options that say how its model is loaded."""
    return isinstance(app, _LoadingApp)
