"""Names of anything in any model, as a run of ``headwise name`` would have given them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headwise.bases.basis import Bases
from headwise.known_names import DOCUMENT, KnownNames
from headwise.model.model import Model
from headwise.naming.signals import Subject
from headwise.scale.folder import RunFolder

TEXT = "the source is the second name of a pair joined by 'and'"


class NamesGiven:
    """Holds a document, as the result of a run does."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.document = document

    def to_json(self) -> dict[str, Any]:
        return self.document


def names_document(model: Model, verdicts: Mapping[str, str], text: str = TEXT) -> dict[str, Any]:
    """The document of a run that asked for these subjects and gave them these verdicts."""
    basis = Bases.of(model).name
    return {
        "schema": 1,
        "kind": "names",
        "model": model.name,
        "weight_hash": model.weight_hash,
        "settings": {
            "basis": basis.kind,
            "frame": basis.frame,
            "basis_hash": basis.hash,
            "corpus": "wikipedia-excerpt",
            "split_seed": 0,
        },
        "signals": [_entry(signal, verdict, text) for signal, verdict in verdicts.items()],
    }


def _entry(signal: str, verdict: str, text: str) -> dict[str, Any]:
    tested = verdict != "too rare"
    return {
        "signal": signal,
        "level": Subject.parse(signal).level,
        "name": {"destination": "", "source": text, "relation": "", "text": text} if tested else None,
        "verdict": verdict,
        "q": 0.001,
        "balanced_accuracy": {"mean": 0.8125, "low": 0.75, "high": 0.875, "n": 80} if tested else None,
        "flags": ["positional"] if verdict == "beyond chance" else [],
        "by": "rules",
        "causal": None,
    }


def names_known(model: Model, verdicts: Mapping[str, str], text: str = TEXT) -> KnownNames:
    """Those names, read."""
    return KnownNames.of(NamesGiven(names_document(model, verdicts, text)))


def names_folder(folder: Path, model: Model, verdicts: Mapping[str, str], text: str = TEXT) -> Path:
    """A finished run folder with those names, and a page in it."""
    with RunFolder(folder, "names", {"model": model.name, "weight_hash": model.weight_hash}) as opened:
        opened.write_json(DOCUMENT, names_document(model, verdicts, text))
        opened.finish(DOCUMENT)
    (folder / "names.html").write_text("<!doctype html>", encoding="utf-8")
    return folder
