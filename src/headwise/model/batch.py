"""Prompts of different lengths as one tensor, and positions that always count from the prompt's own first token."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor

from headwise.arguments import count
from headwise.errors import HeadwiseError
from headwise.strings import in_short, whole

if TYPE_CHECKING:
    from headwise.model.attend import AttentionCall
    from headwise.model.model import Model

Positions = None | int | Sequence[int] | Sequence[Sequence[int]]
Padding = Literal["right", "left"]


@dataclass(frozen=True, eq=False)
class Batch:
    """Prompts of different lengths as one padded tensor.

    ``ids`` is [prompts, columns]; prompt i occupies columns ``starts[i]`` to ``starts[i] + lengths[i] - 1``.
    Everything outside this module speaks of *positions* inside a prompt; only columns know about padding.
    """

    ids: Tensor
    starts: Tensor
    lengths: Tensor
    counts_from: int = 0
    """What the model is told of every prompt's first position (:func:`checked_start`)."""

    @classmethod
    def of(
        cls, token_ids: Sequence[Sequence[int]], padding: Padding = "right", counts_from: int = 0
    ) -> Batch:
        if padding not in ("right", "left"):
            raise HeadwiseError(f"padding {padding!r} is not a side: write 'right' or 'left'")
        lengths = torch.tensor([len(ids) for ids in token_ids])
        columns = int(lengths.max())
        # A pad repeats the prompt's own last token: no tokenizer needs a pad token, and no model mistakes it for one.
        rows = []
        for ids in token_ids:
            pad = [ids[-1]] * (columns - len(ids))
            rows.append([*ids, *pad] if padding == "right" else [*pad, *ids])
        starts = torch.zeros_like(lengths) if padding == "right" else columns - lengths
        return cls(torch.tensor(rows), starts, lengths, counts_from)

    def __len__(self) -> int:
        return self.ids.shape[0]

    def span(self, prompt: int) -> slice:
        """The columns of one prompt, without its padding."""
        start = int(self.starts[prompt])
        return slice(start, start + int(self.lengths[prompt]))

    def token_ids(self, prompt: int) -> list[int]:
        """The tokens of one prompt, without its padding.

        >>> batch = Batch.of([[5, 6, 7], [8]], padding="left")
        >>> batch.ids.tolist(), batch.span(1), batch.token_ids(1)
        ([[5, 6, 7], [8, 8, 8]], slice(2, 3, None), [8])
        """
        return self.ids[prompt, self.span(prompt)].tolist()

    def column(self, prompt: int, position: int) -> int:
        """The column of a position, which is not negative."""
        return int(self.starts[prompt]) + position

    @property
    def is_left_padded(self) -> bool:
        return bool((self.starts > 0).any())

    @property
    def is_one_prompt(self) -> bool:
        """Whether all prompts are copies of one."""
        return bool((self.ids == self.ids[:1]).all()) and bool((self.lengths == self.lengths[0]).all())

    def model_inputs(self, device: torch.device | str) -> dict[str, Tensor | None]:
        """Arguments of the forward pass.

        A pad to the right of a causal prompt can be nobody's key, so right padding needs no mask and keeps the
        fastest attention kernel; left padding needs a mask. Without position ids the model counts columns from zero.

        >>> Batch.of([[5, 6, 7], [8]], "left", counts_from=20).model_inputs("cpu")["position_ids"].tolist()
        [[20, 21, 22], [20, 20, 20]]
        """
        ids = self.ids.to(device)
        columns = torch.arange(ids.shape[1])
        mask = position_ids = None
        if self.is_left_padded:
            mask = (columns >= self.starts[:, None]).long().to(device)
        if self.is_left_padded or self.counts_from:
            position_ids = (columns - self.starts[:, None]).clamp(min=0) + self.counts_from
            position_ids = position_ids.to(device)
        return {"input_ids": ids, "attention_mask": mask, "position_ids": position_ids}

    def columns_of(self, positions: Tensor) -> Tensor:
        """Columns of positions [prompts, n]; absent positions (−1) map to the prompt's first column."""
        return positions.clamp(min=0) + self.starts[:, None]


# --- edited copies of one prompt --------------------------------------------------------------------------------------

Inputs = tuple[tuple, dict[str, Any]]
"""What a layer was called with beside the stream: positional arguments, and those by name."""


@dataclass(frozen=True, eq=False)
class CleanPass:
    """A prompt's recorded pass without edits, by layer: its edited copies compute nothing below the first edit, nor
    before it."""

    streams: Sequence[Tensor]
    """[1, T, d_model] before each layer."""
    calls: Sequence[AttentionCall]
    inputs: Sequence[Inputs]

    def of_prompt(self, prompt: int, columns: slice) -> CleanPass:
        """Of the pass of a batch, what belongs to one prompt."""
        one = slice(prompt, prompt + 1)

        def cut(given: Any) -> Any:
            """A mask, rotations or position ids, of this prompt and its columns."""
            if isinstance(given, tuple):
                return tuple(map(cut, given))
            if hasattr(given, "of_prompt"):  # a long prompt's mask, which is a rule
                return given.of_prompt(prompt, columns)
            if not isinstance(given, Tensor):
                return given
            given = given[one] if given.ndim > 1 and len(given) > 1 else given
            places = {4: (..., columns, columns), 3: (slice(None), columns)}
            return given[places.get(given.ndim, (..., columns))]

        calls = [call.of_prompt(prompt) for call in self.calls]
        return CleanPass(
            [stream[one, columns] for stream in self.streams],
            [
                replace(
                    c, query=c.query[:, :, columns], key=c.key[:, :, columns], value=c.value[:, :, columns]
                )
                for c in calls
            ],
            [
                (cut(args), {name: cut(given) for name, given in kwargs.items()})
                for args, kwargs in self.inputs
            ],
        )


@dataclass(frozen=True)
class Packing:
    """Many edited copies of one prompt as one sequence: what no edit can reach is there once.

    An edit at position d changes nothing before d, and nothing below its layer. So the copies share the clean prompt
    below the first edited layer, and from there on its positions before d:

        clean prompt 0 … d−1 │ copy 0: d … T−1 │ copy 1: d … T−1 │ …

    Where the clean pass is at hand the prefix is left out, too: its keys and values are those of that pass. Every
    position keeps its own rotation, and a copy sees the shared prefix and itself alone. Layers that somebody edits or
    looks at are unpacked into whole prompts for that moment; all others never are.
    """

    copies: int
    length: int
    """Tokens of the prompt."""
    start: int
    """The first position that an edit can reach: earlier ones are there once for all copies."""
    below: int
    """The first layer whose stream is packed: the layers below it run once, on the one prompt."""
    touched: frozenset[int]
    """Layers whose attention somebody edits or looks at."""
    clean: CleanPass | None = None

    @property
    def width(self) -> int:
        """Positions of each copy."""
        return self.length - self.start

    @property
    def prefix(self) -> int:
        """Columns before those of the copies."""
        return self.start if self.clean is None else 0

    @cached_property
    def positions(self) -> Tensor:
        """[columns]: the position of the prompt that each column holds."""
        return torch.cat(
            (torch.arange(self.prefix), torch.arange(self.start, self.length).repeat(self.copies))
        )

    def columns(self, copies: Tensor, positions: Tensor) -> Tensor:
        """The column that holds a position of a copy."""
        own = positions - self.start + self.prefix + copies * self.width
        return torch.where(positions < self.start, positions, own)

    def enter(self, _module: Any, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
        """Hook of the first packed layer: the one prompt's stream becomes that of all its copies."""
        if args:
            return (self._spread(args[0], 1), *args[1:]), kwargs
        return args, {**kwargs, "hidden_states": self._spread(kwargs["hidden_states"], 1)}

    def place(self, _module: Any, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
        """Hook of every packed layer: rotations and position ids of the columns; masks stay those of the prompt."""
        placed = dict(kwargs)
        if kwargs.get("position_embeddings") is not None:
            placed["position_embeddings"] = tuple(
                self._spread(one, 1) for one in kwargs["position_embeddings"]
            )
        if kwargs.get("position_ids") is not None:
            placed["position_ids"] = self._spread(kwargs["position_ids"], -1)
        return args, placed

    def _spread(self, tensor: Tensor, axis: int) -> Tensor:
        return tensor.index_select(axis, self.positions.to(tensor.device))

    def go_on(self, layers: Sequence[Callable[..., Any]], dtype: torch.dtype) -> Tensor:
        """Run the copies from the recorded stream before their first layer up, and give what the last layer left."""
        assert self.clean is not None
        hidden = self._spread(self.clean.streams[self.below], 1).to(dtype)
        for layer in range(self.below, len(layers)):
            args, kwargs = self.clean.inputs[layer]
            output = layers[layer](hidden, *args, **kwargs)
            hidden = output[0] if isinstance(output, tuple) else output
        return hidden

    def before(self, call: AttentionCall) -> AttentionCall:
        """Queries, keys and values of the shared prefix: [1, heads, start, d_head]."""
        source = call if self.clean is None else self.clean.calls[call.layer]
        query, key, value = (
            x[:, :, : self.start].to(call.query) for x in (source.query, source.key, source.value)
        )
        mask: Any = call.mask
        if isinstance(mask, Tensor):
            mask = mask[..., : self.start, : self.start]
        elif mask is not None:
            mask = mask.of_prompt(0, slice(self.start))
        return replace(call, query=query, key=key, value=value, mask=mask)

    def own(self, vectors: Tensor) -> Tensor:
        """Of vectors [1, heads, columns, d_head], those of the copies: [heads, copies, width, d_head]."""
        return vectors[0, :, self.prefix :].unflatten(1, (self.copies, self.width))

    def unpacked(self, call: AttentionCall) -> AttentionCall:
        """The call as if every copy were a whole prompt: [copies, heads, positions, d_head]."""
        shared = self.before(call)

        def whole(before: Tensor, vectors: Tensor) -> Tensor:
            own = self.own(vectors).transpose(0, 1)
            return own if self.start == 0 else torch.cat((before.expand(self.copies, -1, -1, -1), own), 2)

        return replace(
            call,
            query=whole(shared.query, call.query),
            key=whole(shared.key, call.key),
            value=whole(shared.value, call.value),
        )

    def packed(self, output: Tensor, before: Callable[[], Tensor]) -> Tensor:
        """Attention outputs of the copies [copies, width, heads, d_head] as those of the columns; ``before`` gives
        those of the shared prefix [1, start, heads, d_head], where it is among them."""
        own = output.flatten(0, 1)[None]
        return own if self.prefix == 0 else torch.cat((before(), own), 1)


# --- positions --------------------------------------------------------------------------------------------------------


def checked_start(model: Model, start: Any, lengths: Sequence[int]) -> int:
    """The position at which prompts of these lengths begin, or one line why they cannot begin there.

    RoPE sees differences of positions alone, so a prompt with the position ids start, start + 1, … and nothing before
    it is the same computation up to rounding. It is another one where positions are learned, or where the rotations
    themselves depend on how far the positions reach.
    """
    start = count(start, "start", "is before the first position", least=0)
    if start == 0:
        return 0
    if model.family.learned_positions:
        raise HeadwiseError(
            f"start={start} cannot be used with {model.name!r}: {model.family.name} models learn each position by "
            "itself, so another start is another prompt; leave it out"
        )
    for kind, switch, beyond in _switches(model.anatomy.config):
        # beyond its switch longrope has one other table, but dynamic scaling has one for every length
        crossing = next((n for n in lengths if start + n > switch and (beyond or n <= switch)), None)
        if crossing is not None:
            raise HeadwiseError(
                f"start={start} and {crossing} tokens cross position {switch}, where {kind} scaling changes the "
                f"rotations of {model.name!r}: {_room(switch, crossing)}"
            )
    longest = max(lengths, default=0)
    if model.context is not None and start + longest > model.context:
        raise HeadwiseError(
            f"start={start} and {longest} tokens pass the model's context of {model.context}: "
            f"{_room(model.context, longest)}"
        )
    return start


def _room(limit: int, length: int) -> str:
    return f"give a start of at most {limit - length}" if length < limit else "leave the start out"


def _switches(config: Any) -> Iterator[tuple[str, int, bool]]:
    """Kinds of scaling whose table depends on the length, where each changes, and whether it changes on and on."""
    given: dict[str, Any] = getattr(config, "rope_parameters", None) or {}
    # one set of parameters, or one per kind of layer
    for one in [given] if "rope_type" in given else given.values():
        if one["rope_type"] == "dynamic":
            yield "dynamic", config.max_position_embeddings, True
        elif one["rope_type"] == "longrope":
            yield "longrope", one["original_max_position_embeddings"], False


def resolve_positions(positions: Positions, lengths: Sequence[int], what: str) -> list[list[int]]:
    """Positions asked for, as non-negative positions per prompt.

    ``None`` means all; one int or a flat list applies to every prompt (negative counts from each prompt's end);
    a list of lists gives each prompt its own.

    >>> resolve_positions(-1, [3, 5], "query"), resolve_positions([[0], [1, -1]], [3, 5], "key")
    ([[2], [4]], [[0], [1, 4]])
    >>> resolve_positions(4, [3], "query")
    Traceback (most recent call last):
    ...
    headwise.errors.HeadwiseError: query position 4 is outside prompt 0, which has 3 tokens (0 to 2, or -3 to -1)
    """
    if positions is None:
        return [list(range(length)) for length in lengths]
    given: Any = positions.tolist() if isinstance(positions, Tensor | np.ndarray) else positions
    if whole(given) is not None:
        given = [given]
    if isinstance(given, str | bytes) or not isinstance(given, Sequence):
        raise HeadwiseError(f"{what} positions {in_short(positions)} are not whole numbers or lists of them")
    per_prompt = len(given) > 0 and isinstance(given[0], Sequence)
    if per_prompt and len(given) != len(lengths):
        raise HeadwiseError(f"{len(given)} lists of {what} positions were given for {len(lengths)} prompts")
    return [
        [_position(one, length, what, number) for one in (given[number] if per_prompt else given)]
        for number, length in enumerate(lengths)
    ]


def _position(given: Any, length: int, what: str, number: int) -> int:
    position = whole(given)
    if position is None:
        raise HeadwiseError(f"{what} position {in_short(given)} is not a whole number")
    if not -length <= position < length:
        raise HeadwiseError(
            f"{what} position {in_short(given)} is outside prompt {number}, which has {length} tokens "
            f"(0 to {length - 1}, or {-length} to -1)"
        )
    return position % length


def pad_positions(rows: Sequence[Sequence[int]]) -> Tensor:
    """Ragged positions as one tensor [prompts, n], absent ones marked −1.

    >>> pad_positions([[2], [1, 4]]).tolist()
    [[2, -1], [1, 4]]
    """
    width = max((len(row) for row in rows), default=0)
    return torch.tensor([[*row, *[-1] * (width - len(row))] for row in rows], dtype=torch.long).reshape(
        len(rows), width
    )


def by_length(token_ids: Sequence[Sequence[int]], batch_size: int, max_tokens: int) -> Iterator[list[int]]:
    """Indices of prompts in batches of similar length, so that little is spent on padding.

    >>> list(by_length([[1] * 9, [1], [1] * 8, [1, 2]], batch_size=2, max_tokens=100))
    [[1, 3], [2, 0]]
    """
    order = sorted(range(len(token_ids)), key=lambda i: len(token_ids[i]))
    batch: list[int] = []
    for index in order:
        columns = len(token_ids[index])
        if batch and (len(batch) == batch_size or (len(batch) + 1) * columns > max_tokens):
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch
