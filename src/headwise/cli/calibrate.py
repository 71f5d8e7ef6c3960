"""``headwise calibrate``: what flows through every head of a model, for its balanced channels."""

from __future__ import annotations

from typing import Annotated

import typer

from headwise.cli import options
from headwise.cli.loading import load
from headwise.cli.outputs import finish
from headwise.cli.progress import stage_bars
from headwise.cli.verb import new_app

app = new_app(
    "Measure what flows through every head, over ordinary text: moments for balanced channels.", loads=True
)


@app.command()
def calibrate(
    corpus: Annotated[
        str | None,
        typer.Option(
            help=f"Texts: {options.A_CORPUS}; default: documentation, prompts and prose.", metavar="CORPUS"
        ),
    ] = None,
    texts: Annotated[
        int, typer.Option(min=8, max=100_000, help="Texts at most, 64 tokens of each.", metavar="N")
    ] = 240,
    model: options.Model = None,
    as_json: options.Json = False,
) -> None:
    """Measure what flows through every head, over ordinary text: moments for balanced channels.

    One pass over the texts measures all heads, and a few over random tokens the roles that explanations name. The
    result is kept for this model and these texts; the same command continues one that was interrupted, and does nothing
    where it is done.
    """
    from headwise.corpora.known import find_corpus

    given = None if corpus is None else find_corpus(corpus)  # refused, if need be, before the model is loaded
    from headwise.bases.calibrate import calibrated

    loaded = load(model)
    with stage_bars() as progress:
        found, path = calibrated(loaded, given, texts=texts, progress=progress)
    from headwise.contrast.roles import roles_once

    roles = roles_once(loaded)
    counts = None if roles is None else roles.counts
    document = {**found.to_json(), "roles": counts, "file": str(path)}
    from headwise.show.calibration import calibration_lines

    finish(document, lambda: calibration_lines(document), as_json=as_json, saved=path)
