"""The vocabulary view: both formulas against the slow way, planted directions found, and where it is shown."""

from __future__ import annotations

import io
from typing import Any

import pytest
import torch
from rich.console import Console
from tiny import tiny

import headwise
from headwise.bases.basis import Basis, directions
from headwise.errors import HeadwiseError
from headwise.model.model import Model
from headwise.show.contrast.terminal import vocabulary_table
from headwise.show.why.terminal import explanation
from headwise.tracing.vectors import component_writes
from headwise.tracing.writes import PromptWrites
from headwise.types import Head
from headwise.why.explain import explain
from headwise.why.vocabulary import HINT, Vocabulary, _output, head_vocabulary

IDS = [3, 14, 15, 9, 2, 6, 5, 35, 8]


def test_scores_are_the_cosine_and_the_models_own_logits(variant: str) -> None:
    model = tiny(variant)
    vector = torch.randn(1, model.anatomy.d_model, generator=torch.Generator().manual_seed(1))
    tokens = Vocabulary(model, top=3)
    near = tokens.embedding(vector)[0]
    embedding = model.hf.get_input_embeddings().weight.detach()
    cosines = torch.nn.functional.cosine_similarity(embedding, vector)
    best = cosines[tokens.ids].topk(3)
    assert [one.score for one in near.most] == pytest.approx(best.values.tolist(), abs=1e-5)
    assert near.most[0].token == model.tokens([int(tokens.ids[best.indices[0]])])[0]
    assert near.least[0].score == pytest.approx(float(cosines[tokens.ids].min()), abs=1e-5)
    # What the model's own last norm and unembedding make of a stream that holds this vector, with biases at zero.
    raised = tokens.unembedding(vector)[0]
    norm: Any = getattr(model.anatomy.trunk, model.anatomy.family.final_norm)
    with torch.no_grad():
        weight: Any = model.anatomy.unembedding.weight
        normed = vector if norm is None else norm(vector) - norm(torch.zeros_like(vector))
        logits = (normed @ weight.mT)[0][tokens.ids]
    moved = logits - logits.mean()
    assert [one.score for one in raised.most] == pytest.approx(moved.topk(3).values.tolist(), abs=1e-4)
    assert raised.least[0].score == pytest.approx(float(moved.min()), abs=1e-4)


def test_a_head_that_is_planted_reads_and_writes_its_tokens() -> None:
    model = tiny("llama")
    anatomy, head = model.anatomy, Head(2, 1)
    embedding = model.hf.get_input_embeddings().weight.detach()
    last: Any = anatomy.unembedding
    unembedding: torch.Tensor = last.weight.detach()
    norm = anatomy.attention_norm(2)
    final = anatomy.final_norm()
    assert norm is not None and final is not None
    with torch.no_grad():
        attention = anatomy.attention[2]
        value = attention.v_proj.weight.view(anatomy.n_kv_heads, anatomy.d_head, -1)
        out = attention.o_proj.weight.view(anatomy.d_model, anatomy.n_heads, anatomy.d_head)
        value[head.index // anatomy.group] *= 1e-3
        out[:, head.index] *= 1e-3
        value[head.index // anatomy.group, 0] = 9 * embedding[17] / norm.gain
        out[:, head.index, 0] = 9 * unembedding[23] * final.gain
    found = head_vocabulary(model, "L2H1", channels=1, top=1).outputs[0]
    reads, writes = found.reads, found.writes
    # A singular direction has no sign of its own: what it reads and what it writes turn together.
    ends = (
        (reads.most, writes.most)
        if reads.most[0].score > -reads.least[0].score
        else (reads.least, writes.least)
    )
    assert [end[0].token for end in ends] == [model.tokens([17])[0], model.tokens([23])[0]]


def test_output_directions_rebuild_what_the_head_moves(variant: str) -> None:
    model = tiny(variant, torch.float64)
    reads, values, writes = _output(model, Head(3, 1))
    anatomy = model.anatomy
    weight = anatomy.value(3).weight[1 // anatomy.group]
    norm = anatomy.attention_norm(3)
    if norm is not None:
        weight = norm.pull(weight, torch.ones(1, dtype=torch.float64))
    whole = anatomy.output(3).weight[1].double() @ weight.double()
    assert torch.allclose(writes.mT @ torch.diag(values) @ reads, whole, atol=1e-9)
    assert (values[:-1] >= values[1:]).all()


def test_channels_are_seen_along_what_they_read() -> None:
    model, head = tiny("qwen3"), Head(1, 0)
    found = head_vocabulary(model, head, channels=2, top=2)
    basis, tokens = Basis.of(model, head), Vocabulary(model, 2)
    for one in found.channels:
        for side, view in (("query", one.query), ("key", one.key)):
            along = directions(model, head, basis, side)[:, one.channel]  # type: ignore[arg-type]
            alone = tokens.views(along[None])[0]
            for ours, own in ((view.embedding, alone.embedding), (view.unembedding, alone.unembedding)):
                for end in ("most", "least"):
                    pairs = zip(getattr(ours, end), getattr(own, end), strict=True)
                    assert all(
                        a.token == b.token and a.score == pytest.approx(b.score, abs=1e-4) for a, b in pairs
                    )
        assert one.energy == pytest.approx(float(basis.energies[one.channel]))
    document = found.to_json()
    assert document["hint"] == HINT and "not a name" in HINT and "distance 0" in HINT
    assert HINT in found._repr_html_()
    console = Console(width=120, file=io.StringIO())
    with console.capture() as shown:
        console.print(vocabulary_table(found))
    assert "channel 1 key −" in shown.get() and "output 0 writes +" in shown.get()


def test_an_explanation_shows_writers_and_channels_in_tokens_where_asked() -> None:
    model = tiny("llama")
    plain = explain(model, IDS, head="L3H1", query=-1, draws=19)
    assert plain.vocabulary is None
    assert all(row["vocabulary"] is None for row in (*plain.to_json()["who"], *plain.to_json()["what"]))
    why = explain(model, IDS, head="L3H1", query=-1, draws=19, vocabulary=True)
    assert why.vocabulary is not None
    document = why.to_json()
    assert {name: one for name, one in document.items() if name not in ("who", "what", "seconds")} == {
        name: one for name, one in plain.to_json().items() if name not in ("who", "what", "seconds")
    }
    shown = {part.channel for part in why.what.shown}
    assert set(why.vocabulary.channels) == {c for c in shown if c < int(Basis.of(model, "L3H1").rank)}
    up = PromptWrites(model.split(IDS), 0)
    seen = 0
    for row in why.who.rows:
        if row.writer is None:
            continue
        place = why.query if row.side == "query" else why.key
        written = component_writes(up, row.writer)[place] if row.writer.kind != "offset" else torch.zeros(1)
        view = why.vocabulary.writers.get((row.side, row.writer))
        assert (view is not None) == bool(written.any())
        if view is not None:
            assert (
                Vocabulary(model).views(written[None].double())[0].unembedding.most[0].token
                == view.unembedding.most[0].token
            )
            seen += 1
    assert seen > 4
    console = Console(width=120, file=io.StringIO())
    with console.capture() as printed:
        console.print(explanation(why))
    assert "Through the vocabulary" in printed.get() and HINT in " ".join(printed.get().split())


def test_what_cannot_be_shown_is_one_line() -> None:
    model = tiny("llama")
    for request, message in (
        ({"head": "L9H0"}, "L9H0 does not exist"),
        ({"head": "L1H0", "top": 0}, "top=0 shows nothing"),
        ({"head": "L1H0", "channels": 0}, "channels=0 shows nothing"),
        ({"head": "L1H0", "basis": "other"}, "is not a basis"),
    ):
        with pytest.raises(HeadwiseError, match=message):
            headwise.head_vocabulary(model, **request)  # type: ignore[arg-type]


@pytest.mark.real
def test_special_tokens_are_not_shown(smollm2: Model) -> None:
    found = headwise.head_vocabulary(smollm2, "L23H2", top=50)
    special = {smollm2.tokens([token])[0] for token in smollm2.tokenizer.all_special_ids}
    listed = {one.token for output in found.outputs for one in (*output.writes.most, *output.writes.least)}
    assert not special & listed
