"""``headwise VERB ...``: find the verb's module, run it, and turn what goes wrong into one line.

To add a verb, write ``headwise/cli/<verb>.py`` with an ``app`` made by ``headwise.cli.verb.new_app`` and add
one row to ``VERBS``. A verb's module is imported only when that verb is called, so ``headwise --help`` never
waits for torch; for the same reason verbs import what is heavy inside their functions.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any, NoReturn

from headwise.errors import HeadwiseError, NeedsSetting
from headwise.strings import printable

# heading: verb: what it does in one line; shown in this order
GROUPS: dict[str, dict[str, str]] = {
    "Look at one prompt": {
        "app": "type a prompt, click a cell, see why: in the browser, on this machine",
        "attention": "which heads attend from where to where, and the model's answer",
        "explain": "why does this head attend here? what, who, and proof",
        "trace": "trace an answer to the circuit that made it",
        "intervene": "remove edges of a circuit, or silence heads, and see what changes",
    },
    "Find in many": {
        "heads": "rank every head of the model on a task",
        "head": "everything known about one head on a page, or an atlas of all heads",
        "features": "find a task's heads and features, and test them on unseen words",
        "circuits": "trace the circuits of many prompts of a task into one folder",
        "families": "families of a run's circuits: how many, what differs, are they causal",
        "sinks": "which heads park attention, which signals make them, and proof",
        "name": "what heads and signals respond to, in words tested on other texts",
        "sparsity": "how few channels carry a task's attention, beside five nulls",
    },
    "Worlds with known answers": {"toy": "payload, alignment, training"},
    "The research behind it": {"reproduce": "the paper's or the talk's figures and tables, made again"},
    "Models": {
        "models": "list, get and remove models",
        "calibrate": "measure what flows through every head, for balanced channels",
        "corpus": "list and get texts to measure on",
        "doctor": "check that a model is captured, edited and split exactly",
    },
    "Beyond one machine": {
        "plan": "estimate time, memory and disk of each command for a model",
        "copy": "copy a finished run to a bucket, a server or another folder",
    },
    "Shell": {"completion": "the script that makes bash, zsh or fish complete commands"},
}
# verb: (module, what it does in one line)
VERBS: dict[str, tuple[str, str]] = {
    verb: (f"headwise.cli.{verb}", line) for verbs in GROUPS.values() for verb, line in verbs.items()
}

# for every verb, before or after its name
OPTIONS = {"--help": "what there is", "--quiet": "no progress on stderr", "--version": "the version"}
QUIET = ("-q", "--quiet")
WRONG_USE = 2
INTERRUPTED = 130


def run() -> None:
    """Entry point of the ``headwise`` command."""
    from headwise.cli.streams import prepare

    try:
        prepare()
        if "_HEADWISE_COMPLETE" in os.environ:
            _complete()
        code = main(sys.argv[1:], start_again=_start_again)
    except HeadwiseError as error:
        code = _complain(str(error))
    with suppress(HeadwiseError, OSError):  # said already, or nobody reads any more
        sys.stdout.flush()
    sys.stderr.flush()
    # All work is done and written. Taking a loaded model and torch apart module by module would cost two more seconds.
    os._exit(code)


def main(
    arguments: Sequence[str], *, start_again: Callable[[Mapping[str, str]], None] = lambda variables: None
) -> int:
    """Run the command line ``arguments``; the exit code.

    ``start_again`` is told the environment variables without which this process cannot do what was asked.

    >>> main(["explane"])
    2
    """
    try:
        code = _dispatch(list(arguments))
        sys.stdout.flush()
    except NeedsSetting as error:
        start_again(error.variables)
        return _complain(str(error))
    except HeadwiseError as error:
        return _complain(str(error))
    except KeyboardInterrupt:
        print("\nheadwise: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # The reader (head, less) has gone; what Python would still flush on exit has nowhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return code


def _complete() -> NoReturn:
    """Answer a shell that asks what the word under the cursor may become."""
    from headwise.cli.completion import complete

    with suppress(Exception):  # a shell has no use for a complaint
        complete(sys.argv[1:])
        sys.stdout.flush()
    os._exit(0)


def _start_again(variables: Mapping[str, str]) -> None:
    from headwise.model.loading.half import restart

    restart(variables)


def _dispatch(arguments: list[str]) -> int:
    from headwise.cli.loading import loading_as, taken
    from headwise.cli.progress import live_bar
    from headwise.progress import drawn_by, silenced

    arguments, quiet = _without_quiet(arguments)
    arguments, loading = taken(arguments)
    with silenced(quiet), drawn_by(live_bar), loading_as(loading):
        return _run_verb(arguments)


def _without_quiet(arguments: list[str]) -> tuple[list[str], bool]:
    """``--quiet`` is meant for every verb, so it may come before or after it; after ``--`` it is text.

    >>> _without_quiet(["explain", "-q", "--", "--quiet"])
    (['explain', '--', '--quiet'], True)
    """
    end = arguments.index("--") if "--" in arguments else len(arguments)
    kept = [word for word in arguments[:end] if word not in QUIET]
    return kept + arguments[end:], len(kept) < end


def _run_verb(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(overview())
        return 0
    end = arguments.index("--") if "--" in arguments else len(arguments)
    if arguments[0] == "-V" or "--version" in arguments[:end]:
        print(f"headwise {_version()}")
        return 0
    name, rest = arguments[0], arguments[1:]
    from headwise.cli.renamed import moved

    if (line := moved(arguments)) is not None:
        raise HeadwiseError(line)
    if name not in VERBS:
        from difflib import get_close_matches

        what = "option" if name.startswith("-") else "command"
        near = get_close_matches(name, [*VERBS, "--help", "--version"], n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise HeadwiseError(f"there is no {what} {name!r}: {hint}`headwise --help` lists what there is")
    app = import_module(VERBS[name][0]).app
    _refuse_loading(name, app)
    if "--ray" in rest:
        from headwise.cli.sharing import with_address

        rest = with_address(rest)
    try:
        code = app(args=rest, prog_name=f"headwise {name}", standalone_mode=False)
    except HeadwiseError as error:
        error.args = (_with_flags(str(error), app),)
        raise
    except Exception as error:
        # Which library raises a usage error depends on typer's version (some carry their own copy of click).
        if not hasattr(error, "format_message"):
            if type(error).__name__ == "Abort":
                raise KeyboardInterrupt from error
            raise
        raise HeadwiseError(f"{_one_line(error, rest)} (see `headwise {name} --help`)") from error
    return code if isinstance(code, int) else 0


def _refuse_loading(name: str, app: Any) -> None:
    """Options that say how a model is loaded, given to a verb that does not take them."""
    from headwise.cli.loading import refuse_loading
    from headwise.cli.verb import loads

    refuse_loading(f"says how a model is loaded, and is not used by `headwise {name}`", but=loads(app))


def _with_flags(message: str, app: Any) -> str:
    """A message that names the command's options where the library names its parameters."""
    if "=" not in message:
        return message
    from typer.main import get_command

    from headwise.cli import loading
    from headwise.cli.flags import options, with_flags
    from headwise.cli.verb import loads

    shared = {loading.OPTIONS[name].parameter: name for name in loads(app)}
    return with_flags(message, {**shared, **options(get_command(app))})


def overview() -> str:
    """What ``headwise --help`` prints."""
    width = max(map(len, VERBS))
    parts = ["headwise: why does this attention head attend here?\n\nUsage: headwise COMMAND ..."]
    for heading, verbs in GROUPS.items():
        rows = "\n".join(f"  {name:<{width}}  {line}" for name, line in verbs.items())
        parts.append(f"{heading}:\n{rows}")
    from headwise.cli.loading import rows as loading

    widest = max(len(option) for option, _ in loading())
    how = "\n".join(f"  {option:<{widest}}  {line}" for option, line in loading())
    parts.append(f"Options of commands that load a model, before or after the command:\n{how}")
    parts.append(
        "Options, before or after any command:\n"
        "  -h, --help     this page; `headwise COMMAND --help` for one command\n"
        "  -q, --quiet    no progress on stderr\n"
        "  -V, --version  the version"
    )
    return "\n\n".join(parts)


def _one_line(error: Exception, arguments: Sequence[str] = ()) -> str:
    """A usage error of the option parser as one line that quotes what was given."""
    from headwise.strings import shortened

    words = str(getattr(error, "format_message")()).split()  # noqa: B009
    text = (
        " ".join(shortened(word, 80) for word in words)
        .rstrip(".")
        .replace(": Input should", ": it should")
        .replace(": Value error, ", ": ")
        .replace("(Possible options", "(possible options")
    )
    text = text[:1].lower() + text[1:]
    found = _BAD_VALUE.match(text)
    given = _value_of(found[1], arguments) if found else None
    if found and given is not None and repr(given) not in text:
        text = f"invalid value {shortened(given)!r} for {found[1]}{text[found.end() :]}"
    return text


_BAD_VALUE = re.compile(r"invalid value for '(--[\w-]+)'")


def _value_of(option: str, arguments: Sequence[str]) -> str | None:
    """What was given for an option.

    >>> _value_of("--draws", ["text", "--draws", "0"]), _value_of("--draws", ["--draws=-1"]), _value_of("--draws", [])
    ('0', '-1', None)
    """
    for word, after in zip(arguments, [*arguments[1:], None], strict=False):
        if word == option:
            return after
        if word.startswith(f"{option}="):
            return word.removeprefix(f"{option}=")
    return None


def _complain(message: str) -> int:
    print("headwise: " + printable(" ".join(message.split())), file=sys.stderr)
    return WRONG_USE


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("headwise")
    except PackageNotFoundError:
        return "(not installed)"


if __name__ == "__main__":
    run()
