"""From marked text to token positions, in the form a model wants: plain, few-shot or its chat template."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from headwise.errors import HeadwiseError
from headwise.tokens import chat_text, require_tokenizer

Format = Literal["plain", "few-shot", "chat"]


@dataclass
class Marked:
    """Text under construction that remembers where the words of interest stand.

    >>> m = Marked()
    >>> m.add("The ").mark("jam").add(" is in Box ").mark("Z").add(".").text, m.spans
    ('The jam is in Box Z.', [(4, 7), (18, 19)])
    """

    text: str = ""
    spans: list[tuple[int, int]] = field(default_factory=list)

    def add(self, text: str) -> Marked:
        self.text += text
        return self

    def mark(self, word: str) -> Marked:
        self.spans.append((len(self.text), len(self.text) + len(word)))
        self.text += word
        return self

    def fill(self, template: str, word: str, marked: str) -> Marked:
        """Write a template with ``{e}`` replaced by ``word`` and ``{b}`` by ``marked``, which is marked."""
        before, after = template.replace("{e}", word).split("{b}")
        return self.add(before).mark(marked).add(after)


def check_format(name: str, tokenizer: Any) -> Format:
    """The format, if it is known and the tokenizer can do it."""
    if name not in get_args(Format):
        raise HeadwiseError(f"format {name!r} is not known: write {', '.join(get_args(Format))}")
    if name == "chat" and not getattr(tokenizer, "chat_template", None):
        raise HeadwiseError("this model's tokenizer has no chat template: use the format plain or few-shot")
    return name  # type: ignore[return-value]


def locate(
    tokenizer: Any, marked: Marked, *, format: Format = "plain", reply: str = ""
) -> tuple[tuple[int, ...], list[int]]:
    """Token ids of the text and the position of each span's last token.

    ``chat`` puts the text into the model's chat template as the user's turn and ``reply`` at the start of the
    model's own. The template writes the special tokens itself, so none are added to it a second time.
    """
    require_tokenizer(tokenizer, "tasks are text and cannot be read by it")
    if not getattr(tokenizer, "is_fast", False):
        raise HeadwiseError("labelled prompts need a tokenizer with character offsets: this model has none")
    text, shift, special = marked.text + (reply if format != "chat" else ""), 0, True
    if format == "chat":
        whole = chat_text(tokenizer, marked.text)
        shift = whole.find(marked.text)
        if shift < 0:
            raise HeadwiseError("the chat template rewrites the prompt, so positions in it cannot be found")
        text, special = whole + reply.lstrip(), False
    found = tokenizer(text, return_offsets_mapping=True, add_special_tokens=special)
    spans = [(start + shift, end + shift) for start, end in marked.spans]
    return tuple(found.input_ids), last_tokens(found.offset_mapping, spans)


def last_tokens(offsets: Sequence[tuple[int, int]], spans: Sequence[tuple[int, int]]) -> list[int]:
    """The position of the last token that covers each span's last character.

    >>> last_tokens([(0, 3), (3, 5), (5, 8)], [(4, 7), (0, 3)])
    [2, 0]
    """
    where: dict[int, int] = {}
    for position, (start, end) in enumerate(offsets):
        for character in range(start, end):
            where[character] = position
    missing = [span for span in spans if span[1] - 1 not in where]
    if missing:
        raise HeadwiseError(f"no token covers the characters {missing[0][0]} to {missing[0][1]} of a prompt")
    return [where[end - 1] for _, end in spans]
