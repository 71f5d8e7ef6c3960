"""Names that have moved: whoever writes an old one is told the new one."""

from __future__ import annotations

from collections.abc import Sequence

VERBS = {
    "contrast": "features TASK",
    "channels": "explain PROMPT --only what",
    "attribute": "explain PROMPT --row --features BANK",
}
OPTIONS = {
    ("trace", "--head"): "explain PROMPT --head HEAD --key KEY --only who",
    ("sinks", "--task"): "sinks TASK",
}


def moved(words: Sequence[str]) -> str | None:
    """One line for a command line of old names; None for any other.

    >>> moved(["contrast", "binding"])
    '`headwise contrast` is now `headwise features TASK`'
    >>> moved(["trace", "Once upon", "--head=L2H1"])
    '`headwise trace --head` is now `headwise explain PROMPT --head HEAD --key KEY --only who`'
    >>> moved(["trace", "--", "--head"])
    """
    verb, *rest = words
    if verb in VERBS:
        return f"`headwise {verb}` is now `headwise {VERBS[verb]}`"
    if "--" in rest:
        rest = rest[: rest.index("--")]
    for (name, option), new in OPTIONS.items():
        if verb == name and any(word.partition("=")[0] == option for word in rest):
            return f"`headwise {verb} {option}` is now `headwise {new}`"
    if verb == "trace" and "--json" in rest[:-1] and rest[rest.index("--json") + 1].endswith(".json"):
        return (
            "`headwise trace --json` prints the circuit: write it to a file with `headwise trace --save FILE`"
        )
    return None
