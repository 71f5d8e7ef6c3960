"""``headwise reproduce``: the paper or the talk, figure by figure, beside what comes out here."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from headwise.cli import options, sharing
from headwise.cli.loading import asked
from headwise.cli.outputs import finish, report_in
from headwise.cli.progress import stage_bars
from headwise.cli.verb import new_app

app = new_app("Make every figure and table of the paper or the talk again, beside what it says.", loads=True)


def _folder(value: Path | None) -> Path | None:
    from headwise.research.place import refuse_other_folder

    if value is not None:
        refuse_other_folder(value)
    return value


@app.command()
def reproduce(
    work: Annotated[
        Literal["paper", "talk"],
        typer.Argument(
            help="paper: contrastive covariances in QK space; talk: attention from first principles.",
            metavar="WORK",
        ),
    ],
    quick: Annotated[bool, typer.Option("--quick", help="Everything at a small size, in minutes.")] = False,
    model: options.Model = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder of all studies; the same command continues there.", metavar="DIR", callback=_folder
        ),
    ] = None,
    workers: sharing.MoreWorkers = None,
    ray: sharing.Ray = None,
    as_json: options.Json = False,
) -> None:
    """Make every figure and table of the paper or the talk again, beside what it says.

    Each is made by a headwise command with a run folder of its own; the report says claim by claim what the work says,
    what came out, whether that supports it, and which command made it. Without --quick it takes a night on a laptop.
    """
    from headwise.research.report import reproduced_report
    from headwise.research.reproduce import reproduce as make

    folder = out or Path(f"reproduced-{work}{'-quick' if quick else ''}")
    engine = (
        *(() if workers is None else ("--workers", str(workers))),
        *(() if ray is None else (f"--ray={ray}",)),
    )
    with stage_bars(lambda _stage: "study") as progress:
        found = make(
            work, model, out=folder, quick=quick, engine=engine, loading=asked().words, progress=progress
        )
    reproduced_report(found).write(folder / "report.html")
    from headwise.show.research.terminal import reproduced_table

    document = found.to_json()
    report = report_in(folder)
    finish(document, lambda: reproduced_table(document), as_json=as_json, run=folder, report=report)
