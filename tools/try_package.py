"""``make wheel`` and ``make extras``: install what lies in dist/ in empty environments, and make a real call in each.

Every environment is made anew outside the repository, gets the wheel with one extra, the lock's versions as
constraints, and runs its function of ``tools/smoke.py`` in an empty folder with an empty cache of its own.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from make_lock import LOCK, read_lock
from smoke import CALLS

ROOT = Path(__file__).parent.parent
SMOKE = Path(__file__).parent / "smoke.py"


class Failed(Exception):
    """A step of a trial went wrong; the last lines of what it said."""


def constraints(lock: str) -> str:
    """The versions of a lock without its hashes: whatever is installed is installed in these.

    >>> constraints('a==1 ; sys_platform == "darwin" \\\\\\n    --hash=sha256:abba\\n')
    'a==1 ; sys_platform == "darwin"\\n'
    """
    pins = read_lock(lock).values()
    return "".join(f"{p.name}=={p.version}" + (f" ; {p.marker}" if p.marker else "") + "\n" for p in pins)


def run(command: Iterable[str | Path], where: Path, **environment: str) -> str:
    """The standard output of a command that sees neither the repository nor the user's own packages."""
    hidden = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    inherited = {name: value for name, value in os.environ.items() if name not in hidden}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=where,
        env=inherited | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise Failed("\n".join((done.stderr or done.stdout).strip().splitlines()[-12:]))
    return done.stdout


def built(pattern: str) -> Path:
    """The one file of dist/ that a build leaves."""
    found = sorted((ROOT / "dist").glob(pattern))
    if len(found) != 1:
        raise SystemExit(f"dist/ holds {len(found)} files {pattern}: build with `make wheel` first")
    return found[0]


def tried(name: str, package: Path, python: str) -> str:
    """Install and call one extra (``wheel``: none) in an environment that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="headwise-") as folder:
        where, environment = Path(folder), Path(folder, "environment")
        lock = where / "constraints.txt"
        lock.write_text(constraints((ROOT / LOCK).read_text()))
        run([python, "-m", "venv", environment], where)
        inside = environment / "bin" / "python"
        wanted = str(package) if name == "wheel" else f"{package}[{name}]"
        # Without compiling: torch and transformers have thousands of files, of which a call imports some.
        pip = [inside, "-I", "-m", "pip", "install", "--quiet", "--no-compile", "--disable-pip-version-check"]
        run([*pip, "--constraint", lock, wanted], where)
        work = where / "work"
        work.mkdir()
        return run([inside, "-I", SMOKE, name], work, HEADWISE_CACHE=str(where / "cache")).strip()


def main() -> int:
    parser = argparse.ArgumentParser(description="Try the package that lies in dist/.")
    parser.add_argument(
        "names", nargs="*", metavar="EXTRA", help=f"of {', '.join(CALLS)}; all if none is named"
    )
    parser.add_argument("--python", default=sys.executable, help="the Python that environments are made with")
    parser.add_argument("--sdist", action="store_true", help="install the sdist, too")
    options = parser.parse_args()
    if unknown := sorted(set(options.names) - set(CALLS)):
        parser.error(f"there is no extra {unknown[0]!r}: choose of {', '.join(CALLS)}")
    trials = [(name, built("*.whl")) for name in options.names or CALLS]
    if options.sdist:
        trials.append(("wheel", built("*.tar.gz")))
    failures = 0
    for name, package in trials:
        started = time.monotonic()
        try:
            said, verdict = tried(name, package, options.python), "ok"
        except Failed as error:
            said, verdict, failures = str(error), "FAILED", failures + 1
        print(f"{package.name} {name}: {verdict}, {time.monotonic() - started:.0f} s: {said}", flush=True)
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
