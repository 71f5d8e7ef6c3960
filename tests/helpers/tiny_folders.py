"""Tiny models as folders that transformers reads, for tests that load, spoil and load again."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tiny_gguf
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

Tensors = dict[str, Any]


def write_folder(folder: Path, *, hf: Any = None) -> Path:
    """A tiny llama (or ``hf``) with a tokenizer of a few words."""
    (hf or tiny_gguf.tiny_model("llama")).save_pretrained(folder)
    text = "When Mary and John went to the store , gave a drink b ?"
    words = Tokenizer(
        models.WordLevel({word: i for i, word in enumerate(dict.fromkeys(text.split()))}, unk_token="?")
    )
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=words, unk_token="?").save_pretrained(folder)
    return folder


def set_config(folder: Path, **values: Any) -> None:
    """Change fields of config.json; ``...`` removes one."""
    path = folder / "config.json"
    config = json.loads(path.read_text()) | values
    path.write_text(json.dumps({key: value for key, value in config.items() if value is not ...}))


def change_weights(folder: Path, change: Callable[[Tensors], Tensors | None]) -> None:
    """Read the weights, let ``change`` do what it likes to them, and write them back."""
    path = folder / "model.safetensors"
    tensors = load_file(path)
    save_file(change(tensors) or tensors, path, metadata={"format": "pt"})
