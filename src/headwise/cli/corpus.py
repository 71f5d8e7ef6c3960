"""``headwise corpus``: which texts there are to measure on, whose they are, and how to get more."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from headwise.cli import options
from headwise.cli.outputs import print_json
from headwise.cli.verb import new_app
from headwise.strings import printable

app = new_app("List the corpora that go by a name, or get one.")


@app.callback(invoke_without_command=True)
def corpus(context: typer.Context, as_json: options.Json = False) -> None:
    """List the corpora that go by a name, or get one."""
    if context.invoked_subcommand is not None:
        return
    rows = listing()
    if as_json:
        print_json({"schema": 1, "corpora": rows})
        return
    for row in rows:
        print(f"{row['name']}: {row['title']} ({row['licence']})")
        print(f"  from {row['source']}")
        print(f"  {'ready' if row['ready'] else 'headwise corpus get ' + row['name']}")
    print(
        "your own: a folder of .txt or .md files, or a .txt, .jsonl or .parquet file, wherever --corpus is asked for"
    )


@app.command()
def get(
    name: Annotated[
        str, typer.Argument(help="wikipedia-excerpt, or another that is listed.", metavar="NAME")
    ],
) -> None:
    """Fetch a corpus, check it, strip it of markup and keep it."""
    from headwise.corpora.known import get_corpus
    from headwise.corpus import read_corpus

    found = get_corpus(name)
    if found.package:
        texts = read_corpus(found.path)
        print(printable(f"{found.name} is ready: {len(texts)} paragraphs in {found.path}"))
    else:
        print(f"{found.name} needs no download")
    print(f"{found.title}; {found.source}; licence: {found.licence}")


def listing() -> list[dict[str, Any]]:
    """One row per corpus."""
    from headwise.corpora.known import KNOWN

    return [
        {
            "name": one.name,
            "title": one.title,
            "licence": one.licence,
            "source": one.source,
            "ready": one.ready,
            "path": str(one.path) if one.package and one.ready else None,
        }
        for one in KNOWN
    ]
