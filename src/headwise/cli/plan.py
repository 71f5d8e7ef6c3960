"""``headwise plan``: what each command would take for a model, before anything of it is fetched."""

from __future__ import annotations

from typing import Annotated

import typer

from headwise.cli import options
from headwise.cli.loading import asked
from headwise.cli.outputs import finish
from headwise.cli.verb import new_app

app = new_app(
    "Estimate time, memory and disk of each command for a model, from its configuration alone.",
    loads=("--dtype",),
)


@app.command()
def plan(
    model: options.Model = None,
    tokens: Annotated[int, typer.Option(min=1, max=10_000_000, help="Tokens per prompt.", metavar="T")] = 32,
    prompts: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=1_000_000_000,
            help="Prompts per study.",
            metavar="N",
            show_default="as each study takes by itself",
        ),
    ] = None,
    gpu_memory: Annotated[
        float | None,
        typer.Option(min=0.1, max=1e6, help="Plan for a GPU with so many gigabytes.", metavar="GB"),
    ] = None,
    flops: Annotated[
        float | None,
        typer.Option(
            min=1e6, max=1e21, help="Plan for a machine of so many operations per second.", metavar="F"
        ),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Estimate time, memory and disk of each command for a model, from its configuration alone.

    No weights are read, and --model may be a config.json. This machine is measured for a few seconds; --gpu-memory and
    --flops put another device in its place, whose small calls are taken to cost what they cost here. Ends with status 2
    if no command fits into memory.
    """
    from dataclasses import replace

    from headwise.model.sizes import sizes_of
    from headwise.planning.plan import plan_work
    from headwise.planning.probe import described_pace, measured_pace
    from headwise.progress import Working
    from headwise.research.cost import WORKS, reproduce_cost
    from headwise.scale.machine import memory_here

    sizes = sizes_of(model)
    with Working("planning") as progress:
        progress.stage("measuring this machine")
        pace = measured_pace(sizes)
    if flops is not None:
        pace = described_pace(flops, pace)
    available = memory_here() if gpu_memory is None else round(gpu_memory * 10**9)
    dtype = asked().settings.get("dtype", "float32")
    found = plan_work(sizes, pace, available=available, tokens=tokens, prompts=prompts, dtype=dtype)
    works = (
        reproduce_cost(work, quick, sizes, pace, available=available, dtype=dtype) for work, quick in WORKS
    )
    found = replace(found, costs=(*found.costs, *works))
    document = found.to_json()
    from headwise.show.plan import plan_table

    finish(document, lambda: plan_table(document), as_json=as_json)
    found.refuse_too_large()
