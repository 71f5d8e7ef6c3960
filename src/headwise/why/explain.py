"""The product's one question, answered: one table of what × who, and proof, from two forward passes."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from headwise.arguments import count, share
from headwise.basis_names import BasisKind, BasisName
from headwise.circuits.patching import Align
from headwise.contrast.bank import FeatureBank, banks_of, features_of
from headwise.contrast.roles import HeadRoles, role_of, stored_roles
from headwise.errors import HeadwiseError
from headwise.randomness import seeded
from headwise.strings import in_short
from headwise.tokens import Prompt, shown_after
from headwise.tracing.table import WriterTable, log_odds_table
from headwise.tracing.writes import PromptWrites
from headwise.types import Cell, Component, Head, HeadLike, Side
from headwise.why.consequence import Consequence, consequence
from headwise.why.controls import DRAWS
from headwise.why.document import Step, asked, controlled, followed, observed, placed, tabled, to_json
from headwise.why.proof import Proof, Verdict, foresee, prove, verdict
from headwise.why.question import Answer, PromptReading, Question, ask, find_answer
from headwise.why.sentence import sentence
from headwise.why.transfer import Transfer, other_prompts, transfers
from headwise.why.vocabulary import CellVocabulary, cell_vocabulary
from headwise.why.what import PlaceSplit, What, place_split, swap_partner, what
from headwise.why.who import SIDES, Who, who

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from headwise.model.model import Model


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
    pattern: torch.Tensor
    """[positions, positions]: the whole head."""
    basis: BasisName
    """What the channels are channels of."""
    seconds: float
    """How long it took."""
    stages: dict[str, float]
    """Seconds by stage."""
    start: int = 0
    """The position id of the first token."""
    transfer: tuple[Transfer, ...] = ()
    """The same writers, taken away in other prompts, where such were given."""
    vocabulary: CellVocabulary | None = None
    """Channels and writers in tokens, where that was asked for: hints, not names."""

    @property
    def head(self) -> Head:
        """The head that attends."""
        return self.question.cell.head

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


def explain(
    model: Model,
    prompt: Prompt,
    *,
    head: Head | str | None = None,
    query: str | int | None = None,
    key: str | int | None = None,
    answer: str | int | None = None,
    wrong: str | int | None = None,
    features: FeatureBank | str | Path | Sequence[FeatureBank | str | Path] = (),
    tau: float | None = None,
    basis: BasisKind = "singular",
    draws: int = DRAWS,
    seed: int = 0,
    start: int = 0,
    transfer: Prompt | Sequence[Prompt] = (),
    align: Align = None,
    vocabulary: bool = False,
    progress: Callable[[str], None] | None = None,
) -> Explanation:
    """Why does ``head`` attend from ``query`` to ``key``? What made the score, who wrote it, and proof.

    With only a prompt the question is found: the model's answer, the head that brings most of it to the last token,
    and the token that head reads.

    Parameters
    ----------
    model:
        A loaded model.
    prompt:
        The text that the model reads, or its token ids.
    head:
        The head, such as ``L22H4``; alone, its strongest attention is taken.
    query:
        The token that attends, as text or position.
    key:
        The token it attends to, as text or position.
    answer:
        The answer's token, as text or token id; default: what the model predicts.
    wrong:
        The token it is compared with; default: the next most likely one.
    features:
        Feature banks that ``headwise features`` made, or their folders: the score is then split by feature, too.
    tau:
        The attention must fall below this without its cause; default: a quarter of it or 2.5 / visible keys, the
        larger, but at most half of it.
    basis:
        Which channels signals are made of: ``singular``, ``balanced`` (after ``headwise calibrate``) or ``rotated``.
    draws:
        Random removals of each kind of control; the first 19 of them are also tried in the model.
    seed:
        The seed of everything random.
    start:
        The position of the prompt's first token, with nothing before it; 0 unless the model has rotary positions.
    transfer:
        Another prompt, such as a paraphrase, or several: the cause is taken away there, too.
    align:
        With ``transfer``: positions of the prompt, each with that of the other one; default: the same positions in
        prompts of equal length, else those of the longest equal runs of tokens.
    vocabulary:
        Whether to look at channels and writers through the vocabulary, too (:func:`head_vocabulary`).
    progress:
        Told the name of each stage as it begins.

    Returns
    -------
    Explanation
        Question, what, who and proof, as values, as a sentence and as a page.
    """
    steps = explain_steps(
        model,
        prompt,
        head=head,
        query=query,
        key=key,
        answer=answer,
        wrong=wrong,
        features=features,
        tau=tau,
        basis=basis,
        draws=draws,
        seed=seed,
        start=start,
        transfer=transfer,
        align=align,
        vocabulary=vocabulary,
        progress=progress,
    )
    while True:
        try:
            next(steps)
        except StopIteration as finished:
            return finished.value


def explain_steps(
    model: Model,
    prompt: Prompt | PromptReading,
    *,
    head: Head | str | None = None,
    query: str | int | None = None,
    key: str | int | None = None,
    answer: str | int | None = None,
    wrong: str | int | None = None,
    features: FeatureBank | str | Path | Sequence[FeatureBank | str | Path] = (),
    tau: float | None = None,
    basis: BasisKind = "singular",
    draws: int = DRAWS,
    seed: int = 0,
    start: int = 0,
    transfer: Prompt | Sequence[Prompt] = (),
    align: Align = None,
    vocabulary: bool = False,
    progress: Callable[[str], None] | None = None,
) -> Generator[Step, None, Explanation]:
    """:func:`explain`, step by step: the parts of the document as they become known, then the explanation itself.

    A prompt that was read already is given as its :class:`PromptReading`, with the basis and start of that.
    """
    clock = _Clock(progress)
    banks = banks_of(features, model) if features else []
    tau = None if tau is None else share(tau, "tau")
    draws = count(draws, "draws", "leaves no controls")
    seeded(seed)  # a seed that no generator takes is refused now, not after the search
    others = other_prompts(model, transfer, align) if len(transfer) or align is not None else []
    with torch.no_grad():
        clock.start("reading the prompt")
        read = (
            prompt
            if isinstance(prompt, PromptReading)
            else PromptReading.of(model, prompt, basis=basis, start=start)
        )
        up, token_ids, tokens = read.up, read.token_ids, read.tokens
        clock.start("finding the question")
        found = find_answer(model, token_ids, read.logits, answer, wrong)
        question = ask(model, up, tokens, found, head, query, key)
        chosen = features_of(banks, question.cell.head) if banks else []
        stream, named = up.stream, up.bases.name

    roles = partial(stored_roles, model.weight_hash)
    yield Step(
        "question",
        lambda: asked(model.name, read.prompt, tokens, stream.start, question, found, named, roles()),
    )
    with torch.no_grad():
        clock.start("what made the score")
        table = log_odds_table(up, question.cell)
        made = what(up, table, chosen)
        place = place_split(up, table)
    yield Step("place", lambda: placed(made, place))
    with torch.no_grad():
        clock.start("who wrote it")
        writers = who(up, table, made, chosen, tau)
        seen = _vocabulary(up, question.cell, made, writers) if vocabulary else None
        tables: dict[Side, WriterTable] = {side: WriterTable.of(table, side) for side in SIDES}
    yield Step("table", lambda: tabled(made, writers, roles(), seen))
    with torch.no_grad():
        clock.start("what it does")
        done = consequence(
            up, question.cell, found, lambda token: shown_after(model.tokenizer, token_ids, token)
        )
        clock.start("proof")
        rival = swap_partner(up, table, made) if chosen else None
        main = writers.headline
        foreseen = foresee(table, main, writers.signals, draws=draws, seed=seed)
    yield Step("predicted", lambda: controlled(foreseen))
    with torch.no_grad():
        proof = prove(up, table, found, foreseen, chosen, rival, draws=draws, seed=seed)
        elsewhere: tuple[Transfer, ...] = ()
        if others:
            clock.start("the same elsewhere")
            elsewhere = transfers(up, table, main, others, align, draws=draws, seed=seed)
        pattern = stream.whole_pattern(question.cell.head)
        clock.stop()
    why = Explanation(
        model=model.name,
        weight_hash=model.weight_hash,
        prompt=read.prompt,
        tokens=tokens,
        question=question,
        answer=found,
        what=made,
        who=writers,
        place=place,
        consequence=replace(done, path=proof.path),
        proof=proof,
        verdict=verdict(proof, found),
        tables=tables,
        pattern=pattern.cpu(),
        basis=named,
        seconds=sum(clock.stages.values()),
        stages=dict(clock.stages),
        start=stream.start,
        transfer=elsewhere,
        vocabulary=seen,
    )
    yield Step("observed", lambda: observed(proof))
    yield Step("controls", lambda: controlled(proof, why.verdict))
    yield Step("consequence", lambda: followed(why.consequence))
    yield Step("done", why.to_json)
    return why


def _vocabulary(up: PromptWrites, cell: Cell, made: What, writers: Who) -> CellVocabulary:
    pairs: list[tuple[Side, Component]] = [
        (row.side, row.writer) for row in writers.rows if row.writer is not None
    ]
    return cell_vocabulary(up, cell, [part.channel for part in made.shown], pairs)


class _Clock:
    """Seconds by stage, and a word to whoever shows progress."""

    def __init__(self, progress: Callable[[str], None] | None) -> None:
        self.progress = progress
        self.stages: dict[str, float] = {}
        self._now: tuple[str, float] | None = None

    def start(self, stage: str) -> None:
        self.stop()
        self._now = (stage, time.perf_counter())
        if self.progress is not None:
            self.progress(stage)

    def stop(self) -> None:
        if self._now is not None:
            name, began = self._now
            self.stages[name] = time.perf_counter() - began
            self._now = None
