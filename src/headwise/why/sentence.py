"""What a person would say, made from the table: why here, who wrote it, what it does, and what happens without it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headwise.tracing.mlps import MLPAccount
from headwise.tracing.writers import WriterSet
from headwise.types import Component, Head
from headwise.why.consequence import DirectEffect
from headwise.why.names import names_sentence
from headwise.why.proof import ALONE, LEAST, ControlTest, Proof, Verdict
from headwise.why.question import Answer
from headwise.why.transfer import Transfer
from headwise.why.what import PlaceSplit
from headwise.why.who import WriterRow

if TYPE_CHECKING:
    from headwise.why.explanation import Explanation

NAMED = 4
"""Writers of a cause that are named."""
DIFFUSE_NAMED = 3
EVEN = 0.1
"""Log-odds so small that the attention is about an even share: nobody is named for them."""
MOVES = 0.05
"""The least change of a logit that is worth a word."""
THROUGH = 0.25
"""Of an MLP's part, how much one writer must have brought for the MLP to be said to follow it."""
AGAINST = 0.05
"""Of all that helps, how much a writer must take to be said to work against it."""
CONTROLS = {
    "channels": "removals from other channels",
    "writers": "sets of other writers",
    "directions": "random directions",
}


def sentence(why: Explanation) -> str:
    """One to four sentences; every number and name in them is in the document."""
    total, cause = why.what.log_odds, why.who.headline
    said = [_reading(why)]
    if why.what.keys < 2:
        return said[0]
    if abs(total) >= EVEN:
        said.append(_who(why, cause))
    said.append(_does(why))
    if abs(total) >= EVEN and cause is not None:
        said.append(_without(why.tokens, why.answer, cause, why.proof, why.verdict))
        if why.transfer:
            said.append(_elsewhere(why.transfer))
    if why.names is not None and (named := names_sentence(why)):
        said.append(named)
    return " ".join(said)


# --- why here --------------------------------------------------------------------------------------------------------


def _reading(why: Explanation) -> str:
    head, query, key = why.question.cell
    what = why.what
    at, read = _token(why.tokens, query), _token(why.tokens, key)
    start = f"At {at}, {_head(why, head)} reads {read} with attention {what.attention:.2f}"
    if what.keys < 2:
        return f"{start}: it is the only token it sees, so there is nothing to explain."
    if abs(what.log_odds) < EVEN:
        even = f"about an even share of {what.keys} tokens (log-odds {signed(what.log_odds, 2)})"
        return f"{start}, {even}: nobody is named."
    place = why.place
    parts = (
        f"content {signed(place.content)}, place {signed(place.place)}, their interplay {signed(place.interaction)} "
        f"of the log-odds {signed(what.log_odds)}"
    )
    if what.log_odds < 0:
        return f"{start}, less than an even share of {what.keys} tokens ({parts})."
    return f"{start}, {reason(place)} ({parts})."


def reason(place: PlaceSplit) -> str:
    """Why a head reads a token: what it is, where it is, or both.

    >>> reason(PlaceSplit(2.9, 0.2, 0.3, 0.0)), reason(PlaceSplit(-3.0, 5.0, 0.3, 0.0))
    ('for what it is, not for where it is', 'for where it is, in spite of what it is')
    >>> reason(PlaceSplit(2.0, 1.5, 0.3, 0.0)), reason(PlaceSplit(0.1, 0.1, 0.9, 0.0))
    ('for what it is and also for where it is', 'for what it is at this place')
    """
    words = {"content": "what it is", "place": "where it is"}
    main = place.reason
    if main == "interaction":
        return "for what it is at this place"
    if main == "nothing":
        return "though neither what it is nor where it is speaks for it"
    own, other = (place.content, place.place) if main == "content" else (place.place, place.content)
    first, second = words[main], words["place" if main == "content" else "content"]
    if other > own / 2:
        return f"for {first} and also for {second}"
    return f"for {first}, in spite of {second}" if other < -own / 2 else f"for {first}, not for {second}"


# --- who wrote it ----------------------------------------------------------------------------------------------------


def _who(why: Explanation, cause: WriterSet | None) -> str:
    who = why.who
    if cause is None:
        return f"No set of writers takes the attention below {who.threshold:.2f}."
    rows = [row for row in who.of(cause.side) if row.writer is not None]
    named = [row for row in rows if row.cause][: DIFFUSE_NAMED if cause.diffuse else NAMED]
    listed = enumerated([_writer(why, row) for row in named])
    more = len(cause) - len(named)
    into = "its query" if cause.side == "query" else "the keys"
    if cause.diffuse:
        said = f"No few writers cause it: {len(cause)} are needed in {into}, of them most by {listed}"
    elif more:
        said = f"It does so because {listed}, with {more} more, wrote that into {into}"
    else:
        said = f"It does so because {listed} wrote that into {into}"
    totals = who.totals[cause.side]
    against = min(rows, key=lambda row: row.log_odds)
    if against.log_odds <= -max(EVEN, AGAINST * totals.helping):
        said += f"; {_writer(why, against)} works against it"
    both = (
        f"all that helps there brings {signed(totals.helping)}, all that hinders {signed(totals.hindering)}"
    )
    return f"{said}; {both}."


def _writer(why: Explanation, row: WriterRow) -> str:
    """A writer with its role if that is known, its part, the token it read, and through what it came."""
    writer, tokens = row.writer, why.tokens
    assert writer is not None
    details = [signed(row.log_odds)]
    if writer.kind == "head":
        role = telling_role(why, writer.head)
        details = [*([] if role is None else [role]), *details, f"reading {_token(tokens, writer.source)}"]
    behind = None if row.mlp is None else _behind(row.mlp, row.log_odds)
    if behind is not None and behind.kind == "head":
        details.append(f"after {_head(why, behind.head)} read {_token(tokens, behind.source)}")
    elif behind is not None:
        details.append(f"after {spoken(behind)}")
    return f"{spoken(writer)} ({', '.join(details)})"


def _head(why: Explanation, head: Head) -> str:
    """A head with its role, if that is known."""
    role = telling_role(why, head)
    return str(head) if role is None else f"{head} ({role})"


def telling_role(why: Explanation, head: Head) -> str | None:
    """The role of a head, unless it is to rest on the first token: a third of all heads do so on random tokens, which
    says nothing about what they do here."""
    role = why.role(head)
    return None if role == "first token" else role


def _behind(account: MLPAccount, total: float) -> Component | None:
    """The writer that an MLP's part mostly came from, of its sign, if one stands out."""
    sign = 1 if total > 0 else -1
    best = max(account.writers, key=lambda one: sign * one.share, default=None)
    if best is None or best.writer.kind == "offset" or sign * best.share < THROUGH * abs(total):
        return None
    return best.writer


# --- what it does, and what happens without --------------------------------------------------------------------------


def _does(why: Explanation) -> str:
    """What the answer gets from it, then the tokens that it moves most, which are often others than the answer."""
    found, said = why.consequence, []
    if found.direct is not None:
        said.append(_brings(why.answer, found.direct))
    moved = [
        f"{word} {one.token!r} most ({signed(one.logit)})"
        for word, some in (("raises", found.raised), ("lowers", found.lowered))
        for one in some[:1]
        if abs(one.logit) >= MOVES
    ]
    said.append(f"of all tokens it {' and '.join(moved)}" if moved else f"it moves no token by {MOVES}")
    return f"Looking there {'; '.join(said)}." if found.direct else f"Looking there, {said[0]}."


def _brings(answer: Answer, direct: DirectEffect) -> str:
    """What goes straight to the answer, in the number that it is measured by."""
    if answer.compared:
        what, value = f"the lead of {answer.text!r} over {answer.wrong_text!r}", round(direct.lead, 1)
    else:
        what, value = f"the logit of {answer.text!r}", round(direct.answer, 1)
    if not value:
        return f"directly adds nothing to {what}"
    return f"directly {f'adds {value:.1f} to' if value > 0 else f'takes {-value:.1f} from'} {what}"


def _without(tokens: Sequence[str], answer: Answer, cause: WriterSet, proof: Proof, verdict: Verdict) -> str:
    after = proof.after
    assert after is not None
    few = len(cause) <= NAMED
    names = (
        enumerated([_member(tokens, one) for one in cause.members]) if few else f"these {len(cause)} writers"
    )
    side = "query's" if cause.side == "query" else "keys'"
    said = (
        f"Without {names} on the {side} side it attends {after.attention:.2f} instead of "
        f"{proof.before.attention:.2f}, and {_answer(answer, proof)}"
    )
    return f"{said}: {', '.join(_words(answer, cause, proof, verdict))}."


def _answer(answer: Answer, proof: Proof) -> str:
    """What becomes of the answer. What is compared is what is printed: 0.04 more is no rise from 0.3 to 0.3."""
    assert proof.after is not None
    if answer.compared:
        what, digits = f"the lead of {answer.text!r} over {answer.wrong_text!r}", 1
        numbers = (proof.before.lead, proof.after.lead)
    else:
        what, digits = f"the probability of {answer.text!r}", 3
        numbers = (proof.before.probability, proof.after.probability)
    # Adding 0.0 takes the sign from -0.0.
    before, after = (round(number, digits) + 0.0 for number in numbers)
    if after == before:
        return f"{what} stays at {after:.{digits}f}"
    return f"{what} {'falls' if after < before else 'rises'} from {before:.{digits}f} to {after:.{digits}f}"


def _words(answer: Answer, cause: WriterSet, proof: Proof, verdict: Verdict) -> list[str]:
    """The three words, each with its number; a word that was not measured is left out."""
    said = []
    if verdict.specific.said is not None:
        worst = max(proof.controls, key=lambda control: control.p)
        said.append(("" if verdict.specific.said else "not ") + f"specific ({as_much(worst)})")
    best, share = proof.next_best, verdict.redundant.value
    if best is not None and share is not None:
        number = len(best.writers)
        few = "writer alone takes" if number == 1 else f"{number} writers alone take"
        said.append(
            f"{'' if verdict.redundant.said else 'not '}redundant (the next-best {few} {share:.2f} of that)"
        )
    change = verdict.matters.value
    if verdict.matters.said is not None and change is not None:
        number = f"{'lead' if answer.compared else 'log p'} {signed(change, 2)}"
        if verdict.matters.said:
            said.append(f"and it matters for the answer ({number})")
        elif abs(change) < LEAST:
            said.append(f"and it does not matter for the answer ({number})")
        else:
            said.append(f"and for the answer it matters no more than the controls do ({number})")
    return said


def _elsewhere(tried: Sequence[Transfer]) -> str:
    """What becomes of the attention without the same writers in other prompts."""
    known = [one for one in tried if one.holds.said is not None]
    prompts = "the other prompt" if len(tried) == 1 else f"{len(tried)} other prompts"
    if not known:
        return f"Whether the cause transfers to {prompts} cannot be said."
    held = sum(bool(one.holds.said) for one in known)
    seen = [
        f"{one.proof.after.attention:.2f} instead of {one.proof.before.attention:.2f} ({_share_of(one)})"
        for one in known[:NAMED]
        if one.proof.after is not None
    ]
    if len(tried) > 1:
        said = f"The cause transfers to {held} of {prompts}"
    else:
        said = f"The cause {'transfers' if held else 'does not transfer'} to {prompts}"
    return f"{said}: without the same writers it attends {enumerated(seen)}."


def _share_of(one: Transfer) -> str:
    claim = one.holds.claim
    q = "" if claim is None or claim.group == ALONE else f", q {claim.q:.3f}"
    return f"{one.holds.value:.2f} of the part taken here, p {one.holds.p:.3f}{q}"


def as_much(control: ControlTest) -> str:
    """How many draws of a control take as much attention away.

    >>> as_much(ControlTest("writers", "", (0.5,) * 999, 0.003))
    '2 of 999 sets of other writers take as much'
    """
    draws = len(control.left)
    number = round(control.p * (1 + draws)) - 1
    return f"{number or 'none'} of {draws} {CONTROLS[control.name]} take{'s' if number == 1 else ''} as much"


# --- names -----------------------------------------------------------------------------------------------------------


def _member(tokens: Sequence[str], member: Component) -> str:
    return spoken(member) + (f" from {_token(tokens, member.source)}" if member.kind == "head" else "")


def _token(tokens: Sequence[str], position: int) -> str:
    """A token as it is quoted, with its position where its text occurs more than once.

    >>> _token(["a", "cat", "a"], 1), _token(["a", "cat", "a"], 2)
    ("'cat'", "'a' (2)")
    """
    text = tokens[position]
    return f"{text!r} ({position})" if tokens.count(text) > 1 else repr(text)


def spoken(component: Component) -> str:
    """A component as one would say it.

    >>> spoken(Component("mlp", 19)), spoken(Component("head", 20, 0, 3)), spoken(Component("embedding"))
    ('MLP 19', 'L20H0', 'the embedding')
    """
    match component.kind:
        case "head":
            return str(component.head)
        case "mlp":
            return f"MLP {component.layer}"
        case "bias":
            return f"the bias of layer {component.layer}"
        case "offset":
            return "the head's own bias"
        case _:
            return "the embedding"


def signed(value: float, digits: int = 1) -> str:
    """A number with its sign; what rounds to nothing has none.

    >>> signed(1.26), signed(-0.31), signed(-0.04), signed(0.004, 2)
    ('+1.3', '-0.3', '0.0', '0.00')
    """
    rounded = round(value, digits)
    return f"{rounded:+.{digits}f}" if rounded else f"{0:.{digits}f}"


def enumerated(names: Sequence[str]) -> str:
    return ", ".join(names[:-1]) + f" and {names[-1]}" if len(names) > 1 else "".join(names)
