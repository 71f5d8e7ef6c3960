"""A tokenizer of whole words for tiny models, so that tests of labelled prompts need no download."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from headwise.model.model import Model
from headwise.tasks.labelled import words
from headwise.tasks.labelled.binding import ASK, FILLERS, FIT_CLAUSES, TEST_CLAUSES
from headwise.tasks.labelled.filter import FIT_WORDINGS, TEST_WORDINGS

CHAT = (
    "{{ '<s>' }}{% for m in messages %}<u> {{ m['content'] }} </u>{% endfor %}"
    "{% if add_generation_prompt %}<a> {% endif %}"
)


@lru_cache(maxsize=1)
def word_tokenizer() -> Any:
    """Every word of the labelled tasks."""
    text = [
        *FIT_CLAUSES,
        *TEST_CLAUSES,
        ASK,
        *FILLERS,
        "Which box is in ? Answer with letter alone",
        ". , : [ ]",
    ]
    text += [x for w in (*FIT_WORDINGS, *TEST_WORDINGS) for x in (w.opening, w.asking, w.shots)]
    names = [*words.ENTITIES, *words.LABELS, *(w for ws in words.CATEGORIES.values() for w in ws)]
    names += [c for k in words.CATEGORIES for c in (k, k.capitalize())]
    return tokenizer_of([*text, *names])


def tokenizer_of(lines: list[str]) -> Any:
    """One token a word or sign of these lines, in their case and in lower case."""
    from tokenizers import pre_tokenizers

    split = pre_tokenizers.Whitespace()
    found = [w for line in lines for w, _ in split.pre_tokenize_str(line)]
    found += [w.lower() for w in found]
    return tokenizer_with(list(dict.fromkeys(["<unk>", "<s>", "<u>", "</u>", "<a>", *found])))


def tokenizer_with(vocabulary: list[str]) -> Any:
    """One token for each of these, in this order; puts <s> before every prompt."""
    from tokenizers import Tokenizer, pre_tokenizers, processors
    from tokenizers.models import WordLevel
    from transformers import PreTrainedTokenizerFast

    made = Tokenizer(WordLevel({w: i for i, w in enumerate(vocabulary)}, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.post_processor = processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", 1)])
    made.add_special_tokens(["<s>", "<u>", "</u>", "<a>"])
    return PreTrainedTokenizerFast(
        tokenizer_object=made, unk_token="<unk>", bos_token="<s>", chat_template=CHAT
    )


@lru_cache(maxsize=2)
def worded_model(seed: int = 0, dtype: str = "float32") -> Model:
    """A small random llama that reads these words."""
    import torch
    import transformers

    torch.manual_seed(seed)
    config = transformers.LlamaConfig(
        vocab_size=len(word_tokenizer()),
        hidden_size=32,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=12,
        intermediate_size=48,
        max_position_embeddings=512,
    )
    hf = transformers.LlamaForCausalLM(config)
    with torch.no_grad():
        for parameter in hf.parameters():
            if parameter.ndim > 1:
                parameter.normal_(0, 0.3)
    return Model(
        hf.to(getattr(torch, dtype)).eval().requires_grad_(False), word_tokenizer(), name="tiny-worded"
    )
