"""Two-layer models with circuits written into their weights, an MLP in the path of each, among random distractors.

Every model holds two circuits at once, and a prompt uses one of them:

* *query*: L0H0 brings the kind of a cue to the last token; the MLP there turns "kind i was brought, and I am asked"
  into "looking for item i"; L1H0's query reads that, its key the item's own embedding, and it copies the item.
* *key*: L0H1 brings every token the label before it; at an item the MLP turns "label i was brought, and I am an item"
  into "labelled i"; L1H1's key reads that, its query the embedding of the last token, and it copies the item.

Every other head and neuron is random, and so is a part of the planted ones. Features lie along random directions, gains
of norms are random and shifts are not zero, so nothing can be read off coordinates.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
import transformers
from torch import Tensor

from headwise.model.model import Model
from headwise.types import Cell, Head

Which = Literal["query", "key"]
KINDS, FILLERS, LENGTH = 5, 6, 18
WIDTH, HEADS, SIZE, NEURONS = 128, 4, 32, 64
GROUPS = ("cue", "item", "label", "ask")
"""Tokens of so many kinds each, after the first token, the one that asks through a cue, and the fillers."""
VOCABULARY = 2 + FILLERS + len(GROUPS) * KINDS
FIRST, ASK = 0, 1
FAMILIES = ("gpt2", "llama")


def token(group: str, kind: int) -> int:
    return 2 + FILLERS + GROUPS.index(group) * KINDS + kind


class Planted(NamedTuple):
    """A prompt, and the edges that were written into the weights for it, each as source, target and side."""

    prompt: list[int]
    answer: int
    wrong: int
    edges: set[tuple[str, str, str]]
    """Causal ones."""
    accounts: set[tuple[str, str, str]]
    """What the MLP in the path owes to what it was made to read."""
    brings: Cell
    """The firing that brings the feature to the MLP."""
    attends: Cell
    """The firing that the MLP makes attend, and that brings the answer."""


@dataclass(frozen=True, eq=False)
class _Features:
    """Orthonormal directions of the stream by name, one row per kind."""

    rows: dict[str, Tensor]

    @classmethod
    def drawn(cls, generator: torch.Generator, *, centred: bool) -> _Features:
        start = torch.randn(WIDTH, WIDTH, generator=generator)
        if centred:
            # The first direction of the factorisation is the one that LayerNorm takes away.
            start[:, 0] = 1.0
        free = torch.linalg.qr(start).Q.mT[1:]
        sizes = {"always": 1, "first": 1, "asks": 1, "is cue": 1, "is item": 1, "filler": FILLERS}
        sizes |= dict.fromkeys((*GROUPS, "brought", "after", "wanted", "labelled", "said"), KINDS)
        sizes["position"] = LENGTH
        parts = free[: sum(sizes.values())].split(list(sizes.values()))
        return cls(dict(zip(sizes, parts, strict=True)))

    def __getitem__(self, name: str) -> Tensor:
        return self.rows[name]


def plant(family: str, seed: int, noise: float) -> Model:
    """A model of a family; ``noise`` is the size of what distractors write, relative to the planted heads' writes."""
    generator = torch.Generator().manual_seed(seed)
    features = _Features.drawn(generator, centred=family == "gpt2")
    hf = (_gpt2 if family == "gpt2" else _llama)(features, generator, noise)
    return Model(hf.eval().requires_grad_(False), name=f"planted-{family}")


def planted_prompt(which: Which, seed: int) -> Planted:
    """A prompt that one of the circuits answers."""
    g = torch.Generator().manual_seed(seed)
    ids = [FIRST, *(2 + torch.randint(FILLERS, (LENGTH - 1,), generator=g)).tolist()]
    kinds, items = (torch.randperm(KINDS, generator=g).tolist() for _ in range(2))
    last, asked = LENGTH - 1, 1 + int(torch.randint(2, (1,), generator=g))
    if which == "query":
        cue, *at = (1 + torch.randperm(LENGTH - 2, generator=g)[:4]).tolist()
        ids[cue], ids[last] = token("cue", items[asked]), ASK
        for place, item in zip(at, items, strict=False):
            ids[place] = token("item", item)
        attends = Cell(Head(1, 0), last, at[asked])
        brings = Cell(Head(0, 0), last, cue)
        other: Which = "key"
    else:
        at = (1 + 3 * torch.randperm((LENGTH - 3) // 3, generator=g)[:3]).tolist()
        for place, kind, item in zip(at, kinds, items, strict=False):
            ids[place], ids[place + 1] = token("label", kind), token("item", item)
        ids[last] = token("ask", kinds[asked])
        attends = Cell(Head(1, 1), last, at[asked] + 1)
        brings = Cell(Head(0, 1), at[asked] + 1, at[asked])
        other = "query"
    mlp = f"MLP0@{brings.query}"
    return Planted(
        ids,
        token("item", items[asked]),
        token("item", items[(asked + 1) % 3]),
        {
            (str(attends), f"answer@{last}", "query"),
            (mlp, str(attends), which),
            (f"embedding@{attends.at(other)}", str(attends), other),
        },
        {(str(brings), mlp, which), (f"embedding@{brings.query}", mlp, which)},
        brings,
        attends,
    )


# --- what is planted -------------------------------------------------------------------------------------------------


def _embedding(f: _Features) -> Tensor:
    """[vocabulary, width]: what a token is made of."""
    rows = torch.zeros(VOCABULARY, WIDTH)
    rows[FIRST], rows[ASK] = f["first"][0], f["asks"][0]
    rows[2 : 2 + FILLERS] = f["filler"]
    flags = {"cue": "is cue", "item": "is item"}
    for group in GROUPS:
        for kind in range(KINDS):
            rows[token(group, kind)] = f[group][kind]
            if group in flags:
                rows[token(group, kind)] += f[flags[group]][0]
    return rows + f["always"]


def _unembedding(f: _Features) -> Tensor:
    rows = torch.zeros(VOCABULARY, WIDTH)
    rows[token("item", 0) : token("item", 0) + KINDS] = f["said"]
    return rows


class _Head(NamedTuple):
    """What a head reads and writes, as rows in its own space: [size, width] each, the output transposed."""

    query: Tensor
    key: Tensor
    value: Tensor
    output: Tensor


def _looks_for(f: _Features, query: Tensor, key: Tensor, copies: Tensor, into: Tensor, at: int) -> _Head:
    """A head whose query holds one of some features and looks for the key that holds its partner; otherwise for the
    first token. ``at`` is the first of its coordinates that it uses: RoPE hardly turns the later ones."""
    n = len(query)
    q, k, v, o = (torch.zeros(SIZE, WIDTH) for _ in range(4))
    q[at : at + n], k[at : at + n] = query, key
    q[at + n], k[at + n] = 0.35 * f["always"][0], f["first"][0]
    v[: len(copies)], o[: len(into)] = copies, into
    return _Head(q, k, v, o)


def _content_heads(f: _Features, at: int) -> dict[tuple[int, int], _Head]:
    return {
        (0, 0): _looks_for(f, f["asks"], f["is cue"], f["cue"], f["brought"], at),
        (1, 0): _looks_for(f, f["wanted"], f["item"], f["item"], f["said"], at),
        (1, 1): _looks_for(f, f["ask"], f["labelled"], f["item"], f["said"], at),
    }


def _gates(f: _Features) -> tuple[Tensor, Tensor, Tensor]:
    """[neurons, width] each: the feature that was brought, the token's own, and what is written if both are there."""
    own = torch.cat((f["asks"].expand(KINDS, -1), f["is item"].expand(KINDS, -1)))
    return torch.cat((f["brought"], f["after"])), own, torch.cat((f["wanted"], f["labelled"]))


# --- the families ----------------------------------------------------------------------------------------------------

LOGIT = {0: 9.0, 1: 9.0}
"""What a match scores in each layer, with the stream at its usual length."""
WRITES = 2.0
"""How long planted heads' writes are."""


class _Random:
    """Distractors: random matrices, and norms whose gains and shifts are not trivial."""

    def __init__(self, generator: torch.Generator, noise: float) -> None:
        self.generator, self.noise = generator, noise

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self.generator)

    def gain(self) -> Tensor:
        return 0.7 + 0.7 * torch.rand(WIDTH, generator=self.generator)

    def head(self) -> _Head:
        """Attends to something (scores of size 1.5), and writes vectors about as long as ``noise`` asks for."""
        q, k, v, o = (self.normal(SIZE, WIDTH) for _ in range(4))
        scale = (1.5**0.5) * SIZE**-0.25 * WIDTH**-0.5 * SIZE**0.25
        return _Head(scale * q, scale * k, v / WIDTH**0.5, o * self.noise * WRITES / (SIZE * WIDTH) ** 0.5)

    def neurons(self, n: int) -> tuple[Tensor, Tensor, Tensor]:
        """Two readings and a write each: [n, width]; all writes together are about as long as ``noise`` asks for."""
        read, other, write = (self.normal(n, WIDTH) for _ in range(3))
        return read / WIDTH**0.5, other / WIDTH**0.5, write * self.noise * WRITES / (0.5 * n * WIDTH) ** 0.5


USUAL = {0: (3.0 / WIDTH) ** 0.5, 1: (7.0 / WIDTH) ** 0.5}
"""The root mean square of the stream where a circuit reads it, by layer."""
MIDDLE = (6.0 / WIDTH) ** 0.5
"""And where the first MLP reads it."""


def _scaled(layer: int, head: _Head) -> _Head:
    """The head with scores, and writes, of the sizes above, whatever the norm makes of the stream."""
    by = (LOGIT[layer] * SIZE**0.5) ** 0.5 * USUAL[layer]
    return _Head(by * head.query, by * head.key, USUAL[layer] * head.value, WRITES * head.output)


def _heads(planted: dict[tuple[int, int], _Head], layer: int, random: _Random) -> list[_Head]:
    """All heads of a layer; the planted ones have a random part too."""
    made = []
    for index in range(HEADS):
        other = random.head()
        mine = planted.get((layer, index))
        if mine is None:
            made.append(other)
        else:
            some = random.noise / SIZE**0.5
            extra = _Head(other.query * some, other.key * some, other.value * some, other.output / SIZE**0.5)
            made.append(_Head(*(a + b for a, b in zip(_scaled(layer, mine), extra, strict=True))))
    return made


def _gpt2(f: _Features, generator: torch.Generator, noise: float) -> Any:
    config = transformers.GPT2Config(
        vocab_size=VOCABULARY,
        n_positions=LENGTH,
        n_embd=WIDTH,
        n_layer=2,
        n_head=HEADS,
        n_inner=NEURONS,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=None,
    )
    hf: Any = transformers.GPT2LMHeadModel(config)
    random, trunk = _Random(generator, noise), hf.transformer
    previous = torch.zeros(4, SIZE, WIDTH)
    previous[0, 1:LENGTH], previous[1, 1:LENGTH] = f["position"][1:], f["position"][:-1]
    previous[2, :KINDS], previous[3, :KINDS] = f["label"], f["after"]
    planted = {**_content_heads(f, 0), (0, 1): _Head(*previous)}
    with torch.no_grad():
        trunk.wte.weight.copy_(_embedding(f))
        trunk.wpe.weight.copy_(f["position"])
        hf.lm_head.weight.copy_(3 * _unembedding(f))
        for layer, block in enumerate(trunk.h):
            gain = random.gain()
            block.ln_1.weight.copy_(gain)
            block.ln_1.bias.copy_(0.2 * noise * random.normal(WIDTH))
            heads = _heads(planted, layer, random)
            read = [torch.cat([getattr(h, name) for h in heads]) / gain for name in ("query", "key", "value")]
            block.attn.c_attn.weight.copy_(torch.cat(read).mT)
            block.attn.c_attn.bias.copy_(noise * 0.2 * random.normal(3 * WIDTH))
            block.attn.c_proj.weight.copy_(torch.cat([h.output for h in heads]))
            block.attn.c_proj.bias.copy_(noise * 0.2 * random.normal(WIDTH) / WIDTH**0.5)
            gain = random.gain()
            block.ln_2.weight.copy_(gain)
            block.ln_2.bias.copy_(0.2 * noise * random.normal(WIDTH))
            reads, _, writes = random.neurons(NEURONS)
            bias = noise * random.normal(NEURONS)
            if layer == 0:
                brought, own, written = _gates(f)
                n = len(brought)
                # Each of the two alone stays below the threshold.
                reads[:n] = MIDDLE * (3 / WRITES * brought + 3 * own)
                bias[:n], writes[:n] = -4.0, written
            block.mlp.c_fc.weight.copy_((reads / gain).mT)
            block.mlp.c_fc.bias.copy_(bias)
            block.mlp.c_proj.weight.copy_(writes)
            block.mlp.c_proj.bias.copy_(noise * 0.2 * random.normal(WIDTH) / WIDTH**0.5)
        trunk.ln_f.weight.copy_(torch.ones(WIDTH))
        trunk.ln_f.bias.zero_()
    return hf


def _llama(f: _Features, generator: torch.Generator, noise: float) -> Any:
    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=WIDTH,
        num_hidden_layers=2,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS,
        head_dim=SIZE,
        intermediate_size=NEURONS,
        max_position_embeddings=64,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=None,
    )
    hf: Any = transformers.LlamaForCausalLM(config)
    random = _Random(generator, noise)
    half = SIZE // 2
    # Pairs of coordinates (i, i + half) turn by 10000^(-i / half) per position: the first quickly, the last hardly.
    previous = torch.zeros(4, SIZE, WIDTH)
    for i in range(4):
        angle = torch.tensor(10000.0 ** (-i / half))
        # A query that is turned back by one position meets the key before it.
        previous[0, i], previous[0, i + half] = (
            2 * angle.cos() * f["always"][0],
            -2 * angle.sin() * f["always"][0],
        )
        previous[1, i] = f["always"][0]
    previous[2, :KINDS], previous[3, :KINDS] = f["label"], f["after"]
    planted = {**_content_heads(f, half - KINDS - 1), (0, 1): _Head(*previous)}
    with torch.no_grad():
        hf.model.embed_tokens.weight.copy_(_embedding(f))
        hf.lm_head.weight.copy_(3 * _unembedding(f))
        for layer, block in enumerate(hf.model.layers):
            gain = random.gain()
            block.input_layernorm.weight.copy_(gain)
            heads = _heads(planted, layer, random)
            attention = block.self_attn
            for name, matrix in (
                ("query", attention.q_proj),
                ("key", attention.k_proj),
                ("value", attention.v_proj),
            ):
                matrix.weight.copy_(torch.cat([getattr(h, name) for h in heads]) / gain)
            attention.o_proj.weight.copy_(torch.cat([h.output for h in heads]).mT)
            gain = random.gain()
            block.post_attention_layernorm.weight.copy_(gain)
            reads, others, writes = random.neurons(NEURONS)
            if layer == 0:
                brought, own, written = _gates(f)
                n = len(brought)
                reads[:n] = MIDDLE * (6 / WRITES * brought - 1.5 * f["always"])
                others[:n], writes[:n] = MIDDLE * own, written
            block.mlp.gate_proj.weight.copy_(reads / gain)
            block.mlp.up_proj.weight.copy_(others / gain)
            block.mlp.down_proj.weight.copy_(writes.mT)
    return hf
