"""AdamW on tensors with a leading cell axis, where cells can leave the training one by one."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass
class AdamW:
    """The usual update (decoupled weight decay, bias correction), on a dict of tensors.

    Every operation is elementwise, so a cell's trajectory does not depend on which cells train beside it;
    ``select`` keeps some cells, and ``state``/``restore`` make the optimiser part of a checkpoint.
    """

    lr: float
    weight_decay: float = 0.01
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    steps: int = 0
    moments: dict[str, tuple[Tensor, Tensor]] = field(default_factory=dict)

    @torch.no_grad()
    def step(self, weights: dict[str, Tensor]) -> None:
        self.steps += 1
        b1, b2 = self.betas
        correct1, correct2 = 1 - b1**self.steps, 1 - b2**self.steps
        for name, value in weights.items():
            grad = value.grad
            if grad is None:
                continue
            if name not in self.moments:
                self.moments[name] = torch.zeros_like(value), torch.zeros_like(value)
            m, v = self.moments[name]
            m.lerp_(grad, 1 - b1)
            v.mul_(b2).addcmul_(grad, grad, value=1 - b2)
            value.mul_(1 - self.lr * self.weight_decay)
            value.addcdiv_(m, (v.sqrt() / correct2**0.5).add_(self.eps), value=-self.lr / correct1)
            value.grad = None

    def select(self, keep: Tensor) -> None:
        self.moments = {name: (m[keep].clone(), v[keep].clone()) for name, (m, v) in self.moments.items()}

    def state(self) -> dict[str, Tensor]:
        return {
            f"{kind}.{name}": x
            for name, pair in self.moments.items()
            for kind, x in zip("mv", pair, strict=True)
        }

    def restore(self, state: dict[str, Tensor], steps: int) -> None:
        names = {key.split(".", 1)[1] for key in state}
        self.moments = {
            name: (state[f"m.{name}"].clone(), state[f"v.{name}"].clone()) for name in sorted(names)
        }
        self.steps = steps
