"""``headwise features``: which features of query and key make a head attend, proved on unseen words or texts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from headwise.cli import options as words
from headwise.cli import sharing
from headwise.cli.loading import load
from headwise.cli.outputs import finish, report_in
from headwise.cli.progress import stage_bars
from headwise.cli.verb import new_app
from headwise.strings import whole_number

if TYPE_CHECKING:
    from headwise.scale.cluster import WorkSharing

app = new_app(
    "Find a task's heads, fit its features in them, and test them on what was held out.", loads=True
)
UNLABELLED = (
    "task",
    "heads",
    "corpus",
    "texts",
    "max_rank",
    "seed",
    "model",
    "out",
    "workers",
    "ray",
    "as_json",
)
"""What features without labels take."""


@app.command()
def features(
    context: typer.Context,
    task: words.OptionalLabelledTask = None,
    heads: words.Heads = "auto",
    corpus: Annotated[
        str | None,
        typer.Option(help=f"Without labels: {words.A_CORPUS}; default: documentation.", metavar="CORPUS"),
    ] = None,
    texts: Annotated[
        int, typer.Option(min=24, max=100_000, help="Without labels: texts at most.", metavar="N")
    ] = 240,
    prompts: Annotated[
        int | None,
        typer.Option(
            min=1, help="binding, filter: prompts to fit each contrast on; default 600.", metavar="N"
        ),
    ] = None,
    test: Annotated[
        int | None,
        typer.Option(min=1, help="Prompts to test on; default: a third of --prompts.", metavar="N"),
    ] = None,
    scan: Annotated[
        int | None,
        typer.Option(min=1, help="Prompts to scan heads on; default: a third of --prompts.", metavar="N"),
    ] = None,
    through_model: Annotated[
        bool, typer.Option("--through-model", help="Also run the edited forward pass and report the answers.")
    ] = False,
    answers: Annotated[int, typer.Option(min=2, help="Test prompts for --through-model.", metavar="N")] = 64,
    draws: Annotated[
        int,
        typer.Option(min=100, help="Meaningless subspaces of each kind to compare with.", metavar="N"),
    ] = 200,
    energy: Annotated[
        float, typer.Option(min=0, max=1, help="Energy that the published rank rule must reach.", metavar="P")
    ] = 0.99,
    max_rank: Annotated[int, typer.Option(min=1, help="Dimensions of a subspace at most.", metavar="N")] = 9,
    contrasts: Annotated[
        str | None, typer.Option(help="binding: some of order,lexical,reflexive.", metavar="NAMES")
    ] = None,
    variant: Annotated[
        Literal["triplet", "run"] | None, typer.Option(help="binding: the kind of lexical contrast.")
    ] = None,
    pairs: words.Pairs = None,
    categories: words.Categories = None,
    items: Annotated[
        int | None, typer.Option(min=1, help="filter: items of each category in a list.", metavar="N")
    ] = None,
    hold_out: Annotated[
        str | None, typer.Option(help="JSONL: the group that is held out.", metavar="GROUP")
    ] = None,
    jitter: words.Jitter = False,
    format: words.Format = None,
    umap: Annotated[bool, typer.Option("--umap", help="Add UMAP pictures to the report (slow).")] = False,
    names: words.Names = None,
    seed: words.Seed = 0,
    model: words.Model = None,
    out: words.Out = None,
    workers: sharing.MoreWorkers = None,
    ray: sharing.Ray = None,
    as_json: words.Json = False,
) -> None:
    """Find a task's heads, fit its features in them, and test them on what was held out.

    Without a TASK, features are found from the heads' own attention over ordinary text, and measured on other texts.
    """
    if task is None:
        words.refuse_unused(context, UNLABELLED, "is of a TASK with labels, and none was given")
        _without_labels(
            heads, corpus, texts, max_rank, seed, model, out, sharing.share_work(workers, ray), as_json
        )
        return
    every = {str(parameter.name) for parameter in context.command.params}
    words.refuse_unused(
        context, every - {"corpus", "texts"}, f"is of ordinary text, and TASK {task} has labels"
    )
    options = task_options(
        task,
        prompts=prompts,
        test=test,
        scan=scan,
        contrasts=contrasts,
        variant=variant,
        pairs=pairs,
        categories=categories,
        items=items,
        hold_out=hold_out,
        jitter=jitter or None,
        format=format,
    )
    from headwise.contrast.study import find_features

    loaded = load(model)
    known = words.known_names(names, loaded)
    with stage_bars() as progress:
        run = find_features(
            loaded,
            task,
            heads=heads,
            out=out,
            draws=draws,
            energy=energy,
            max_rank=max_rank,
            through_model=answers if through_model else 0,
            workers=sharing.share_work(workers, ray),
            seed=seed,
            progress=progress,
            **options,
        )
    if out is not None:
        from headwise.show.contrast.report import features_report

        features_report(run, umap=umap, names=known).write(out / "report.html")
    from headwise.show.contrast.terminal import run_tables

    document = run.to_json()
    if known is not None:
        document["names"] = known.to_json(run.subjects)
    finish(document, lambda: run_tables(run, known), as_json=as_json, run=out, report=report_in(out))


def _without_labels(
    heads: str,
    corpus: str | None,
    texts: int,
    max_rank: int,
    seed: int,
    model: str | None,
    out: Path | None,
    workers: WorkSharing,
    as_json: bool,
) -> None:
    from headwise.corpora.known import find_corpus

    given = find_corpus(corpus)  # refused, if need be, before the model is loaded
    if out is not None:
        from headwise.scale.place import refuse_taken

        refuse_taken(out, "unlabelled")
    from headwise.contrast.unlabelled.study import FITTING, find_unlabelled

    loaded = load(model)
    with stage_bars(lambda stage: "head" if stage == FITTING else "text") as progress:
        found = find_unlabelled(
            loaded,
            given,
            heads=heads,
            texts=texts,
            max_rank=max_rank,
            out=out,
            workers=workers,
            seed=seed,
            progress=progress,
        )
    from headwise.show.contrast.unlabelled import unlabelled_report, unlabelled_tables

    if out is not None:
        unlabelled_report(found).write(out / "report.html")
    finish(found.to_json(), lambda: unlabelled_tables(found), as_json=as_json, run=out, report=report_in(out))


def task_options(task: str, **given: Any) -> dict[str, Any]:
    """Options of a task as it takes them: lists split, what was not given left out, what it does not take refused."""
    found = {key: value for key, value in given.items() if value is not None}
    if "contrasts" in found:
        found["contrasts"] = tuple(part.strip() for part in found["contrasts"].split(","))
    if "categories" in found:
        text = found["categories"]
        number = whole_number(text)
        found["categories"] = [part.strip() for part in text.split(",")] if number is None else number
    from headwise.tasks.labelled.make import check_task_options

    check_task_options(task, found)
    return found
