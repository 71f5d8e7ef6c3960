"""``headwise plan``: what each command would take for a model, before anything of it is fetched."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from headwise.cli import options
from headwise.cli.outputs import finish
from headwise.cli.verb import new_app
from headwise.errors import HeadwiseError

app = new_app("Estimate time, memory and disk of each command for a model, from its configuration alone.")


@app.command()
def plan(
    model: options.Model = None,
    tokens: Annotated[int, typer.Option(min=1, max=10_000_000, help="Tokens of a prompt.", metavar="T")] = 32,
    prompts: Annotated[
        int, typer.Option(min=1, max=1_000_000_000, help="Prompts of a study.", metavar="N")
    ] = 300,
    dtype: Annotated[
        Literal["float32", "bfloat16", "float16"], typer.Option(help="Precision of the weights.")
    ] = "float32",
    gpu_memory: Annotated[
        float | None, typer.Option(min=0.1, help="Plan for a GPU with so many gigabytes.", metavar="GB")
    ] = None,
    flops: Annotated[
        float | None,
        typer.Option(min=1e6, help="Plan for a machine of so many operations per second.", metavar="F"),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Estimate time, memory and disk of each command for a model, from its configuration alone.

    No weights are read. This machine's pace is measured in a few seconds, unless --flops says that of another one.
    """
    from headwise.model.sizes import sizes_of
    from headwise.scale.machine import memory_here
    from headwise.scale.plan import plan_work
    from headwise.scale.probe import MachinePace, measured_pace

    if (gpu_memory is None) != (flops is None):
        raise HeadwiseError(
            "--gpu-memory and --flops describe one machine: give both, or neither for this one"
        )
    sizes = sizes_of(model)
    pace = measured_pace(sizes, tokens) if flops is None else MachinePace(flops, 0.0, 0.0)
    available = memory_here() if gpu_memory is None else round(gpu_memory * 10**9)
    found = plan_work(sizes, pace, tokens=tokens, prompts=prompts, available=available, dtype=dtype)
    document = found.to_json()
    from headwise.show.plan import plan_table

    finish(document, lambda: plan_table(document), as_json=as_json)
    found.refuse_too_large()
