"""``headwise doctor``: is what headwise sees of this model what the model computes?"""

from __future__ import annotations

from typing import Annotated

import typer

from headwise.cli.outputs import print_json
from headwise.cli.verb import new_app

app = new_app("Check a model: captured numbers against the model's own, each with its error and tolerance.")


@app.command()
def doctor(
    model: Annotated[
        str | None, typer.Argument(help="A known model, hub id, folder or .gguf (default: smollm2).")
    ] = None,
    revision: Annotated[str | None, typer.Option(help="Branch, tag or commit of a hub model.")] = None,
    dtype: Annotated[str, typer.Option(help="float32, float64, bfloat16 or float16.")] = "float32",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Check a model: captured numbers against the model's own, each with its error and tolerance."""
    from headwise.model.check import examine
    from headwise.model.loading.load import load

    diagnosis = examine(load(model, revision=revision, dtype=dtype, check=False))
    if as_json:
        print_json(diagnosis.to_json())
    else:
        from headwise.show.kit.terminal import console, diagnosis_table

        console().print(diagnosis_table(diagnosis))
    if not diagnosis.ok:
        raise typer.Exit(1)
