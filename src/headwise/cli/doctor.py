"""``headwise doctor``: is what headwise sees of this model what the model computes?"""

from __future__ import annotations

from typing import Annotated

import typer

from headwise.cli import options
from headwise.cli.loading import load
from headwise.cli.outputs import finish
from headwise.cli.verb import new_app

app = new_app(
    "Check a model: captured numbers against the model's own, each with its error and tolerance.", loads=True
)


@app.command()
def doctor(
    model: options.ModelArgument = None,
    revision: Annotated[
        str | None, typer.Option(help="Branch, tag or commit of a hub model.", metavar="REV")
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Check a model: captured numbers against the model's own, each with its error and tolerance.

    Exit code 0: every check passed; 1: one failed; 2: the model cannot be read, and one line says why.
    """
    from headwise.model.check import examine

    diagnosis = examine(load(model, revision=revision, check=False))
    from headwise.show.kit.terminal import diagnosis_table

    finish(diagnosis.to_json(), lambda: diagnosis_table(diagnosis), as_json=as_json)
    if not diagnosis.ok:
        raise typer.Exit(1)
