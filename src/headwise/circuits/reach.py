"""What can be reached along the edges of a circuit."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headwise.circuits.circuit import Edge


def closure(start: str, edges: Iterable[Edge], *, forward: bool) -> set[str]:
    """Every node that edges lead to from one, or from which they lead to it."""
    links: dict[str, list[str]] = {}
    for edge in edges:
        a, b = (edge.source, edge.target) if forward else (edge.target, edge.source)
        links.setdefault(a, []).append(b)
    seen, queue = {start}, deque([start])
    while queue:
        for following in links.get(queue.popleft(), ()):
            if following not in seen:
                seen.add(following)
                queue.append(following)
    return seen
