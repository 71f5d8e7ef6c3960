"""How much of the answer a whole circuit carries: ablate everything outside it, or everything inside it.

What is ablated are firings. A firing (head, query d, key j) that is ablated still attends, but what it carries,
A_dj · v_j, is replaced by A_dj times the mean value over the keys the row sees: the head's message is gone, its usual
write stays. MLPs and embeddings are left in place and react to what reaches them. *Necessary*: without the circuit's
firings more of the answer is lost than without matched ones. *Sufficient*: with everything outside taken over from
other prompts (:mod:`headwise.circuits.resampling`) the circuit keeps more of it than a matched one does. Everything
outside at its mean, as in the literature, leaves the model where it has never been; that is beside it. The null are
matched circuits: each firing, or one of the few of its layer and query position that are nearest in attention, for a
firing that attends to nothing carries nothing. Firings may stay, since a circuit that is one of all these then does
most of them no more often than any other; held against circuits of others alone it would, twice as often. Random
circuits of the same size, whatever their attention, are beside them too. Firings that only an account of an MLP leads
to are not part of what is tested.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from headwise.circuits.circuit import Circuit
from headwise.circuits.counterfactual import mean, outcomes
from headwise.circuits.resampling import (
    AttentionOfRows,
    OtherFirings,
    check_lengths,
    reordered,
    resample,
    rows_of,
)
from headwise.circuits.schema import require_fit
from headwise.claims import claims, p_value
from headwise.errors import HeadwiseError
from headwise.model.attend import AttentionCall
from headwise.model.edits import ChangeOutput
from headwise.randomness import keyed
from headwise.types import Cell, Claim, Head

if TYPE_CHECKING:
    from headwise.model.edits import Edit
    from headwise.model.model import Model
    from headwise.tokens import Prompt


NEAR = 5
"""Other firings nearest in attention: a matched circuit has one of them or the firing itself."""
RANDOM = 20
"""Random circuits, at most: they stand beside the claims and decide nothing."""
TRIES = 10
"""Draws per matched circuit that is wanted: as none counts twice, there may be fewer than that."""
NULL = f"circuits, each firing kept or exchanged for one of the {NEAR} nearest in attention of its layer and query"
Firings = frozenset[Cell]
"""Firings; never all cells of a prompt, which are the square of its length."""
GROUP = "necessary, sufficient by resampling and by means, of this circuit"
OTHERS = 4
"""Prompts that messages are taken over from, where none are given: the same tokens in so many other orders."""


@dataclass(frozen=True)
class Faithfulness:
    """The answer's logit difference, clean and under ablation, beside matched and random circuits of the same size."""

    firings: int
    """How many the circuit has."""
    clean: float
    """The logit difference, untouched."""
    none: float
    """With every firing ablated: what is left without any circuit."""
    outside_ablated: float
    """With every firing outside the circuit ablated."""
    inside_ablated: float
    """With every firing of the circuit ablated."""
    random_outside_ablated: tuple[float, ...]
    """The same as ``outside_ablated`` for random circuits, one per draw."""
    random_inside_ablated: tuple[float, ...]
    """The same as ``inside_ablated`` for them."""
    matched_outside_ablated: tuple[float, ...]
    """The same as ``outside_ablated`` for circuits of firings with about the same attention."""
    matched_inside_ablated: tuple[float, ...]
    """The same as ``inside_ablated`` for them."""
    others: int
    """Other prompts that messages were taken over from; the next four are means over them."""
    resampled_none: float
    """With every firing taken over from another prompt."""
    resampled_outside: float
    """With every firing outside the circuit taken over."""
    resampled_inside: float
    """With every firing of the circuit taken over."""
    matched_resampled_outside: tuple[float, ...]
    """The same as ``resampled_outside`` for matched circuits."""
    necessary: Claim
    """That more of the answer is lost without the circuit than without a matched one."""
    sufficient: Claim
    """That the circuit alone keeps more of the answer than a matched one, everything outside resampled."""
    sufficient_by_means: Claim
    """The same with everything outside at its mean, as in the literature."""

    @property
    def kept(self) -> float:
        """The share of the clean difference that the circuit alone keeps."""
        return self.outside_ablated / self.clean

    @property
    def kept_resampled(self) -> float:
        """The same share with everything outside resampled."""
        return self.resampled_outside / self.clean

    @property
    def destroyed(self) -> float:
        """The share of the clean difference that is lost without the circuit."""
        return 1 - self.inside_ablated / self.clean


def faithfulness(
    model: Model, circuit: Circuit, *, others: Sequence[Prompt] | None = None, draws: int = 20, seed: int = 0
) -> Faithfulness:
    """Ablate the firings outside and inside a circuit, and outside and inside matched and random ones.

    Parameters
    ----------
    model:
        The model that the circuit was traced in.
    circuit:
        A circuit with at least one head.
    others:
        Prompts of the same number of tokens, from which the messages of everything outside are taken over; by default
        the same tokens in four other orders.
    draws:
        Matched circuits to compare with, no two alike, and up to 20 random ones. With fewer than 20 no claim can be
        supported; a circuit of one firing has no more than five.
    seed:
        The seed of everything random.

    Returns
    -------
    Faithfulness
        The answer's logit difference in each case.
    """
    require_fit(circuit, model)
    heads = [n for n in circuit.causal().heads if n.key <= n.query]
    if not heads:
        raise HeadwiseError("this circuit has no head: there is nothing to ablate")
    inside = frozenset(Cell(Head(n.layer, n.head or 0), n.query, n.key) for n in heads)
    drawn = [
        _random_like(inside, model.n_heads, keyed(seed, "random circuit", draw))
        for draw in range(min(draws, RANDOM))
    ]
    queries = sorted({cell.query for cell in inside})
    rows = rows_of(model, circuit.token_ids, queries, circuit.start)
    like = matched_circuits(inside, rows, draws, seed)
    every = [_ablation(frozenset(), outside=outside) for outside in (False, True)]
    own = [_ablation(inside, outside=outside) for outside in (True, False)]
    compared = [_ablation(one, outside=o) for some in (drawn, like) for o in (True, False) for one in some]
    difference = _leads(model, circuit, [*every, *own, *compared])
    over = _resampled(model, circuit, _others(model, circuit, others, queries, seed), inside, like)
    rest = iter(difference[4:])
    parts = [tuple(next(rest) for _ in some) for some in (drawn, drawn, like, like)]
    # Without its circuit a lead falls towards zero, whatever its sign.
    sign = 1.0 if difference[0] >= 0 else -1.0
    p = [
        p_value(-sign * difference[3], [-sign * one for one in parts[3]]),
        p_value(sign * over[1], [sign * one for one in over[3:]]),
        p_value(sign * difference[2], [sign * one for one in parts[2]]),
    ]
    necessary, sufficient, by_means = claims(p, null=NULL, draws=len(like), group=GROUP)
    clean, none, outside, within = difference[:4]
    return Faithfulness(
        firings=len(heads),
        clean=clean,
        none=none,
        outside_ablated=outside,
        inside_ablated=within,
        random_outside_ablated=parts[0],
        random_inside_ablated=parts[1],
        matched_outside_ablated=parts[2],
        matched_inside_ablated=parts[3],
        others=OTHERS if others is None else len(others),
        resampled_none=over[0],
        resampled_outside=over[1],
        resampled_inside=over[2],
        matched_resampled_outside=tuple(over[3:]),
        necessary=necessary,
        sufficient=sufficient,
        sufficient_by_means=by_means,
    )


def _leads(model: Model, circuit: Circuit, edits: Sequence[Edit]) -> list[float]:
    with torch.no_grad():
        plans = [[edit] for edit in edits]
        found = outcomes(model, circuit.token_ids, plans, circuit.answer_ids, start=circuit.start)
    return [one.lead for one in found]


def _others(
    model: Model, circuit: Circuit, others: Sequence[Prompt] | None, queries: Sequence[int], seed: int
) -> list[OtherFirings]:
    """What the firings of the other prompts carry."""
    same = reordered(circuit.token_ids, OTHERS, seed)
    chosen = same if others is None else [model.prompt_ids(one) for one in others]
    check_lengths(chosen, len(circuit.token_ids))
    return [OtherFirings.of(model, one, queries, circuit.start) for one in chosen]


def _resampled(
    model: Model, circuit: Circuit, taken: Sequence[OtherFirings], inside: Firings, like: Sequence[Firings]
) -> list[float]:
    """The lead with every firing taken over, all outside, all inside, and all outside each matched circuit; means over
    the other prompts."""
    plans: list[tuple[Firings, bool]] = [(frozenset(), True), (inside, True), (inside, False)]
    plans += [(one, True) for one in like]
    made = [resample(cells, other, outside=outside) for cells, outside in plans for other in taken]
    found = _leads(model, circuit, made)
    return [mean(found[i : i + len(taken)]) for i in range(0, len(found), len(taken))]


def _random_like(inside: Firings, heads: int, generator: torch.Generator) -> Firings:
    """As many firings in each layer at each query position, at random heads and keys that the query may read."""
    counts = Counter((cell.head.layer, cell.query) for cell in inside)
    drawn: set[Cell] = set()
    for (layer, query), n in sorted(counts.items()):
        chosen = torch.randperm(heads * (query + 1), generator=generator)[:n].tolist()
        drawn |= {Cell(Head(layer, at // (query + 1)), query, at % (query + 1)) for at in chosen}
    return frozenset(drawn)


def matched_circuits(inside: Firings, rows: AttentionOfRows, draws: int, seed: int) -> list[Firings]:
    """So many matched circuits that are not the circuit, no two alike; where fewer are found, those.

    A circuit of one firing has five matched ones, and does more than all of them once in six: however often they are
    drawn, they are no more evidence than five. Where nothing can be exchanged, a circuit of nothing stands for them.
    """
    made: dict[Firings, None] = {}
    for draw in range(TRIES * draws):
        one = _matched(inside, rows, keyed(seed, "matched circuit", draw))
        if one != inside:
            made[one] = None
        if len(made) == draws:
            break
    return list(made) or [frozenset()]


def _matched(inside: Firings, rows: AttentionOfRows, generator: torch.Generator) -> Firings:
    """For each firing itself or another of its layer and query, outside the circuit, one of the few nearest in
    attention; no firing twice."""
    drawn: set[Cell] = set()
    for cell in sorted(inside):
        head, query, key = cell
        row = rows[head.layer, query]
        off = (row - row[head.index, key]).abs()
        for other, there, column in (inside - {cell}) | drawn:
            if (other.layer, there) == (head.layer, query):
                off[other.index, column] = float("inf")
        off = off.flatten()
        near = off.topk(min(1 + NEAR, int(off.isfinite().sum())), largest=False).indices
        at = int(near[torch.randint(len(near), (), generator=generator)])
        drawn.add(Cell(Head(head.layer, at // (query + 1)), query, at % (query + 1)))
    return frozenset(drawn)


def _ablation(cells: Firings, *, outside: bool) -> ChangeOutput:
    """The edit that takes the message of some firings away, or of all but them, some rows at a time."""

    def change(call: AttentionCall, output: Tensor) -> Tensor:
        here = [cell for cell in cells if cell.head.layer == call.layer]
        if not here and not outside:
            return output
        value = call.value.repeat_interleave(call.query.shape[1] // call.value.shape[1], dim=1)
        parts = []
        for rows, pattern, seen in call.in_rows():
            gone = torch.full(pattern.shape[1:], outside, device=pattern.device)
            for head, query, key in here:
                if rows.start <= query < rows.stop:
                    gone[head.index, query - rows.start, key] = not outside
            visible = seen[:, None].to(value.dtype)
            usual = (visible @ value) / visible.sum(-1, keepdim=True)
            lost = pattern.to(value.dtype) * gone
            # Σ_j lost_dj (v_j − mean_d)
            parts.append(lost @ value - lost.sum(-1, keepdim=True) * usual)
        return output - torch.cat(parts, 2).transpose(1, 2)

    return ChangeOutput(change=change)
