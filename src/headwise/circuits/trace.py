"""Trace prompts to circuits."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, overload

import torch
from torch import Tensor

from headwise.arguments import share
from headwise.bases.basis import Bases
from headwise.basis_names import BasisKind
from headwise.circuits.circuit import Circuit, Counterfactual, Edge, Node, node_of
from headwise.circuits.counterfactual import verified
from headwise.errors import HeadwiseError
from headwise.model.batch import by_length
from headwise.model.stream import split
from headwise.strings import counted, in_short
from headwise.tokens import Prompt, answer_token, is_one, shown, shown_after
from headwise.tracing.causes import Quadrature
from headwise.tracing.search import Rules, SideSignals
from headwise.tracing.seeds import (
    Readout,
    Seed,
    answer_set,
    chosen_seeds,
    last_of,
    probability_seeds,
    published_seeds,
)
from headwise.tracing.through import MLPRules
from headwise.tracing.tracer import Traced, cell_of, trace_down
from headwise.tracing.vectors import signal_vectors
from headwise.tracing.writes import PromptWrites
from headwise.types import AnswerIds

if TYPE_CHECKING:
    from headwise.model.model import Model

AnswerToken = str | int
MAX_TOKENS = 1024
"""Tokens traced in one batch of prompts: bounds memory whatever the number of prompts."""


def rules_for(mode: str, tau: float | None, rule: str | None, influence: float | None = None) -> Rules:
    if mode not in ("exact", "published"):
        raise HeadwiseError(f"mode {in_short(mode)} is not a mode: write 'exact' or 'published'")
    tau = None if tau is None else share(tau, "tau")
    if rule not in (None, "gauss", "trapezoid"):
        raise HeadwiseError(f"rule {in_short(rule)} is not a quadrature rule: write 'gauss' or 'trapezoid'")
    base = Rules.published() if mode == "published" else Rules()
    chosen: Quadrature = base.rule if rule is None else "gauss" if rule == "gauss" else "trapezoid"
    least = base.influence if influence is None else share(influence, "influence", "a share", zero=True)
    return replace(base, tau=tau, rule=chosen, influence=least)


def bases_for(model: Model, mode: str, basis: BasisKind) -> Bases:
    """The channels of a mode: the published one keeps absolute rotation."""
    if mode == "published":
        if basis != "singular":
            raise HeadwiseError(
                f"basis {in_short(basis)} cannot be used in the published mode, which takes singular channels: "
                "choose the exact mode"
            )
        return Bases.of(model, frame="absolute")
    return Bases.of(model, basis)


@overload
def trace(
    model: Model,
    prompt: str | list[int],
    *,
    answer: AnswerToken | None = ...,
    wrong: AnswerToken | None = ...,
    top_k: int | None = ...,
    top_p: float | None = ...,
    mode: str = ...,
    tau: float | None = ...,
    rule: str | None = ...,
    basis: BasisKind = ...,
    verify: bool = ...,
    vectors: bool = ...,
    start: int = ...,
    influence: float | None = ...,
    mlp_cover: float = ...,
    mlp_least: float = ...,
    mlp_floor: float = ...,
    mlp_depth: int = ...,
) -> Circuit: ...
@overload
def trace(
    model: Model,
    prompt: list[str] | list[list[int]],
    *,
    answer: Sequence[AnswerToken] | AnswerToken | None = ...,
    wrong: Sequence[AnswerToken] | AnswerToken | None = ...,
    top_k: int | None = ...,
    top_p: float | None = ...,
    mode: str = ...,
    tau: float | None = ...,
    rule: str | None = ...,
    basis: BasisKind = ...,
    verify: bool = ...,
    vectors: bool = ...,
    start: int = ...,
    influence: float | None = ...,
    mlp_cover: float = ...,
    mlp_least: float = ...,
    mlp_floor: float = ...,
    mlp_depth: int = ...,
) -> list[Circuit]: ...
def trace(
    model: Model,
    prompt: Prompt | Sequence[Prompt],
    *,
    answer: AnswerToken | Sequence[AnswerToken] | None = None,
    wrong: AnswerToken | Sequence[AnswerToken] | None = None,
    top_k: int | None = None,
    top_p: float | None = None,
    mode: str = "exact",
    tau: float | None = None,
    rule: str | None = None,
    basis: BasisKind = "singular",
    verify: bool = False,
    vectors: bool = False,
    start: int = 0,
    influence: float | None = None,
    mlp_cover: float = MLPRules.cover,
    mlp_least: float = MLPRules.least,
    mlp_floor: float = MLPRules.floor,
    mlp_depth: int = MLPRules.depth,
) -> Circuit | list[Circuit]:
    """Trace a prompt (or several) to the circuit that made its answer, from one forward pass.

    The circuit starts at the components that carry the answer's logit minus the wrong one's.

    Parameters
    ----------
    model:
        A loaded model.
    prompt:
        A text or its token ids, or a list of either for several circuits from one batch.
    answer:
        The answer's token, as text or token id; default: what the model predicts. For several prompts, one for all or
        one per prompt.
    wrong:
        The token it is compared with, given like ``answer``; default: the mean token.
    top_k:
        Start instead at what carries the probability of the ``top_k`` most likely tokens.
    top_p:
        Start instead at what carries the smallest set of tokens whose probability reaches ``top_p``.
    mode:
        ``exact``, or ``published`` to follow the authors' rules to the letter.
    tau:
        The attention of a firing must fall below this without its cause; default: a quarter of it or
        2.5 / visible keys, the larger, but at most half of it.
    rule:
        How attributions are integrated: ``gauss`` or ``trapezoid``; default: the mode's own.
    basis:
        Which channels signals are made of: ``singular``, ``balanced`` (after ``headwise calibrate``) or ``rotated``,
        the control; the published mode takes the singular ones in the absolute frame.
    verify:
        Whether to run the edited forward pass of every firing's counterfactual.
    vectors:
        Whether to keep every edge's signal as a vector.
    start:
        The position of each prompt's first token, with nothing before it; 0 unless the model has rotary positions.
    influence:
        A head through which less than this part of the answer passes is shown, but what made it attend is not asked,
        and an MLP not followed; default: 0.02, in the published mode 0. Each seed has its part of what all seeds carry,
        and hands it on to its writers, to each as much as it took of the attention.
    mlp_cover:
        What an MLP wrote is shared among what it read, as an account that is not causal: the strongest writers that
        together hold this part of what all helping writers bring. The published mode follows no MLPs.
    mlp_least:
        A writer with a smaller part of it is left out.
    mlp_floor:
        So is a writer that accounts for less than this, in attention or in the answer's logits.
    mlp_depth:
        How many MLPs are followed one behind the other; 0: none.

    Returns
    -------
    Circuit
        Or a list with one circuit per prompt.
    """
    started = time.perf_counter()
    single = is_one(prompt)
    token_ids = model.token_ids(prompt)
    n = len(token_ids)
    texts: list[str | None] = [p if isinstance(p, str) else None for p in ([prompt] if single else prompt)]  # pyright: ignore[reportAssignmentType]
    answers, wrongs = _per_prompt(model, answer, n, "answer"), _per_prompt(model, wrong, n, "wrong")
    if wrong is not None and answer is None:
        raise HeadwiseError(
            f"wrong={wrong!r} was given without an answer: say which answer it is compared with"
        )
    if (top_k is not None or top_p is not None) and answer is not None:
        raise HeadwiseError(
            "top_k and top_p choose the answers themselves: leave out answer, or leave out top_k and top_p"
        )
    mlps = MLPRules.checked(mlp_cover, mlp_least, mlp_floor, mlp_depth)
    rules = replace(rules_for(mode, tau, rule, influence), mlps=None if mode == "published" else mlps)
    bases = bases_for(model, mode, basis)
    circuits: dict[int, Circuit] = {}
    for indices in by_length(token_ids, 64, MAX_TOKENS):
        with torch.no_grad():
            stream = split(model, [token_ids[i] for i in indices], start=start)
            ups = [PromptWrites(stream, place, bases) for place in range(len(indices))]
            begun = [
                start_at(model, up, logits, answers[i], wrongs[i], top_k, top_p, rules)
                for up, logits, i in zip(ups, last_logits(model, ups), indices, strict=True)
            ]
            traced = trace_down(model, ups, [one.seeds if one.has_head else [] for one in begun], rules)
            for place, (i, up) in enumerate(zip(indices, ups, strict=True)):
                circuit = circuit_of(model, up, traced[place], begun[place], rules, vectors=vectors)
                circuit = verified(up, circuit) if verify else circuit
                circuits[i] = replace(circuit, prompt=texts[i], mode=mode)
    seconds = (time.perf_counter() - started) / n
    done = [replace(circuits[i], seconds=round(seconds, 4)) for i in range(n)]
    return done[0] if single else done


def _per_prompt(
    model: Model, given: AnswerToken | Sequence[AnswerToken] | None, n: int, what: str
) -> list[int | None]:
    if given is None:
        return [None] * n
    if isinstance(given, str) or not isinstance(given, Sequence):
        return [answer_token(model.tokenizer, given, what, vocabulary=model.vocabulary)] * n
    if len(given) != n:
        raise HeadwiseError(f"{len(given)} {what} tokens were given for {n} prompts")
    return [answer_token(model.tokenizer, one, what, vocabulary=model.vocabulary) for one in given]


@dataclass(frozen=True)
class Start:
    """Where a circuit begins, and what is said of its answer."""

    seeds: list[Seed]
    answer_id: int
    wrong_id: int | None
    answer: str
    wrong: str | None
    notes: tuple[str, ...]
    difference: float | None = None
    top: str | None = None

    @property
    def has_head(self) -> bool:
        """Without a head among the seeds there is no circuit."""
        return any(seed.component.kind == "head" for seed in self.seeds)


def last_logits(model: Model, ups: Sequence[PromptWrites]) -> Tensor:
    """[prompts, vocabulary] at each prompt's last position, in one reading of the unembedding."""
    last = torch.stack([last_of(up) for up in ups])
    return Readout.of(model, last).logits(last)


def start_at(
    model: Model,
    up: PromptWrites,
    logits: Tensor,
    answer: int | None,
    wrong: int | None,
    top_k: int | None,
    top_p: float | None,
    rules: Rules,
) -> Start:
    token_ids = up.stream.token_ids[up.prompt]

    def text(token: int) -> str:
        return shown_after(model.tokenizer, token_ids, token)

    top = int(logits.argmax())
    if top_k is not None or top_p is not None:
        chosen = answer_set(logits, top_k, top_p)
        seeds, _ = probability_seeds(up, chosen)
        texts = " / ".join(text(token) for token in chosen)
        return Start(seeds, chosen[0], None, texts, None, (), None, text(top))
    target = top if answer is None else answer
    notes = []
    if top != target:
        p = torch.softmax(logits, -1)
        notes.append(
            f"{text(target)!r} is not what the model predicts: it says {text(top)!r} "
            f"(p {float(p[top]):.3f}), {text(target)!r} has p {float(p[target]):.3f}"
        )
    rival = logits.index_fill(0, torch.tensor([target], device=logits.device), -torch.inf).argmax()
    difference = float(AnswerIds(target, int(rival) if wrong is None else wrong).difference(logits))
    seeds, total = (published_seeds if rules.published_seeds else chosen_seeds)(up, target, wrong)
    if total <= 0:
        against = "the mean token" if wrong is None else repr(text(wrong))
        notes.append(f"the model does not prefer {text(target)!r} to {against}: there is nothing to trace")
    elif not any(seed.component.kind == "head" for seed in seeds):
        notes.append("no head carries the answer to the last position: the circuit is empty")
    against = None if wrong is None else text(wrong)
    return Start(seeds, target, wrong, text(target), against, tuple(notes), difference, text(top))


def circuit_of(
    model: Model, up: PromptWrites, traced: Traced, start: Start, rules: Rules, *, vectors: bool = False
) -> Circuit:
    """The graph of what was traced."""
    nodes: dict[str, Node] = {}
    edges: list[Edge] = []
    last = up.tokens - 1
    end = Node("answer", model.n_layers, None, last, last)

    def add(node: Node) -> str:
        return nodes.setdefault(node.id, node).id

    if traced.seeds:
        add(end)
    for seed in traced.seeds:
        firing = cell_of(seed.component, last)
        attention = None if firing is None else traced.attention[firing]
        source = add(node_of(seed.component, last, attention))
        edges.append(Edge(source, end.id, "query", seed.weight))
    counterfactuals, unresolved = [], 0
    for firing, sides in traced.signals.items():
        target = add(Node.of(firing, traced.attention[firing]))
        for side, signals in sides.items():
            unresolved += not signals.resolved
            edges += _edges(up, traced, signals, target, add, vectors=vectors)
            if signals.resolved:
                counterfactuals.append(
                    Counterfactual(target, side, len(signals), signals.attention, signals.after)
                )
    accounts = []
    for part in traced.parts:
        above = cell_of(part.writer, part.position)
        attention = None if above is None else traced.attention[above]
        source, target = node_of(part.writer, part.position, attention), node_of(part.mlp, part.position)
        accounts.append(Edge(add(source), add(target), part.side, part.weight, account_of=part.unit))
    notes = start.notes
    if unresolved:
        notes = (
            *notes,
            f"{unresolved} sides of firings have no cause of allowed size and were left without signals",
        )
    if traced.passed_over:
        notes = (
            *notes,
            f"through {counted(traced.passed_over, 'head')} less than {rules.influence:.0%} of the answer passes: "
            "what made them attend was not asked",
        )
    token_ids = up.stream.token_ids[up.prompt]
    return Circuit(
        nodes=tuple(nodes.values()),
        edges=tuple(edges),
        accounts=tuple(accounts),
        tokens=shown(model.tokenizer, token_ids),
        token_ids=tuple(token_ids),
        answer=start.answer,
        wrong=start.wrong,
        answer_id=start.answer_id,
        wrong_id=start.wrong_id,
        model=model.name,
        weight_hash=model.weight_hash,
        counterfactuals=tuple(counterfactuals),
        notes=notes,
        difference=start.difference,
        top=start.top,
        start=up.stream.start,
        basis=up.bases.name,
    )


def _edges(
    up: PromptWrites,
    traced: Traced,
    found: SideSignals,
    target: str,
    add: Callable[[Node], str],
    *,
    vectors: bool,
) -> list[Edge]:
    """One edge per writer: its channels in the order of removal, its weight the attention they took."""
    side, position = found.side, found.cell.at(found.side)
    edges = []
    for one in found.by_writer():
        writer = one.signal.writer
        above = cell_of(writer, position)
        source = add(node_of(writer, position, None if above is None else traced.attention[above]))
        vector = None
        if vectors:
            removed = signal_vectors(up, one.signal, found.cell.query)
            vector = tuple((removed if side == "query" else removed[position]).tolist())
        edges.append(Edge(source, target, side, one.drop, one.signal.channels, one.strengths, vector))
    return edges
