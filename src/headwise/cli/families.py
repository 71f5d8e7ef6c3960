"""``headwise families``: what the circuits of many prompts share, and what tells them apart."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from headwise.cli import options
from headwise.cli.loading import load, refuse_loading
from headwise.cli.outputs import finish, report_in
from headwise.cli.verb import new_app
from headwise.errors import HeadwiseError
from headwise.files import write_json

app = new_app(
    "Find the families of a run's circuits: how many, what differs, and whether they are causal.", loads=True
)


@app.command()
def families(
    runs: Annotated[
        list[Path],
        typer.Argument(help="Folders that headwise circuits made, of one model; read as one.", metavar="RUN"),
    ],
    distance: Annotated[
        Literal["signals", "edges", "heads"], typer.Option(help="What two circuits are compared by.")
    ] = "signals",
    by: Annotated[
        str | None,
        typer.Option(
            help="Treat the values of this label as the families in everything after the clustering.",
            metavar="LABEL",
        ),
    ] = None,
    no_causality: Annotated[
        bool, typer.Option("--no-causality", help="Leave out edited passes; no model is loaded.")
    ] = False,
    sample: Annotated[
        int, typer.Option(min=2, help="Prompts per family used for edited passes.", metavar="N")
    ] = 40,
    names: options.Names = None,
    seed: options.Seed = 0,
    model: options.Model = None,
    out: options.Out = None,
    as_json: options.Json = False,
) -> None:
    """Find the families of a run's circuits: how many, what differs, and whether they are causal.

    --model is needed only if the traced model is not found by its name in the run. --out is the folder 'families'
    inside the first run unless another is given.
    """
    for path in runs:
        if not path.is_dir():
            kind = "is not a folder" if path.exists() else "does not exist"
            raise HeadwiseError(
                f"the run {str(path)!r} {kind}: make one with `headwise circuits TASK --out DIR`"
            )
    if no_causality:
        refuse_loading("is not used with --no-causality, which loads no model")
    place = runs[0] / "families" if out is None else out
    options.refuse_foreign_folder(place)
    from headwise.families.study import check_model, find_families
    from headwise.progress import Working
    from headwise.survey.records import CircuitRun

    run = CircuitRun.load(*runs)
    known = None
    if names is not None:
        from headwise.known_names import KnownNames

        known = KnownNames.load(names).fit(run.config["model"], run.config["weight_hash"], run.basis)
    if len(run.traced) and by is not None and not any(by in one for one in run.labels):
        known = ", ".join(dict.fromkeys(name for one in run.labels for name in one)) or "none"
        raise HeadwiseError(f"the prompts have no label {by!r}; available labels: {known}")
    loaded = None
    if not no_causality and len(run.traced):
        from headwise.model.loading.place import refuse_remote

        if model is None:
            refuse_remote(run.config["model"])
        loaded = load(model or run.config["model"], dtype=run.config.get("dtype") or "float32")
        check_model(run, loaded)
    with Working("finding families") as progress:
        found = find_families(
            run,
            out=place,
            distance=distance,
            by=by,
            model=loaded,
            sample=sample,
            seed=seed,
            progress=lambda stage, done, total: progress.stage(stage, done / max(1, total)),
        )
        progress.stage("drawing")
        from headwise.families.aggregate import family_circuits
        from headwise.show.families.page import PAGES, write_family_pages
        from headwise.show.families.report import families_report

        named = None if known is None else found.with_names(known)
        circuits = family_circuits(found) if named is None else list(named.circuits)
        for old in (*place.glob("circuit-*.html"), place / "in_words.json"):
            old.unlink(missing_ok=True)  # of an analysis that gave way to this one
        pages = write_family_pages(found, circuits[:PAGES], place)
        families_report(found, named).write(place / "report.html")
        if named is not None:
            write_json(place / "in_words.json", named.to_json())
    from headwise.show.families.terminal import family_tables

    document = {**found.to_json(), **({} if named is None else named.to_json())}
    finish(
        document,
        lambda: family_tables(found, named),
        as_json=as_json,
        run=place,
        report=report_in(place),
        circuits=pages[0].parent / "circuit-*.html" if pages else None,
    )
