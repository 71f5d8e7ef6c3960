"""Pairs from labelled prompts equal what brute force finds, whatever the batches and lengths."""

import pytest
import torch
from words import worded_model

from headwise.contrast.collect import collect_pairs, fit_heads
from headwise.tasks.labelled.binding import binding
from headwise.tasks.labelled.filter import filter
from headwise.types import Head

MODEL = worded_model()
HEADS = [Head(2, 3), Head(0, 1)]


def brute(e, head):
    """One prompt's (q, k̄+, k̄−, q of the negative) by itself, without padding or batches."""
    own = MODEL.capture([list(e.tokens)], heads=[head])
    q, k = own.q[0, 0].double(), own.k[0, 0].double()
    if e.other is None:
        return q[e.query], k[list(e.positive)].mean(0), k[list(e.negative)].mean(0), None
    other = MODEL.capture([list(e.other)], heads=[head])
    q2 = other.q[0, 0].double()[e.other_query] if e.other_query is not None else None
    return q[e.query], k[list(e.positive)].mean(0), other.k[0, 0].double()[list(e.negative)].mean(0), q2


def tasks():
    yield binding(MODEL.tokenizer, prompts=80, jitter=True, contrasts=("order",)).fits[0]
    yield binding(MODEL.tokenizer, prompts=70, contrasts=("lexical",)).fits[0]
    yield binding(MODEL.tokenizer, prompts=70, contrasts=("lexical",), variant="run", jitter=True).fits[0]
    yield filter(MODEL.tokenizer, prompts=80, jitter=True).fits[0]


@pytest.mark.parametrize("contrast", tasks(), ids=["order", "triplet", "run", "filter"])
def test_pairs_equal_brute_force_in_the_order_of_the_prompts(contrast):
    pairs = collect_pairs(MODEL, contrast.examples, HEADS)
    assert len(pairs) == len(contrast)
    for i in (0, 1, len(contrast) // 2, len(contrast) - 1):
        for place, head in enumerate(HEADS):
            expected = brute(contrast.examples[i], head)
            found = (pairs.q, pairs.plus, pairs.minus, pairs.other_q)
            for one, two in zip(found, expected, strict=True):
                assert (one is None) == (two is None)
                if one is not None and two is not None:
                    assert (one[i, place] - two).abs().max() < 1e-5


@pytest.mark.parametrize("contrast", tasks(), ids=["order", "triplet", "run", "filter"])
def test_streamed_sums_of_all_heads_equal_the_pairs(contrast):
    whole = fit_heads(MODEL, contrast.examples)
    assert whole.n_heads_ == len(MODEL.heads)
    pairs = collect_pairs(MODEL, contrast.examples, MODEL.heads)
    other = pairs.q if pairs.other_q is None else pairs.other_q
    delta = torch.einsum("nhd,nhe->hde", pairs.q, pairs.plus) - torch.einsum(
        "nhd,nhe->hde", other, pairs.minus
    )
    assert (whole.delta_c_ - delta / len(contrast)).abs().max() < 1e-6
