"""A cell in its text: the tokens around it, the one that attends and the one it attends to marked."""

from __future__ import annotations

from collections.abc import Sequence

from headwise.show.kit.escape import attribute, text

TITLES = {"both": "attends to itself", "to": "attends", "from": "is attended to"}


def in_context(tokens: Sequence[str], destination: int, source: int) -> str:
    """The tokens as markup; ``destination`` and ``source`` are among them.

    >>> in_context(["<a>", " b"], 1, 0)
    '<bdi><mark class=from title="is attended to">&lt;a&gt;</mark><mark class=to title="attends"> b</mark></bdi>'
    """
    shown = []
    for at, token in enumerate(tokens):
        both = at == destination == source
        kind = "both" if both else "to" if at == destination else "from" if at == source else ""
        said = text(token)
        shown.append(f"<mark class={kind} title={attribute(TITLES[kind])}>{said}</mark>" if kind else said)
    return f"<bdi>{''.join(shown)}</bdi>"
