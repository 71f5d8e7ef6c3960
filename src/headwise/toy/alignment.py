"""Do singular vectors of an attention head align with features? A world in which the features are known.

Feature strengths f are sparse (active with probability p, strength uniform in [0, 1]); a token is W f. The
model must reconstruct f as ReLU(Wᵀ W f + b), and a head of rank H must attend from r over m sources as the
softmax of Σ T_ij f_i(r) f_j(s) says:  loss = reconstruction + λ · attention.

A sweep is one batched training: every *variant* (a setting and a seed) has its own weights along the
leading axis, with features, head dimensions and sources beyond its own padded and masked. Sources are never
embedded: with M = Wᵀ Ωᵀ W the logits are f_sᵀ M f_r.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from headwise.bases import qk_svd
from headwise.errors import HeadwiseError
from headwise.randomness import keyed
from headwise.scale.folder import RunFolder
from headwise.toy.adamw import AdamW
from headwise.toy.planted import planted_features

TRAINING = "training.safetensors"
"""Where a run folder keeps the state of the training."""
ON_PATH = ("w", "w_q", "w_k")
"""The weights that a path keeps."""
FRAMES = 200
"""About how many frames the path of a case has."""


@dataclass(frozen=True)
class AlignmentSetup:
    """One variant's world. ``targets`` are (query feature, key feature, target logit)."""

    features: int = 20
    dims: int = 10
    head: int = 10
    sources: int = 8
    probability: float = 0.1
    weight: float = 1.0
    targets: tuple[tuple[int, int, float], ...] = ((0, 1, 10.0),)
    seed: int = 0
    interference: float | None = None
    """Features are planted with this interference and stay where they are; None: they are learned."""

    def __post_init__(self) -> None:
        if not 0 < self.probability <= 1:
            raise HeadwiseError(f"feature probability {self.probability} is outside 0..1")
        if self.head > self.dims:
            raise HeadwiseError(f"a head of {self.head} dimensions does not fit tokens of {self.dims}")
        if self.sources < 2 or self.features < 2:
            raise HeadwiseError("attention needs at least two sources, and a pair two features")
        for i, j, _ in self.targets:
            if max(i, j) >= self.features:
                raise HeadwiseError(f"pair ({i}, {j}) names a feature beyond the {self.features} there are")


CASES: dict[str, AlignmentSetup] = {
    "none": AlignmentSetup(weight=0.0, targets=()),
    "pair": AlignmentSetup(),
    "pairs": AlignmentSetup(
        features=100,
        dims=50,
        head=50,
        probability=0.05,
        targets=tuple((i, i + 20, 26.0 - i) for i in range(20)),
    ),
}
STEPS = {"none": 3000, "pair": 3000, "pairs": 5000}
SWEEPS: dict[str, tuple[str, tuple[float, ...]]] = {
    "probability": ("probability", (0.02, 0.05, 0.1, 0.2, 0.4)),
    "lambda": ("weight", (0.1, 0.3, 1.0, 3.0, 10.0)),
    "features": ("features", (12, 20, 30, 40)),
    "head": ("head", (1, 2, 5, 10)),
    "context": ("sources", (2, 4, 8, 16, 32)),
    "interference": ("interference", (0.0, 0.1, 0.2, 0.4, 0.8)),
}


def sweep_field(name: str) -> str:
    """What a variant's record calls the setting that a sweep changes."""
    return {"weight": "lambda"}.get(SWEEPS[name][0], SWEEPS[name][0])


def case(name: str, seeds: int = 5, seed: int = 0) -> list[AlignmentSetup]:
    """A named case, once per seed."""
    if name not in CASES:
        raise HeadwiseError(f"case {name!r} is not known: choose one of {', '.join(CASES)}")
    if seeds < 1:
        raise HeadwiseError(f"seeds={seeds}: give at least 1")
    return [replace(CASES[name], seed=seed + s) for s in range(seeds)]


def sweep(name: str, seeds: int = 5, seed: int = 0) -> list[AlignmentSetup]:
    """The single pair under every value of one setting, each with every seed; one batched training."""
    if name not in SWEEPS:
        raise HeadwiseError(f"sweep {name!r} is not known: choose one of {', '.join(SWEEPS)}")
    field, values = SWEEPS[name]
    kind = float if field == "interference" else type(getattr(CASES["pair"], field))
    return [replace(s, **{field: kind(v)}) for v in values for s in case("pair", seeds, seed)]


@dataclass(frozen=True, eq=False)
class AlignmentRun:
    """Trained variants: W [V, D, N], bias [V, N], w_q, w_k [V, H, D]; ``history`` one entry a check.

    ``path`` has W, w_q and w_k on the way, with the frame's axis first, at ``frame_steps``; it is empty where none was
    asked for.
    """

    setups: list[AlignmentSetup]
    weights: dict[str, Tensor]
    history: list[dict[str, Any]]
    path: dict[str, Tensor] = field(default_factory=dict)
    frame_steps: list[int] = field(default_factory=list)

    def at(self, frame: int) -> AlignmentRun:
        """The run as it was at a frame of its path."""
        return replace(self, weights={name: value[frame] for name, value in self.path.items()}, path={})

    def features(self, variant: int) -> Tensor:
        """Feature directions of a variant [D, N]."""
        return self.weights["w"][variant][:, : self.setups[variant].features].double()

    def head(self, variant: int) -> tuple[Tensor, Tensor, Tensor]:
        """U [D, H], σ [H], V [D, H] of a variant's Ω."""
        size = self.setups[variant].head
        w_q, w_k = (self.weights[n][variant][:size].double() for n in ("w_q", "w_k"))
        channels = qk_svd(w_q, w_k)
        return channels.query_directions, channels.sigma, channels.key_directions


def _pack(setups: list[AlignmentSetup]) -> dict[str, Tensor]:
    """Settings of all variants as tensors, padded to the largest."""
    n, h, m = (max(getattr(s, a) for s in setups) for a in ("features", "head", "sources"))
    targets = torch.zeros(len(setups), n, n)
    for v, s in enumerate(setups):
        for i, j, logit in s.targets:
            targets[v, i, j] = logit
    return {
        "targets": targets,
        "probability": torch.tensor([s.probability for s in setups]),
        "weight": torch.tensor([s.weight for s in setups]),
        "feature_mask": torch.stack([torch.arange(n) < s.features for s in setups]),
        "head_mask": torch.stack([torch.arange(h) < s.head for s in setups]).float(),
        "source_mask": torch.stack([torch.arange(m) < s.sources for s in setups]),
    }


def _init(setups: list[AlignmentSetup], packed: dict[str, Tensor]) -> dict[str, Tensor]:
    n, h, d = packed["feature_mask"].shape[1], packed["head_mask"].shape[1], setups[0].dims
    made = []
    for s in setups:
        g = keyed(s.seed, "alignment", "init")
        pad = torch.nn.functional.pad
        w = torch.randn(s.features, d, generator=g).mT / d**0.5
        if s.interference is not None:
            w = planted_features(s.features, d, s.interference, s.seed).float()
        w = pad(w, (0, n - s.features))
        heads = [
            pad(torch.randn(s.head, d, generator=g) * 0.02 / d**0.5, (0, 0, 0, h - s.head)) for _ in range(2)
        ]
        # A head that starts near zero learns its pairs one after the other; a large one learns them all at
        # once.
        made.append((w, torch.zeros(n), *heads))
    return {name: torch.stack([m[i] for m in made]) for i, name in enumerate(("w", "bias", "w_q", "w_k"))}


def draw(packed: dict[str, Tensor], seeds: list[int], batch: int, step: int) -> Tensor:
    """Feature strengths [V, batch, 1 + m, N]; token 0 is the query. Variants of one seed share their uniforms."""
    n, m = packed["feature_mask"].shape[1], packed["source_mask"].shape[1]
    shared = {
        s: torch.rand(batch, 1 + m, n, generator=keyed(s, "alignment", "data", step))
        for s in sorted(set(seeds))
    }
    u = torch.stack([shared[s] for s in seeds])
    p = packed["probability"][:, None, None, None]
    # One uniform does both: below p the feature is active, and u / p is then its strength.
    return torch.where((u < p) & packed["feature_mask"][:, None, None], u / p, 0.0)


def strengths(setup: AlignmentSetup, count: int, step: int) -> Tensor:
    """Feature strengths of one variant alone [count, 1 + m, N]; training counts its steps from 1."""
    return draw(_pack([setup]), [setup.seed], count, step)[0]


def losses(weights: dict[str, Tensor], packed: dict[str, Tensor], f: Tensor) -> tuple[Tensor, Tensor]:
    """Reconstruction and attention loss of every variant [V]."""
    w = weights["w"]
    query = f[:, :, 0]
    rebuilt = torch.relu(query @ w.mT @ w + weights["bias"][:, None])
    recon = ((rebuilt - query) * packed["feature_mask"][:, None]).square().sum(-1).mean(1)
    w_q, w_k = (weights[name] * packed["head_mask"][:, :, None] for name in ("w_q", "w_k"))
    form = (w_q @ w).mT @ (w_k @ w)  # [V, N, N]: query feature by key feature
    return recon, attention_loss(form, packed["targets"], f, ~packed["source_mask"][:, None])


def attention_loss(form: Tensor, targets: Tensor, f: Tensor, blocked: Tensor | None = None) -> Tensor:
    """How far attention by ``form`` [V, N, N] is from attention by ``targets`` on strengths f [V, batch, 1 + m, N]:
    the mean Kullback–Leibler divergence [V].
    """
    query, sources = f[:, :, 0], f[:, :, 1:]
    logits, wanted = (torch.einsum("vbmn,vbn->vbm", sources, query @ x) for x in (form, targets))
    if blocked is not None:
        logits, wanted = (x.masked_fill(blocked, float("-inf")) for x in (logits, wanted))
    gap = wanted.log_softmax(-1) - logits.log_softmax(-1)
    if blocked is not None:
        gap = gap.masked_fill(blocked, 0)
    return (wanted.softmax(-1) * gap).sum(-1).mean(1)


def pair_cosines(run: AlignmentRun, variant: int) -> list[dict[str, float]]:
    """For every wanted pair, its best channel and |cos| with that channel's singular vectors on both
    sides.

    ``relation`` asks the same without naming a channel: how far Ωw_j points along w_i and Ωᵀw_i along w_j (the
    weaker of the two). Where both do, (w_i, w_j) is a pair of singular vectors, also where two pairs have equal
    singular values and the decomposition may return any mixture of them.
    """
    setup = run.setups[variant]
    u, sigma, v = run.head(variant)
    unit = torch.nn.functional.normalize(run.features(variant), dim=0)
    query, key = (unit.mT @ u).abs(), (unit.mT @ v).abs()
    forward = torch.nn.functional.normalize(u @ (sigma[:, None] * (v.mT @ unit)), dim=0)
    backward = torch.nn.functional.normalize(v @ (sigma[:, None] * (u.mT @ unit)), dim=0)
    found = []
    for i, j, logit in setup.targets:
        both = torch.minimum(query[i], key[j])
        k = int(both.argmax())
        found.append(
            {
                "query": i,
                "key": j,
                "target": logit,
                "channel": k,
                "sigma": float(sigma[k]),
                "cos_query": float(query[i, k]),
                "cos_key": float(key[j, k]),
                "relation": float(torch.minimum(forward[:, j] @ unit[:, i], backward[:, i] @ unit[:, j])),
            }
        )
    return found


def pair_strengths(run: AlignmentRun, variant: int) -> list[float]:
    """The logit w_iᵀΩw_j that the head gives to every wanted pair at full strength."""
    w = run.features(variant)
    w_q, w_k = (run.weights[n][variant].double() for n in ("w_q", "w_k"))
    form = (w_q @ w).mT @ (w_k @ w)
    return [float(form[i, j]) for i, j, _ in run.setups[variant].targets]


def frame_steps(steps: int, frames: int) -> list[int]:
    """The steps that a path keeps, dense at the start, where a small head turns within a few of them.

    >>> frame_steps(100, 5), frame_steps(100, 0)
    ([0, 4, 16, 36, 64, 100], [])
    """
    return sorted({round(steps * (i / frames) ** 2) for i in range(frames + 1)}) if frames else []


def train_alignment(
    setups: list[AlignmentSetup],
    *,
    steps: int = 4000,
    batch: int = 512,
    lr: float = 1e-3,
    check_every: int = 100,
    frames: int = 0,
    folder: RunFolder | None = None,
    progress: Callable[[int, float, float], None] | None = None,
    stop_after: int | None = None,
) -> AlignmentRun:
    """Train all variants at once. With a ``folder`` the run is kept at every tenth check and continues from there.

    ``frames`` keeps the weights at about so many steps on the way (:func:`frame_steps`).
    """
    if steps < 1:
        raise HeadwiseError(f"steps={steps}: give at least 1")
    packed = _pack(setups)
    weights = _init(setups, packed)
    optimiser = AdamW(lr)
    seeds = [s.seed for s in setups]
    history: list[dict[str, Any]] = []
    planted = torch.tensor([s.interference is not None for s in setups])
    given = weights["w"][planted].clone()
    kept = frame_steps(steps, frames)
    path = [{name: weights[name].clone() for name in ON_PATH}] if kept else []
    start = 0
    if folder and (saved := folder.read_tensors(TRAINING)):
        tensors, record = saved
        weights = {name: tensors[name] for name in weights}
        optimiser.restore({k[4:]: v for k, v in tensors.items() if k.startswith("opt.")}, record["step"])
        start, history = record["step"], record["history"]
        path = [{name: tensors[f"path.{name}"][i] for name in ON_PATH} for i in range(record["frames"])]
    for step in range(start + 1, steps + 1):
        if stop_after is not None and step > stop_after:
            break
        for value in weights.values():
            value.requires_grad_(True)
        # The rate falls in the last third: the directions settle instead of circling their optimum.
        optimiser.lr = lr * min(1.0, 3 * (steps - step + 1) / steps)
        recon, attention = losses(weights, packed, draw(packed, seeds, batch, step))
        (recon + packed["weight"] * attention).sum().backward()
        optimiser.step(weights)
        with torch.no_grad():
            weights["w"][planted] = given
        if step in kept:
            path.append({name: weights[name].detach().clone() for name in ON_PATH})
        if step % check_every and step != steps:
            continue
        weights = {name: value.detach() for name, value in weights.items()}
        run = AlignmentRun(setups, weights, history)
        pairs = [pair_cosines(run, v) for v in range(len(setups))]
        history.append(
            {
                "step": step,
                "reconstruction": recon.tolist(),
                "attention": attention.tolist(),
                "cosines": [[min(p["cos_query"], p["cos_key"]) for p in found] for found in pairs],
                "relations": [[p["relation"] for p in found] for found in pairs],
                "strengths": [pair_strengths(run, v) for v in range(len(setups))],
            }
        )
        if folder and (step % (10 * check_every) == 0 or step == steps):
            tensors = weights | {f"opt.{k}": v for k, v in optimiser.state().items()}
            tensors |= {f"path.{name}": value for name, value in _stacked(path).items()}
            record = {"step": step, "history": history, "frames": len(path)}
            folder.write_tensors(TRAINING, tensors, record)
        if progress:
            progress(step, recon.mean().item(), attention.mean().item())
    ended = {k: v.detach() for k, v in weights.items()}
    return AlignmentRun(setups, ended, history, _stacked(path), kept[: len(path)])


def _stacked(path: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    return {name: torch.stack([frame[name] for frame in path]) for name in ON_PATH} if path else {}


def config(setups: list[AlignmentSetup], steps: int, frames: int = 0) -> dict[str, Any]:
    """What a run folder was asked for."""
    return {"setups": [asdict(s) for s in setups], "steps": steps, "frames": frames}
