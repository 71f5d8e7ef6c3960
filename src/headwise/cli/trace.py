"""``headwise trace``: who made this answer, traced to a circuit; or who made one head attend somewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headwise import jsons
from headwise.cli.outputs import print_json
from headwise.cli.verb import new_app
from headwise.errors import HeadwiseError
from headwise.files import write_text

app = new_app("Trace an answer to the circuit that made it, or one attention to the signals that cause it.")


@app.command()
def trace(
    prompt: Annotated[str, typer.Argument(help="The text the model reads.")],
    answer: Annotated[
        str | None, typer.Option(help="The answer's token; default: what the model predicts.")
    ] = None,
    wrong: Annotated[str | None, typer.Option(help="A token it is compared with.")] = None,
    top_k: Annotated[
        int | None, typer.Option(help="Start from the probability of the k likeliest tokens.")
    ] = None,
    top_p: Annotated[
        float | None, typer.Option(help="… of the likeliest tokens that reach this probability.")
    ] = None,
    head: Annotated[str | None, typer.Option(help="Trace only this head's attention (with --key).")] = None,
    query: Annotated[str, typer.Option(help="With --head: the token that attends.")] = "-1",
    key: Annotated[str | None, typer.Option(help="With --head: the token attended to.")] = None,
    side: Annotated[str, typer.Option(help="With --head: query, key or both.")] = "both",
    mode: Annotated[
        str, typer.Option(help="exact, or published: the authors' rules to the letter.")
    ] = "exact",
    tau: Annotated[float | None, typer.Option(help="Threshold of attention; default 2.5 / keys.")] = None,
    rule: Annotated[str | None, typer.Option(help="Integration rule: gauss or trapezoid.")] = None,
    verify: Annotated[
        bool, typer.Option(help="Run the edited forward pass of every counterfactual.")
    ] = False,
    vectors: Annotated[bool, typer.Option(help="Keep every edge's signal vector in the file.")] = False,
    top: Annotated[int, typer.Option(min=1, help="How many edges to show.")] = 15,
    model: Annotated[str | None, typer.Option(help="A known model, hub id, folder or .gguf.")] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the circuit; - prints it.")] = None,
    html: Annotated[Path | None, typer.Option(help="Draw the circuit on a page that opens offline.")] = None,
    graphml: Annotated[Path | None, typer.Option(help="Write GraphML.")] = None,
    attribution_graph: Annotated[
        Path | None, typer.Option(help="Write the JSON attribution-graph viewers read.")
    ] = None,
) -> None:
    """Trace an answer to the circuit that made it, or one attention to the signals that cause it."""
    from headwise.circuits.trace import trace as trace_prompt
    from headwise.model.loading.load import load
    from headwise.model.progress import Progress
    from headwise.show.circuits.terminal import circuit_summary
    from headwise.show.kit.terminal import console

    if head is not None:
        _one_firing(prompt, head, query, key, side, mode, tau, rule, model)
        return
    if key is not None:
        raise HeadwiseError(f"--key {key!r} was given without --head: say which head attends there")
    loaded = load(model)
    with Progress("tracing") as progress:
        progress.stage("searching" + (" and verifying" if verify else ""))
        circuit = trace_prompt(
            loaded, prompt, answer=answer, wrong=wrong, top_k=top_k, top_p=top_p, mode=mode, tau=tau, rule=rule,
            verify=verify, vectors=vectors,
        )  # fmt: skip
    if json_file is not None and str(json_file) != "-":
        circuit.save(json_file)
    if html is not None:
        from headwise.show.circuits.page import write_circuit_page

        write_circuit_page(circuit, html)
    if graphml is not None:
        circuit.to_graphml(graphml)
    if attribution_graph is not None:
        write_text(attribution_graph, jsons.dumps(circuit.to_attribution_graph(), indent=None))
    if json_file is not None and str(json_file) == "-":
        print_json(circuit.to_json())
        return
    out = console()
    out.print(circuit_summary(circuit, top))
    for path in (json_file, html, graphml, attribution_graph):
        if path is not None:
            out.print(f"written: {path}", markup=False)


def _one_firing(
    prompt: str, head: str, query: str, key: str | None, side: str, mode: str, tau: float | None, rule: str | None,
    model: str | None,
) -> None:  # fmt: skip
    from headwise.circuits.firing import trace_firing
    from headwise.model.loading.load import load
    from headwise.show.circuits.terminal import firing_table
    from headwise.show.kit.terminal import console
    from headwise.tokens import one_cell

    if key is None:
        raise HeadwiseError(f"--head {head} needs --key: the token it attends to, as text or position")
    loaded = load(model)
    tokens = loaded.tokens(prompt)
    d, s = one_cell(tokens, query, key)
    found = trace_firing(loaded, prompt, head, d, s, tau=tau, side=side, mode=mode, rule=rule)
    console().print(firing_table(found))
