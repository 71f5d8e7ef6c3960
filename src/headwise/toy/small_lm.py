"""Train a small GPT-NeoX on the toy language and keep checkpoints along the way."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from headwise.errors import HeadwiseError
from headwise.model.loading.quiet import quiet_transformers
from headwise.randomness import seeded
from headwise.scale.folder import RunFolder
from headwise.toy.language import tokenizer, training_batch, vocabulary

DATA = Path(__file__).parent / "data" / "small_lm"
"""A trained checkpoint that ships with the package: ``headwise.load(DATA)``."""

TRAINING = "training.safetensors"
"""Where a run folder keeps the state of the training."""


@dataclass(frozen=True)
class LMSetup:
    """Sizes and schedule; the default has 0.6 M parameters and names the indirect object after some hundred steps."""

    layers: int = 3
    heads: int = 4
    width: int = 128
    steps: int = 1200
    batch: int = 64
    lr: float = 2e-3
    seed: int = 0
    checkpoints: int = 14

    def __post_init__(self) -> None:
        if self.steps < 1 or self.checkpoints < 2:
            raise HeadwiseError(
                f"{self.steps} steps with {self.checkpoints} checkpoints are too few to show a trajectory: give more"
            )
        if self.width % self.heads:
            raise HeadwiseError(f"width {self.width} does not divide into {self.heads} heads")

    def saved_steps(self) -> list[int]:
        """Steps to keep: 0, then geometrically spaced up to the end."""
        low, n = min(10, self.steps), self.checkpoints - 1
        points = {round(low * (self.steps / low) ** (i / max(1, n - 1))) for i in range(n)}
        return sorted({0, *points, self.steps})


def build(setup: LMSetup) -> Any:
    """An untrained model, the same for the same seed."""
    from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

    config = GPTNeoXConfig(
        vocab_size=len(vocabulary()),
        hidden_size=setup.width,
        num_hidden_layers=setup.layers,
        num_attention_heads=setup.heads,
        intermediate_size=4 * setup.width,
        max_position_embeddings=64,
        bos_token_id=1,
        eos_token_id=1,
        pad_token_id=0,
    )
    # The library draws initial weights from the global generator; leave that as it was found.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seeded(setup.seed).initial_seed())
        return GPTNeoXForCausalLM(config)


def train_lm(
    setup: LMSetup,
    folder: RunFolder,
    *,
    progress: Callable[[int, float], None] | None = None,
    stop_after: int | None = None,
) -> list[Path]:
    """Train and save ``step-N`` model folders into the run folder; a later call continues at the last of them."""
    model = build(setup)
    optimiser = torch.optim.AdamW(model.parameters(), lr=setup.lr, betas=(0.9, 0.98), weight_decay=0.01)
    wanted = setup.saved_steps()
    tensors, record = folder.read_tensors(TRAINING) or ({}, None)
    begun, losses = (-1, []) if record is None else (int(record["step"]), list(record["losses"]))
    names = [name for name, _ in model.named_parameters()]
    if tensors:
        model.load_state_dict({k[2:]: v for k, v in tensors.items() if k.startswith("w.")}, strict=False)
        state = {
            i: {
                "exp_avg": tensors[f"m.{n}"],
                "exp_avg_sq": tensors[f"v.{n}"],
                "step": torch.tensor(float(begun)),
            }
            for i, n in enumerate(names)
            if f"m.{n}" in tensors
        }
        optimiser.load_state_dict({"state": state, "param_groups": optimiser.state_dict()["param_groups"]})
    model.train()
    for step in range(begun + 1, setup.steps + 1):
        if stop_after is not None and step > stop_after:
            break
        if step:
            for group in optimiser.param_groups:
                warm = min(1.0, step / 50)
                group["lr"] = setup.lr * warm * min(1.0, 2 * (setup.steps - step + 1) / setup.steps)
            ids, labels = training_batch(setup.batch, setup.seed, step)
            mask = (ids != 0).long()
            loss = model(input_ids=ids, attention_mask=mask, labels=labels).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)
            losses.append([step, loss.item()])
            if progress:
                progress(step, loss.item())
        if step in wanted:
            _save(folder, model, optimiser, names, step, losses)
    return [p for s in wanted if (p := folder.path / _name(s)).exists()]


def _save(
    folder: RunFolder, model: Any, optimiser: Any, names: list[str], step: int, losses: list[list[float]]
) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        save_model(model, Path(scratch))
        for file in sorted(Path(scratch).iterdir()):
            folder.write_bytes(f"{_name(step)}/{file.name}", file.read_bytes())
    states = optimiser.state_dict()["state"]
    tensors = {f"w.{n}": p.detach() for n, p in model.named_parameters()}
    tensors |= {f"m.{n}": states[i]["exp_avg"] for i, n in enumerate(names) if i in states}
    tensors |= {f"v.{n}": states[i]["exp_avg_sq"] for i, n in enumerate(names) if i in states}
    folder.write_tensors(TRAINING, tensors, {"step": step, "losses": losses})


def losses_of(folder: RunFolder) -> list[list[float]]:
    """Step and loss of all that was trained in a folder."""
    saved = folder.read_tensors(TRAINING)
    return [] if saved is None else saved[1]["losses"]


def files_of(folder: RunFolder, checkpoints: Sequence[Path]) -> list[str]:
    """What training wrote into a folder, for its manifest."""
    found = [file for place in checkpoints for file in sorted(place.iterdir())]
    return [TRAINING, *(str(file.relative_to(folder.path)) for file in found)]


def _name(step: int) -> str:
    return f"step-{step:06d}"


def save_model(model: Any, target: Path) -> None:
    """Weights, configuration and tokenizer as transformers lays them out."""
    with quiet_transformers():
        model.save_pretrained(target, safe_serialization=True)
        tokenizer().save_pretrained(target)
