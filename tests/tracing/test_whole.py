"""Writers whatever token they read: who they are, where each row goes, and that nothing is lost on the way."""

from __future__ import annotations

from dataclasses import replace

import torch
from tiny import prompts_of, tiny

from headwise.tracing.mlps import read_mlp
from headwise.tracing.whole import over_tokens, whole_heads, whole_place, whole_writers
from headwise.tracing.writes import PromptWrites


def test_rows_are_added_up_by_who_wrote_them(variant: str) -> None:
    model = tiny(variant)
    up = PromptWrites(model.split(prompts_of(11, 9)), 1)
    for layer in range(model.n_layers):
        number = up.n_carried(layer) + up.n_static(layer) + 1
        writers = whole_writers(model, layer)
        values = torch.arange(1, number + 1, dtype=torch.float64) ** 2
        slowly = torch.zeros(len(writers), dtype=torch.float64)
        for row in range(number):
            # Who a row is comes from the prompt's writes, which know nothing of whole writers.
            place = writers.index(replace(up.component(layer, row), source=-1))
            assert whole_place(up, layer, row) == place
            slowly[place] += values[row]
        assert torch.equal(over_tokens(up, layer, values), slowly)
    read = read_mlp(up, 2, [4], torch.ones(1, model.anatomy.d_model))
    heads = [replace(read.writer(row), source=-1) for row in range(0, up.n_carried(read.depth), up.tokens)]
    assert heads == whole_heads(model, read.depth)
