"""A transformers model on this machine: it judges by how likely *yes* is beside *no*, and writes nothing for that."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from headwise.errors import HeadwiseError
from headwise.model.loading.load import read
from headwise.model.loading.quiet import quiet_transformers

WORDS = {"yes": ("yes", "Yes", " yes", " Yes", "YES"), "no": ("no", "No", " no", " No", "NO")}
DIGITS = 6
"""Decimals of a share that are kept: fewer than differ from machine to machine."""


@dataclass(frozen=True, eq=False)
class TransformersChat:
    """Answers by writing, as the most likely tokens one after another: what an explainer needs."""

    hf: Any
    tokenizer: Any
    name: str

    @classmethod
    def load(cls, name: str) -> TransformersChat:
        """A model by its folder, hub id or known name."""
        found = read(name)
        return cls(found.hf, found.tokenizer, found.name)

    @torch.no_grad()
    def ask(self, prompt: str, *, tokens: int) -> str:
        ids = self.ids(prompt)
        with quiet_transformers():
            made = self.hf.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=tokens,
                do_sample=False,
                pad_token_id=self.tokenizer.pad_token_id or self.tokenizer.eos_token_id or 0,
            )
        return str(self.tokenizer.decode(made[0, ids.shape[1] :], skip_special_tokens=True))

    def ids(self, prompt: str) -> torch.Tensor:
        """[1, T]: a question as this model is asked, in its chat template if it has one."""
        if getattr(self.tokenizer, "chat_template", None):
            asked = [{"role": "user", "content": prompt}]
            text = self.tokenizer.apply_chat_template(asked, tokenize=False, add_generation_prompt=True)
            ids = self.tokenizer(text, add_special_tokens=False).input_ids
        else:
            ids = self.tokenizer(f"{prompt}\n\nAnswer:").input_ids
        most = getattr(self.hf.config.get_text_config(), "max_position_embeddings", None)
        if most is not None and len(ids) >= most:
            raise HeadwiseError(
                f"a question has {len(ids)} tokens and {self.name!r} reads {most}: use a model with a longer context"
            )
        return torch.tensor([ids], device=self.hf.device)


@dataclass(frozen=True, eq=False)
class YesNo:
    """Answers with P(yes) / (P(yes) + P(no)), as a number: what a judge needs."""

    chat: TransformersChat

    @property
    def name(self) -> str:
        return self.chat.name

    @torch.no_grad()
    def ask(self, prompt: str, *, tokens: int = 1) -> str:
        yes, no = answer_tokens(self.chat)
        logits = self.chat.hf(self.chat.ids(prompt), logits_to_keep=1).logits[0, -1].double()
        share = torch.sigmoid(logits[yes].logsumexp(0) - logits[no].logsumexp(0))
        return f"{float(share):.{DIGITS}f}"


def answer_tokens(chat: TransformersChat) -> tuple[list[int], list[int]]:
    """The tokens that *yes* and *no* can begin with, whatever their case and whether a space comes before them."""
    found = {
        word: {
            int(ids[0])
            for form in forms
            if (ids := chat.tokenizer(form, add_special_tokens=False).input_ids)
            and word.startswith(chat.tokenizer.decode([ids[0]]).strip().lower())
            and chat.tokenizer.decode([ids[0]]).strip()
        }
        for word, forms in WORDS.items()
    }
    if not found["yes"] or not found["no"]:
        raise HeadwiseError(
            f"{chat.name!r} has no token for yes or for no, so it cannot judge: use another model"
        )
    return sorted(found["yes"]), sorted(found["no"])
