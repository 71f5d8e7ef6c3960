"""What `headwise plan` is held to: three models, and for each row of a plan a small run of the command."""

from __future__ import annotations

import contextlib
import io
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

KINDS = ("small", "other", "default")
"""The trained model that the package carries, one of another shape, and the default model."""
SHAPE: dict[str, Any] = {
    "hidden_size": 192,
    "intermediate_size": 512,
    "num_hidden_layers": 6,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
}
"""The model of another shape: of another family than the small one, with shared keys."""
VOCABULARY, STEPS = 1000, 900
PROMPT = {
    "own": "then mary and paul went to the store . mary gave a book to",
    "default": "Mr. Dursley was thin. Mrs. Potter was kind. Mr. Durs",
}
BINDING = 76
"""Tokens of a prompt of binding in those of the default model."""


@dataclass(frozen=True)
class Case:
    """One row of a plan, and a run of it."""

    row: str
    """The row of the plan."""
    words: str
    """The command."""
    count: int
    """Prompts or texts that it goes over."""
    tokens: int
    """Tokens of each."""
    contrasts: int = 3
    """Of features: contrasts that are fitted."""


@dataclass(frozen=True)
class Kind:
    """A model with its commands, its files in a folder."""

    kind: str
    model: str | None
    """What ``--model`` is given; None: nothing."""
    cases: tuple[Case, ...]


@contextlib.contextmanager
def prepared(kind: str) -> Iterator[Kind]:
    """One of the models, and its files for as long as the block lasts."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        yield _default(folder) if kind == "default" else _own(kind, folder)


def run(kind: Kind, words: str) -> None:
    """Give a command, and end with what it said if it fails."""
    from headwise.cli.main import main

    with tempfile.TemporaryDirectory() as scratch:
        given = [word.replace("{out}", f"{scratch}/out") for word in words.split()]
        prompt = PROMPT["default" if kind.kind == "default" else "own"]
        given = [prompt if word == "{prompt}" else word for word in given]
        said = io.StringIO()
        before = os.environ.get("HEADWISE_CACHE")
        if given[0] == "calibrate":  # one that is done is not done again
            os.environ["HEADWISE_CACHE"] = scratch
        try:
            with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
                status = main([*given, *(() if kind.model is None else ("--model", kind.model))])
        finally:
            if before is None:
                os.environ.pop("HEADWISE_CACHE", None)
            else:
                os.environ["HEADWISE_CACHE"] = before
    if status:
        raise SystemExit(f"{words}: {said.getvalue()}")


def processor(work: Callable[[], object]) -> float:
    """Seconds of the processor that some work takes."""
    start = time.process_time()
    work()
    return time.process_time() - start


def peak() -> int:
    """The most memory that this process has held since ``forget_peak``."""
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) * 1024


def forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


# --- the default model -----------------------------------------------------------------------------------------------


def _default(folder: Path) -> Kind:
    import headwise
    from headwise.tasks.answers.make import make_answers

    model = headwise.load()
    one = len(model.prompt_ids(PROMPT["default"]))
    ioi = _length(model, [each.prompt for each in make_answers("ioi", model.tokenizer, prompts=50).prompts])
    before = Kind("default", None, ())
    run(before, f"trace {{prompt}} --save {folder}/circuit.json")
    cases = (
        Case("attention", "attention {prompt}", 1, one),
        Case("explain", "explain {prompt}", 1, one),
        Case("trace", "trace {prompt}", 1, one),
        Case("intervene FILE", f"intervene {folder}/circuit.json", 1, one),
        Case("intervene (a task)", "intervene --task ioi --prompts 4", 4, ioi),
        Case("heads TASK", "heads binding --prompts 32", 32, BINDING),
        Case("features TASK", "features binding --prompts 30 --out {out} --workers 1", 30, BINDING),
        Case("features", "features --texts 24 --out {out} --workers 1", 24, 64),
        Case("explain (a task)", "explain --task ioi --prompts 8", 8, ioi),
        Case("circuits", "circuits ioi --prompts 16 --out {out} --workers 1", 16, ioi),
        Case("sinks", "sinks --prompts 16 --traced 6 --proved 2", 16, 18),
        Case("sparsity", "sparsity ioi --prompts 8 --workers 1", 8, ioi),
        Case("head", "head L14H3 --texts 32 --workers 1", 32, 64),
        Case("head (all heads)", "head --all --texts 16 --workers 1", 16, 64),
        Case("name", "name L14H3 --texts 64 --corpus wikipedia-excerpt", 64, 64),
        Case("name (all heads)", "name all --texts 32 --corpus wikipedia-excerpt", 32, 64),
        Case("calibrate", "calibrate --texts 48", 48, 64),
    )
    return Kind("default", None, cases)


# --- models in the words of the toy language -------------------------------------------------------------------------


def _own(kind: str, folder: Path) -> Kind:
    import headwise

    name = _small() if kind == "small" else _other()
    model = headwise.load(name)
    length = _files(folder, model)
    one = len(model.prompt_ids(PROMPT["own"]))
    before = Kind(kind, name, ())
    run(before, f"trace {{prompt}} --save {folder}/circuit.json")
    middle = (model.n_layers - 1) // 2
    texts = f"--corpus {folder}/texts.jsonl"
    cases = (
        Case("attention", "attention {prompt}", 1, one),
        Case("explain", "explain {prompt}", 1, one),
        Case("trace", "trace {prompt}", 1, one),
        Case("intervene FILE", f"intervene {folder}/circuit.json", 1, one),
        Case("intervene (a task)", f"intervene --task {folder}/answers-16.jsonl --prompts 8", 8, length),
        Case("heads TASK", f"heads {folder}/objects-90.jsonl", 90, length),
        Case(
            "features TASK",
            f"features {folder}/objects-90.jsonl --hold-out answer --out {{out}} --workers 1",
            90,
            length,
            contrasts=1,
        ),
        Case("features", f"features {texts} --texts 24 --out {{out}} --workers 1", 24, 64),
        Case("explain (a task)", f"explain --task {folder}/answers-32.jsonl --prompts 32", 32, length),
        Case("circuits", f"circuits {folder}/answers-32.jsonl --out {{out}} --workers 1", 32, length),
        Case("sinks", f"sinks --texts {folder}/lines.txt --threshold 0.1", 60, length),
        Case("sparsity", f"sparsity {folder}/answers-16.jsonl --workers 1", 16, length),
        Case("head", f"head L{middle}H1 {texts} --workers 1", 120, 64),
        Case("head (all heads)", f"head --all {texts} --texts 120 --workers 1", 120, 64),
        Case("name", f"name L{middle}H1 {texts} --texts 128", 128, 64),
        Case("name (all heads)", f"name all {texts} --texts 128", 128, 64),
        Case("calibrate", f"calibrate {texts} --texts 120", 120, 64),
    )
    return Kind(kind, name, cases)


def _small() -> str:
    from headwise.toy.small_lm import DATA

    return str(DATA)


def _other() -> str:
    """Another shape, trained for a minute on the toy language: the heads of one with random weights look at nothing."""
    import torch
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

    from headwise.toy.language import training_batch

    folder = Path(tempfile.gettempdir()) / "headwise-plan-other"
    if (folder / "config.json").exists():
        return str(folder)
    torch.manual_seed(1)
    model = LlamaForCausalLM(LlamaConfig(vocab_size=VOCABULARY, **SHAPE))
    optimiser = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.98), weight_decay=0.01)
    for step in range(1, STEPS + 1):
        for group in optimiser.param_groups:
            group["lr"] = 3e-3 * min(1.0, step / 50, 2 * (STEPS - step + 1) / STEPS)
        ids, labels = training_batch(32, 0, step)
        model(input_ids=ids, attention_mask=(ids != 0).long(), labels=labels).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
    AutoTokenizer.from_pretrained(_small()).save_pretrained(folder)
    model.save_pretrained(folder)
    return str(folder)


def _files(folder: Path, model: Any) -> int:
    """Prompts and texts in words that the small vocabulary has; gives the prompts' length in tokens."""
    from headwise.toy.language import sentences

    made = list({one.text: one for one in sentences(400, 0, "plan")}.values())
    for count in (16, 32, 90):
        some = made[:count]
        objects = [
            {
                "prompt": _marked(one.text, one.answer, one.wrong),
                "positive": ["answer"],
                "negative": ["wrong"],
                "groups": {"answer": one.answer, "wording": str(one.wording + 1)},
                "feature": "object",
            }
            for one in some
        ]
        _write(folder / f"answers-{count}.jsonl", [_answered(model, one) for one in some])
        _write(folder / f"objects-{count}.jsonl", objects)
    texts = [" ".join(one.text for one in sentences(8, seed, "texts")) for seed in range(300)]
    _write(folder / "texts.jsonl", [{"text": text} for text in texts])
    (folder / "lines.txt").write_text("".join(f"{one.text}\n" for one in made[:60]))
    return _length(model, [one.text for one in made])


def _answered(model: Any, one: Any) -> dict[str, str]:
    """A prompt with the name that the model prefers of the two: another one it may not know."""
    import torch

    ids = [model.tokenizer.convert_tokens_to_ids(name) for name in (one.answer, one.wrong)]
    with torch.no_grad():
        scores = model.hf(torch.tensor([model.prompt_ids(one.text)])).logits[0, -1, ids]
    answer, wrong = (one.answer, one.wrong) if scores[0] >= scores[1] else (one.wrong, one.answer)
    return {"prompt": one.text, "answer": answer, "wrong": wrong}


def _length(model: Any, prompts: list[str]) -> int:
    return round(statistics.fmean(len(model.prompt_ids(one)) for one in prompts))


def _marked(text: str, answer: str, wrong: str) -> str:
    words = text.split(" ")
    for role, word in (("answer", answer), ("wrong", wrong)):
        words[words.index(word)] = f"[[{role}:{word}]]"
    return " ".join(words)


def _write(file: Path, lines: list[dict[str, Any]]) -> None:
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
