"""Prompts of one model: cut into tokens, read once, and looked at without waiting for the model's lane.

The lane reads a prompt. Whatever is asked of one that was read, its answer or all its heads, needs no pass: it is
answered at once, also while the lane explains something.
"""

from __future__ import annotations

import copy
import hashlib
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from headwise.app import wire
from headwise.app.lane import Turn
from headwise.app.memory import KeptPrompt, Memory
from headwise.app.patterns import Glance, glance
from headwise.errors import HeadwiseError
from headwise.model.model import Model
from headwise.tokens import NoTokenizer, chat_prompt, shown, shown_after
from headwise.why.question import PromptReading, ask, find_answer

ANSWERS = 5


class Prompts:
    """What was read with one model, as long as that is at work."""

    def __init__(self, model: Model, memory: Memory) -> None:
        self.model, self.memory = model, memory
        # Beside the lane, which may be using the tokenizer: two threads must not do so at once.
        self._aside = copy.copy(model)
        self._aside.tokenizer = copy.deepcopy(model.tokenizer)
        self._speaking = threading.Lock()

    def tokens(self, asked: wire.TypedText) -> wire.TokenList:
        """Only cut into tokens: while it is typed."""
        aside = self._aside
        with self._speaking:
            given = chat_prompt(aside.tokenizer, asked.text) if asked.chat else asked.text
            if isinstance(aside.tokenizer, NoTokenizer) or (isinstance(given, str) and not given):
                return wire.TokenList(tokens=())
            return wire.TokenList(tokens=shown(aside.tokenizer, aside.prompt_ids(given)))

    def known(self, asked: wire.PromptRequest) -> tuple[str, KeptPrompt] | None:
        """A prompt that was read already, by its id; None where it is to be read, or refused."""
        with self._speaking:
            try:
                return self._found(self._aside, asked)
            except HeadwiseError:
                return None

    def read(self, asked: wire.PromptRequest, turn: Turn) -> tuple[str, KeptPrompt]:
        """In the lane: read a prompt, or remember it."""
        found = self._found(self.model, asked)
        if found is not None:
            return found
        given = _given(self.model, asked)
        turn.tokens = len(self.model.prompt_ids(given))
        kept = KeptPrompt(PromptReading.of(self.model, given, basis=asked.basis))
        name = self._name(kept.read.token_ids, asked.basis)
        self.memory.put(name, kept)
        return name, kept

    def _found(self, model: Model, asked: wire.PromptRequest) -> tuple[str, KeptPrompt] | None:
        given = _given(model, asked)
        name = self._name(model.prompt_ids(given), asked.basis)
        kept = self.memory.get(name)
        if kept is None:
            return None
        if isinstance(given, str) and kept.read.prompt is None:
            kept.read = replace(kept.read, prompt=given)
        return name, kept

    def _name(self, ids: Sequence[int], basis: str) -> str:
        content = f"{self.model.weight_hash} {basis} {','.join(map(str, ids))}"
        return hashlib.sha256(content.encode()).hexdigest()[:32]

    def said(self, name: str, kept: KeptPrompt, basis: Any) -> wire.PromptRead:
        """A prompt that was read, with what the model says next."""
        read, context = kept.read, self.model.context
        best = read.logits.double().softmax(-1).topk(min(ANSWERS, len(read.logits)))
        with self._speaking:
            answers = tuple(
                wire.TokenChance(token=shown_after(self._aside.tokenizer, list(read.token_ids), token), p=p)
                for token, p in zip(best.indices.tolist(), best.values.tolist(), strict=True)
            )
        return wire.PromptRead(
            id=name,
            tokens=read.tokens,
            ids=read.token_ids,
            answer=answers,
            context_left=None if context is None else context - len(read.tokens),
            basis=basis,
        )

    @torch.no_grad()
    def glance(self, kept: KeptPrompt) -> Glance:
        """Thumbnails and statistics of a prompt that was read, made once."""
        with kept.looking:
            if kept.glance is None:
                read = kept.read
                with self._speaking:
                    answer = find_answer(self._aside, read.token_ids, read.logits, None, None)
                    question = ask(self._aside, read.up, read.tokens, answer, None, None, None)
                kept.glance = glance(read, answer, question)
        self.memory.tidy()
        return kept.glance


def _given(model: Model, asked: wire.PromptRequest) -> Any:
    """What the model is to read."""
    if asked.token_ids is not None:
        return list(asked.token_ids)
    given = chat_prompt(model.tokenizer, str(asked.text)) if asked.chat else asked.text
    if isinstance(given, str) and not given.strip():
        raise HeadwiseError("the prompt is empty: give the text the model is to read")
    return given
