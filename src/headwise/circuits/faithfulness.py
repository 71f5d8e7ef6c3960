"""How much of the answer a whole circuit carries: ablate everything outside it, or everything inside it.

What is ablated are firings. A firing (head, query d, key j) that is ablated still attends, but what it carries,
A_dj · v_j, is replaced by A_dj times the mean value over the keys the row sees: the head's message is gone, its usual
write stays. MLPs and embeddings are left in place and react to what reaches them. The null are matched circuits: for
each firing another of the same layer and query position with about the same attention, for a firing that attends to
nothing carries nothing. Random circuits of the same size, whatever their attention, are beside them as in the
literature. Firings that only an account of an MLP leads to are not part of what is tested.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from headwise.circuits.circuit import Circuit
from headwise.circuits.counterfactual import outcomes
from headwise.circuits.schema import require_fit
from headwise.claims import claims, p_value
from headwise.errors import HeadwiseError
from headwise.model.attend import AttentionCall
from headwise.model.edits import ChangeOutput
from headwise.randomness import keyed
from headwise.types import Cell, Claim, Head

if TYPE_CHECKING:
    from headwise.model.model import Model


NEAR = 5
"""Firings nearest in attention among which a matched one is drawn."""
NULL = "circuits of other firings of the same layers and queries with about the same attention"
Firings = frozenset[Cell]
"""Firings; never all cells of a prompt, which are the square of its length."""
GROUP = "necessary and sufficient, of this circuit"


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
    necessary: Claim
    """That more of the answer is lost without the circuit than without a matched one."""
    sufficient: Claim
    """That the circuit alone keeps more of the answer than a matched one."""

    @property
    def kept(self) -> float:
        """The share of the clean difference that the circuit alone keeps."""
        return self.outside_ablated / self.clean

    @property
    def destroyed(self) -> float:
        """The share of the clean difference that is lost without the circuit."""
        return 1 - self.inside_ablated / self.clean


def faithfulness(model: Model, circuit: Circuit, *, draws: int = 20, seed: int = 0) -> Faithfulness:
    """Ablate the firings outside and inside a circuit, and outside and inside random ones of the same size.

    Parameters
    ----------
    model:
        The model that the circuit was traced in.
    circuit:
        A circuit with at least one head.
    draws:
        Matched circuits to compare with, and as many random ones; with fewer than 20 no claim can be supported.
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
        _random_like(inside, model.n_heads, keyed(seed, "random circuit", draw)) for draw in range(draws)
    ]
    rows = _rows(model, circuit, sorted({cell.query for cell in inside}))
    like = [_matched(inside, rows, keyed(seed, "matched circuit", draw)) for draw in range(draws)]
    every = [_ablation(frozenset(), outside=outside) for outside in (False, True)]
    own = [_ablation(inside, outside=outside) for outside in (True, False)]
    others = [_ablation(one, outside=o) for some in (drawn, like) for o in (True, False) for one in some]
    with torch.no_grad():
        plans = [[edit] for edit in (*every, *own, *others)]
        found = outcomes(model, circuit.token_ids, plans, circuit.answer_ids, start=circuit.start)
        difference = [one.lead for one in found]
    parts = [tuple(difference[4 + i * draws : 4 + (i + 1) * draws]) for i in range(4)]
    sign = (
        1.0 if difference[0] >= 0 else -1.0
    )  # without its circuit a lead falls towards zero, whatever its sign
    p = [
        p_value(-sign * difference[3], [-sign * one for one in parts[3]]),
        p_value(sign * difference[2], [sign * one for one in parts[2]]),
    ]
    necessary, sufficient = claims(p, null=NULL, draws=draws, group=GROUP)
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
        necessary=necessary,
        sufficient=sufficient,
    )


AttentionOfRows = Mapping[tuple[int, int], Tensor]
"""(Layer, query) → attention of the layer's heads from there [heads, keys up to the query]."""


def _rows(model: Model, circuit: Circuit, queries: list[int]) -> AttentionOfRows:
    """The rows of the pattern that a circuit's firings are in."""
    ids, start = [list(circuit.token_ids)], circuit.start
    seen = model.capture(ids, queries=queries, want=("pattern",), start=start).pattern[0].double().cpu()
    by_layer = seen.unflatten(0, (model.n_layers, model.n_heads))
    return {
        (layer, query): by_layer[layer, :, place, : query + 1]
        for layer in range(model.n_layers)
        for place, query in enumerate(queries)
    }


def _random_like(inside: Firings, heads: int, generator: torch.Generator) -> Firings:
    """As many firings in each layer at each query position, at random heads and keys that the query may read."""
    counts = Counter((cell.head.layer, cell.query) for cell in inside)
    drawn: set[Cell] = set()
    for (layer, query), n in sorted(counts.items()):
        chosen = torch.randperm(heads * (query + 1), generator=generator)[:n].tolist()
        drawn |= {Cell(Head(layer, at // (query + 1)), query, at % (query + 1)) for at in chosen}
    return frozenset(drawn)


def _matched(inside: Firings, rows: AttentionOfRows, generator: torch.Generator) -> Firings:
    """For each firing another of its layer and query, outside the circuit, one of the few nearest in attention.

    Where a row has too few others, as many as there are.
    """
    drawn: set[Cell] = set()
    for head, query, key in sorted(inside):
        row = rows[head.layer, query]
        off = (row - row[head.index, key]).abs()
        for other, there, column in inside | drawn:
            if (other.layer, there) == (head.layer, query):
                off[other.index, column] = float("inf")
        off = off.flatten()
        free = int(off.isfinite().sum())
        if free:
            near = off.topk(min(NEAR, free), largest=False).indices
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
