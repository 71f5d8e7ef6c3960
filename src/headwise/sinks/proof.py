"""Take control signals away and see whether the attention leaves the sink.

One by one: each firing without its own signals, predicted and in the really edited pass, beside unused channels. All at
once: one direction projected out of everything that a group of heads reads, in one pass, beside random directions of
the same size; then also the model's loss on the text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from headwise.bases.basis import directions
from headwise.bases.singular import one_thread
from headwise.circuits.counterfactual import Case, Removal, Trial, edited_attention, mean
from headwise.claims import claim, claims, sign_flips
from headwise.intervals import estimate
from headwise.model.edits import Edit, VectorEdit
from headwise.model.reading import Rotary
from headwise.model.stream import split
from headwise.progress import Tick
from headwise.randomness import keyed
from headwise.scale.stages import Stages, ValuesJob
from headwise.scale.work import Chunk, cut
from headwise.sinks.find import MAX_TOKENS, Parking, on_columns
from headwise.sinks.signals import Parked, head_space, sink_bases
from headwise.tracing.writes import PromptWrites
from headwise.types import Cell, Claim, Estimate, Head, Side

if TYPE_CHECKING:
    from headwise.model.model import Model

RANDOM = "random directions of the same size, signs of prompts flipped"
ALL = "all removals at once of this run"
FLIPS = 9999
"""Sign flips per removal, where the prompts are too many for all of them."""


# --- one by one ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Freed:
    """One firing without the control signals of one side."""

    prompt: int
    """The prompt, by number."""
    cell: Cell
    """The firing."""
    side: Side
    """The side whose signals leave."""
    removed: int
    """How many signals these are."""
    attention: float
    """Attention on the sink, untouched."""
    predicted: float
    """The same without the signals, by arithmetic."""
    edited: float
    """The same in the edited forward pass."""
    control: float
    """Mean attention left when as many signals of unused channels leave instead (edited passes)."""
    next_key: int
    """The token that had most attention after the sink."""
    next_gain: float
    """What it gained."""
    gainer: int
    """The token that gained most."""
    gain: float
    """What that token gained."""
    own_gain: float
    """What the query's own token gained."""


def free_one_by_one(
    model: Model,
    parking: Parking,
    traced: Sequence[Parked],
    prompts: Sequence[int],
    *,
    draws: int = 2,
    seed: int = 0,
    work: Stages | None = None,
) -> list[Freed]:
    """Remove each traced firing's signals, side by side, in every traced firing of some prompts."""
    items = [(parking.token_ids[i], [one for one in traced if one.prompt == i]) for i in prompts]
    run = work or Stages.here(model)
    return [one for part in run("removal", _FreeJob(draws, seed), cut(items, 1)) for one in part]


@dataclass(frozen=True)
class _FreeJob(ValuesJob):
    """Removes the signals of firings that were traced in prompts, given as token ids."""

    kind: ClassVar = Freed
    draws: int
    seed: int

    def make(self, model: Model, chunk: Chunk[tuple[list[int], list[Parked]]], tick: Tick, /) -> list[Freed]:
        made: list[Freed] = []
        for token_ids, firings in chunk.items:
            with torch.no_grad(), one_thread():
                up = PromptWrites(split(model, token_ids), 0, sink_bases(model))
                trials = [
                    Trial.of(up, one.cell, one.signals, draws=self.draws, seed=self.seed, together=False)
                    for one in firings
                ]
                removals = [one for trial in trials for one in trial.removals]
                edited = iter(edited_attention(model, token_ids, removals))
                for firing, trial in zip(firings, trials, strict=True):
                    for case in trial.cases:
                        seen = [next(edited) for _ in range(1 + len(case.controls))]
                        made.append(_freed(up, firing.prompt, case, seen[0], mean(seen[1:])))
        return made


def _freed(up: PromptWrites, prompt: int, case: Case, edited: float, control: float) -> Freed:
    cell = case.removal.cell
    before, after = Removal(cell).row(up), case.removal.row(up)
    change, rest = after - before, before.clone()
    rest[cell.key] = -1.0
    follower, gainer = int(rest.argmax()), int(change.argmax())
    return Freed(
        prompt=prompt,
        cell=cell,
        side="query" if case.sides == "query" else "key",
        removed=case.removed,
        attention=float(before[cell.key]),
        predicted=float(after[cell.key]),
        edited=edited,
        control=control,
        next_key=follower,
        next_gain=float(change[follower]),
        gainer=gainer,
        gain=float(change[gainer]),
        own_gain=float(change[cell.query]),
    )


# --- all at once -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, kw_only=True)
class ProjectOut(VectorEdit):
    """Take a direction of the stream out of what a head reads: v_t ← v_t − left_t ⟨right_t, v_t⟩ at every position.

    ``left`` and ``right`` [positions, d_head] are the direction as the head reads it and the functional that measures
    it, both rotated to each position.
    """

    left: Tensor
    right: Tensor

    def apply(self, vectors: Tensor) -> Tensor:
        n = len(vectors)
        left, right = (x[:n].to(vectors) for x in (self.left, self.right))
        return vectors - left * (right * vectors).sum(-1, keepdim=True)


@dataclass(frozen=True)
class Shared:
    """One direction taken out of the reads of many heads in one pass."""

    side: Side
    """``query`` or ``key``."""
    name: str
    """The writer whose mean write it is, or ``largest cluster``."""
    heads: tuple[Head, ...]
    """The heads from whose reads it is taken."""
    prompts: int
    """In how many prompts."""
    attention: float
    """On sinks, mean over heads and prompts, untouched."""
    removed: Estimate
    """The same without the direction, over prompts."""
    control: float
    """The same with a random direction of the same size in each head's reads (mean over draws)."""
    freed: Estimate
    """How much more attention random directions leave, over prompts."""
    loss: float
    """Next-token loss in nats, untouched."""
    loss_change: Estimate
    """Change of the loss without the direction."""
    control_loss_change: float
    """The same with random directions."""
    claim: Claim
    """Whether it frees more attention than random directions do: signs of prompts flipped, all removals together."""


@dataclass(frozen=True, eq=False)
class Plan:
    """A direction of the stream (unit, [d_model]) that is to leave the reads of some heads on one side."""

    side: Side
    name: str
    heads: tuple[Head, ...]
    direction: Tensor


def free_all_at_once(
    model: Model,
    parking: Parking,
    plans: Sequence[Plan],
    *,
    draws: int = 3,
    seed: int = 0,
    work: Stages | None = None,
) -> list[Shared]:
    """Project each plan's direction out of what its heads read, everywhere in each prompt of ``parking``."""
    run = work or Stages.here(model)
    parts = run("shared removal", _AtOnceJob(parking, draws, seed), cut(plans, 1))
    made = [one for part in parts for one in part]
    alone = [one.claim for one in made]
    # Every removal was tested in the same prompts, and so by as many flips.
    together = claims(
        [c.p for c in alone], null=RANDOM, draws=max([c.draws for c in alone], default=0), group=ALL
    )
    return [replace(one, claim=claim) for one, claim in zip(made, together, strict=True)]


@dataclass(frozen=True, eq=False)
class _AtOnceJob(ValuesJob):
    kind: ClassVar = Shared
    parking: Parking
    draws: int
    seed: int

    def make(self, model: Model, chunk: Chunk[Plan], tick: Tick, /) -> list[Shared]:
        with one_thread():
            return [_shared(model, self.parking, plan, self.draws, self.seed) for plan in chunk.items]


def _shared(model: Model, parking: Parking, plan: Plan, draws: int, seed: int) -> Shared:
    side, name, heads = plan.side, plan.name, plan.heads
    longest = max(len(ids) for ids in parking.token_ids)
    rotations = _rotations(model, heads, longest)
    chosen = [projection(model, head, side, plan.direction, rotations[head.layer], longest) for head in heads]
    clean = _run(model, parking, heads, ())
    removed = _run(model, parking, heads, chosen)
    controls = []
    for draw in range(draws):
        turned = [_elsewhere(e, rotations[e.head.layer], seed, side, name, str(e.head), draw) for e in chosen]
        controls.append(_run(model, parking, heads, turned))
    random = torch.stack([c[0] for c in controls]).mean(0)
    known, shared = ~(random - removed[0]).isnan(), parking.cluster_of(range(len(random)))
    p, flips = sign_flips(
        (random - removed[0])[known],
        shared[known],
        draws=FLIPS,
        generator=keyed(seed, "shared flips", side, name),
    )
    after = estimate(removed[0], seed, "shared", side, name, clusters=shared)
    change = estimate(removed[1] - clean[1], seed, "shared loss", side, name, clusters=shared)
    return Shared(
        side=side,
        name=name,
        heads=heads,
        prompts=len(parking.token_ids),
        attention=float(clean[0].nanmean()),
        removed=after,
        control=float(torch.stack([c[0] for c in controls]).nanmean()),
        freed=estimate(random - removed[0], seed, "shared freed", side, name, clusters=shared),
        loss=float(clean[1].mean()),
        loss_change=change,
        control_loss_change=float(torch.stack([c[1] - clean[1] for c in controls]).mean()),
        claim=claim(p, null=RANDOM, draws=flips),
    )


def projection(
    model: Model, head: Head, side: Side, direction: Tensor, rotary: Rotary | None, tokens: int
) -> ProjectOut:
    """The edit that takes the head's part of a stream direction out of its reads.

    A head sees only its d_head directions of the stream; its part of the direction is made unit again, so that
    afterwards the head reads nothing of it.
    """
    bases = sink_bases(model)
    basis = bases.head(head)
    read = directions(model, head, basis, side)
    part = torch.nn.functional.normalize(read.mT @ direction.double(), dim=0)
    left = head_space(bases.layer(head.layer), head.index, side, part)
    if side == "query":
        right = basis.query_map @ (part * (basis.energies > 0) / basis.query_units)
    else:
        right = basis.key_map.mT @ part
    left, right = (x.expand(tokens, -1) for x in (left, right))
    if rotary is not None:
        # ⟨right, R⁻¹v⟩ = ⟨R⁻ᵀ right, v⟩; R scales by c² where a model scales its rotation, so R⁻ᵀ = R / c².
        left, right = rotary.turn(left[None, None])[0, 0], rotary.inverse_transposed(right[None, None])[0, 0]
    return ProjectOut(head=head, side=side, left=left, right=right)


def _elsewhere(edit: ProjectOut, rotary: Rotary | None, seed: int, *labels: object) -> ProjectOut:
    """The control: the same amounts, taken along one random direction of the head's space."""
    size = edit.left.norm(dim=-1, keepdim=True)
    drawn = torch.randn(edit.left.shape[-1], generator=keyed(seed, "elsewhere", *labels), dtype=torch.float64)
    left = torch.nn.functional.normalize(drawn, dim=0).expand(len(edit.left), -1)
    if rotary is not None:
        left = rotary.turn(left[None, None])[0, 0]
    left = torch.nn.functional.normalize(left, dim=-1) * size
    return ProjectOut(head=edit.head, side=edit.side, left=left, right=edit.right)


def _rotations(model: Model, heads: Sequence[Head], tokens: int) -> dict[int, Rotary | None]:
    """Each layer's rotation at positions 0 to ``tokens`` − 1; it does not depend on what the tokens are."""
    with torch.no_grad():
        stream = split(model, [0] * tokens)
    made: dict[int, Rotary | None] = {}
    for layer in {head.layer for head in heads}:
        rotary = stream.layers[layer].rotary
        made[layer] = (
            None if rotary is None else Rotary(*(x[:1].double().cpu() for x in (rotary.cos, rotary.sin)))
        )
    return made


def _run(
    model: Model, parking: Parking, heads: Sequence[Head], edits: Sequence[Edit]
) -> tuple[Tensor, Tensor]:
    """Mean attention of the heads on sinks, and next-token loss, of each prompt."""
    token_ids = parking.token_ids
    attention = torch.full((len(token_ids),), float("nan"), dtype=torch.float64)
    loss = torch.zeros(len(token_ids), dtype=torch.float64)
    for indices, got in model.stream_capture(
        token_ids,
        heads=heads,
        keys=[list(sinks) for sinks in parking.sinks],
        want=("pattern",),
        logits=None,
        edits=edits,
        batch_size=8,
        max_tokens=min(MAX_TOKENS, 256),
    ):
        for place, i in enumerate(indices):
            t = len(token_ids[i])
            sinks = parking.sinks[i]
            some = (slice(None), slice(t), slice(len(sinks)))
            attention[i] = on_columns(got.pattern[place][some], got.visible[place][some], sinks).nanmean()
            target = torch.tensor(token_ids[i][1:], device=got.logits.device)
            loss[i] = torch.nn.functional.cross_entropy(got.logits[place, : t - 1].double(), target)
    return attention, loss
