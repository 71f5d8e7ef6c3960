"""Controls that can fail: as much is taken away, but not this. Attention by the algebra, many draws.

Whatever leaves the query or the keys takes a row over keys from the logits, so the attention without it is one softmax,
and 999 draws cost less than one pass. Every control removes vectors that are together as long as the cause's (in head
space; on the key side over all keys that the row sees):

* ``channels``: the same writers, in channels that the cause does not use;
* ``writers``: as many other writers, heads for heads and MLPs, embedding and biases for their like; also as they are;
* ``directions``: a random direction; on the key side one rotation for all tokens.

Where there are no more sets of other writers than draws, every set is taken once: drawn again and again, a few would
look like many. The same is drawn for signals, single channels of writers, which refine the cause. p = (1 + b) /
(1 + draws), b of which leave no more attention than the cause does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb, prod

import torch
from torch import Tensor

from headwise.bases.relative import channels_needed
from headwise.randomness import keyed
from headwise.tracing.causes import attention
from headwise.tracing.search import SideSignals
from headwise.tracing.table import LogOddsTable, SideTable
from headwise.tracing.writers import WriterSet

DRAWS = 999
POOL = 128
"""Other writers, of heads and of all else, from which sets are drawn."""
SETS = 19
"""Sets of other writers that there must be for the cause to be one in twenty."""
TRIED, ONE_IN = 19, 50
"""Of the draws of each control one in fifty is tried in the model itself, for its effect on the answer, and at least
19: p can then just reach .05. Each costs a pass of what comes after the query, and 999 by the algebra cost less."""
WHOLE = "as many other writers, scaled to the same length or as they are, whichever takes more"
TEXTS = {
    "channels": "the same writers in channels that the cause does not use, scaled to the same length",
    "writers": "as many other writers, scaled to the same length",
    "directions": "a random direction of the same length",
}


@dataclass(frozen=True, eq=False)
class Control:
    """One kind of control: the attention that each draw leaves."""

    name: str
    left: Tensor
    """[draws]"""
    p: float
    tried: Tensor
    """[tried, T]: the first draws' whole rows of attention."""
    text: str
    """What is removed instead of the cause."""


@dataclass(frozen=True, eq=False)
class Taken:
    """What the cause takes away: vectors in head space, and the row over keys that leaves with them."""

    members: Tensor
    """[n]: its writers, by their places in the pool."""
    unused: Tensor
    """Channels that the cause does not use."""
    number: int
    """How many it uses."""
    vectors: Tensor
    """[places, d_head]: one place, the query, or every key (zero where the row sees none)."""
    logits: Tensor
    """[T]"""
    whole: Tensor
    """[places, d_head]: its writers with all their channels."""

    @property
    def length(self) -> Tensor:
        return self.vectors.norm()


@dataclass(frozen=True, eq=False)
class Pool:
    """Everything that could have been taken instead: N writers."""

    possible: Tensor
    """[N]: False for a writer that cannot have written."""
    heads: Tensor
    """[N]: True for a head."""
    written: Callable[[Tensor], Tensor]
    """What some of them are in head space: [n, places, d_head]."""
    logits: Callable[[Tensor], Tensor]
    """What they add to the row of logits: [n, T]."""

    @classmethod
    def of(cls, one: SideTable) -> Pool:
        """The writers of one side of a cell."""
        heads = torch.arange(len(one)) < one.up.n_carried(one.cell.head.layer)
        return cls(one.possible, heads, one.written, one.logits)


def controls(
    table: LogOddsTable, found: WriterSet | SideSignals, seed: int = 0, draws: int = DRAWS
) -> list[Control]:
    """Every control that can be drawn for a set of whole writers, or of signals."""
    one = table.side(found.side)
    whole = isinstance(found, WriterSet)
    taken = _whole(table, found) if whole else _signals(table, found)
    labels = (str(table.cell), found.side, *(() if whole else ("signals",)))
    return matched(table, one, taken, Pool.of(one), labels, seed=seed, draws=draws, whole=whole)


def matched(
    table: LogOddsTable,
    one: SideTable,
    taken: Taken,
    pool: Pool,
    labels: tuple[str, ...],
    *,
    seed: int,
    draws: int,
    whole: bool,
    rises: bool = False,
) -> list[Control]:
    """Every control that can be drawn for what is taken from one side of a cell.

    With ``rises`` the attention is to grow, and p counts the draws that leave no less of it.
    """
    drawn = {
        "channels": _channels(one, taken, seed, draws, labels),
        "writers": _writers(pool, taken, seed, draws, labels, whole=whole),
        "directions": _directions(one, taken, seed, draws, labels),
    }
    cap, key, sign = one.up.cap, table.cell.key, -1.0 if rises else 1.0
    real = sign * attention(table.logits - taken.logits, table.visible, cap)[key]
    made = []
    for name, rows in drawn.items():
        if rows is None:
            continue
        left = attention(table.logits - rows * table.visible, table.visible, cap)
        if left.ndim == 3:  # of two forms of a draw, the one that takes more
            chosen = (sign * left[..., key]).argmin(0)
            left = left[chosen, torch.arange(left.shape[1], device=left.device)]
        text = WHOLE if whole and name == "writers" else TEXTS[name]
        made.append(drawn_control(name, text, left, key, float(sign * real), rises=rises))
    return made


def drawn_control(
    name: str, text: str, rows: Tensor, key: int, real: float, *, rises: bool = False
) -> Control:
    """A control from its rows of attention [draws, T]; ``real`` is what is left of the cell."""
    sign = -1.0 if rises else 1.0
    # What differs by rounding alone does as much.
    as_much = int((sign * rows[:, key] <= sign * real + 1e-12).sum())
    return Control(name, rows[:, key], (1 + as_much) / (1 + len(rows)), rows[: tried_of(len(rows))], text)


def tried_of(draws: int) -> int:
    """How many of so many draws are tried in the model.

    >>> [tried_of(draws) for draws in (7, 999, 4999)]
    [7, 19, 99]
    """
    return min(draws, max(TRIED, draws // ONE_IN))


def _whole(table: LogOddsTable, found: WriterSet) -> Taken:
    """Whole writers. The channels that they use are those that rebuild their part of the log-odds."""
    one = table.side(found.side)
    members = torch.tensor([one.row_of(member) for member in found.members], device=table.logits.device)
    vectors = one.written(members).sum(0)
    return used_by(one.cells(members).sum(0), members, vectors, one.logits(members).sum(0))


def used_by(parts: Tensor, members: Tensor, vectors: Tensor, logits: Tensor) -> Taken:
    """Whole writers that use the channels which rebuild their ``parts`` [K] of the log-odds."""
    needed = int(channels_needed(parts))
    unused = parts.abs().argsort(descending=True)[needed:]
    return Taken(members, unused, needed, vectors, logits, vectors)


def _signals(table: LogOddsTable, found: SideSignals) -> Taken:
    """Some channels of some writers, and nothing else of them."""
    one, signals = table.side(found.side), [removed.signal for removed in found.by_writer()]
    members = torch.tensor([one.row_of(signal.writer) for signal in signals], device=table.logits.device)
    picked = torch.zeros(len(signals), len(one.columns), dtype=torch.float64, device=members.device)
    for row, signal in zip(picked, signals, strict=True):
        row[list(signal.channels)] = 1.0
    vectors = one.within(members, picked)
    used = picked.any(0)
    logits = one.by_channel(vectors)[0].sum(0) * table.visible
    unused = (~used).nonzero()[:, 0]
    return Taken(members, unused, int(used.sum()), vectors, logits, one.written(members).sum(0))


def _channels(one: SideTable, taken: Taken, seed: int, draws: int, labels: tuple[str, ...]) -> Tensor | None:
    """Rows [draws, T]: what the cause's writers wrote into as many channels as it uses, of those it does not use."""
    unused = taken.unused
    if len(unused) < 2:
        return None
    rows, lengths = one.by_channel(taken.whole)
    atoms, gram = rows[unused], lengths[unused][:, unused]
    uniform = _uniform(draws, len(unused), seed, "channels", *labels)
    picked = _subsets(uniform, min(taken.number, len(unused) - 1)).to(rows.device)
    return _scaled(picked, atoms, gram, taken.length)


def _writers(
    pool: Pool, taken: Taken, seed: int, draws: int, labels: tuple[str, ...], *, whole: bool
) -> Tensor | None:
    """Rows [draws, T]: other whole writers, each instead of one of its own kind; None where there are too few.

    For a cause of ``whole`` writers in two forms [2, draws, T], scaled and as they are: large writers say more per
    length than small ones that are scaled up. Where there are no more sets than draws, there is a row for each of them.
    """
    members = taken.members
    generator = keyed(seed, "writers", *labels)
    others = pool.possible.clone()
    others[members] = False
    heads = pool.heads.cpu()
    kinds = Counter(heads[members.cpu()].tolist())
    chosen = []
    for head, number in kinds.items():
        like = (others.cpu() & (heads == head)).nonzero()[:, 0]
        like = like[torch.randperm(len(like), generator=generator)[:POOL]].to(members.device)
        # A head that could not see the token has written nothing, and nothing cannot be scaled.
        like = like[pool.written(like).flatten(1).any(1)]
        if len(like) <= number:
            return None
        chosen.append(like)
    sizes = [(len(like), number) for like, number in zip(chosen, kinds.values(), strict=True)]
    sets = prod(comb(size, number) for size, number in sizes)
    if sets < SETS:
        return None
    if sets <= draws:
        # In random order, for the first of them are those that are tried in the model.
        picked = _every(sizes)[torch.randperm(sets, generator=keyed(seed, "every set", *labels))]
    else:
        order = [
            _subsets(_uniform(draws, size, seed, "writers", *labels, bool(head)), number)
            for head, (size, number) in zip(kinds, sizes, strict=True)
        ]
        picked = torch.cat(order, 1)
    atoms, picked = torch.cat(chosen), picked.to(members.device)
    written, rows = pool.written(atoms).flatten(1), pool.logits(atoms)
    scaled = _scaled(picked, rows, written @ written.mT, taken.length)
    return torch.stack((scaled, picked @ rows)) if whole else scaled


def _directions(one: SideTable, taken: Taken, seed: int, draws: int, labels: tuple[str, ...]) -> Tensor:
    """Rows [draws, T]: on the key side turning all keys' vectors by one rotation is turning the query back by it."""
    up, (head, d, _), layer = one.up, one.cell, one.cell.head.layer
    uniform = _uniform(draws, taken.vectors.shape[-1], seed, "directions", *labels)
    random = torch.special.ndtri(uniform.clamp(1e-12, 1 - 1e-12))  # normal: no direction is preferred
    random = (random / random.norm(dim=1, keepdim=True)).to(taken.vectors.device)
    scale = float(up.scale[layer])
    if one.side == "query":
        return scale * taken.length * random @ up.k[layer, head.index // up.group].double().mT
    return scale * up.q[layer, head.index, d].double().norm() * random @ taken.vectors.mT


def _uniform(draws: int, size: int, seed: int, *labels: object) -> Tensor:
    """[draws, size]: random numbers; a draw is the same however many there are."""
    return torch.rand(draws, size, generator=keyed(seed, *labels), dtype=torch.float64)


def _subsets(uniform: Tensor, number: int) -> Tensor:
    """[draws, size]: 1 for ``number`` random members of each draw."""
    return torch.zeros_like(uniform).scatter_(1, uniform.topk(number, 1, largest=False).indices, 1.0)


def _every(sizes: Sequence[tuple[int, int]]) -> Tensor:
    """[sets, all sizes]: 1 for the members of every set that takes a number of each of some kinds, by size and number.

    >>> _every([(3, 2)]).tolist()
    [[1.0, 1.0, 0.0], [1.0, 0.0, 1.0], [0.0, 1.0, 1.0]]
    >>> _every([(3, 2), (2, 1)]).shape
    torch.Size([6, 5])
    """
    made = torch.zeros(1, 0, dtype=torch.float64)
    for size, number in sizes:
        some = torch.tensor(list(combinations(range(size), number)))
        own = torch.zeros(len(some), size, dtype=torch.float64).scatter_(1, some, 1.0)
        made = torch.cat((made.repeat_interleave(len(own), 0), own.repeat(len(made), 1)), 1)
    return made


def _scaled(picked: Tensor, rows: Tensor, gram: Tensor, length: Tensor) -> Tensor:
    """Sums of some rows [atoms, T], as ``picked`` [draws, atoms] says, scaled so that the sums of the vectors behind
    them, whose products are ``gram``, have the given length."""
    own = ((picked @ gram) * picked).sum(1).clamp(min=0).sqrt()
    factor = torch.where(own > 1e-9 * length, length / own, torch.zeros_like(own))
    return factor[:, None] * (picked @ rows)
