"""The names of what an explanation mentions: its head, its writers, channels, signals and features.

Names come from a run of ``headwise name``; whatever is said here has the verdict of its test beside it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headwise.known_names import KnownName, channel_id, feature_id, signal_id, sink_id, writer_id
from headwise.types import Component, Side

if TYPE_CHECKING:
    from headwise.why.explanation import Explanation

SAID = 3
"""Names that a sentence gives."""


def mentioned(why: Explanation) -> list[str]:
    """Everything in an explanation that may have a name, the head first; each once."""
    head, what, who = why.head, why.what, why.who
    # The first token is left out of what a head attends to: there, its sink is what is named.
    found = [sink_id(head), str(head)] if why.key == 0 else [str(head)]
    found += [writer_id(head, row.side, row.writer) for row in who.rows if row.writer is not None]
    found += [channel_id(head, (part.channel,), part.pole) for part in what.channels if part.stable]
    for side in who.signals.values():
        found += [signal_id(one.signal, one.strengths) for one in (*side.removed, *side.by_writer())]
    found += [feature_id(head, part.name) for part in what.features]
    return list(dict.fromkeys([*found, *_heads(why)]))


def _heads(why: Explanation) -> list[str]:
    """Other heads in it, by what they attend to themselves: those that wrote, and those that an MLP had read."""
    writers = [row.writer for row in why.who.rows if row.writer is not None]
    for row in why.who.rows:
        writers += [] if row.mlp is None else [one.writer for one in row.mlp.writers]
    return [str(one.head) for one in writers if one.kind == "head"]


def names_of(why: Explanation) -> dict[str, KnownName]:
    """The names of what is mentioned, by what they are about; empty where no run of names was given."""
    return {} if why.names is None else why.names.chosen(mentioned(why))


def names_json(why: Explanation) -> dict[str, Any]:
    """The same as the document has them."""
    assert why.names is not None
    return why.names.to_json(mentioned(why))


def names_sentence(why: Explanation) -> str:
    """The head's name and those of its cause, each with how it fared; empty where none of them has one."""
    names, cause = names_of(why), why.who.headline
    said = [
        f"{why.head} {verb} where {found.said}"
        for key, verb in ((sink_id(why.head), "rests on the first token"), (str(why.head), "attends"))
        if (found := names.get(key)) is not None and found.text is not None
    ]
    if cause is not None:
        for member in cause.members:
            found = names.get(writer_id(why.head, cause.side, member))
            if found is not None and found.text is not None:
                said.append(f"{_in(member, cause.side)} acts where {found.said}")
    if not said:
        return ""
    assert why.names is not None
    where = "" if why.names.folder is None else f" (evidence: {why.names.folder})"
    return f"Names, tested on other texts{where}: {'; '.join(said[:SAID])}."


def _in(writer: Component, side: Side) -> str:
    """A whole writer of one side."""
    return f"what {writer.name} writes into the {'query' if side == 'query' else 'keys'}"
