"""``headwise intervene``: do the edges of a circuit matter?"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer

from headwise.cli import options
from headwise.cli.outputs import finish
from headwise.cli.verb import new_app

app = new_app("Remove or boost edges of a traced circuit, against as many unused channels.")


@app.command()
def intervene(
    circuit: Annotated[
        Path,
        typer.Argument(
            help="A circuit that headwise trace --save wrote.", metavar="FILE", callback=options.readable
        ),
    ],
    edges: Annotated[
        list[str] | None,
        typer.Option("--edges", help="'SOURCE -> TARGET', or a node for all edges into it; may be repeated."),
    ] = None,
    top: Annotated[int | None, typer.Option(min=1, help="The N heaviest edges (default 5).")] = None,
    scope: Annotated[
        Literal["local", "global"],
        typer.Option(help="local: this head's read only; global: the residual stream."),
    ] = "local",
    action: Annotated[Literal["remove", "boost"], typer.Option(help="What is done to the edges.")] = "remove",
    faithful: Annotated[
        bool, typer.Option("--faithfulness", help="Also ablate all outside and inside the circuit.")
    ] = False,
    draws: options.Draws = 20,
    seed: options.Seed = 0,
    model: options.Model = None,
    as_json: options.Json = False,
) -> None:
    """Remove or boost edges of a traced circuit, against as many unused channels."""
    from headwise.circuits.circuit import Circuit
    from headwise.circuits.faithfulness import faithfulness
    from headwise.circuits.interventions import choose_edges
    from headwise.circuits.interventions import intervene as run
    from headwise.model.loading.load import load
    from headwise.progress import Working
    from headwise.show.circuits.terminal import effects_table

    choose_edges(
        Circuit.load(circuit), edges, top
    )  # a damaged file or a mistyped edge should not wait for the model
    loaded = load(model)
    read = Circuit.load(circuit, loaded)
    chosen = choose_edges(read, edges, top)
    sets = [[edge] for edge in chosen] + ([chosen] if len(chosen) > 1 else [])
    effects = []
    with Working("intervening") as progress:
        for number, one in enumerate(sets):
            progress.stage(f"set {number + 1} of {len(sets)}", number / len(sets))
            effects += run(loaded, read, [one], scope=scope, action=action, draws=draws, seed=seed)
        if faithful:
            progress.stage("faithfulness of the whole circuit")
        whole = faithfulness(loaded, read, draws=draws, seed=seed) if faithful else None
    document = {
        "effects": [asdict(e) for e in effects],
        "faithfulness": None if whole is None else asdict(whole),
    }
    finish(document, lambda: effects_table(effects, whole), as_json=as_json)
