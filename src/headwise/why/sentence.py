"""One sentence that a person would say, made from the numbers."""

from __future__ import annotations

from collections.abc import Sequence

from headwise.types import Component
from headwise.why.proof import Proof
from headwise.why.question import Answer, Question
from headwise.why.what import What
from headwise.why.who import Who


def sentence(
    tokens: Sequence[str], question: Question, answer: Answer, what: What, who: Who, proof: Proof
) -> str:
    """Head, token, channel, writers, and what happens without them."""
    head, query, key = question.cell
    start = f"{head} at {_token(tokens, query)} reads {_token(tokens, key)}"
    main = proof.main
    if main is None:
        return f"{start} with attention {what.attention:.2f}, but no small set of signals causes it."
    channels = _channels(what)
    writers = _listed(_names(who))
    by = f", written by {writers}" if writers else ""
    text = f"{start} mainly through {channels}{by}; "
    text += (
        f"without these it attends {main.observed.attention:.2f} instead of {proof.before.attention:.2f}, "
    )
    text += _lead(answer, proof)
    holds, words = proof.verdict
    return f"{text}." if holds else f"{text}. But: {words[0].lower()}{words[1:]}"


def _lead(answer: Answer, proof: Proof) -> str:
    assert proof.main is not None
    # What is compared is what is printed: 0.04 more is no rise from 0.3 to 0.3. Adding 0.0 takes the sign from -0.0.
    before, after = (round(lead, 1) + 0.0 for lead in (proof.before.lead, proof.main.observed.lead))
    what = f"the lead of {answer.text!r} over {answer.wrong_text!r}"
    if after == before:
        return f"and {what} stays at {after:.1f}"
    return f"and {what} {'falls' if after < before else 'rises'} from {before:.1f} to {after:.1f}"


def _token(tokens: Sequence[str], position: int) -> str:
    """A token as it is quoted, with its position where its text occurs more than once.

    >>> _token(["a", "cat", "a"], 1), _token(["a", "cat", "a"], 2)
    ("'cat'", "'a' (2)")
    """
    text = tokens[position]
    return f"{text!r} ({position})" if tokens.count(text) > 1 else repr(text)


def _channels(what: What) -> str:
    """The channels that carry most of the relative logit by name, and how many others are needed."""
    leading = [part.channel for part in what.channels[: min(what.channels_needed, 3)] if part.value > 0]
    if not leading:
        leading = [what.channels[0].channel]
    named = list(map(str, leading))
    start = "channel" if len(named) == 1 else "channels"
    others = what.channels_needed - len(named)
    if others <= 0:
        return f"{start} {_listed(named)}"
    return f"{start} {', '.join(named)} and {others} other{'s' if others > 1 else ''}"


def _names(who: Who) -> list[str]:
    """The heaviest writers of both sides, at most four."""
    ranked = sorted(who.writers, key=lambda writer: -writer.share)
    names = list(dict.fromkeys(spoken(writer.component) for writer in ranked if writer.share >= 0.05))
    return names[:4]


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


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:-1]) + f" and {names[-1]}" if len(names) > 1 else "".join(names)
