"""``headwise intervene``: do the edges of a circuit, or the heads of a prompt, matter?"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from headwise.cli import options
from headwise.cli.loading import load
from headwise.cli.outputs import finish, report_in
from headwise.cli.prompts import read_prompt
from headwise.cli.verb import new_app
from headwise.errors import HeadwiseError

app = new_app(
    "Remove, boost or patch edges of a circuit, or silence and patch heads of a prompt.", loads=True
)

OF_EDGES = ("edges", "top", "action", "scope", "faithful")
OF_HEADS = ("answer", "wrong", "prompt_file", "chat", "start")
OF_TASK = ("task", "prompts", "out", "top", "scope", "draws", "seed", "model", "as_json")


@app.command()
def intervene(
    context: typer.Context,
    given: Annotated[
        str | None,
        typer.Argument(
            help="A circuit that headwise trace --save wrote; or a prompt, with --silence, --mean or --patch.",
            metavar="FILE|PROMPT",
            show_default=False,
        ),
    ] = None,
    edges: Annotated[
        list[str] | None,
        typer.Option(
            "--edges",
            help="'SOURCE -> TARGET', or a node for all edges into it; may be repeated.",
            metavar="EDGE",
        ),
    ] = None,
    top: Annotated[
        int | None, typer.Option(min=1, help="The N heaviest edges (default 5).", metavar="N")
    ] = None,
    action: Annotated[
        Literal["remove", "boost", "patch"], typer.Option(help="What is done to the edges.")
    ] = "remove",
    silence: Annotated[
        str | None,
        options.placed_heads("Heads that write nothing, at all positions or at one: L22H4,L18H6@13."),
    ] = None,
    mean: Annotated[
        str | None, options.placed_heads("Heads that write what they write on average over ordinary text.")
    ] = None,
    patch: Annotated[
        str | None, options.placed_heads("Heads that write what they write in the prompt of --from.")
    ] = None,
    source: Annotated[
        str | None,
        typer.Option("--from", help="The other prompt, whose values are patched in.", metavar="PROMPT"),
    ] = None,
    align: options.Alignment = None,
    task: Annotated[
        str | None,
        typer.Option(
            help="Trace this task's prompts (ioi, greater-than, pronouns, facts or a file) and take away the heaviest "
            "edges of each.",
            metavar="TASK",
        ),
    ] = None,
    prompts: Annotated[int, typer.Option(min=2, help="With --task: how many prompts.", metavar="N")] = 40,
    out: options.Out = None,
    scope: Annotated[
        Literal["local", "global"] | None,
        typer.Option(
            help="local: this head's read only (default); global: the residual stream (default with --task)."
        ),
    ] = None,
    faithful: Annotated[
        bool, typer.Option("--faithfulness", help="Also ablate all outside and inside the circuit.")
    ] = False,
    answer: options.Answer = None,
    wrong: options.Wrong = None,
    draws: options.Draws = 20,
    seed: options.Seed = 0,
    prompt_file: options.PromptFile = None,
    chat: options.Chat = False,
    start: options.Start = 0,
    model: options.Model = None,
    as_json: options.Json = False,
) -> None:
    """Remove, boost or patch edges of a circuit, or silence and patch heads of a prompt.

    Edges are compared with as many unused channels of the same components, heads with as many other heads of the same
    layers.
    """
    asked = [
        (name, heads)
        for name, heads in (("silence", silence), ("mean", mean), ("patch", patch))
        if heads is not None
    ]
    if len(asked) > 1:
        raise HeadwiseError(f"--{asked[0][0]} and --{asked[1][0]} were both given: leave one of them out")
    every = {str(parameter.name) for parameter in context.command.params}
    if task is not None:
        options.refuse_unused(context, OF_TASK, "is not used with --task")
        _task(task, prompts, top or 5, scope or "global", draws, seed, model, out, as_json)
        return
    options.refuse_unused(context, every - {"task", "prompts", "out"}, "is used only with --task")
    if asked:
        options.refuse_unused(context, every - set(OF_EDGES), f"is not used with --{asked[0][0]}")
    else:
        options.refuse_unused(
            context, every - set(OF_HEADS), "is used only with --silence, --mean or --patch"
        )
    patching = "--patch" if asked else "--action patch"
    if (asked[0][0] if asked else action) != "patch":
        options.refuse_unused(context, every - {"source", "align"}, f"is used only with {patching}")
    elif source is None:
        raise HeadwiseError(f"{patching} takes values from another prompt: give it with --from PROMPT")
    pairs = None if align is None else options.alignment(align)
    if asked:
        text, (name, heads) = read_prompt(given, prompt_file), asked[0]
        listed = heads.split(",")
        _heads(text, listed, name, source, pairs, answer, wrong, draws, seed, chat, start, model, as_json)
        return
    if given is None:
        raise HeadwiseError("a circuit is missing: give FILE, or PROMPT with --silence, --mean or --patch")
    file = Path(given)
    options.readable(file)
    _edges(file, edges, top, scope or "local", action, source, pairs, faithful, draws, seed, model, as_json)


def _task(
    task: str,
    prompts: int,
    top: int,
    scope: Any,
    draws: int,
    seed: int,
    model: str | None,
    out: Path | None,
    as_json: bool,
) -> None:
    from headwise.circuits.task_effects import intervene_task
    from headwise.cli.progress import stage_bars
    from headwise.scale.folder import opened
    from headwise.show.circuits.task_effects import task_effects_report, task_effects_table
    from headwise.tasks.names import check_answer_task

    check_answer_task(task)
    loaded = load(model)
    asked = {"task": task, "prompts": prompts, "top": top, "scope": scope, "draws": draws, "seed": seed}
    with opened(out, "intervene", {**asked, "weight_hash": loaded.weight_hash}) as folder:
        with stage_bars() as progress:
            found = intervene_task(
                loaded,
                task,
                prompts=prompts,
                top=top,
                scope=scope,
                draws=draws,
                seed=seed,
                progress=progress,
            )
        document = found.to_json()
        if folder:
            folder.write_json("effects.json", {"schema": 1, **document})
            task_effects_report(found).write(folder.place("report.html"))
            folder.finish("effects.json", "report.html")
    finish(document, lambda: task_effects_table(found), as_json=as_json, run=out, report=report_in(out))


def _edges(
    file: Path,
    edges: list[str] | None,
    top: int | None,
    scope: Any,
    action: Any,
    source: str | None,
    align: dict[int, int] | None,
    faithful: bool,
    draws: int,
    seed: int,
    model: str | None,
    as_json: bool,
) -> None:
    from headwise.circuits.circuit import Circuit
    from headwise.circuits.faithfulness import faithfulness
    from headwise.circuits.interventions import choose_edges
    from headwise.circuits.interventions import intervene as run
    from headwise.progress import Working
    from headwise.show.circuits.terminal import effects_table

    choose_edges(
        Circuit.load(file), edges, top
    )  # a damaged file or a mistyped edge should not wait for the model
    loaded = load(model)
    read = Circuit.load(file, loaded)
    chosen = choose_edges(read, edges, top)
    sets = [[edge] for edge in chosen] + ([chosen] if len(chosen) > 1 else [])
    effects = []
    with Working("intervening") as progress:
        for number, one in enumerate(sets):
            progress.stage(f"set {number + 1} of {len(sets)}", number / len(sets))
            effects += run(
                loaded,
                read,
                [one],
                scope=scope,
                action=action,
                source=source,
                align=align,
                draws=draws,
                seed=seed,
            )
        if faithful:
            progress.stage("faithfulness of the whole circuit")
        whole = faithfulness(loaded, read, draws=draws, seed=seed) if faithful else None
    document = {
        "effects": [asdict(e) for e in effects],
        "faithfulness": None if whole is None else asdict(whole),
    }
    finish(document, lambda: effects_table(effects, whole), as_json=as_json)


def _heads(
    text: str,
    heads: list[str],
    action: Any,
    source: str | None,
    align: dict[int, int] | None,
    answer: str | None,
    wrong: str | None,
    draws: int,
    seed: int,
    chat: bool,
    start: int,
    model: str | None,
    as_json: bool,
) -> None:
    from headwise.progress import Working
    from headwise.show.circuits.terminal import head_effects_table
    from headwise.tokens import chat_prompt
    from headwise.why.head_effects import intervene_heads

    with Working("intervening") as progress:
        progress.stage("loading the model")
        loaded = load(model)

        def placed(prompt: str) -> Any:
            return chat_prompt(loaded.tokenizer, prompt) if chat else prompt

        progress.stage(f"{action} of {len(heads)} heads")
        effects = intervene_heads(
            loaded,
            placed(text),
            [*heads, *([heads] if len(heads) > 1 else [])],
            action=action,
            source=None if source is None else placed(source),
            align=align,
            answer=answer,
            wrong=wrong,
            draws=draws,
            seed=seed,
            start=start,
        )
    document = {"prompt": text, "start": start, "from": source, "effects": [asdict(e) for e in effects]}
    finish(document, lambda: head_effects_table(effects), as_json=as_json)
