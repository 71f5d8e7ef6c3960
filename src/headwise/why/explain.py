"""The product's one question, answered: one table of what × who, and proof, from two forward passes."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from headwise.arguments import count, share
from headwise.basis_names import BasisKind
from headwise.circuits.patching import Align
from headwise.contrast.bank import FeatureBank, banks_of
from headwise.contrast.roles import stored_roles
from headwise.errors import HeadwiseError
from headwise.known_names import KnownNames, NamesLike
from headwise.randomness import seeded
from headwise.tokens import Prompt, shown_after
from headwise.tracing.table import WriterTable, log_odds_table
from headwise.types import Head, Side
from headwise.why.consequence import consequence
from headwise.why.controls import DRAWS
from headwise.why.document import Step, asked, controlled, followed, observed, placed, tabled
from headwise.why.explanation import Explanation
from headwise.why.proof import foresee, prove, verdict
from headwise.why.question import PromptReading, ask, find_answer
from headwise.why.transfer import Transfer, other_prompts, transfers
from headwise.why.vocabulary import cell_vocabulary
from headwise.why.what import features_here, place_split, swap_partner, what
from headwise.why.who import SIDES, who

if TYPE_CHECKING:
    from headwise.model.model import Model
    from headwise.why.answers import AnswerLike, AskedAfter


def explain(
    model: Model,
    prompt: Prompt,
    *,
    head: Head | str | None = None,
    query: str | int | None = None,
    key: str | int | None = None,
    answer: AnswerLike | None = None,
    wrong: AnswerLike | None = None,
    generate: int | None = None,
    written: str | int | None = None,
    features: FeatureBank | str | Path | Sequence[FeatureBank | str | Path] = (),
    tau: float | None = None,
    basis: BasisKind = "singular",
    draws: int = DRAWS,
    seed: int = 0,
    start: int = 0,
    transfer: Prompt | Sequence[Prompt] = (),
    align: Align = None,
    vocabulary: bool = False,
    names: NamesLike | None = None,
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
        The answer, as text or token ids; default: what the model predicts. With several tokens the question is asked
        where it parts from ``wrong``, or from what the model would say.
    wrong:
        The answer it is compared with; default: the next most likely token.
    generate:
        The model writes so many tokens first, always the most likely one, and one of them is asked about.
    written:
        With ``generate``: which of them, as text or position; default: the last.
    features:
        Feature banks that ``headwise features`` made, or their folders: the score is then split by feature, too.
    tau:
        The attention must fall below this without its cause; default: a quarter of it or 2.5 / visible keys, the
        larger, but at most half of it.
    basis:
        Which channels signals are made of: ``singular``, ``balanced`` (after ``headwise calibrate``) or ``rotated``.
    draws:
        Random removals of each kind of control. One in fifty of them, and at least 19, is also tried in the model: what
        is said of the answer has p ≥ .05 with 999 draws, p ≥ .01 with 4999.
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
    names:
        Names of what is mentioned: the folder that ``headwise name`` made, or a :class:`NamesResult`.
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
        generate=generate,
        written=written,
        features=features,
        tau=tau,
        basis=basis,
        draws=draws,
        seed=seed,
        start=start,
        transfer=transfer,
        align=align,
        vocabulary=vocabulary,
        names=names,
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
    answer: AnswerLike | None = None,
    wrong: AnswerLike | None = None,
    generate: int | None = None,
    written: str | int | None = None,
    features: FeatureBank | str | Path | Sequence[FeatureBank | str | Path] = (),
    tau: float | None = None,
    basis: BasisKind = "singular",
    draws: int = DRAWS,
    seed: int = 0,
    start: int = 0,
    transfer: Prompt | Sequence[Prompt] = (),
    align: Align = None,
    vocabulary: bool = False,
    names: NamesLike | None = None,
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
    known = None if names is None else KnownNames.of(names).fit(model.name, model.weight_hash)
    others = other_prompts(model, transfer, align) if len(transfer) or align is not None else []
    with torch.no_grad():
        clock.start("reading the prompt")
        after = _continued(model, prompt, answer, wrong, generate, written, start)
        if after is not None:
            prompt, answer, wrong = after.token_ids, after.answer, after.wrong
        read = (
            prompt
            if isinstance(prompt, PromptReading)
            else PromptReading.of(model, prompt, basis=basis, start=start)
        )
        if after is not None:
            read = replace(read, prompt=after.text)
        up, token_ids, tokens = read.up, read.token_ids, read.tokens
        clock.start("finding the question")
        found = find_answer(model, token_ids, read.logits, answer, wrong)
        question = ask(model, up, tokens, found, head, query, key)
        if after is not None and after.continued is not None:
            question = replace(question, notices=(after.continued.notice, *question.notices))
        chosen = features_here(banks, up, question.cell) if banks else []
        stream, named = up.stream, up.bases.name

    continued = None if after is None else after.continued
    roles = partial(stored_roles, model.weight_hash)
    yield Step(
        "question",
        lambda: asked(
            model.name, read.prompt, tokens, stream.start, question, found, named, roles(), continued
        ),
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
        seen = cell_vocabulary(up, question.cell, made.numbers, writers.pairs) if vocabulary else None
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
        done = replace(done, path=proof.path)
        if continued is not None:
            from headwise.why.answers import summed_effects

            done = replace(done, summed=summed_effects(up, table, main, continued))
        elsewhere: tuple[Transfer, ...] = ()
        if others:
            clock.start("the same elsewhere")
            elsewhere = transfers(up, table, main, others, align, draws=draws, seed=seed)
        call = stream.call_of(question.cell.head).kept()
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
        consequence=done,
        proof=proof,
        verdict=verdict(proof, found),
        tables=tables,
        call=call,
        basis=named,
        seconds=sum(clock.stages.values()),
        stages=dict(clock.stages),
        start=stream.start,
        continued=continued,
        transfer=elsewhere,
        vocabulary=seen,
        names=None if known is None else known.fit(model.name, model.weight_hash, named),
    )
    yield Step("observed", lambda: observed(proof))
    yield Step("controls", lambda: controlled(proof, why.verdict))
    yield Step("consequence", lambda: followed(why.consequence))
    yield Step("done", why.to_json)
    return why


def _continued(
    model: Model,
    prompt: Prompt | PromptReading,
    answer: AnswerLike | None,
    wrong: AnswerLike | None,
    generate: int | None,
    written: str | int | None,
    start: int,
) -> AskedAfter | None:
    """Where the question is asked, if not at the end of the prompt: an answer has several tokens, or is written."""
    if generate is None and written is not None:
        raise HeadwiseError(
            "written= says which token of generate= is meant: give generate=, or leave it out"
        )
    if isinstance(prompt, PromptReading):
        return None
    if generate is not None:
        if answer is not None:
            raise HeadwiseError("with generate= the answer is what the model writes: leave answer= out")
        from headwise.why.answers import after_writing

        return after_writing(model, prompt, generate, written, wrong, start)
    if all(one is None or isinstance(one, int) for one in (answer, wrong)):
        return None
    from headwise.why.answers import after_answers

    return after_answers(model, prompt, answer, wrong, start)


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
