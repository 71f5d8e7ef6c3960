"""What the circuits of a task's prompts use: the job of a study of sparsity, one small record per prompt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwise import jsons
from headwise.bases.singular import one_thread
from headwise.circuits.circuit import Circuit
from headwise.progress import Tick
from headwise.scale.work import Chunk
from headwise.survey.chunks import TraceJob, circuits_of
from headwise.tasks.answers.types import AnswerPrompt
from headwise.types import Cell, Head
from headwise.validation import Index, Row, Shape, check

if TYPE_CHECKING:
    from headwise.model.model import Model


class PromptUse(Shape):
    """What one prompt's circuit uses."""

    cells: Row[Row[Index]]
    """Layer, head, query and key of every firing that the circuit expands."""
    carries: Row[Row[Index]]
    """Layer and head of those that bring the answer and were traced further."""
    channels: Row[Index]
    """How many channels each edge into a head has."""
    has_edges: bool
    difference: float | None
    """Logit of the answer less that of the wrong one, or of the best other."""

    @classmethod
    def of(cls, circuit: Circuit) -> PromptUse:
        targets = {e.target for e in circuit.edges if e.channels}
        nodes = [circuit.node(e.source) for e in circuit.edges if not e.channels and e.source in targets]
        cells = [node.cell for node in circuit.heads if node.id in targets]
        return cls(
            cells=tuple((c.head.layer, c.head.index, c.query, c.key) for c in cells),
            carries=tuple(sorted({(node.layer, node.head) for node in nodes if node.head is not None})),
            channels=tuple(len(e.channels) for e in circuit.edges if e.channels),
            has_edges=bool(circuit.edges),
            difference=circuit.difference,
        )

    @property
    def firings(self) -> list[Cell]:
        return [Cell(Head(layer, head), query, key) for layer, head, query, key in self.cells]

    @property
    def answer_heads(self) -> list[Head]:
        return [Head(layer, head) for layer, head in self.carries]

    @property
    def is_wrong(self) -> bool:
        """Whether there is no circuit because the model prefers another answer, as a survey counts it."""
        return not self.has_edges and self.difference is not None and self.difference <= 0


@dataclass(frozen=True)
class UseJob:
    """Traces the prompts of a chunk and keeps of their circuits what is used."""

    def make(self, model: Model, chunk: Chunk[AnswerPrompt], tick: Tick, /) -> list[PromptUse]:
        with one_thread():
            return [PromptUse.of(circuit) for circuit in circuits_of(model, chunk.items, TraceJob())]

    def to_bytes(self, made: list[PromptUse], /) -> bytes:
        return jsons.dumps([one.model_dump() for one in made], indent=None).encode()

    def from_bytes(self, content: bytes, /) -> list[PromptUse]:
        return [check(PromptUse, one, "a kept chunk") for one in jsons.parse(content)]
