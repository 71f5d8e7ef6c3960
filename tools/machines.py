"""The machines that the lock is for: which wheels they take, and which markers hold there."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from itertools import product

from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.tags import Tag, compatible_tags, cpython_tags, mac_platforms

from package_index import Wheel

PYTHONS = ("3.11", "3.12", "3.13")
PLATFORMS = {
    "Linux x86-64": {"sys_platform": "linux", "platform_system": "Linux", "platform_machine": "x86_64"},
    "Linux arm64": {"sys_platform": "linux", "platform_system": "Linux", "platform_machine": "aarch64"},
    "macOS arm64": {"sys_platform": "darwin", "platform_system": "Darwin", "platform_machine": "arm64"},
}

_GLIBC = range(50, 4, -1)  # 2.50 to 2.5: torch decides how old it may be, so no wheel is left out for that
_MACOS = (26, 0)


@dataclass(frozen=True, order=True)
class Machine:
    """One platform with one Python."""

    platform: str
    python: str

    @property
    def markers(self) -> dict[str, str]:
        python = {"python_version": self.python, "python_full_version": f"{self.python}.9"}
        cpython = {
            "implementation_name": "cpython",
            "platform_python_implementation": "CPython",
            "os_name": "posix",
        }
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
        return marker is None or any(
            marker.evaluate(self.markers | {"extra": extra}) for extra in ("", *extras)
        )

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
        old = {"x86_64": ("manylinux2014", "manylinux2010", "manylinux1"), "aarch64": ("manylinux2014",)}[
            arch
        ]
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
