"""``headwise copy``: a finished run, to any place that fsspec reaches."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headwise.cli import options
from headwise.cli.outputs import finish
from headwise.cli.verb import new_app

app = new_app("Copy a finished run to a bucket, a server or another folder, and compare every byte.")


def _run(value: Path) -> Path:
    from headwise.scale.copying import finished_run

    finished_run(value)
    return value


@app.command()
def copy(
    run: Annotated[Path, typer.Argument(help="The folder of a finished run.", metavar="RUN", callback=_run)],
    url: Annotated[
        str,
        typer.Argument(
            help="A new place, such as s3://bucket/runs/ioi (with s3fs installed).", metavar="URL"
        ),
    ],
    as_json: options.Json = False,
) -> None:
    """Copy a finished run to a bucket, a server or another folder, and compare every byte.

    Studies work in a folder of a disk; where they end up is up to you. The run stays where it is.
    """
    from headwise.scale.copying import copy_run
    from headwise.scale.disk import size_text

    count = copy_run(run, url)
    document = {"run": str(run), "url": url, "bytes": count}
    finish(document, lambda: f"copied {size_text(count)} to {url}", as_json=as_json)
