"""An explainer: a language model that proposes a name from explored cells."""

from __future__ import annotations

import numpy as np
import torch

from headwise.naming.cells import Cells
from headwise.naming.llm.chat import Chat
from headwise.naming.llm.prompts import Explained, explain_prompt, read_name
from headwise.naming.texts import Texts
from headwise.randomness import keyed

POSITIVES = 20
NEGATIVES = 20
ANSWER = 400
"""Tokens of the answer."""


def explained(
    chat: Chat, texts: Texts, positives: Cells, scores: np.ndarray, negatives: Cells, *, seed: int = 0
) -> Explained:
    """Show explored positives of all strengths with their tenth, and negatives, and ask what sets them apart."""
    shown, deciles = shown_positives(scores, seed)
    others = torch.randperm(len(negatives), generator=keyed(seed, "negatives")).numpy()[:NEGATIVES]
    prompt = explain_prompt(texts, positives[shown], deciles, negatives[others])
    return read_name(chat.ask(prompt, tokens=ANSWER), chat.name)


def shown_positives(scores: np.ndarray, seed: int) -> tuple[np.ndarray, list[int]]:
    """Numbers of positives spread over all strengths, the strongest first, and the tenth of each.

    >>> numbers, tenths = shown_positives(np.arange(100.0), 0)
    >>> len(numbers), tenths[0], tenths[-1], sorted(set(tenths)) == list(range(1, 11))
    (20, 10, 1, True)
    """
    order = np.argsort(-scores, kind="stable")
    ranks = np.unique(np.linspace(0, len(order) - 1, min(POSITIVES, len(order))).round().astype(int))
    return order[ranks], [10 - int(10 * rank / max(len(order), 1)) for rank in ranks]
