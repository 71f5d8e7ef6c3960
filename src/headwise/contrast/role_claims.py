"""Is a role more than the place that a head happens to like most?

Two nulls, by sequences. A role's place is exchanged with the place that the head attends to most beside it: any fixed
distance, or the first token. For the two roles that go by sameness of tokens it is also exchanged with the same place
where the second reading has the same tokens in another order: a head that looks as far back whatever stands there has
no such role. Where it does not matter which is which, the sign of every sequence's difference can be turned: up to 16
sequences all turns are gone through. A claim takes the larger p; all heads and places are corrected together.
"""

from __future__ import annotations

import torch
from torch import Tensor

from headwise.claims import claims, flipped
from headwise.types import Claim

NULL = "the place exchanged with the next most attended one, and with itself in text that does not repeat"
GROUP = "all heads and places of the model"


def by_place(pattern: Tensor, rows: list[int], length: int) -> Tensor:
    """Mean attention [prompts, heads, length + 2] at every distance from 0 to ``length``, and at the first token, of
    patterns [prompts, heads, rows, columns]; no row is as near to the first token."""
    at = torch.tensor(rows)
    row = torch.arange(len(rows))
    columns = [*(at - distance for distance in range(length + 1)), torch.zeros_like(at)]
    return torch.stack([pattern[:, :, row, column].mean(-1) for column in columns], -1)


def places_of(length: int) -> list[int]:
    """Which of these places each role is: previous, duplicate, induction, first, self."""
    return [1, length, length - 1, length + 1, 0]


SAME = (1, 2)
"""The roles, by number, that go by sameness of tokens."""


def role_claims(
    repeated: Tensor, shuffled: Tensor, length: int, fit: Tensor, generator: torch.Generator
) -> list[list[Claim]]:
    """A claim for each head and role, from :func:`by_place` of text read twice and of text whose second reading is in
    another order; ``fit`` [heads, roles] says where the attention is above what is asked for."""
    places = places_of(length)
    beside = []
    for place in places:
        others = repeated.mean(0).clone()
        others[:, place] = -1.0
        rival = others.argmax(-1)[None, :, None].expand(len(repeated), -1, -1)
        beside.append(repeated[:, :, place] - repeated.gather(2, rival)[..., 0])
    differences = [torch.stack(beside, -1), (repeated - shuffled)[:, :, [places[role] for role in SAME]]]
    (p, draws), (same, _) = (flipped(one, generator=generator) for one in differences)
    p[:, list(SAME)] = torch.maximum(p[:, list(SAME)], same)
    made = claims(p.flatten().tolist(), null=NULL, draws=draws, group=GROUP, fit=fit.flatten().tolist())
    return [made[start : start + len(places)] for start in range(0, len(made), len(places))]
