"""What was made, as files to be taken along: the document, the offline page, a script that repeats it, a graph."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Protocol

from headwise import jsons
from headwise.circuits.circuit import Circuit
from headwise.circuits.export import graphml
from headwise.errors import HeadwiseError
from headwise.show.circuits.page import circuit_page
from headwise.why.explanation import Explanation

KEPT = 24
"""Results that can be saved after they were made."""


class Gone(HeadwiseError):
    """A prompt or a result that is no longer kept."""


class Result(Protocol):
    """What has forms: each is made when it is wanted."""

    @property
    def what(self) -> str:
        """What it is, in words."""
        ...

    @property
    def forms(self) -> Mapping[str, Callable[[], str | bytes]]:
        """How it is written, by the ends of the files' names."""
        ...


class ExplanationMade:
    """A finished explanation."""

    what = "an explanation"

    def __init__(self, why: Explanation, python: Callable[[], str]) -> None:
        self.why = why
        self.forms = {"json": lambda: written(why.to_json()), "html": why.to_html, "py": python}


class CircuitMade:
    """A circuit, walked or traced; ``python`` repeats it, where that can be said."""

    what = "a circuit"

    def __init__(self, circuit: Circuit, python: Callable[[], str] | None = None) -> None:
        self.circuit = circuit
        self.forms: dict[str, Callable[[], str | bytes]] = {
            "json": lambda: written(circuit.to_json()),
            "html": lambda: circuit_page(circuit),
            "graphml": lambda: graphml(circuit),
            **({} if python is None else {"py": python}),
        }


class KeptResults:
    """The last results, by the names of their jobs."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, Result] = OrderedDict()

    def __contains__(self, job: str) -> bool:
        return job in self._kept

    def keep(self, job: str, result: Result) -> None:
        self._kept[job] = result
        while len(self._kept) > KEPT:
            self._kept.popitem(last=False)

    def get(self, job: str) -> Result:
        if job not in self._kept:
            raise Gone("this result is no longer in memory: ask again")
        return self._kept[job]


def written(document: object) -> str:
    return jsons.dumps(document) + "\n"
