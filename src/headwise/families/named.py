"""Families in words: what names say of them, and each family's circuit with named edges."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headwise.families.aggregate import FamilyCircuit, family_circuits
from headwise.families.differences import FamilyDifferences, find_differences
from headwise.known_names import KnownNames, NamesLike

if TYPE_CHECKING:
    from headwise.families.result import FamiliesResult


@dataclass(frozen=True, eq=False, kw_only=True)
class NamedFamilies:
    """What the families of a run do differently, in words that have been tested."""

    known: KnownNames
    """The names."""
    differences: FamilyDifferences
    """Which names tell which families apart, and paragraphs that say so."""
    circuits: tuple[FamilyCircuit, ...]
    """The aggregated, pruned circuit of every family."""

    def to_json(self) -> dict[str, Any]:
        """What a document of families has beside the rest."""
        keys = [one.name.signal for one in self.differences.entries]
        keys += [key for circuit in self.circuits for edge in circuit.edges for key in edge.names]
        return {
            "names": self.known.to_json(keys),
            "differences": self.differences.to_json(),
            "circuits": [one.to_json() for one in self.circuits],
        }


def named_families(found: FamiliesResult, names: NamesLike) -> NamedFamilies:
    """The families with names; those of another model are refused, those of another basis left out."""
    config = found.run.config
    known = KnownNames.of(names).fit(config["model"], config["weight_hash"], found.run.basis)
    circuits = tuple(family_circuits(found, known))
    return NamedFamilies(known=known, differences=find_differences(found, known), circuits=circuits)
