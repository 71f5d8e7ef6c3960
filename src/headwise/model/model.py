"""The model as the other rooms see it: heads, positions, captures, edits and splits."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import torch

from headwise.errors import HeadwiseError, WrongField
from headwise.model import capture as _capture
from headwise.model.anatomy import Anatomy, is_packed, read_weight, runs_on
from headwise.model.architectures import Architecture, architecture_of
from headwise.model.batch import Padding, Positions
from headwise.model.capture import MAX_TOKENS, Captured, Request, Wanted
from headwise.model.edits import Edit
from headwise.model.loading.half import refuse_if_deadly
from headwise.strings import shortened
from headwise.tokens import NoTokenizer, Prompt, encode, encode_one, shown
from headwise.types import Head, HeadLike, head_list

if TYPE_CHECKING:
    from headwise.model.stream import Stream


class Model:
    """A transformers model whose attention can be captured, edited and split exactly.

    ``hf`` is the untouched transformers model and ``tokenizer`` its tokenizer (without one, prompts are token ids);
    nothing is registered on or hooked
    into ``hf`` between calls.
    """

    def __init__(self, hf: Any, tokenizer: Any = None, *, name: str = "model") -> None:
        refuse_if_deadly(str(hf.dtype), runs_on(hf.get_input_embeddings()).type)
        self.hf = hf
        self.tokenizer: Any = NoTokenizer() if tokenizer is None else tokenizer
        self.name = name
        self.family: Architecture = architecture_of(hf.config.get_text_config())
        self.anatomy = Anatomy(hf, self.family)
        self.lock = threading.RLock()
        self.origin: dict[str, Any] | None = None
        """What :func:`headwise.load` was given, so that another process can load the same; None if made by hand."""

    # --- what it is -------------------------------------------------------------------------------------------

    @property
    def n_layers(self) -> int:
        """Number of layers."""
        return self.anatomy.n_layers

    @property
    def n_heads(self) -> int:
        """Query heads per layer."""
        return self.anatomy.n_heads

    @property
    def n_kv_heads(self) -> int:
        """Key and value heads per layer."""
        return self.anatomy.n_kv_heads

    @property
    def d_head(self) -> int:
        """Dimensions of one head's queries and keys."""
        return self.anatomy.d_head

    @property
    def d_model(self) -> int:
        """Dimensions of the residual stream."""
        return self.anatomy.d_model

    @property
    def context(self) -> int | None:
        """The longest prompt in tokens, or None where there is no limit."""
        return self.anatomy.context

    @property
    def dtype(self) -> torch.dtype:
        """The precision of the weights."""
        return self.hf.dtype

    @cached_property
    def rounds_to(self) -> torch.dtype:
        """The precision of its arithmetic: that of the weights, or bfloat16 where they are packed in four or eight
        bits, whose products round as much."""
        return torch.bfloat16 if is_packed(self.hf) else self.dtype

    @property
    def device(self) -> torch.device:
        """Where inputs go: the device of the embedding."""
        return runs_on(self.anatomy.embedding)

    @property
    def result_device(self) -> torch.device:
        """Where results live: the model's device, or the CPU where the model is spread over several."""
        return self.anatomy.place

    @property
    def heads(self) -> tuple[Head, ...]:
        """Every head, layer by layer."""
        return tuple(Head(layer, index) for layer in range(self.n_layers) for index in range(self.n_heads))

    def head(self, head: HeadLike) -> Head:
        """Parse a head and check that the model has it."""
        wanted = Head.parse(head)
        if not (0 <= wanted.layer < self.n_layers and 0 <= wanted.index < self.n_heads):
            last = Head(self.n_layers - 1, self.n_heads - 1)
            raise WrongField(
                f"{wanted} does not exist: {self.name} has {self.n_layers} layers of {self.n_heads} heads, "
                f"L0H0 to {last}",
                "head",
            )
        return wanted

    def heads_named(self, heads: str | HeadLike | Iterable[HeadLike]) -> list[Head]:
        """The heads that a user lists, each once: ``"L18H6,L20H3"``, one head, or several."""
        parts = heads.split(",") if isinstance(heads, str) else head_list(heads)
        found = list(dict.fromkeys(self.head(part) for part in parts))
        if not found:
            raise HeadwiseError("no heads were named: give at least one, such as L18H6,L20H3")
        return found

    @cached_property
    def weight_hash(self) -> str:
        """SHA-256 over the names and bytes of all weights: what cached results are keyed by."""
        digest = hashlib.sha256()
        for name, held in sorted(self.hf.state_dict().items()):
            parameter = held
            if held.device.type == "meta":  # offloaded
                holder, _, own = name.rpartition(".")
                parameter = read_weight(self.hf.get_submodule(holder), own)
            assert parameter is not None
            digest.update(f"{name}{list(parameter.shape)}{parameter.dtype}".encode())
            digest.update(parameter.detach().cpu().contiguous().view(torch.uint8).numpy().data)
        return digest.hexdigest()

    def require(self, weight_hash: str | None, what: str, *, of: str, do: str) -> None:
        """Refuse ``what`` if it was made with other weights, or does not say with which.

        A channel, a subspace or a circuit means nothing in another model.

        Parameters
        ----------
        weight_hash:
            The hash it was made with, or None where it does not say.
        what:
            What it is, for the message.
        of:
            The model it names.
        do:
            How one gets a right one, for the message.
        """
        if weight_hash != self.weight_hash:
            raise HeadwiseError(
                f"{what} is of {shortened(of)!r} (weights {(weight_hash or 'unknown')[:12]}), not of {self.name!r} "
                f"(weights {self.weight_hash[:12]}): {do}"
            )

    def __repr__(self) -> str:
        shared = "" if self.n_kv_heads == self.n_heads else f" ({self.n_kv_heads} key heads)"
        return (
            f"Model({self.name!r}, {self.family.name}, {self.n_layers} layers × {self.n_heads} heads{shared}, "
            f"d_head {self.d_head}, {str(self.dtype).removeprefix('torch.')})"
        )

    # --- tokens -----------------------------------------------------------------------------------------------

    @property
    def vocabulary(self) -> int:
        """How many tokens the model knows."""
        return self.hf.get_input_embeddings().weight.shape[0]

    def token_ids(self, prompts: Prompt | Sequence[Prompt]) -> list[list[int]]:
        """The token ids of one prompt or of several, each known to the model and none longer than its context."""
        return encode(self.tokenizer, prompts, self.context, self.vocabulary)

    def prompt_ids(self, prompt: Prompt) -> list[int]:
        """The token ids of exactly one prompt; a list of prompts is refused."""
        return encode_one(self.tokenizer, prompt, self.context, self.vocabulary)

    def tokens(self, prompt: Prompt) -> list[str]:
        """The prompt's tokens as text, one string per token (:func:`headwise.tokens.shown`)."""
        return list(shown(self.tokenizer, self.prompt_ids(prompt)))

    # --- what it does -----------------------------------------------------------------------------------------

    def capture(
        self,
        prompts: Prompt | Sequence[Prompt],
        *,
        heads: HeadLike | Iterable[HeadLike] | None = None,
        queries: Positions = None,
        keys: Positions = None,
        want: Wanted | Iterable[Wanted] = ("q", "k"),
        logits: Positions | Literal["last", "none"] = "none",
        padding: Padding = "right",
        start: int = 0,
        batch_size: int = 64,
        max_tokens: int = MAX_TOKENS,
    ) -> Captured:
        """Capture queries, keys, scores or patterns as the heads use them, at chosen positions.

        Parameters
        ----------
        prompts:
            One prompt or several, as text or token ids.
        heads:
            The heads to capture; None is all of them.
        queries:
            Rows: None is all, −1 the last token of each prompt, a list applies to every prompt, a list of lists gives
            each prompt its own.
        keys:
            Columns, given like ``queries``.
        want:
            What to keep, of ``q``, ``k``, ``scores``, ``pattern``, ``q_before_rope``, ``k_before_rope``.
        logits:
            Positions whose logits are kept, ``last`` or ``none``.
        padding:
            The side on which prompts of a batch are padded, ``right`` or ``left``; it does not change the numbers.
        start:
            The position of each prompt's first token, with nothing before it; 0 unless the model has rotary positions.
        batch_size:
            The most prompts in one pass.
        max_tokens:
            The most tokens in one pass, padding included.

        Returns
        -------
        Captured
            What was asked for, and nothing else in memory.
        """
        request = Request(
            heads=heads,
            queries=queries,
            keys=keys,
            want=want,
            logits=logits,
            padding=padding,
            start=start,
            batch_size=batch_size,
            max_tokens=max_tokens,
        )
        return _capture.run(self, prompts, request)

    def stream_capture(
        self, prompts: Prompt | Sequence[Prompt], **request: Any
    ) -> Iterator[tuple[list[int], Captured]]:
        """Like :meth:`capture`, one batch at a time: memory does not grow with the number of prompts.

        Parameters
        ----------
        prompts:
            Prompts as text or token ids.
        request:
            What :meth:`capture` takes, by keyword.

        Returns
        -------
        iterator of (list of int, Captured)
            The numbers of a batch's prompts and what was captured of them.
        """
        return _capture.stream(self, prompts, Request(**request))

    def edit(
        self,
        prompts: Prompt | Sequence[Prompt],
        edits: Sequence[Edit],
        *,
        heads: HeadLike | Iterable[HeadLike] = (),
        queries: Positions = None,
        keys: Positions = None,
        want: Wanted | Iterable[Wanted] = ("pattern",),
        logits: Positions | Literal["last", "none"] = "last",
        padding: Padding = "right",
        start: int = 0,
        batch_size: int = 64,
        max_tokens: int = MAX_TOKENS,
    ) -> Captured:
        """Run the forward pass with edits made in it; nothing stays hooked afterwards.

        Parameters
        ----------
        prompts:
            One prompt or several, as text or token ids.
        edits:
            Any number of ``SetVectors``, ``AddVectors``, ``SwapWithin`` and ``RemoveWithin`` (what a head reads), of
            ``Silence`` and ``SetOutput`` (what it writes), over layers and heads.
        heads:
            The heads to capture; by default none: only logits are kept.
        queries:
            Rows: None is all, −1 the last token of each prompt, a list applies to every prompt, a list of lists gives
            each prompt its own.
        keys:
            Columns, given like ``queries``.
        want:
            What to keep, of ``q``, ``k``, ``scores``, ``pattern``, ``q_before_rope``, ``k_before_rope``.
        logits:
            Positions whose logits are kept, ``last`` or ``none``.
        padding:
            The side on which prompts of a batch are padded, ``right`` or ``left``; it does not change the numbers.
        start:
            The position of each prompt's first token, with nothing before it; 0 unless the model has rotary positions.
        batch_size:
            The most prompts in one pass.
        max_tokens:
            The most tokens in one pass, padding included.

        Returns
        -------
        Captured
            Logits, and what was asked for of ``heads`` in the edited pass.
        """
        request = Request(
            heads=heads,
            queries=queries,
            keys=keys,
            want=want,
            logits=logits,
            edits=edits,
            padding=padding,
            start=start,
            batch_size=batch_size,
            max_tokens=max_tokens,
        )
        return _capture.run(self, prompts, request)

    def split(
        self,
        prompts: Prompt | Sequence[Prompt],
        *,
        layers: int | None = None,
        padding: Padding = "right",
        start: int = 0,
    ) -> Stream:
        """Split the residual stream into what every component wrote; the parts sum to the model's own vectors.

        Parameters
        ----------
        prompts:
            One prompt or several, as text or token ids.
        layers:
            Before how many of the first layers it is split; None is all, and the final norm.
        padding:
            The side on which prompts of a batch are padded, ``right`` or ``left``.
        start:
            The position of each prompt's first token, with nothing before it; 0 unless the model has rotary positions.

        Returns
        -------
        Stream
            ``writes(layer, position)`` gives parts of the stream, ``shares(head, side, position)`` of a query or key.
        """
        from headwise.model.stream import split

        return split(self, prompts, layers=layers, padding=padding, start=start)
