"""What was made with other weights is refused, and so is what does not say with which."""

from __future__ import annotations

import pytest
import torch
from tiny import tiny

from headwise.errors import HeadwiseError


@pytest.mark.parametrize("given", ["", None, "unknown", "0" * 64, "prefix", "longer"])
def test_only_the_very_hash_will_do(given: str | None) -> None:
    model = tiny("llama")
    own = model.weight_hash
    model.require(own, "this", of="tiny", do="make it again")
    given = {"prefix": own[:12], "longer": own + "0"}.get(str(given), given)
    with pytest.raises(
        HeadwiseError, match=r"this is of 'tiny' \(weights .*\), not of 'tiny-llama' .*: make it again"
    ):
        model.require(given, "this", of="tiny", do="make it again")


def test_one_other_bit_is_another_model() -> None:
    one, other = tiny("llama"), tiny("llama")
    assert one.weight_hash == other.weight_hash
    other = tiny("llama")
    other.hf.lm_head.weight.data[3, 5].mul_(1 + 2 * torch.finfo(torch.float32).eps)
    assert one.weight_hash != other.weight_hash
