"""``headwise contrast``: which features of query and key make a head attend, proved on unseen words."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from headwise.cli.bars import stage_bars
from headwise.cli.outputs import show_study
from headwise.cli.verb import new_app
from headwise.strings import whole_number

app = new_app("Find a task's heads, fit its features in them, and test them on what was held out.")


@app.command()
def contrast(
    task: Annotated[str, typer.Argument(help="binding, filter, or a .jsonl file of labelled prompts.")],
    model: Annotated[str | None, typer.Option(help="A known model, hub id, folder or .gguf.")] = None,
    heads: Annotated[str, typer.Option(help="auto (by scanning) or a list such as L18H6,L20H3.")] = "auto",
    prompts: Annotated[int | None, typer.Option(help="Prompts to fit each contrast on.")] = None,
    test: Annotated[int | None, typer.Option(help="Prompts to test on (a third of --prompts).")] = None,
    scan: Annotated[int | None, typer.Option(help="Prompts to scan heads on (a third of --prompts).")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Run folder: tables, features, report; resumed if interrupted.")
    ] = None,
    through_model: Annotated[
        bool, typer.Option("--through-model", help="Also run the edited forward pass and report the answers.")
    ] = False,
    answers: Annotated[int, typer.Option(min=2, help="Test prompts for --through-model.")] = 64,
    draws: Annotated[int, typer.Option(help="Random subspaces to compare with, at least 100.")] = 100,
    energy: Annotated[float, typer.Option(help="Energy that the published rank rule must reach.")] = 0.99,
    max_rank: Annotated[int, typer.Option(help="Largest subspace that is swapped.")] = 9,
    contrasts: Annotated[str | None, typer.Option(help="binding: some of order,lexical,reflexive.")] = None,
    variant: Annotated[str | None, typer.Option(help="binding: triplet or run, for lexical.")] = None,
    pairs: Annotated[int | None, typer.Option(help="binding: entity–box pairs in a prompt.")] = None,
    categories: Annotated[str | None, typer.Option(help="filter: 5, 13 or a list of names.")] = None,
    items: Annotated[int | None, typer.Option(help="filter: items of each category in a list.")] = None,
    hold_out: Annotated[str | None, typer.Option(help="JSONL: the group that is held out.")] = None,
    jitter: Annotated[
        bool, typer.Option("--jitter", help="Vary lengths, so that order is not place.")
    ] = False,
    format: Annotated[str | None, typer.Option(help="plain, few-shot or chat.")] = None,
    umap: Annotated[bool, typer.Option("--umap", help="Add UMAP pictures to the report (slow).")] = False,
    seed: Annotated[int, typer.Option(help="Seed of everything random.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Find a task's heads, fit its features in them, and test them on what was held out."""
    from headwise.contrast.study import find_features
    from headwise.model.loading.load import load
    from headwise.tasks.names import check_task_name

    check_task_name(task)
    options = task_options(
        prompts=prompts, test=test, scan=scan, contrasts=contrasts, variant=variant, pairs=pairs,
        categories=categories, items=items, hold_out=hold_out, jitter=jitter or None, format=format,
    )  # fmt: skip
    loaded = load(model)
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
            seed=seed,
            progress=progress,
            **options,
        )
    if out is not None:
        from headwise.show.contrast.report import features_report

        features_report(run, umap=umap).write(out / "report.html")
    from headwise.show.contrast.terminal import run_tables

    show_study(run.to_json(), lambda: run_tables(run), out, as_json=as_json)


def task_options(**given: Any) -> dict[str, Any]:
    """Options of a task as it takes them: lists split, what was not given left out."""
    found = {key: value for key, value in given.items() if value is not None}
    if "contrasts" in found:
        found["contrasts"] = tuple(part.strip() for part in found["contrasts"].split(","))
    if "categories" in found:
        text = found["categories"]
        number = whole_number(text)
        found["categories"] = [part.strip() for part in text.split(",")] if number is None else number
    return found
