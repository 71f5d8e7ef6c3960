"""Run folders: a manifest that says what was asked, files that are whole or absent, and resuming."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from headwise.errors import HeadwiseError

SCHEMA = 1


def package_versions(*packages: str) -> dict[str, str]:
    """The installed versions of some packages: what a manifest says besides the configuration."""
    from importlib.metadata import PackageNotFoundError, version

    found = {}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


class RunFolder:
    """A folder of one run. Opening it again with the same configuration continues; with another one is
    refused.
    """

    def __init__(
        self,
        path: str | Path,
        kind: str,
        config: Mapping[str, Any],
        *,
        versions: Mapping[str, str] | None = None,
    ) -> None:
        self.path = Path(path)
        self.manifest = {"schema": SCHEMA, "kind": kind, "config": json.loads(json.dumps(config))}
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            probe = self.path / f".probe-{os.getpid()}"
            probe.touch()
            probe.unlink()
        except OSError as error:
            reason = error.strerror or "not writable"
            raise HeadwiseError(
                f"{str(path)!r} cannot be written ({reason}): choose another --out folder"
            ) from None
        found = self.read_json("manifest.json")
        if found is None:
            versions = {"python": platform.python_version(), "torch": torch.__version__, **(versions or {})}
            self.write_json("manifest.json", self.manifest | {"versions": versions})
        elif {k: found.get(k) for k in self.manifest} != self.manifest:
            raise HeadwiseError(
                f"{str(path)!r} holds another run ({found.get('kind')}): choose a fresh --out folder"
            )

    def write_text(self, name: str, text: str) -> Path:
        """Write beside, then rename: a reader never sees half a file."""
        target = self.path / name
        beside = target.with_name(f".{target.name}.part")
        beside.write_text(text, encoding="utf-8")
        beside.replace(target)
        return target

    def write_json(self, name: str, value: Any) -> Path:
        return self.write_text(name, json.dumps(value, indent=1, allow_nan=False) + "\n")

    def read_json(self, name: str) -> Any | None:
        path = self.path / name
        if not path.exists():
            return None
        try:
            return json.loads(path.read_text(encoding="utf-8"))
        except ValueError:
            raise HeadwiseError(
                f"{str(path)!r} is not JSON: remove it or choose a fresh --out folder"
            ) from None

    def write_tensors(self, name: str, tensors: Mapping[str, Tensor], metadata: Mapping[str, Any]) -> Path:
        """Tensors with a JSON record in one file, so that the two cannot disagree after an interruption."""
        target = self.path / name
        beside = target.with_name(f".{target.name}.part")
        save_file({k: v.contiguous() for k, v in tensors.items()}, beside, {"record": json.dumps(metadata)})
        beside.replace(target)
        return target

    def read_tensors(self, name: str) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        path = self.path / name
        if not path.exists():
            return None
        from safetensors import safe_open

        with safe_open(path, "pt") as opened:
            record = json.loads((opened.metadata() or {}).get("record", "{}"))
        return load_file(path), record
