"""``headwise explain``: why does this head attend here? What made the score, who wrote it, and proof."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from headwise.cli import options, sharing
from headwise.cli.loading import load
from headwise.cli.outputs import finish
from headwise.cli.prompts import read_prompt
from headwise.cli.verb import new_app
from headwise.errors import HeadwiseError
from headwise.files import refuse_unwritable, write_json

if TYPE_CHECKING:
    from headwise.contrast.bank import FeatureBank

app = new_app(
    "Say why a head attends from one token to another: what made the score, who wrote it, and proof.",
    loads=True,
)


@app.command()
def explain(
    context: typer.Context,
    prompt: options.Prompt = None,
    head: options.Head = None,
    query: options.Query = None,
    key: options.Key = None,
    answer: options.Answer = None,
    wrong: options.Wrong = None,
    generate: Annotated[
        int | None,
        typer.Option(min=1, max=1000, help="Let the model write N tokens, and ask about one.", metavar="N"),
    ] = None,
    written: Annotated[
        str | None,
        typer.Option(
            help="With --generate: which one, as text or position (default: the last).", metavar="TOKEN"
        ),
    ] = None,
    features: options.Features = None,
    unsupported: Annotated[
        bool, typer.Option("--unsupported", help="With --features: use those that swaps do not support, too.")
    ] = False,
    only: Annotated[
        Literal["what", "who"] | None, typer.Option(help="Print only this part, with every number in it.")
    ] = None,
    top: Annotated[
        int,
        typer.Option(
            min=1,
            help="With --only: how many channels, or signals on each side, to show; with --row: how many keys.",
            metavar="N",
        ),
    ] = 10,
    row: Annotated[
        bool,
        typer.Option(
            "--row", help="Explain the whole row: which keys, and why each; with --features, by features."
        ),
    ] = False,
    method: Annotated[
        Literal["sequential", "shapley"],
        typer.Option(help="With --row --features: how features share a logit."),
    ] = "sequential",
    tau: options.Tau = None,
    basis: options.Basis = "singular",
    draws: options.ControlDraws = 999,
    seed: options.Seed = 0,
    prompt_file: options.PromptFile = None,
    chat: options.Chat = False,
    start: options.Start = 0,
    transfer: Annotated[
        list[str] | None,
        typer.Option(
            help="Another prompt in which the same writers are taken away; may be repeated.",
            metavar="PROMPT",
            callback=options.texts,
        ),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(
            help="Another prompt: why is this read here, and not there?",
            metavar="PROMPT",
            callback=options.one_text,
        ),
    ] = None,
    task: options.TaskOption = None,
    prompts: Annotated[int, typer.Option(min=1, help="With --task: how many prompts.", metavar="N")] = 100,
    out: options.Out = None,
    workers: sharing.MoreWorkers = None,
    ray: sharing.Ray = None,
    align: options.Alignment = None,
    vocabulary: Annotated[
        bool,
        typer.Option(
            "--vocabulary", help="Look at channels and writers through the vocabulary, too; pages always do."
        ),
    ] = False,
    names: options.Names = None,
    model: options.Model = None,
    as_json: options.Json = False,
    html: options.Html = None,
    save: options.Save = None,
    open_page: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
) -> None:
    """Say why a head attends from one token to another: what made the score, who wrote it, and proof.

    With only a prompt the question is found: the head that brings most of the model's answer to the last token, and
    the token that it reads.
    """
    if task is not None:
        from headwise.cli.explain_more import explain_task

        explain_task(context, task)
        return
    every = {str(parameter.name) for parameter in context.command.params}
    options.refuse_unused(context, every - {"prompts", "out", "workers", "ray"}, "is used only with --task")
    text = read_prompt(prompt, prompt_file)
    if against is not None:
        from headwise.cli.explain_more import explain_against

        explain_against(context, text, against)
        return
    if row:
        from headwise.cli.explain_row import by_features, by_writers

        if features:
            by_features(context, text, _banks(features, unsupported))
        else:
            by_writers(context, text)
        return
    options.refuse_unused(context, every - {"method"}, "is used only with --row --features BANK")
    if only is None:
        options.refuse_unused(context, every - {"top"}, "is used only with --only or --row")
    if align is not None and len(transfer or []) != 1:
        raise HeadwiseError(
            "--align is used with --against PROMPT or one --transfer PROMPT: give it, or leave --align out"
        )
    if generate is None:
        options.refuse_unused(context, every - {"written"}, "is used only with --generate")
    elif answer is not None:
        raise HeadwiseError("--answer is not used with --generate: the answer is what the model writes")
    if open_page and html is None:
        html = Path("explanation.html")
        refuse_unwritable(html)

    from headwise.contrast.roles import roles_once
    from headwise.progress import Working
    from headwise.tokens import chat_prompt
    from headwise.why.explain import explain as explain_prompt

    with Working("explaining") as progress:
        progress.stage("loading the model")
        loaded = load(model)
        given = chat_prompt(loaded.tokenizer, text) if chat else text
        progress.stage("roles of heads")  # measured once for a model, kept beside it
        roles_once(loaded)
        why = explain_prompt(
            loaded,
            given,
            head=head,
            query=query,
            key=key,
            answer=answer,
            wrong=wrong,
            generate=generate,
            written=written,
            features=_banks(features, unsupported),
            tau=tau,
            basis=basis,
            draws=draws,
            seed=seed,
            start=start,
            transfer=[chat_prompt(loaded.tokenizer, other) if chat else other for other in transfer or ()],
            align=None if align is None else options.alignment(align),
            vocabulary=vocabulary or html is not None,
            names=names,
            progress=progress.stage,
        )
    if html is not None:
        why.save_html(html)
    if save is not None:
        write_json(save, why.to_json())
    if only is None:
        from headwise.show.why.terminal import explanation

        document, table = why.to_json(), lambda: explanation(why, vocabulary=vocabulary)
    else:
        document, table = _part(loaded, given, why, only, top)
    finish(document, table, as_json=as_json, page=None if html is None else html.resolve(), saved=save)
    if open_page and html is not None:
        import webbrowser

        webbrowser.open(html.resolve().as_uri())


def _part(model: Any, prompt: Any, why: Any, only: str, top: int) -> tuple[dict[str, Any], Any]:
    """One part of an explanation in full: its document, and a function that makes its tables."""
    from headwise.show.why.parts import what_in_full, who_in_full

    whole = why.to_json()
    shared = (
        *("schema", "model", "prompt", "tokens", "start"),
        *("head", "query", "key", "attention", "logit", "basis", "log_odds"),
    )
    if only == "who":
        document = {name: whole[name] for name in (*shared, "who", "cause")}
        return document, lambda: who_in_full(why, top)
    document = {name: whole[name] for name in (*shared, "relative", "place", "what")}
    from headwise.bases.cell import split_cell

    # The control: the same score along directions that are not the head's own.
    split = split_cell(model, prompt, why.head, why.query, why.key, basis=why.basis.kind, start=why.start)
    basis = split.basis
    document["channels"] = {
        "log_odds": [part.log_odds for part in sorted(why.what.channels, key=lambda part: part.channel)],
        "energies": basis.energies.tolist(),
        "rank": int(basis.rank),
        "condition": float(basis.condition),
        "control": split.control.tolist(),
        "control_sparsity": split.control_sparsity,
        "control_channels_needed": split.control_channels_needed,
    }
    return document, lambda: what_in_full(why, split, top)


def _banks(paths: list[Path] | None, unsupported: bool) -> list[FeatureBank]:
    """The banks of features, without those that swaps do not support unless these are asked for."""
    if not paths:
        if unsupported:
            raise HeadwiseError("--unsupported is used only with --features BANK: give one, or leave it out")
        return []
    from headwise.contrast.bank import FeatureBank

    banks = [FeatureBank.load(path) for path in paths]
    return [bank.with_unsupported() for bank in banks] if unsupported else banks
