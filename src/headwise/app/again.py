"""Python that traces a circuit of a run once more."""

from __future__ import annotations

from dataclasses import dataclass

from headwise.circuits.circuit import Circuit

SEVERAL = " / "
"""Between the answers of a circuit of a probability."""


@dataclass(frozen=True)
class RunCircuit:
    """A circuit that was found in a run folder."""

    circuit: Circuit
    tau: float | None = None
    """What the attention of a firing had to fall below; None: as usual."""
    tabled: bool = False
    """Whether it is of the tables of a run, which hold signals alone, no accounts through MLPs."""


def traced_again(found: RunCircuit, model: str) -> str | None:
    """A script whose ``circuit`` is this one, with ``headwise.load(…)`` given ``model``; None for a circuit that starts
    from a probability, which does not say of what."""
    circuit, tabled = found.circuit, found.tabled
    if circuit.answer_id is None or SEVERAL in (circuit.answer or ""):
        return None
    given = {
        "answer": circuit.answer_id,
        "wrong": circuit.wrong_id,
        "mode": None if circuit.mode == "exact" else circuit.mode,
        "tau": found.tau,
        "basis": None if circuit.basis.kind == "singular" else circuit.basis.kind,
        "start": circuit.start or None,
        "mlp_depth": 0 if tabled else None,
    }
    settings = [f"{name}={value!r}" for name, value in given.items() if value is not None]
    names = [repr(one) for one in (circuit.answer, circuit.wrong) if one is not None]
    return "\n".join(
        [
            "import headwise",
            "",
            f"model = headwise.load({model})",
            f"prompt = {list(circuit.token_ids)}",
            f"# {circuit.prompt!r}: {' and not '.join(names)}",
            f"circuit = headwise.trace({', '.join(['model', 'prompt', *settings])}){'.causal()' if tabled else ''}",
            "print(circuit)",
            "",
        ]
    )
