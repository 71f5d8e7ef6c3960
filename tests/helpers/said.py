"""What an explanation's sentences say, read back with nothing but the text and the prompt's tokens."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

_TOKEN = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\""""
_PLACE = rf"(?P<token>{_TOKEN})(?: \((?P<position>\d+)\))?"
_NUMBER = r"[+-]?\d+\.\d+"
_ROLE = "previous token|duplicate token|induction|self"
_NAME = r"L\d+H\d+|MLP \d+|the embedding|the bias of layer \d+|the head's own bias"


@dataclass
class SaidWriter:
    """A writer as it is said: its name in the document, the token it read, its part, and what it came after."""

    writer: str
    reads: int | None
    log_odds: float | None = None
    after: str | None = None
    after_reads: int | None = None
    role: str | None = None
    after_role: str | None = None


@dataclass
class Said:
    """Everything that the sentences of one explanation claim."""

    query: int
    head: str
    key: int
    attention: float
    role: str | None = None
    parts: tuple[float, float, float, float] | None = None
    reason: str | None = None
    side: str | None = None
    cause: list[SaidWriter] = field(default_factory=list)
    more: int = 0
    needed: int | None = None
    against: SaidWriter | None = None
    totals: tuple[float, float] | None = None
    direct: tuple[str, float] | None = None
    """What looking there adds to the answer or its lead, and to which of both."""
    moved: dict[str, tuple[str, float]] = field(default_factory=dict)
    without: list[SaidWriter] | int | None = None
    without_side: str | None = None
    attends: tuple[float, float] | None = None
    direction: str | None = None
    numbers: tuple[float, ...] = ()
    words: dict[str, tuple[bool, str]] = field(default_factory=dict)
    transfers: str | int | None = None
    """How many other prompts the cause transfers to, of how many, as it is said; the numbers of each follow."""
    elsewhere: list[tuple[float, float, float, float, float]] = field(default_factory=list)


def in_document(name: str) -> str:
    """A spoken writer's name as the document has it."""
    if name.startswith("MLP "):
        return name.replace(" ", "")
    if name.startswith("the bias of layer "):
        return f"bias{name.removeprefix('the bias of layer ')}"
    return {"the embedding": "embedding", "the head's own bias": "offset"}.get(name, name)


def place(text: str, tokens: Sequence[str]) -> int:
    """The position of a quoted token; it must be the only one unless the text says which."""
    found = re.fullmatch(_PLACE, text)
    assert found, text
    token = ast.literal_eval(found["token"])
    if found["position"] is None:
        assert tokens.count(token) == 1, f"{token!r} occurs {tokens.count(token)} times"
        return tokens.index(token)
    position = int(found["position"])
    assert tokens[position] == token and tokens.count(token) > 1
    return position


def read(sentence: str, tokens: Sequence[str]) -> Said:
    """Parse the sentences; what does not fit is an error."""
    quoted = rf"(?:{_TOKEN})(?: \(\d+\))?"
    start = re.match(
        rf"At (?P<query>{quoted}), (?P<head>L\d+H\d+)(?: \((?P<role>{_ROLE})\))? reads (?P<key>{quoted})"
        r" with attention (?P<a>\d\.\d\d)"
        r"(?P<rest>.*)",
        sentence,
        re.DOTALL,
    )
    assert start, sentence
    at, read_token = (place(start[name], tokens) for name in ("query", "key"))
    said = Said(at, start["head"], read_token, float(start["a"]), start["role"])
    rest = start["rest"]
    parts = re.match(
        rf", (?P<reason>[^(]*) \(content (?P<c>{_NUMBER}), place (?P<p>{_NUMBER}), their interplay (?P<i>{_NUMBER}) "
        rf"of the log-odds (?P<t>{_NUMBER})\)\. (?P<rest>.*)",
        rest,
        re.DOTALL,
    )
    if parts:
        said.reason = parts["reason"]
        said.parts = (float(parts["c"]), float(parts["p"]), float(parts["i"]), float(parts["t"]))
        rest = _who(said, parts["rest"], tokens)
    else:
        plain = re.match(
            r", about an even share of \d+ tokens \(log-odds [^)]*\): nobody is named\. (.*)", rest, re.DOTALL
        )
        assert plain or rest == ": it is the only token it sees, so there is nothing to explain.", rest
        if not plain:
            return said
        rest = plain[1]
    _does_and_without(said, _transfers(said, rest), tokens)
    return said


def _transfers(said: Said, rest: str) -> str:
    found = re.search(
        r"(?: Whether the cause transfers to (?:the other prompt|\d+ other prompts) cannot be said\.| The cause "
        r"(?P<which>transfers to (?P<held>\d+) of \d+ other prompts|transfers to the other prompt|does not transfer to "
        r"the other prompt): without the same writers it attends (?P<numbers>.*)\.)$",
        rest,
        re.DOTALL,
    )
    if found is None:
        return rest
    said.transfers = "unknown"
    if found["which"] is not None:
        said.transfers = int(found["held"] or not found["which"].startswith("does not"))
        tested = r"p (\d\.\d{3})(?:, q (\d\.\d{3}))?"
        numbers = rf"(\d\.\d\d) instead of (\d\.\d\d) \((-?\d+\.\d\d) of the part taken here, {tested}\)"
        listed = re.findall(numbers, found["numbers"])
        # Of one prompt q is p, and is not said.
        said.elsewhere = [
            (float(after), float(before), float(share), float(p), float(q or p))
            for after, before, share, p, q in listed
        ]
    return rest[: found.start()]


def _writer(text: str, tokens: Sequence[str]) -> SaidWriter:
    quoted = rf"(?:{_TOKEN})(?: \(\d+\))?"
    found = re.fullmatch(
        rf"(?P<name>{_NAME}) \((?:(?P<role>{_ROLE}), )?(?P<value>{_NUMBER})(?:, reading (?P<read>{quoted}))?"
        rf"(?:, after (?P<after>{_NAME})(?: \((?P<after_role>{_ROLE})\))?(?: read (?P<behind>{quoted}))?)?\)",
        text,
        re.DOTALL,
    )
    assert found, text
    return SaidWriter(
        in_document(found["name"]),
        None if found["read"] is None else place(found["read"], tokens),
        float(found["value"]),
        None if found["after"] is None else in_document(found["after"]),
        None if found["behind"] is None else place(found["behind"], tokens),
        found["role"],
        found["after_role"],
    )


def _writers(text: str, tokens: Sequence[str]) -> list[SaidWriter]:
    quoted = rf"(?:{_TOKEN})(?: \(\d+\))?"
    after = rf"(?:, after (?:{_NAME})(?: \((?:{_ROLE})\))?(?: read {quoted})?)?"
    one = rf"(?:{_NAME}) \((?:(?:{_ROLE}), )?{_NUMBER}(?:, reading {quoted})?{after}\)"
    found = re.findall(one, text, re.DOTALL)
    joined = ", ".join(found[:-1]) + f" and {found[-1]}" if len(found) > 1 else "".join(found)
    assert joined == text, text
    return [_writer(each, tokens) for each in found]


def _who(said: Said, rest: str, tokens: Sequence[str]) -> str:
    nobody = re.match(r"No set of writers takes the attention below \d\.\d\d\. (.*)", rest, re.DOTALL)
    if nobody:
        return nobody[1]
    ending = (
        rf"(?:; (?P<against>(?:(?!; ).)*) works against it)?; all that helps there brings (?P<helps>{_NUMBER}), "
        rf"all that hinders (?P<hinders>{_NUMBER})\. (?P<rest>.*)"
    )
    usual = re.match(
        r"It does so because (?P<list>.*?)(?:, with (?P<more>\d+) more,)? wrote that into (?P<side>its query|the keys)"
        + ending,
        rest,
        re.DOTALL,
    )
    diffuse = re.match(
        r"No few writers cause it: (?P<n>\d+) are needed in (?P<side>its query|the keys), of them most by (?P<list>.*?)"
        + ending,
        rest,
        re.DOTALL,
    )
    found = usual or diffuse
    assert found, rest
    said.side = "query" if found["side"] == "its query" else "key"
    said.cause = _writers(found["list"], tokens)
    said.more = int(usual["more"] or 0) if usual else 0
    said.needed = None if diffuse is None else int(diffuse["n"])
    said.against = None if found["against"] is None else _writer(found["against"], tokens)
    said.totals = (float(found["helps"]), float(found["hinders"]))
    return found["rest"]


def _does_and_without(said: Said, rest: str, tokens: Sequence[str]) -> None:
    brings = (
        rf"directly (?:adds nothing to|(?P<adds>adds|takes) (?P<value>\d+\.\d) (?:to|from)) "
        rf"(?:the lead of (?P<lead>{_TOKEN}) over {_TOKEN}|the logit of {_TOKEN})"
    )
    moves = (
        rf"(?:it moves no token by 0\.05|of all tokens it (?:raises (?P<up>{_TOKEN}) most \((?P<by>{_NUMBER})\))?"
        rf"(?: and )?(?:lowers (?P<down>{_TOKEN}) most \((?P<less>{_NUMBER})\))?)"
    )
    does = re.match(
        rf"Looking there(?: (?P<brings>{brings});|,) {moves}\.(?: (?P<rest>Without .*))?$", rest, re.DOTALL
    )
    assert does, rest
    if does["brings"] is not None:
        sign = {"adds": 1, "takes": -1, None: 0}[does["adds"]]
        said.direct = ("answer" if does["lead"] is None else "lead", sign * float(does["value"] or 0))
    for word, token, number in (("raises", "up", "by"), ("lowers", "down", "less")):
        if does[token] is not None:
            said.moved[word] = (ast.literal_eval(does[token]), float(does[number]))
    if does["rest"] is None:
        return
    quoted = rf"(?:{_TOKEN})(?: \(\d+\))?"
    answer = (
        rf"(?:the lead of (?:{_TOKEN}) over (?:{_TOKEN})|the probability of (?:{_TOKEN})) "
        rf"(?P<direction>stays at|falls from|rises from) (?P<first>-?\d+\.\d+)(?: to (?P<second>-?\d+\.\d+))?"
    )
    found = re.fullmatch(
        rf"Without (?P<names>.*) on the (?P<side>query's|keys') side it attends (?P<after>\d\.\d\d) instead of "
        rf"(?P<before>\d\.\d\d), and {answer}: (?P<words>.*)\.",
        does["rest"],
        re.DOTALL,
    )
    assert found, does["rest"]
    said.without_side = "query" if found["side"] == "query's" else "key"
    many = re.fullmatch(r"these (\d+) writers", found["names"])
    if many:
        said.without = int(many[1])
    else:
        one = rf"(?:{_NAME})(?: from {quoted})?"
        names = re.findall(one, found["names"], re.DOTALL)
        assert (", ".join(names[:-1]) + f" and {names[-1]}" if len(names) > 1 else names[0]) == found["names"]
        said.without = []
        for name in names:
            writer, _, token = name.partition(" from ")
            said.without.append(SaidWriter(in_document(writer), place(token, tokens) if token else None))
    said.attends = (float(found["before"]), float(found["after"]))
    said.direction = found["direction"].split()[0]
    said.numbers = tuple(float(x) for x in (found["first"], found["second"]) if x is not None)
    for part in re.split(r", (?=and |not |redundant|specific)", found["words"]):
        word = re.fullmatch(
            r"(?P<no>not )?(?P<word>specific|redundant) \((?P<why>.*)\)|"
            r"and (?P<answer>it matters|it does not matter|for the answer it matters no more than the controls do)"
            r"(?: for the answer)? \((?P<number>.*)\)",
            part,
        )
        assert word, part
        if word["word"]:
            said.words[word["word"]] = (word["no"] is None, word["why"])
        else:
            said.words["matters"] = (word["answer"] == "it matters", word["number"])
