"""Families, sinks, roles, names and models of random weights where nothing is there, for ``calibration.py``."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from headwise.circuits.faithfulness import matched_circuits
from headwise.claims import corrected, p_value
from headwise.contrast.geometry import ClassMeans
from headwise.contrast.role_claims import places_of, role_claims
from headwise.families.agreement import _dealt, _permutation_p
from headwise.families.cluster import cluster
from headwise.families.compare import Incoming, compare
from headwise.families.distance import jaccard
from headwise.families.exchange import ClusterExchange
from headwise.families.null import null_tests
from headwise.model.model import Model
from headwise.naming.statistics import judged, name_test
from headwise.randomness import keyed
from headwise.sinks.find import Parking
from headwise.sinks.matched import exchanged as sink_exchanged
from headwise.sinks.signals import agreement
from headwise.types import Cell, Head

LEVEL = 0.05
WIDTH = 16


def exclusive_to_a_family(effect: float, seed: int) -> bool:
    """What a removal takes from ten wordings, five of each family, most of it the wording's own."""
    g = keyed(seed, "exclusive")
    wording = torch.arange(40) // 4
    taken = torch.randn(10, generator=g)[wording] + 0.5 * torch.randn(40, generator=g)
    return _own_more(taken, wording < 5, wording, effect, g)


def exclusive_in_wordings_of_both(effect: float, seed: int) -> bool:
    """The same in ten wordings that hold both families, in each of which another one has more taken from it."""
    g = keyed(seed, "exclusive, both")
    wording, own = torch.arange(80) // 8, torch.arange(80) % 2 == 0
    taken = torch.where(own, 0.5, -0.5) * torch.randn(10, generator=g)[wording]
    return _own_more(taken + 0.5 * torch.randn(80, generator=g), own, wording, effect, g)


def _own_more(taken: Tensor, own: Tensor, wording: Tensor, effect: float, g: torch.Generator) -> bool:
    between = ClusterExchange.of(own.numpy(), ~own.numpy(), wording.numpy())
    return float(between.p_values((taken + effect * own).numpy()[None], g, larger=True)[0][0]) <= LEVEL


def label_of_whole_wordings(effect: float, seed: int) -> bool:
    """A label of half of twelve wordings, each of which leans to a family of its own; with an effect that share of the
    prompts is in the label's family."""
    g = np.random.default_rng([seed, 9])
    wording = np.arange(120) // 10
    label = (g.permutation(12) % 2)[wording]
    families = (g.random(120) < g.beta(0.5, 0.5, 12)[wording]).astype(np.int64)
    families = np.where(g.random(120) < effect, label, families)
    return _permutation_p(_dealt(label, wording), families, seed, "label") <= LEVEL


def ends_of_an_arc(effect: float, seed: int) -> bool:
    """Seven classes on three quarters of a circle, whose means six clusters of prompts tell: the ends are as far apart
    as classes two apart are, or with an effect nearer by that angle."""
    angle = 1.5 * math.pi + effect
    turns = [angle * i / 6 for i in range(7)]
    means = torch.tensor([[math.cos(t), math.sin(t)] for t in turns], dtype=torch.float64)
    values = means + 0.33 * torch.randn(6, 7, 2, generator=keyed(seed, "arc")).double()
    clusters = torch.arange(6)[:, None].expand(-1, 7).flatten()
    found = ClassMeans.of(values.flatten(0, 1), torch.arange(7).repeat(6), clusters, keyed(seed, "noise"))
    return found.closed() <= LEVEL


def head_in_two_families(effect: float, seed: int) -> bool:
    """Eight heads whose signals have a cosine of exactly 0.8 between families; with an effect they are the same."""
    g = np.random.default_rng([seed, 2])
    wording, families = np.arange(80) // 4, np.repeat([0, 1], 40)
    angle = math.acos(0.8) * (1 - effect)
    ones = []
    for head in range(8):
        means = np.repeat([[1, 0, 0, 0], [math.cos(angle), math.sin(angle), 0, 0]], 40, axis=0)
        units = means + 0.1 * g.normal(size=(20, 4))[wording] + 0.1 * g.normal(size=(80, 4))
        units /= np.linalg.norm(units, axis=1, keepdims=True)
        ones.append(Incoming(f"L0H{head}", "key", np.arange(80), units))
    found = compare(ones, families, [0, 40], [(0, 1)], clusters=wording, seed=seed)
    return any(one.verdict == "the same" for one in found)


def names_of_two_families(effect: float, seed: int) -> bool:
    """Ten names in two families of six wordings each, which nearly always or hardly ever hold them; with an effect the
    first is held more often in one family."""
    g = np.random.default_rng([seed, 8])
    wording = np.repeat(np.arange(12), 6)
    chance = g.beta(0.3, 0.3, (10, 12))
    chance[0] = np.clip(chance[0] + effect * np.where(np.arange(12) % 2, -0.5, 0.5), 0, 1)
    held, own = g.random((10, 72)) < chance[:, wording], wording % 2 == 0
    p, _ = ClusterExchange.of(own, ~own, wording).p_values(held, keyed(seed, "names"))
    return any(q <= LEVEL for q in corrected(p.tolist()))


def circuit_of_firings(effect: float, seed: int) -> bool:
    """Four firings of two layers, what each does drawn for itself; with an effect those of the circuit do more."""
    g = keyed(seed, "circuit")
    rows = {(layer, 5): torch.rand(4, 6, generator=g) for layer in range(2)}
    does = torch.randn(2, 4, 6, generator=g)
    cells = [Cell(Head(layer, head), 5, key) for layer in range(2) for head in range(4) for key in range(6)]
    inside = frozenset(cells[i] for i in torch.randperm(len(cells), generator=g)[:4].tolist())
    for cell in inside:
        does[cell.head.layer, cell.head.index, cell.key] += effect
    real, *drawn = (
        sum(float(does[cell.head.layer, cell.head.index, cell.key]) for cell in one)
        for one in (inside, *matched_circuits(inside, rows, 99, seed))
    )
    return p_value(real, drawn) <= LEVEL


def sink_or_frequent_token(effect: float, seed: int) -> bool:
    """Signals at a sink and at another token that is as constant; with an effect the other varies more."""
    g = keyed(seed, "sink")
    noise = torch.randn(2, 8, WIDTH, generator=g, dtype=torch.float64) * 0.2
    noise[1] *= 1 + effect
    noise[0, :, 0] += 1
    noise[1, :, 1] += 1
    return sink_exchanged(noise[0], noise[1])[0] <= LEVEL


def name_of_nothing(effect: float, seed: int) -> bool:
    """Ten names that hold at random; with an effect one of them holds more often where the signal acts."""
    g = np.random.default_rng([seed, 3])
    tests = []
    for number in range(10):
        rate = 0.3 + (effect if number == 0 else 0.0)
        tests.append(name_test(g.random(60) < rate, g.random(60) < 0.3, g.random(120) < 0.3))
    return any(one.verdict in ("named", "beyond chance") for one in judged(tests))


def role_by_distance(effect: float, seed: int) -> bool:
    """Twenty heads that like two places alike, or look 23 back whatever stands there; with an effect the first does so
    only where the text repeats."""
    g = keyed(seed, "roles")
    length, sequences = 24, 12
    twice, other = (torch.rand(sequences, 20, length + 2, generator=g).double() * 0.02 for _ in range(2))
    for one in (twice, other):
        one[:, :10, 1] += 0.45 + 0.1 * torch.randn(sequences, 10, generator=g)  # the token before
        one[:, :10, length + 1] += 0.45 + 0.1 * torch.randn(sequences, 10, generator=g)  # and the first one
        one[:, 10:, length - 1] += 0.7 + 0.1 * torch.randn(sequences, 10, generator=g)
    other[:, 10, length - 1] -= effect
    fit = twice.mean(0)[:, places_of(length)] > 0.4
    return any(one.supported for head in role_claims(twice, other, length, fit, g) for one in head)


def parked_on_half(effect: float, seed: int) -> bool:
    """Thirty heads that give sinks more than half of their attention in half of the texts, and far more there than they
    give less elsewhere; with an effect the first does so in more texts."""
    g = keyed(seed, "parks")
    chance = torch.full((24, 1, 30), 0.5)
    chance[:, 0, 0] += effect
    attention = torch.where(torch.rand(24, 1, 30, generator=g) < chance, 0.9, 0.4).double()
    parking = Parking([[0]] * 24, [(0,)] * 24, [torch.zeros(1)] * 24, attention)
    return any(one.supported for one in parking.parks(0.5).values())


def signals_agree(effect: float, seed: int) -> bool:
    """Signals of ten heads in eight prompts, a few strong channels each, drawn anew; with an effect the first head's
    share a part."""
    g = keyed(seed, "agree")
    drawn = torch.randn(10, 8, WIDTH, generator=g).double() * (torch.rand(10, 8, WIDTH, generator=g) < 0.3)
    drawn[0] += effect * torch.randn(WIDTH, generator=g).double()
    p = [agreement(one, one[:0], [1], seed, number).claim for number, one in enumerate(drawn)]
    return any(q <= LEVEL for q in corrected([one.p for one in p if one is not None]))


# --- a model of random weights, and circuits at other offsets -------------------------------------------------------


def random_model(seed: int) -> Model:
    """Random weights in the default model's shape: 9 heads of 64 dimensions, 3 key heads; two layers of it."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=256,
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=2,
        num_attention_heads=9,
        num_key_value_heads=3,
        max_position_embeddings=64,
    )
    hf: Any = LlamaForCausalLM(config).eval().requires_grad_(False)
    # Heads that attend almost evenly would have nothing to be mistaken for.
    for layer in hf.model.layers:
        layer.self_attn.q_proj.weight.mul_(3.0)
    return Model(hf, name="random")


SLOTS = (2, 4, 6, 8, 10)
"""Positions of the keys; the query is the last of twelve tokens."""


def worded(seed: int, prompts: int) -> tuple[list[list[int]], Tensor]:
    """Prompts in eight wordings: the wording's own tokens, and drawn ones at the keys' positions."""
    g = keyed(seed, "worded")
    wording = torch.arange(prompts) % 8
    tokens = torch.randint(256, (8, 12), generator=g)[wording]
    tokens[:, list(SLOTS)] = torch.randint(256, (prompts, len(SLOTS)), generator=g)
    return tokens.tolist(), wording


def copies_at_other_offsets(effect: float, seed: int) -> bool:
    """Circuits of one wording, moved by up to four tokens: positions are no part of a signal, and which of its weaker
    signals a circuit holds varies from copy to copy. With an effect a share of the signals goes by the offset."""
    g = np.random.default_rng([seed, 4])
    offset = np.arange(40) % 5
    often = g.beta(2, 1, size=120)
    strength = g.normal(size=(40, 1)) * 0.8
    chance = 1 / (1 + np.exp(-(np.log(often / (1 - often)) + strength)))
    moved = g.random(120) < effect
    held = g.random((40, 120)) < np.where(moved & (np.arange(120) % 5 != offset[:, None]), 0.02, chance)
    matrix = sparse.csr_matrix(held)
    found = cluster(jaccard(matrix), seed=seed)
    if not found.cuts:
        return False
    cuts = {k: one.labels for k, one in found.cuts.items()}
    one, _ = null_tests(matrix, cuts, draws=39, seed=seed)
    return found.choose(one.p_values) > 1
