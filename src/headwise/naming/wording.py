"""Phrases of predicates put together into English: nouns, adjectives, clauses, frames and whole sentences."""

from __future__ import annotations

from collections.abc import Sequence

from headwise.naming.predicates.predicate import Phrase, Slot

Said = tuple[Phrase, bool]
"""A phrase, and whether it is denied."""
_GENERIC = "a word"


def described(phrases: Sequence[Said]) -> str:
    """What a token is, as a noun phrase; sentences are put side by side.

    >>> from headwise.naming.predicates.predicate import adjective, clause, frame, noun
    >>> described([(noun("a name"), False), (adjective("capitalised"), False)])
    'a capitalised name'
    >>> described([(clause("begins a line", "does not begin a line"), True), (noun("a word"), False)])
    'a word that does not begin a line'
    >>> described([(frame("the second {} of a list"), False), (noun("an animal"), False)])
    'the second animal of a list'
    """
    if any(phrase.form == "sentence" for phrase, _ in phrases):
        return _listed([phrase.no if denied else phrase.yes for phrase, denied in phrases])
    head, clauses = _parts(phrases)
    return f"{head or 'a token'} that {_listed(clauses)}" if clauses else head


def stated(slot: Slot, phrases: Sequence[Said]) -> str:
    """The same as a sentence about a slot; empty where nothing is said of it.

    >>> from headwise.naming.predicates.predicate import clause, noun
    >>> stated("source", [(clause("begins a line", "does not begin a line"), False)])
    'the source begins a line'
    >>> stated("destination", [(noun("a comma"), True)])
    'the destination is not a comma'
    """
    if not phrases:
        return ""
    if slot == "relation":
        return described(phrases)
    head, clauses = _parts(phrases)
    return f"the {slot} is {described(phrases)}" if head else f"the {slot} {_listed(clauses)}"


def either(parts: Sequence[str], *, whole: bool = False) -> str:
    """Alternatives, each said once.

    >>> either(["a comma", "a comma"]), either(["a comma", "a name"]), either(["it is", "it was"], whole=True)
    ('a comma', 'a comma or a name', 'either it is, or it was')
    """
    found = list(dict.fromkeys(parts))
    if len(found) == 1:
        return found[0]
    return f"either {', or '.join(found)}" if whole else " or ".join(found)


def _parts(phrases: Sequence[Said]) -> tuple[str, list[str]]:
    """The noun with all that goes before it, and the clauses that follow."""
    affirmed = [phrase for phrase, denied in phrases if not denied]
    nouns = [phrase.yes for phrase in affirmed if phrase.form == "noun"]
    nouns = [one for one in nouns if one != _GENERIC] or nouns[:1]
    adjectives = [phrase.yes for phrase in affirmed if phrase.form == "adjective"]
    frames = [phrase.yes for phrase in affirmed if phrase.form == "frame"]
    clauses = [f"is {one}" for one in nouns[1:]]
    clauses += [phrase.yes for phrase in affirmed if phrase.form == "clause"]
    clauses += [f"is {_bare_frame(one)}" for one in frames[1:]]
    clauses += [phrase.no for phrase, denied in phrases if denied]
    head = nouns[0] if nouns else _GENERIC if adjectives or frames else ""
    if adjectives:
        head = _with_adjectives(head, adjectives)
    if frames:
        article, _, rest = head.partition(" ")
        if article in ("a", "an") and rest:
            head = frames[0].format(rest)
        else:
            head, clauses = frames[0].format("word"), [f"is {head}", *clauses]
    return head, clauses


def _with_adjectives(said: str, adjectives: list[str]) -> str:
    """
    >>> _with_adjectives("an animal", ["capitalised"]), _with_adjectives("the word “a”", ["old"])
    ('a capitalised animal', 'the old word “a”')
    """
    article, _, rest = said.partition(" ")
    words = " ".join([*adjectives, rest])
    if article in ("a", "an"):
        article = "an" if words[:1] in "aeiou" else "a"
    return f"{article} {words}"


def _bare_frame(words: str) -> str:
    return words.replace("{} ", "")


def _listed(parts: Sequence[str]) -> str:
    return ", ".join(parts[:-1]) + " and " + parts[-1] if len(parts) > 1 else parts[0]
