"""Small random models of the works' architectures, as folders, each with a tokenizer of its model's kind.

What differs between the kinds is what a task can trip over: how a space and a word are one token, whether digits come
one by one, in threes or as they were frequent, whether a first token is put before every prompt, and the chat template.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

import headwise.tasks

_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s+"
)
_LLAMA_CHAT = (
    "{{ bos_token }}{% for m in messages %}<|start_header_id|>{{ m['role'] }}<|end_header_id|>\n\n"
    "{{ m['content'] }}<|eot_id|>{% endfor %}"
    "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
)
_QWEN_CHAT = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@lru_cache(maxsize=1)
def _lines() -> list[str]:
    """Every word of the built-in tasks, often enough to be one token, and centuries and years as pairs of digits.

    Of their strings alone: with comments and the names of functions, a sentence about the code would change all models.
    """
    root = Path(headwise.tasks.__file__).parent
    files = (file.read_text(encoding="utf-8") for file in sorted(root.rglob("*.py")))
    text = "\n".join(string for source in files for string in _strings(source))
    words = sorted(set(re.findall(r"[A-Za-z]+", text)))
    pairs = [*(f" {century}" for century in range(11, 19)), *(f"{year:02d}" for year in range(100))]
    return [text, *(line for line in (*(f" {word}" for word in words), *pairs) for _ in range(9)), *words]


def _strings(source: str) -> Iterator[str]:
    """The strings of a file that are values, not its documentation."""
    tree = ast.parse(source)
    said = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in said:
            yield node.value


def _bytes(
    split: pre_tokenizers.PreTokenizer | None, normalizer: Any = None, more: Sequence[str] = ()
) -> Tokenizer:
    """Byte-level pairs, as in GPT-2; other models split the text otherwise first."""
    made = Tokenizer(models.BPE())
    if normalizer is not None:
        made.normalizer = normalizer
    whole = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=split is None)
    made.pre_tokenizer = whole if split is None else pre_tokenizers.Sequence([split, whole])
    made.decoder = decoders.ByteLevel()
    return _trained(made, pre_tokenizers.ByteLevel.alphabet(), more=more)


def _pieces() -> Tokenizer:
    """Pieces with ▁ for a space and bytes where nothing fits, as in Gemma; digits one by one."""
    made = Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    made.normalizer = normalizers.Replace(" ", "▁")
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split("▁", "merged_with_next"), pre_tokenizers.Digits(individual_digits=True)]
    )
    made.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    return _trained(made, [], ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256))])


def _trained(
    made: Tokenizer, alphabet: list[str], special: Sequence[str] = (), more: Sequence[str] = ()
) -> Tokenizer:
    trainer = trainers.BpeTrainer(
        vocab_size=9000, initial_alphabet=alphabet, special_tokens=list(special), show_progress=False
    )
    made.train_from_iterator([*_lines(), *more], trainer)
    return made


def _split(digits: str) -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Split(Regex(_SPLIT.format(digits=digits)), "isolated")


@dataclass(frozen=True)
class Kind:
    """One of the works' models: its architecture at a small size, and its tokenizer's kind."""

    model: str
    tokenizer: Callable[[], Tokenizer]
    first: str = ""
    """The token before every prompt, if there is one."""
    special: tuple[str, ...] = ()
    chat: str | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    noise: float = 0.2
    """The size of random weights: large enough that heads attend somewhere, so that there are circuits to trace."""


_SMALL: dict[str, Any] = dict(
    hidden_size=32,
    num_hidden_layers=3,
    num_attention_heads=4,
    intermediate_size=48,
    max_position_embeddings=512,
)
_GROUPED: dict[str, Any] = dict(_SMALL, num_key_value_heads=2, head_dim=12)

KINDS = {
    "llama-3.1-8b-instruct": Kind(
        "Llama",
        lambda: _bytes(_split(r"\p{N}{1,3}"), more=[str(n) for n in range(100, 1000) for _ in range(9)]),
        "<|begin_of_text|>",
        ("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
        _LLAMA_CHAT,
        dict(
            _GROUPED,
            rope_parameters={
                "rope_type": "llama3",
                "rope_theta": 5e5,
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 128,
            },
        ),
        noise=0.1,
    ),
    "qwen3-4b-instruct": Kind(
        "Qwen3",
        lambda: _bytes(_split(r"\p{N}"), normalizers.NFC()),
        "",
        ("<|im_start|>", "<|im_end|>"),
        _QWEN_CHAT,
        _GROUPED,
        noise=0.1,
    ),
    "gpt2": Kind(
        "GPT2",
        lambda: _bytes(None),
        settings=dict(n_embd=32, n_layer=3, n_head=4, n_positions=512),
    ),
    "pythia-160m": Kind(
        "GPTNeoX",
        lambda: _bytes(None, normalizers.NFC()),
        settings=dict(
            _SMALL,
            use_parallel_residual=True,
            rope_parameters={"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.25},
        ),
    ),
    "gemma-2-2b": Kind(
        "Gemma2",
        _pieces,
        "<bos>",
        settings=dict(
            _GROUPED,
            sliding_window=64,
            query_pre_attn_scalar=12,
            attn_logit_softcapping=50.0,
            final_logit_softcapping=30.0,
        ),
    ),
}
"""By the name of the preset."""

_HEADS = {"GPT2": "GPT2LMHeadModel"}


@lru_cache(maxsize=len(KINDS))
def tokenizer_of_kind(name: str) -> Any:
    """A tokenizer of the kind that this preset's model has."""
    kind = KINDS[name]
    made = kind.tokenizer()
    made.add_special_tokens([one for one in (kind.first, *kind.special) if one])
    if kind.first:
        made.post_processor = processors.TemplateProcessing(
            f"{kind.first} $A", special_tokens=[(kind.first, made.token_to_id(kind.first))]
        )
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, bos_token=kind.first or None, chat_template=kind.chat
    )


def write_kind(name: str, folder: Path) -> Path:
    """A random model of this preset's architecture with its tokenizer, as a folder."""
    kind, tokenizer = KINDS[name], tokenizer_of_kind(name)
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind.model}Config")(vocab_size=len(tokenizer), **kind.settings)
    hf = getattr(transformers, _HEADS.get(kind.model, f"{kind.model}ForCausalLM"))(config)
    with torch.no_grad():
        for parameter in hf.parameters():
            parameter.add_(kind.noise * torch.randn_like(parameter))
    hf.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
