"""A portrait in a few plain sentences."""

from __future__ import annotations

from headwise.known_names import KnownNames, sink_id
from headwise.portraits.habits import Account
from headwise.portraits.portrait import HeadPortrait
from headwise.strings import percent
from headwise.types import Head, Side

BY = {
    "content": "by what a token is",
    "place": "by where a token is",
    "interaction": "by what a token is and where at once",
    "nothing": "although no part of the score helps alone",
}


def sentences(one: HeadPortrait, known: KnownNames | None = None) -> list[str]:
    """Role, sinks, why, who and what, each in a sentence; names with their verdicts where there are some."""
    said = [_role(one)]
    if one.on_sinks is not None:
        said.append(f"In these texts {percent(one.on_sinks.mean)} of its attention rests on sinks.")
    if one.account is None:
        return [*said, "Apart from sinks it gives no token much of it."]
    return [*said, _why(one.account), _who(one.head, one.account), _does(one.account), *_names(one, known)]


def _role(one: HeadPortrait) -> str:
    if one.role is None:
        return f"{one.head} of {one.model}."
    if one.role.role is None:
        return f"On random tokens {one.head} has no role."
    mean = one.role.attention[one.role.role].mean
    where = {
        "previous token": "the token before",
        "duplicate token": "the same token before",
        "induction": "the token after the same one before (induction)",
        "first token": "the first token",
        "self": "the token itself",
    }[one.role.role]
    return f"On random tokens {one.head} gives {where} {percent(mean)} of its attention."


def _why(account: Account) -> str:
    reason = account.place.reason
    share = percent(account.place.reasons[reason])
    return (
        f"Apart from sinks it attends mostly {BY[reason]} ({share} of {len(account.cells)} explained cells)."
    )


def _who(head: Head, account: Account) -> str:
    said = []
    sides: tuple[tuple[Side, str], ...] = (("query", "its query is"), ("key", "its keys are"))
    for side, words in sides:
        for first in account.of(side)[:1]:
            often = f"in {percent(first.often.mean)} of the cells, {first.log_odds.mean:+.2f} on average"
            said.append(f"{words} shaped by {first.writer.name} ({often})")
    return f"Most often {' and '.join(said)}." if said else f"Nobody writes before {head} reads."


def _does(account: Account) -> str:
    does = account.does
    if does.suppresses.mean > does.copies.mean:
        return f"The token it reads is among the five it lowers most in {percent(does.suppresses.mean)} of the cells."
    return f"The token it reads is among the five it raises most in {percent(does.copies.mean)} of the cells."


def _names(one: HeadPortrait, known: KnownNames | None) -> list[str]:
    if known is None:
        return []
    found = [
        f"{verb} where {name.said}"
        for key, verb in ((str(one.head), "it attends"), (sink_id(one.head), "it rests on the first token"))
        if (name := known.get(key)) is not None and name.text is not None
    ]
    return [f"By names tested on other texts, {' and '.join(found)}."] if found else []
