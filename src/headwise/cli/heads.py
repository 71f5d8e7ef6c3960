"""``headwise heads``: which heads do this task?"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from headwise.cli import options, sharing
from headwise.cli.features import task_options
from headwise.cli.loading import load
from headwise.cli.outputs import finish
from headwise.cli.progress import stage_bars
from headwise.cli.verb import new_app
from headwise.errors import HeadwiseError
from headwise.tasks.names import LABELLED

app = new_app(
    "Rank every head of the model on a task in one pass, or measure the roles of all heads.", loads=True
)

ROLES = ("roles", "top", "seed", "model", "as_json")
VOCABULARY = ("vocabulary", "basis", "top", "model", "as_json")


@app.command()
def heads(
    context: typer.Context,
    task: options.OptionalLabelledTask = None,
    roles: Annotated[
        bool,
        typer.Option(
            "--roles", help="What every head does on random tokens; with TASK, its rank there, too."
        ),
    ] = False,
    vocabulary: Annotated[
        str | None,
        typer.Option(
            help="Show this head through the vocabulary instead; no TASK.",
            metavar="HEAD",
            callback=options.head,
        ),
    ] = None,
    basis: options.Basis = "singular",
    prompts: Annotated[int, typer.Option(min=4, help="Prompts to scan on.", metavar="N")] = 200,
    top: options.Top = 10,
    pairs: options.Pairs = None,
    categories: options.Categories = None,
    jitter: options.Jitter = False,
    format: options.Format = None,
    seed: options.Seed = 0,
    model: options.Model = None,
    workers: sharing.MoreWorkers = None,
    ray: sharing.Ray = None,
    as_json: options.Json = False,
) -> None:
    """Rank every head of the model on a task in one pass, or measure the roles of all heads.

    Roles are previous token, duplicate token, induction, first token and self, on random tokens that are read twice;
    with a task, each head's rank on it stands beside its role.
    The vocabulary view of one head lists the tokens that its channels read and that it writes, by the weights alone.
    """
    if vocabulary is not None:
        options.refuse_unused(context, VOCABULARY, "is not used with --vocabulary")
        _vocabulary(vocabulary, basis, top, model, as_json)
        return
    every = {str(one.name) for one in context.command.params}
    options.refuse_unused(context, every - {"basis"}, "is used only with --vocabulary")
    if task is None:
        if not roles:
            raise HeadwiseError("a task is missing: give TASK, or --roles")
        options.refuse_unused(context, ROLES, "is not used with --roles and no task")
        _roles(top, seed, model, as_json)
        return
    settings = task_options(task, pairs=pairs, categories=categories, jitter=jitter or None, format=format)
    if task in LABELLED:
        # Only the scanning prompts are used; the others are made as few as the task allows.
        settings |= {"prompts": 60, "test": 4, "scan": prompts}
    else:
        options.refuse_unused(context, every - {"prompts"}, "is not used with prompts of your own")
    from headwise.contrast.heads import choose_heads
    from headwise.contrast.roles import head_roles
    from headwise.contrast.study import scan_heads
    from headwise.tasks.labelled.make import make_task

    loaded = load(model)
    made = make_task(task, loaded.tokenizer, seed=seed, **settings)
    if task not in LABELLED:
        made = made.scanning_everything()
    with stage_bars() as progress:
        scores = scan_heads(
            loaded, made, workers=sharing.share_work(workers, ray), seed=seed, progress=progress
        )
    chosen = choose_heads(scores, made.rule)
    document = {
        "task": made.name,
        "rule": made.rule,
        "prompts": len(made.scan),
        "clusters": {"of": made.scan.clusters().name, "number": len(made.scan.clusters())},
        "heads": [s.to_json() for s in scores],
        "chosen": [str(h) for h in chosen],
    }
    if roles:
        from headwise.show.contrast.terminal import roles_table

        found = head_roles(loaded, seed=seed)
        finish(
            {**found.to_json(), "task": document},
            lambda: roles_table(found, top, made.name, scores),
            as_json=as_json,
        )
        return
    from headwise.contrast.rows import HeadRow
    from headwise.show.contrast.terminal import heads_table

    rows = [HeadRow.of(s, chosen=s.head in chosen) for s in scores[:top]]
    finish(document, lambda: heads_table(rows, made.rule, over=made.scan), as_json=as_json)


def _vocabulary(head: str, basis: Any, top: int, model: str | None, as_json: bool) -> None:
    from headwise.show.contrast.terminal import vocabulary_table
    from headwise.why.vocabulary import head_vocabulary

    found = head_vocabulary(load(model), head, basis=basis, top=top)
    finish(found.to_json(), lambda: vocabulary_table(found), as_json=as_json)


def _roles(top: int, seed: int, model: str | None, as_json: bool) -> None:
    from headwise.contrast.roles import head_roles
    from headwise.progress import Working
    from headwise.show.contrast.terminal import roles_table

    with Working("measuring") as progress:
        progress.stage("loading the model")
        loaded = load(model)
        progress.stage("roles of all heads")
        found = head_roles(loaded, seed=seed)
    finish(found.to_json(), lambda: roles_table(found, top), as_json=as_json)
