"""``headwise trace``: who made this answer, traced to a circuit."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headwise import jsons
from headwise.cli import options
from headwise.cli.loading import load
from headwise.cli.outputs import finish
from headwise.cli.prompts import read_prompt
from headwise.cli.verb import new_app
from headwise.files import write_text

WALKED = (
    *("prompt", "answer", "wrong", "opened", "begin", "top", "prompt_file", "chat", "names", "model"),
    *("as_json", "html", "save", "graphml", "attribution_graph"),
)
"""What a walk takes."""

app = new_app("Trace an answer to the circuit that made it.", loads=True)


@app.command()
def trace(
    context: typer.Context,
    prompt: options.Prompt = None,
    answer: options.Answer = None,
    wrong: options.Wrong = None,
    top_k: Annotated[
        int | None,
        typer.Option(min=1, help="Start from the probability of the K most likely tokens.", metavar="K"),
    ] = None,
    top_p: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1,
            help="Start from the smallest set of tokens whose probability reaches P.",
            metavar="P",
        ),
    ] = None,
    mode: options.Mode = "exact",
    tau: options.Tau = None,
    basis: options.Basis = "singular",
    rule: options.Rule = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Run the edited forward pass of every counterfactual.")
    ] = False,
    vectors: Annotated[
        bool, typer.Option("--vectors", help="Keep every edge's signal vector in the file.")
    ] = False,
    influence: Annotated[
        float | None,
        typer.Option(
            help="Ask only about heads through which this part of the answer passes; default 0.02.",
            metavar="P",
        ),
    ] = None,
    mlp_cover: Annotated[
        float,
        typer.Option(
            help="Follow each MLP to the strongest of what it read, until they hold this part.", metavar="P"
        ),
    ] = 0.8,
    mlp_least: Annotated[
        float, typer.Option(help="Leave out what brings an MLP less than this part.", metavar="P")
    ] = 0.05,
    mlp_floor: Annotated[
        float, typer.Option(help="Leave out what accounts for less than this weight.", metavar="W")
    ] = 0.02,
    mlp_depth: Annotated[
        int, typer.Option(min=0, help="MLPs followed one behind the other; 0: none.", metavar="N")
    ] = 3,
    opened: Annotated[
        list[str] | None,
        typer.Option(
            "--open",
            help="Walk instead: open only this box, a head's cell (L9H6@14<-3), an MLP (MLP2@4) or the answer; may be "
            "repeated.",
            metavar="NODE",
        ),
    ] = None,
    begin: Annotated[
        str | None,
        typer.Option("--from", help="Walk from this cell (L9H6@14<-3), not from the answer.", metavar="NODE"),
    ] = None,
    top: options.Top = 15,
    prompt_file: options.PromptFile = None,
    chat: options.Chat = False,
    start: options.Start = 0,
    names: options.Names = None,
    model: options.Model = None,
    as_json: options.Json = False,
    html: options.Html = None,
    save: options.Save = None,
    graphml: Annotated[Path | None, options.output_file("Write GraphML.")] = None,
    attribution_graph: Annotated[
        Path | None, options.output_file("Write the JSON that attribution-graph viewers read.")
    ] = None,
) -> None:
    """Trace an answer to the circuit that made it."""
    walks = opened is not None or begin is not None
    if walks:
        options.refuse_unused(context, WALKED, "is not used with --open and --from")
    text = read_prompt(prompt, prompt_file)
    from headwise.app.walks import walk_circuit
    from headwise.circuits.trace import trace as trace_prompt
    from headwise.progress import Working
    from headwise.show.circuits.terminal import circuit_summary
    from headwise.tokens import chat_prompt

    loaded = load(model)
    known = options.known_names(names, loaded)
    given = chat_prompt(loaded.tokenizer, text) if chat else text
    with Working("tracing") as progress:
        progress.stage("searching" + (" and verifying" if verify else ""))
        if walks:
            boxes = [one for one in opened or [] if one != "answer"]
            circuit = walk_circuit(loaded, given, opened=boxes, root=begin, answer=answer, wrong=wrong)
        else:
            circuit = trace_prompt(
                loaded,
                given,
                answer=answer,
                wrong=wrong,
                top_k=top_k,
                top_p=top_p,
                mode=mode,
                tau=tau,
                basis=basis,
                rule=rule,
                verify=verify,
                vectors=vectors,
                start=start,
                influence=influence,
                mlp_cover=mlp_cover,
                mlp_least=mlp_least,
                mlp_floor=mlp_floor,
                mlp_depth=mlp_depth,
            )
    if known is not None:
        circuit = circuit.with_names(known)
    if save is not None:
        circuit.save(save)
    if html is not None:
        from headwise.show.circuits.page import write_circuit_page

        write_circuit_page(circuit, html)
    if graphml is not None:
        circuit.to_graphml(graphml)
    if attribution_graph is not None:
        write_text(attribution_graph, jsons.dumps(circuit.to_attribution_graph(), indent=None))
    finish(
        circuit.to_json() if as_json else None,
        lambda: circuit_summary(circuit, top),
        as_json=as_json,
        page=html,
        saved=save,
        graphml=graphml,
        attribution_graph=attribution_graph,
    )
