"""``headwise name``: what heads, writers and signals respond to, in words that hold on texts they were not found on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from headwise.cli import options, sharing
from headwise.cli.loading import load
from headwise.cli.outputs import finish
from headwise.cli.progress import stage_bars
from headwise.cli.verb import new_app
from headwise.errors import HeadwiseError

app = new_app(
    "Name what heads, writers and signals respond to, and test every name on other texts.", loads=True
)


@app.command()
def name(
    source: Annotated[
        str | None,
        typer.Argument(
            help="'all' for every head, a head (L23H3), 'L23H3 key MLP18', 'L23H3 key ch2 MLP18 ++', 'L23H3 sink', "
            "several separated by commas, a circuit file, a run folder, or a feature bank.",
            metavar="SOURCE",
            show_default=False,
        ),
    ] = None,
    corpus: Annotated[
        str | None,
        typer.Option(
            help=f"Texts: {options.A_CORPUS}.",
            metavar="CORPUS",
        ),
    ] = None,
    texts: Annotated[int, typer.Option(min=2, help="Texts of the corpus to read.", metavar="N")] = 1500,
    tokens: Annotated[int, typer.Option(min=16, help="Tokens of each text to read.", metavar="N")] = 64,
    top: Annotated[
        int, typer.Option(min=1, help="Subjects to name; of circuits, the strongest.", metavar="N")
    ] = 500,
    by: Annotated[
        Literal["rules", "llm", "both"],
        typer.Option(help="Who gives names: rules, a language model, or both side by side."),
    ] = "rules",
    llm: Annotated[
        str | None,
        typer.Option(
            help="The language model: its name at --base-url, a .gguf file, or a transformers model (folder or hub "
            "id), which judges by P(yes). It must pass an exam.",
            metavar="MODEL",
        ),
    ] = None,
    base_url: Annotated[
        str | None,
        typer.Option(
            help="An OpenAI-compatible endpoint. Texts are sent there; without it nothing leaves this machine. Its "
            "key is read from OPENAI_API_KEY.",
            metavar="URL",
        ),
    ] = None,
    cap: Annotated[
        int | None,
        typer.Option(min=1, help="Tokens that may be sent.", metavar="N", show_default="5 million"),
    ] = None,
    words: Annotated[
        list[str] | None,
        typer.Option(
            help="A word list that rules may use: a file of one word per line, a folder of WordNet's files, or "
            "textblob. Can be given more than once.",
            metavar="FILE",
        ),
    ] = None,
    causal: Annotated[
        bool,
        typer.Option(
            "--causal",
            help="Change texts so that each name becomes false or true, beside matched changes, and measure again.",
        ),
    ] = False,
    basis: options.Basis = "singular",
    split_seed: Annotated[
        int, typer.Option(min=0, help="Another split of the texts; labelled a second look.", metavar="N")
    ] = 0,
    model: options.Model = None,
    out: options.Out = None,
    workers: sharing.MoreWorkers = None,
    ray: sharing.Ray = None,
    selftest: Annotated[
        bool,
        typer.Option(
            "--selftest", help="Name planted rules and noise instead, to see that naming itself works."
        ),
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Name what heads, writers and signals respond to, and test every name on other texts."""
    from headwise.naming.llm.choice import llm_choice

    llm_choice(by, llm, base_url, cap, causal=causal)  # refused before a model is loaded
    if selftest and by != "rules":
        raise HeadwiseError(f"--selftest tests names by rules: leave out --by {by}")
    if (source is None) == (not selftest):
        raise HeadwiseError(
            "nothing says what to name: give a head (L23H3), all, a circuit file or a run folder"
            if source is None
            else f"SOURCE {source} and --selftest both say what to name: give one of them"
        )
    from headwise.corpora.known import find_corpus
    from headwise.naming.predicates.lexicon import lexicon_of

    lexicon_of(words or ())  # refused before a model is loaded
    held = find_corpus(corpus)
    if out is not None:
        from headwise.scale.place import refuse_taken

        refuse_taken(out, "names")

    if selftest:
        from headwise.naming.selftest import self_test

        found = self_test(load(model), held, texts=texts, tokens=tokens)
        from headwise.show.naming.terminal import selftest_table

        finish(found.to_json(), lambda: selftest_table(found), as_json=as_json)
        return
    from headwise.naming.run import find_names

    assert source is not None
    with stage_bars(_counted) as progress:
        found = find_names(
            load(model),
            source,
            corpus=held,
            texts=texts,
            tokens=tokens,
            top=top,
            by=by,
            llm=llm,
            base_url=base_url,
            cap=cap,
            words=words or (),
            basis=basis,
            causal=causal,
            split_seed=split_seed,
            out=out,
            workers=sharing.share_work(workers, ray),
            progress=progress,
        )
    _finish(found, out, as_json)


def _counted(stage: str) -> str:
    return "subject" if stage.endswith("names") else "rule" if stage == "exam" else "text"


def _finish(found: Any, out: Path | None, as_json: bool) -> None:
    page = None
    if out is not None:
        from headwise.show.naming.page import write_names_page

        page = write_names_page(found, out / "names.html")
    from headwise.show.naming.terminal import names_table

    finish(found.to_json(), lambda: names_table(found), as_json=as_json, run=out, page=page)
