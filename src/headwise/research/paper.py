"""The paper's figures, in its order: contrastive covariances in QK space."""

from __future__ import annotations

from typing import Any

from headwise.research.paper_readings import (
    GRIDS,
    accuracy,
    aligned,
    attribution,
    binding_ranks,
    category_ranks,
    drawn,
    growth,
    interactions,
    ranks,
    selected,
    space,
    swapped,
    swaps,
    three,
)
from headwise.research.parts import ResearchPart


def _part(
    place: str, says: str, number: str, studies: Any, read: Any, figure: str, only: str = ""
) -> ResearchPart:
    names = (studies,) if isinstance(studies, str) else studies
    return ResearchPart("paper", place, says, number, names, read, figure, only)


_NONE = "no number"
PAPER: tuple[ResearchPart, ...] = (
    _part(
        "Section 4, set-up",
        "trained heads retrieve the payload",
        "99 % accuracy; 85 % for Gaussian latents at d_head 8",
        GRIDS,
        accuracy,
        "Validation accuracy",
    ),
    _part(
        "Figure 2",
        "contrastive covariance recovers both ranks as long as r1 + r2 < d_head",
        "all such cells",
        "payload-8-discrete",
        ranks("payload-8-discrete"),
        "Recovered ranks",
    ),
    _part(
        "Figure 3",
        "inside the recovered subspace of z1, queries and keys show its cube",
        _NONE,
        "payload-cube",
        space("payload-cube"),
        "z1 of the cell",
    ),
    _part(
        "Figure 4",
        "swapping both subspaces moves all the attention, random subspaces much less",
        "all of the attention",
        "payload-8-discrete",
        swaps("payload-8-discrete"),
        "Causal interventions",
    ),
    _part(
        "Figure 5",
        "superposed Gaussian latents interact with each other in G",
        _NONE,
        ("payload-8-gaussian", "payload-16-gaussian"),
        interactions("payload-8-gaussian", "payload-16-gaussian"),
        "Interactions G",
    ),
    _part(
        "Section 5.1",
        "some heads look for items of the queried category",
        "top three heads taken",
        "filter",
        selected("filter"),
        "The best heads",
    ),
    _part(
        "Section 5.1, ranks",
        "each category's contrast has rank 1",
        "rank 1 for all five",
        "filter",
        category_ranks,
        "Singular values of ΔC",
    ),
    _part(
        "Figure 6a",
        "keys and queries of one category align inside the categorical subspace",
        _NONE,
        "filter",
        aligned("filter"),
        "Keys (●) and queries (◆) inside",
    ),
    _part(
        "Figure 6b",
        "the keys of thirteen categories form clusters",
        _NONE,
        "filter-13",
        drawn("filter-13"),
        "Keys alone inside",
    ),
    _part(
        "Figure 7",
        "swapping the categorical subspace moves attention to another category's items",
        "much more than random subspaces, but not all of it",
        "filter",
        swapped("filter"),
        "Swaps as a share",
    ),
    _part(
        "Section 5.2",
        "some heads attend to the right box",
        "9 heads at 30 % or more (Llama 3.1 8B)",
        "binding",
        selected("binding"),
        "The best heads",
    ),
    _part(
        "Section 5.2, ranks",
        "order has rank 2 or 3, lexical identity 9 or 10",
        "2–3 and 9–10",
        "binding",
        binding_ranks,
        "Singular values of ΔC",
    ),
    _part(
        "Figure 8",
        "keys and queries align by order and by word inside the subspaces",
        _NONE,
        "binding",
        aligned("binding"),
        "Keys (●) and queries (◆) inside",
    ),
    _part(
        "Figure 9",
        "swapping order or word moves some attention, both together most of it",
        "majority with both; random negligible",
        "binding",
        swapped("binding"),
        "Swaps on unseen words",
    ),
    _part(
        "Figure 10",
        "logits are attributed to features, and to what none explains",
        _NONE,
        "binding",
        attribution,
        "One test prompt",
    ),
    *(
        _part(
            f"Figure 11, {name.removeprefix('payload-').replace('-', ' ')}",
            "ranks recovered in the other models, too",
            "all cells that fit",
            (name,),
            ranks(name),
            "Recovered ranks",
        )
        for name in GRIDS[1:]
    ),
    _part(
        "Figure 12",
        "inside the recovered subspace of s1 lies a Gaussian sphere",
        _NONE,
        "payload-sphere",
        space("payload-sphere"),
        "z1 of the cell",
    ),
    _part(
        "Figure 13",
        "G of discrete latents",
        _NONE,
        ("payload-8-discrete", "payload-16-discrete"),
        interactions("payload-8-discrete", "payload-16-discrete"),
        "Interactions G",
    ),
    _part(
        "Figure 14",
        "the same swaps at d_head 16",
        "all of the attention",
        ("payload-16-discrete", "payload-16-gaussian"),
        swaps("payload-16-discrete", "payload-16-gaussian"),
        "Causal interventions",
    ),
    _part(
        "Figure 15",
        "the same swaps at d_head 8",
        "all of the attention",
        ("payload-8-gaussian", "payload-8-discrete"),
        swaps("payload-8-discrete", "payload-8-gaussian"),
        "Causal interventions",
    ),
    _part(
        "Figure 16",
        "effective ranks stop growing with the number of entities",
        "plateau",
        "binding",
        growth,
        "Effective rank",
    ),
    _part(
        "Figure 17",
        "without projection, order shows in the first principal components",
        _NONE,
        "binding",
        drawn("binding"),
        "The same vectors, not projected",
    ),
    _part(
        "Figure 18",
        "the same swaps in the other heads that bind",
        _NONE,
        "binding",
        swapped("binding", others=True),
        "Swaps as a share",
    ),
    _part(
        "Figure 19",
        "the categorical swaps in another model",
        _NONE,
        "filter",
        swapped("filter"),
        "Swaps on unseen words",
        only="qwen3-4b-instruct",
    ),
    _part(
        "Figure 20",
        "the binding swaps in another model",
        _NONE,
        "binding",
        swapped("binding"),
        "Swaps on unseen words",
        only="qwen3-4b-instruct",
    ),
    _part(
        "Section 2.1, K latents",
        "the method works for any number of latents",
        "K = 2 for simplicity",
        "payload-three",
        three,
        "Singular values of ΔC",
    ),
)
