"""One prompt's logits by feature, as flat records: what ``headwise attribute`` prints and Figure 10 shows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from headwise.contrast.attribution import Attribution, attribute
from headwise.contrast.bank import FeatureBank
from headwise.tokens import Prompt
from headwise.types import Head, HeadLike, head_list

if TYPE_CHECKING:
    from headwise.model.model import Model


def attribute_prompt(
    model: Model,
    prompt: Prompt,
    bank: FeatureBank,
    *,
    heads: HeadLike | Sequence[HeadLike] | None = None,
    query: int = -1,
) -> dict[Head, dict[str, Attribution]]:
    """A prompt's logits at one query, split by the bank's fitted features in each head.

    Both splits a head: ``sequential`` in the order of rising rank (an overlap counts towards the smaller
    feature, as published), and ``shapley``, which needs no order.
    """
    chosen = list(bank.heads) if heads is None else [Head.parse(h) for h in head_list(heads)]
    features = {h: sorted(bank.of(h, unions=False), key=lambda f: f.rank) for h in chosen}
    seen = model.capture(model.prompt_ids(prompt), heads=chosen, queries=query, want=("q", "k"))
    assert seen.q is not None
    assert seen.k is not None
    found: dict[Head, dict[str, Attribution]] = {}
    for place, head in enumerate(chosen):
        named = {f.name: f.query for f in features[head]}
        methods = ("sequential", "shapley") if len(named) <= 8 else ("sequential",)
        found[head] = {
            method: attribute(
                seen.q[0, place, 0],
                seen.k[0, place],
                named,
                scale=float(seen.scale[place]),
                mask=seen.visible[0, place, 0],
                method=method,
            )
            for method in methods
        }
    return found


def attribution_records(
    model: Model, prompt: Prompt, bank: FeatureBank, **where: Any
) -> list[dict[str, Any]]:
    """The same as rows: head, method, position, token, feature, logit. The residual is a feature too."""
    tokens = model.tokens(prompt)
    rows: list[dict[str, Any]] = []
    for head, methods in attribute_prompt(model, prompt, bank, **where).items():
        for method, split in methods.items():
            centred = split.centred()
            whole = [*split.parts, split.residual, split.total]
            parts = [*centred[0], centred[1], centred[2]]
            for name, values, shares in zip((*split.names, "residual", "total"), whole, parts, strict=True):
                for position in split.mask.nonzero().flatten().tolist():
                    rows.append(
                        {
                            "head": str(head),
                            "method": method,
                            "position": position,
                            "token": tokens[position],
                            "feature": name,
                            "logit": float(values[position]),
                            "centred": float(shares[position]),
                            "explained": float(split.explained()),
                        }
                    )
    return rows
