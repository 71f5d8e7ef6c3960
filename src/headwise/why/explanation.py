"""An explanation as a value: why one head attends from one token to another, and every form that it is shown in."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from headwise.basis_names import BasisName
from headwise.contrast.roles import HeadRoles, role_of, stored_roles
from headwise.errors import HeadwiseError
from headwise.known_names import KnownNames, NamesLike
from headwise.model.attend import AttentionCall
from headwise.strings import in_short
from headwise.tracing.table import WriterTable
from headwise.types import Head, HeadLike, Side
from headwise.why.answers import Continued
from headwise.why.consequence import Consequence
from headwise.why.document import to_json
from headwise.why.proof import Proof, Verdict
from headwise.why.question import Answer, Question
from headwise.why.sentence import sentence
from headwise.why.transfer import Transfer
from headwise.why.vocabulary import CellVocabulary
from headwise.why.what import PlaceSplit, What
from headwise.why.who import Who

if TYPE_CHECKING:
    import plotly.graph_objects as go


@dataclass(frozen=True, eq=False)
class Explanation:
    """Why one head attends from one token to another."""

    model: str
    """The model's name."""
    weight_hash: str
    """SHA-256 of its weights."""
    prompt: str | None
    """The prompt as text; None if token ids were given."""
    tokens: tuple[str, ...]
    """[T]: the prompt's tokens as text."""
    question: Question
    """The cell that is explained, and how it was chosen."""
    answer: Answer
    """The answer that its effect is measured by."""
    what: What
    """The score, split."""
    who: Who
    """The writers of both sides, and what of them causes the attention."""
    place: PlaceSplit
    """Whether the token is read for what it is or for where it is."""
    consequence: Consequence
    """What the head does with what it read."""
    proof: Proof
    """The forward pass without the cause, beside matched controls."""
    verdict: Verdict
    """Whether the cause is specific, redundant, and matters for the answer."""
    tables: dict[Side, WriterTable]
    """The log-odds over writers and channels, of each side."""
    call: AttentionCall = field(repr=False)
    """The queries and keys of the whole head: :attr:`pattern` is made of them."""
    basis: BasisName
    """What the channels are channels of."""
    seconds: float
    """How long it took."""
    stages: dict[str, float]
    """Seconds by stage."""
    start: int = 0
    """The position id of the first token."""
    continued: Continued | None = None
    """How the prompt went on, where an answer has several tokens or the model wrote it itself."""
    transfer: tuple[Transfer, ...] = ()
    """The same writers, taken away in other prompts, where such were given."""
    vocabulary: CellVocabulary | None = None
    """Channels and writers in tokens, where that was asked for: hints, not names."""
    names: KnownNames | None = None
    """Names of what is mentioned, with their tests, where a run of names was given."""

    @property
    def head(self) -> Head:
        """The head that attends."""
        return self.question.cell.head

    @property
    def pattern(self) -> torch.Tensor:
        """[positions, positions]: the whole head, made when it is asked for."""
        return self.call.pattern(torch.arange(len(self.tokens)))

    @property
    def query(self) -> int:
        """The position that attends."""
        return self.question.cell.query

    @property
    def key(self) -> int:
        """The position it attends to."""
        return self.question.cell.key

    @property
    def attention(self) -> float:
        """Its softmax weight."""
        return self.what.attention

    @cached_property
    def roles(self) -> HeadRoles | None:
        """What heads do on random tokens, where :func:`head_roles` measured it for this model; they only name."""
        return stored_roles(self.weight_hash)

    def role(self, head: HeadLike) -> str | None:
        """The role of a head, if it has one and it is known."""
        return role_of(self.roles, Head.parse(head))

    def with_names(self, names: NamesLike) -> Explanation:
        """The same explanation with the names of what it mentions, each with its verdict and its evidence.

        Parameters
        ----------
        names:
            The folder that ``headwise name`` made, or a :class:`NamesResult`; names of another model are refused.

        Returns
        -------
        Explanation
            Its table, sentence, page and document have the names.
        """
        return replace(self, names=KnownNames.of(names).fit(self.model, self.weight_hash, self.basis))

    @property
    def sentence(self) -> str:
        """What a person would say, made from the numbers."""
        return sentence(self)

    def table(self, side: Side) -> WriterTable:
        """The log-odds of this attention, writers × channels, on the side of the query or of the key.

        Both tables have the same sums by channel, and the same total.

        Parameters
        ----------
        side:
            ``query`` or ``key``.

        Returns
        -------
        WriterTable
            Cells, sums by writer and by channel; ``to_pandas()`` gives a frame.
        """
        if side not in self.tables:
            raise HeadwiseError(f"side {in_short(side)} is not a side: write 'query' or 'key'")
        return self.tables[side]

    def to_json(self) -> dict[str, Any]:
        """One document (docs: The explanation's document)."""
        return to_json(self)

    def figure(self) -> go.Figure:
        """The three parts side by side: channels, writers, proof."""
        from headwise.show.why.figure import figure

        return figure(self)

    def to_html(self) -> str:
        """One self-contained page."""
        from headwise.show.why.page import page

        return page(self)

    def save_html(self, path: str | Path) -> Path:
        """Write the page; a reader never sees half of it."""
        from headwise.show.why.page import write_page

        return write_page(self, path)

    def __repr__(self) -> str:
        return f"Explanation({self.head} {self.query} ← {self.key}: {self.sentence})"

    def _repr_html_(self) -> str:
        from headwise.show.notebook import explanation

        return explanation(self)
