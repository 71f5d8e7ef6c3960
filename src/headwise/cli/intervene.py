"""``headwise intervene``: take edges of a circuit away and see what the model does."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from headwise.cli.outputs import print_json
from headwise.cli.verb import new_app

app = new_app("Remove or boost edges of a traced circuit, against as many unused channels.")


@app.command()
def intervene(
    circuit: Annotated[Path, typer.Argument(help="A circuit written by headwise trace --json.")],
    edges: Annotated[
        list[str] | None,
        typer.Option("--edges", help="'SOURCE -> TARGET', or a node for all edges into it; repeatable."),
    ] = None,
    top: Annotated[int | None, typer.Option(help="The N heaviest edges (default 5).")] = None,
    scope: Annotated[
        str, typer.Option(help="local: this head's read only; global: the residual stream.")
    ] = "local",
    action: Annotated[str, typer.Option(help="remove or boost.")] = "remove",
    draws: Annotated[int, typer.Option(min=1, help="Random controls for each set of edges.")] = 20,
    seed: Annotated[int, typer.Option(help="Seed of the controls.")] = 0,
    faithful: Annotated[
        bool, typer.Option("--faithfulness", help="Also ablate all outside and inside the circuit.")
    ] = False,
    model: Annotated[str | None, typer.Option(help="A known model, hub id, folder or .gguf.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Remove or boost edges of a traced circuit, against as many unused channels."""
    from headwise.circuits.circuit import Circuit
    from headwise.circuits.faithfulness import faithfulness
    from headwise.circuits.interventions import choose_edges
    from headwise.circuits.interventions import intervene as run
    from headwise.model.loading.load import load
    from headwise.model.progress import Progress
    from headwise.show.circuits.terminal import effects_table
    from headwise.show.kit.terminal import console

    Circuit.load(circuit)  # a damaged file should not wait for the model
    loaded = load(model)
    read = Circuit.load(circuit, loaded)
    chosen = choose_edges(read, edges, top)
    sets = [[edge] for edge in chosen] + ([chosen] if len(chosen) > 1 else [])
    effects = []
    with Progress("intervening") as progress:
        for number, one in enumerate(sets):
            progress.stage(f"set {number + 1} of {len(sets)}", number / len(sets))
            effects += run(loaded, read, [one], scope=scope, action=action, draws=draws, seed=seed)  # pyright: ignore[reportArgumentType]
        if faithful:
            progress.stage("faithfulness of the whole circuit")
        whole = faithfulness(loaded, read, draws=draws, seed=seed) if faithful else None
    if as_json:
        document = {
            "effects": [asdict(e) for e in effects],
            "faithfulness": None if whole is None else asdict(whole),
        }
        print_json(document)
        return
    console().print(effects_table(effects, whole))
