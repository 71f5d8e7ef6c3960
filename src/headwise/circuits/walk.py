"""A circuit that grows by hand: from the answer, or from one cell, only what was opened is searched.

Every edge is the one that :func:`headwise.trace` finds; whoever opens all that a trace would, has its causal edges.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from torch import Tensor

from headwise.circuits.circuit import Circuit, Node
from headwise.circuits.trace import circuit_of, rules_for, start_at
from headwise.errors import HeadwiseError
from headwise.strings import in_short
from headwise.tracing.through import MLPRules
from headwise.tracing.tracer import Opened, trace_down
from headwise.tracing.writes import PromptWrites
from headwise.types import Cell, Head

_FIRING = re.compile(r"L([0-9]{1,4})H([0-9]{1,4})@([0-9]{1,6})<-([0-9]{1,6})")
_MLP = re.compile(r"MLP([0-9]{1,4})@([0-9]{1,6})")


@dataclass(frozen=True)
class Steps:
    """Where a walk has been: the nodes that were opened, by id, and the cell where it begins (None: the answer)."""

    opened: Opened
    root: Cell | None = None

    @classmethod
    def parse(cls, opened: Iterable[str], root: str | None = None) -> Steps:
        """
        >>> Steps.parse(["L9H6@14<-3", "MLP2@4"]).opened
        Opened(cells=frozenset({L9H6@14<-3}), mlps=frozenset({(2, 4)}))
        >>> Steps.parse(["embedding@0"])
        Traceback (most recent call last):
        ...
        headwise.errors.HeadwiseError: 'embedding@0' cannot be opened: name a cell (L9H6@14<-3) or an MLP (MLP2@4)
        """
        cells, mlps = set(), set()
        for name in opened:
            if found := _MLP.fullmatch(name):
                mlps.add((int(found[1]), int(found[2])))
            else:
                cells.add(_cell(name))
        return cls(Opened(frozenset(cells), frozenset(mlps)), None if root is None else _cell(root))


def _cell(name: str) -> Cell:
    found = _FIRING.fullmatch(name)
    if found is None:
        raise HeadwiseError(f"{in_short(name)} cannot be opened: name a cell (L9H6@14<-3) or an MLP (MLP2@4)")
    layer, index, query, key = map(int, found.groups())
    return Cell(Head(layer, index), query, key)


def walk(
    up: PromptWrites, logits: Tensor, steps: Steps, *, answer: int | None = None, wrong: int | None = None
) -> Circuit:
    """The part of a circuit that some steps lead to: what was opened, and what feeds it.

    ``logits`` are those of the prompt's last position.
    """
    model, root = up.stream.model, steps.root
    _require_cells(up, steps)
    # What is opened is followed, however little of the answer passes through it and however many MLPs lie in between.
    rules = replace(rules_for("exact", None, None, influence=0.0), mlps=MLPRules(depth=model.n_layers))
    start = start_at(model, up, logits, answer, wrong, None, None, rules)
    seeds = start.seeds if root is None and start.has_head else []
    (traced,) = trace_down(
        model, [up], [seeds], rules, opened=steps.opened, roots=[] if root is None else [root]
    )
    if root is not None:
        start = replace(start, notes=())  # they are about the answer's circuit
    found = circuit_of(model, up, traced, start, rules)
    if root is not None and str(root) not in found.by_id:
        found = replace(found, nodes=(Node.of(root, traced.attention[root]), *found.nodes))
    return found


def _require_cells(up: PromptWrites, steps: Steps) -> None:
    model = up.stream.model
    cells = [*steps.opened.cells, *([] if steps.root is None else [steps.root])]
    for cell in cells:
        model.head(cell.head)
        if cell.query >= up.tokens or cell.key > cell.query:
            raise HeadwiseError(f"{cell} is no cell of a prompt of {up.tokens} tokens")
    for layer, position in steps.opened.mlps:
        if layer >= model.n_layers or position >= up.tokens:
            raise HeadwiseError(
                f"MLP{layer}@{position} is not there: the model has {model.n_layers} layers, the prompt "
                f"{up.tokens} tokens"
            )
