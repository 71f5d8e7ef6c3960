"""How much of the answer a whole circuit carries: ablate everything outside it, or everything inside it.

What is ablated are firings. A firing (head, query d, key j) that is ablated still attends, but what it carries,
A_dj · v_j, is replaced by A_dj times the mean value over the keys the row sees: the head's message is gone, its usual
write stays. MLPs and embeddings are left in place and react to what reaches them. Random circuits of the same size
(as many firings in each layer, at the same query positions) are the control. Firings that only an account of an MLP
leads to are not part of what is tested.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from headwise.circuits.circuit import Circuit
from headwise.circuits.counterfactual import outcomes
from headwise.circuits.schema import require_fit
from headwise.errors import HeadwiseError
from headwise.model.attend import AttentionCall, pattern_rows, raw_scores
from headwise.model.edits import ChangeOutput
from headwise.randomness import keyed

if TYPE_CHECKING:
    from headwise.model.model import Model


@dataclass(frozen=True)
class Faithfulness:
    """The answer's logit difference, clean and under ablation; controls are random circuits of the same size."""

    firings: int
    clean: float
    none: float
    """With every firing ablated: what is left without any circuit."""
    outside_ablated: float
    inside_ablated: float
    random_outside_ablated: tuple[float, ...]
    random_inside_ablated: tuple[float, ...]

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
        Random circuits to compare with.
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
    tokens = len(circuit.token_ids)
    shape = (model.n_layers, model.n_heads, tokens, tokens)
    inside = torch.zeros(shape, dtype=torch.bool)
    for node in heads:
        inside[node.layer, node.head or 0, node.query, node.key] = True
    drawn = [_random_like(inside, keyed(seed, "random circuit", draw)) for draw in range(draws)]
    everything = torch.ones(shape, dtype=torch.bool)
    masks = [~everything, everything, ~inside, inside, *(~mask for mask in drawn), *drawn]
    with torch.no_grad():
        plans = [[_ablation(mask)] for mask in masks]
        seen = outcomes(model, circuit.token_ids, plans, circuit.answer_ids, start=circuit.start)
        difference = [one.lead for one in seen]
    return Faithfulness(
        len(heads),
        difference[0],
        difference[1],
        difference[2],
        difference[3],
        tuple(difference[4 : 4 + draws]),
        tuple(difference[4 + draws :]),
    )


def _random_like(inside: Tensor, generator: torch.Generator) -> Tensor:
    """As many firings in each layer at each query position, at random heads and keys that the query may read."""
    drawn = torch.zeros_like(inside)
    heads = inside.shape[1]
    for layer, query in inside.any(3).any(1).nonzero().tolist():
        n = int(inside[layer, :, query].sum())
        chosen = torch.randperm(heads * (query + 1), generator=generator)[:n]
        drawn[layer, chosen // (query + 1), query, chosen % (query + 1)] = True
    return drawn


def _ablation(mask: Tensor) -> ChangeOutput:
    """The edit that takes the message of the firings in ``mask`` [layers, heads, queries, keys] away."""

    def change(call: AttentionCall, output: Tensor) -> Tensor:
        gone = mask[call.layer].to(output.device)
        if not bool(gone.any()):
            return output
        rows = torch.arange(call.query.shape[2], device=output.device)[None]
        visible = call.visible(rows)[:, None]
        key = call.key.repeat_interleave(call.group, dim=1)
        value = call.value.repeat_interleave(call.query.shape[1] // call.value.shape[1], dim=1)
        pattern = pattern_rows(raw_scores(call.query, key, call.scale, call.cap), visible).to(value.dtype)
        usual = (visible.to(value.dtype) @ value) / visible.sum(-1, keepdim=True)
        lost = pattern * gone
        # Σ_j lost_dj (v_j − mean_d)
        return output - (lost @ value - lost.sum(-1, keepdim=True) * usual).transpose(1, 2)

    return ChangeOutput(change=change)
