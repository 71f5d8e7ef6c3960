"""One GGUF file in, one plain transformers folder out: float32 safetensors, config and tokenizer.

transformers reads GGUF, but three things about what it gives are not fit for study, and are set right here:

* the model it builds counts as quantized and refuses ``save_pretrained``. Its tensors are ordinary float32
  with the rotary permutation undone and norm gains stored the family's own way, so they are written out
  directly;
* a vocabulary whose merges were learned on single digits (``smollm`` and its kin) is split like GPT-2's, so
  numbers become other tokens;
* the file's wish for a beginning-of-sequence token is dropped, and a model like Gemma goes astray without it.

What transformers would drop *silently* (rescaled rotary frequencies) is refused instead.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from headwise.errors import HeadwiseError
from headwise.model.loading.fit import gaps, refuse_larger, refuse_misfit, refuse_unplaced
from headwise.model.loading.folder import WEIGHTS, held_tensors, refuse_absurd_sizes
from headwise.model.loading.gguf_header import Header, read_header, refuse_unusable
from headwise.model.loading.trouble import first_line


class ConversionReport(Protocol):
    """Told what is being done, and how much of it is done where that is known."""

    def __call__(self, stage: str, fraction: float | None = None, /) -> object: ...


def _silent(stage: str, fraction: float | None = None, /) -> None:
    """A report that nobody reads."""


# llama.cpp's names for vocabularies that cut every digit off before GPT-2's own splitting.
_SINGLE_DIGITS = frozenset(
    {"smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"}
)
_LIKE_GPT2 = frozenset(
    {"default", "gpt-2", "phi-2", "jina-es", "jina-de", "olmo", "mpt", "gigachat", "roberta-bpe"}
)
# A byte-level vocabulary of these kinds starts every text with its bos token even if the file does not say
# so.
_BOS_BY_HABIT = frozenset({"llama3", "llama-v3", "llama-bpe"})


def convert(path: Path, target: Path, report: ConversionReport = _silent) -> None:
    """Write the model in the GGUF file ``path`` to the existing folder ``target`` as float32 safetensors."""
    report("reading the header")
    header = read_header(path)
    refuse_unusable(path, header)
    from headwise.model.loading.quiet import quiet_transformers

    with quiet_transformers(), _read_once(report):
        report("rebuilding the tokenizer")
        tokenizer = _tokenizer(path, header.fields)
        report("unpacking the weights")
        model = _model(path, header)
        report("writing float32 weights")
        tokenizer.save_pretrained(target)
        _write(model, target, path.name)


@contextmanager
def _read_once(report: ConversionReport) -> Iterator[None]:
    """Let transformers parse the file and build its table of tensor names once instead of again and again.

    It does the first twice and the second for every module of the model, which is half of the whole
    conversion. Its own bar is replaced by ours.
    """
    import gguf
    from transformers import modeling_gguf_pytorch_utils as reading

    def counted(tensors: Iterable[Any], **_: Any) -> Iterator[Any]:
        items = list(tensors)
        for number, tensor in enumerate(items):
            report("unpacking the weights", number / len(items))
            yield tensor

    swapped = [
        (gguf, "GGUFReader", cache(gguf.GGUFReader)),
        (gguf, "get_tensor_name_map", cache(gguf.get_tensor_name_map)),
        (reading, "tqdm", counted),
    ]
    before = [getattr(module, name, None) for module, name, _ in swapped]
    for module, name, new in swapped:
        setattr(module, name, new)
    try:
        yield
    finally:
        for (module, name, _), old in zip(swapped, before, strict=True):
            setattr(module, name, old)


@contextmanager
def _reading(path: Path, part: str) -> Iterator[None]:
    """One line for whatever transformers, tokenizers and gguf raise about a file that is not as it should be."""
    try:
        yield
    except HeadwiseError:
        raise
    except Exception as error:
        raise HeadwiseError(
            f"transformers cannot read the {part} of '{path}': {first_line(error)}"
        ) from error


def _tokenizer(path: Path, fields: dict[str, Any]) -> Any:
    from tokenizers import pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    # The generic class reads only what it needs; choosing a family's class would parse the whole file.
    with _reading(path, "tokenizer"):
        read: Any = PreTrainedTokenizerFast.from_pretrained(str(path.parent), gguf_file=path.name)
        backend = _without_invented_tokens(read.backend_tokenizer, fields.get("tokenizer.ggml.tokens"))

    kind, split = fields.get("tokenizer.ggml.model"), fields.get("tokenizer.ggml.pre", "default")
    if kind == "gpt2" and split in _SINGLE_DIGITS:
        backend.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        )
    elif (
        kind == "gpt2"
        and split not in _LIKE_GPT2
        and not isinstance(backend.pre_tokenizer, pre_tokenizers.Sequence)
    ):
        warnings.warn(
            f"'{path.name}' splits text the {split!r} way, which is not known here; GPT-2's is used, so some "
            "words may be cut into other tokens than the model was trained on",
            stacklevel=2,
        )
    starts = fields.get("tokenizer.ggml.add_bos_token", kind == "llama" or split in _BOS_BY_HABIT)
    # Only tokens the vocabulary has: one that it lacks would be appended and fall outside the embedding.
    special = {
        name: token
        for name in ("bos_token", "eos_token", "unk_token", "pad_token")
        if (token := getattr(read, name, None)) is not None and backend.token_to_id(str(token)) is not None
    }
    bos = str(special["bos_token"]) if starts and "bos_token" in special else None
    template = f"{bos} $A" if bos else "$A"
    backend.post_processor = processors.TemplateProcessing(
        single=template,
        pair=f"{template} {bos} $B:1" if bos else "$A $B:1",
        special_tokens=[(bos, backend.token_to_id(bos))] if bos else [],
    )
    # The generic class takes all it does from tokenizer.json; a family's own class rebuilds parts of it on
    # load.
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        padding_side=read.padding_side,
        chat_template=read.chat_template,
        clean_up_tokenization_spaces=False,
        **special,
    )


def _without_invented_tokens(backend: Any, size: int | None) -> Any:
    """Drop tokens past the end of the file's vocabulary: no row of the embedding belongs to them.

    transformers appends its own default unknown token to a byte-level vocabulary that has none.
    """
    if size is None or backend.get_vocab_size(with_added_tokens=True) <= size:
        return backend
    import json

    from tokenizers import Tokenizer

    parts = json.loads(backend.to_str())
    parts["added_tokens"] = [token for token in parts["added_tokens"] if token["id"] < size]
    if parts["model"].get("unk_token") not in parts["model"]["vocab"]:
        parts["model"]["unk_token"] = None
    return Tokenizer.from_str(json.dumps(parts))


def _model(path: Path, header: Header) -> Any:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    options: dict[str, Any] = {}
    try:  # newer transformers may keep weights packed for a kernel; there, numbers have to be asked for
        from transformers.utils.quantization_config import GgufConfig  # pyright: ignore

        options["quantization_config"] = GgufConfig(dequantize=True)
    except ImportError:
        pass
    with _reading(path, "model"):
        # The model's class is chosen by its config; passing that on saves reading it a second time.
        config = AutoConfig.from_pretrained(str(path.parent), gguf_file=path.name)
        refuse_absurd_sizes(config.to_dict(), path.name)
        refuse_larger(config, header.numbers, path.name)
        both: Any = AutoModelForCausalLM.from_pretrained(
            str(path.parent),
            gguf_file=path.name,
            config=config,
            dtype=torch.float32,
            output_loading_info=True,
            **options,
        )
    model, found = both
    if absent := sorted(found["missing_keys"]) + sorted(str(key[0]) for key in found["mismatched_keys"]):
        raise gaps(absent, path.name)
    refuse_unplaced(found["unexpected_keys"], path.name)
    return model


def _write(model: Any, target: Path, source: str) -> None:
    import torch
    from safetensors.torch import save_file

    tensors, seen = {}, set()
    for name, tensor in model.state_dict().items():
        place = (tensor.data_ptr(), tuple(tensor.shape))
        if place in seen:  # tied: the config says so, and loading ties them again
            continue
        seen.add(place)
        tensors[name] = tensor.detach().to(torch.float32).contiguous()
    save_file(tensors, target / WEIGHTS, metadata={"format": "pt"})
    config = model.config.to_dict()
    config.pop("quantization_config", None)
    for place in ("_name_or_path", "_model_name_or_path"):
        config.pop(place, None)
    config["architectures"] = [type(model).__name__]
    config["dtype"] = "float32"
    plain = type(model.config).from_dict(config)
    plain.save_pretrained(target)
    # transformers takes a GGUF tensor of any shape; a model that does not fit itself must not be kept.
    refuse_misfit(held_tensors([target / WEIGHTS], target.name), plain, source)
