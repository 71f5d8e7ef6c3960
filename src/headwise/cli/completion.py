"""``headwise completion SHELL``: what a shell needs to complete verbs, options and their values.

The script asks headwise itself: with ``_HEADWISE_COMPLETE`` set, ``headwise WORDS…`` prints what the last word may
become, one candidate per line with its help after a tab. Nothing is printed where a file is meant: shells know
files better.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

import typer

from headwise.cli.verb import new_app

app = new_app("Print the script that makes a shell complete headwise's commands.")

BASH = """\
_headwise_complete() {
    local line
    COMPREPLY=()
    while IFS= read -r line; do
        COMPREPLY+=("${line%%$'\\t'*}")
    done < <(_HEADWISE_COMPLETE=1 "${COMP_WORDS[0]}" "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -o default -F _headwise_complete headwise
"""

ZSH = """\
#compdef headwise
_headwise() {
    local -a found
    found=("${(@f)$(_HEADWISE_COMPLETE=1 "${words[1]}" "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    if [[ -n "${found[1]}" ]]; then
        found=("${(@)found//:/\\\\:}")
        found=("${(@)found/$'\\t'/:}")
        _describe -V headwise found
    else
        _files
    fi
}
if [[ "${funcstack[1]}" = _headwise ]]; then
    _headwise "$@"
else
    compdef _headwise headwise
fi
"""

FISH = """\
function _headwise_complete
    set -l words (commandline -opc) (commandline -ct)
    set -l found (_HEADWISE_COMPLETE=1 $words[1] $words[2..-1] 2>/dev/null)
    if test (count $found) -gt 0
        printf '%s\\n' $found
    else
        __fish_complete_path (commandline -ct)
    end
end
complete -c headwise -f -a '(_headwise_complete)'
"""

SCRIPTS = {"bash": BASH, "zsh": ZSH, "fish": FISH}


@app.command()
def completion(
    shell: Annotated[Literal["bash", "zsh", "fish"], typer.Argument(help="Your shell.", metavar="SHELL")],
) -> None:
    """Print the script that makes a shell complete headwise's commands.

    bash: source <(headwise completion bash), in ~/.bashrc. zsh: source <(headwise completion zsh), in ~/.zshrc after
    compinit. fish: headwise completion fish > ~/.config/fish/completions/headwise.fish
    """
    print(SCRIPTS[shell], end="")


def candidates(words: Sequence[str]) -> list[tuple[str, str]]:
    """What the last of ``words`` (those after ``headwise``) may become, each with a line of help; none for a file.

    >>> candidates(["expl"])
    [('explain', 'why does this head attend here? what, who, and proof')]
    >>> candidates(["trace", "text", "--mode", ""])
    [('exact', ''), ('published', '')]
    """
    from importlib import import_module

    from headwise.cli import loading
    from headwise.cli.main import OPTIONS, VERBS
    from headwise.cli.verb import loads

    # bash takes `--mode=ex` apart into three words.
    *before, last = [word for word in words if word != "="] or [""]
    last = "" if words and words[-1] == "=" else last
    before, given = loading.apart([word for word in before if word not in OPTIONS])
    name, joined, value = last.partition("=")
    if None in given.values():  # an option that waits for its value
        asked = next(name for name, value in given.items() if value is None)
        return [(one, "") for one in loading.OPTIONS[asked].values if one.startswith(last)]
    how = {name: option.help for name, option in loading.OPTIONS.items()}
    if not before:
        found = {verb: line for verb, (_, line) in VERBS.items()} | OPTIONS | how
        return [(name, line) for name, line in found.items() if _fits(name, last)]
    if before[0] not in VERBS:
        return []
    app = import_module(VERBS[before[0]][0]).app
    shared = OPTIONS | {name: how[name] for name in loads(app)}
    if joined and name in how and name in shared:
        return [(f"{name}={one}", "") for one in loading.OPTIONS[name].values if one.startswith(value)]
    command = typer.main.get_command(app)
    rest = before[1:]
    while rest and rest[0] in getattr(command, "commands", {}):
        command, rest = command.commands[rest[0]], rest[1:]  # pyright: ignore[reportAttributeAccessIssue]
    return list(_within(command, rest, last, shared))


def _within(
    command: Any, before: Sequence[str], last: str, shared: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    """Candidates inside one command, whose words so far are ``before``; ``shared``: options of many."""
    options = {name: p for p in command.params for name in p.opts if name.startswith("-")}
    asked, places = None, 0
    for word in before:
        if asked is not None:
            asked = None
        elif word.startswith("-") and len(word) > 1:
            option = options.get(word)
            asked = option if option is not None and not option.is_flag else None
        else:
            places += 1
    name, joined, value = last.partition("=")
    if asked is not None:
        yield from ((value, "") for value in _values(command, asked, last))
    elif joined and name in options:
        yield from ((f"{name}={found}", "") for found in _values(command, options[name], value))
    elif last.startswith("-"):
        helps = {name: getattr(p, "help", "") or "" for name, p in options.items()} | dict(shared)
        yield from ((name, line) for name, line in helps.items() if _fits(name, last))
    else:
        for name, under in getattr(command, "commands", {}).items():
            if name.startswith(last):
                yield name, under.get_short_help_str(80)
        arguments = [p for p in command.params if not any(name.startswith("-") for name in p.opts)]
        if places < len(arguments):
            yield from ((value, "") for value in _values(command, arguments[places], last))


def _values(command: Any, parameter: Any, last: str) -> list[str]:
    """The values of an option or argument that are known by name; of a file none."""
    found = parameter.shell_complete(typer.Context(command), last)
    return [item.value for item in found if item.type == "plain"]


def _fits(name: str, last: str) -> bool:
    # Options are offered to whoever begins one, not to whoever looks for a command.
    return name.startswith(last) and (last != "" or not name.startswith("-"))


def complete(words: Sequence[str]) -> None:
    """Print the candidates for a shell."""
    from headwise.strings import printable

    for name, line in candidates(words):
        print(f"{name}\t{' '.join(printable(line).split())}" if line else name)
