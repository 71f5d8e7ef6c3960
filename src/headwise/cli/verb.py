"""What every verb's file starts from."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperCommand

from headwise.cli import loading


class _LoadingCommand(TyperCommand):
    """A command that takes options that say how a model is loaded: its help ends with them."""

    takes: tuple[str, ...] = ()

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Loading the model"):
            formatter.write_dl(loading.rows(self.takes))


class _LoadingApp(typer.Typer):
    """A verb all of whose commands take such options."""

    def __init__(self, takes: tuple[str, ...], **given: Any) -> None:
        super().__init__(**given)
        self.takes = takes

    def command(self, name: str | None = None, **given: Any) -> Any:
        taking = type("_TakingCommand", (_LoadingCommand,), {"takes": self.takes})
        return super().command(name, **{"cls": taking, **given})


def new_app(help: str, *, loads: bool | tuple[str, ...] = False) -> typer.Typer:
    """A typer app for one verb, with plain help: it opens at once, pipes well and leaves errors to ``main``.

    Give it one ``@app.command()`` for a verb without subcommands. ``loads`` says that it loads a model, by
    :func:`headwise.cli.loading.load`, and so takes the options that say how; or which of them it takes.
    """
    plain: dict[str, Any] = {
        "help": help,
        "add_completion": False,
        "pretty_exceptions_enable": False,
        "rich_markup_mode": None,
        "context_settings": {"help_option_names": ["-h", "--help"]},
    }
    if not loads:
        return typer.Typer(**plain)
    return _LoadingApp(tuple(loading.OPTIONS) if loads is True else loads, **plain)


def loads(app: Any) -> tuple[str, ...]:
    """The options that a verb takes of those that say how its model is loaded."""
    return app.takes if isinstance(app, _LoadingApp) else ()
