"""The bundle that pages are made of is the one that the sources in ``web/`` give."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

import make_web as web
import make_wire
from headwise.show.kit.page import APP, BUNDLE, SCREENS, STYLE, part

SOURCES = sorted(
    [
        *(file for file in (web.WEB / "src").rglob("*") if file.is_file()),
        *(web.WEB / name for name in ("build.mjs", "package-lock.json", "package.json", "tsconfig.json")),
    ],
    key=lambda file: file.relative_to(web.WEB).as_posix(),
)
built = pytest.mark.skipif(web.missing() is not None, reason=str(web.missing()))


def digest() -> str:
    """As ``web/build.mjs`` makes it."""
    made = hashlib.sha256()
    for file in SOURCES:
        text = file.read_bytes().replace(b"\r", b"")
        made.update(f"{file.relative_to(web.WEB).as_posix()}\n".encode() + text + b"\0")
    return made.hexdigest()


def test_the_bundle_is_made_from_these_sources() -> None:
    """Without Node: the header of the bundle names its sources."""
    for name in (BUNDLE, STYLE, APP, SCREENS):
        said = re.match(r"/\*! headwise, from sources ([0-9a-f]{64})", part(name))
        assert said is not None
        assert said[1] == digest(), "run make web, and commit what it builds"


@built
@pytest.mark.slow
def test_the_sources_give_the_bundle_byte_for_byte(tmp_path: Path) -> None:
    web.build(tmp_path)
    for name in (BUNDLE, STYLE, APP, SCREENS):
        assert (tmp_path / Path(name).name).read_bytes() == part(name).encode()


@built
@pytest.mark.slow
def test_the_sources_have_no_wrong_types() -> None:
    web.check()


def test_the_bundle_can_neither_evaluate_nor_end_its_element() -> None:
    for name in (BUNDLE, STYLE, SCREENS):
        made = part(name)
        assert not re.search(
            r"\beval\(|new Function\(|importScripts|\bfetch\(|XMLHttpRequest|WebSocket", made
        )
        assert "</script" not in made.lower() and "</style" not in made.lower()
        assert "http" not in made.replace("http://www.w3.org/", "")
    assert len(part(BUNDLE)) + len(part(STYLE)) < 150_000


def test_what_the_app_loads_first_is_small_and_so_is_what_it_loads_later() -> None:
    sizes = {name: len(gzip.compress(part(name).encode())) for name in (BUNDLE, STYLE, APP, SCREENS)}
    later = sizes.pop(SCREENS)
    assert sum(sizes.values()) < 60_000
    assert later < 15_000


def test_only_the_apps_own_script_asks_a_server_and_only_its_own() -> None:
    made = part(APP)
    assert re.search(r"\bfetch\(", made) and "EventSource" in made
    assert not re.search(r"\beval\(|new Function\(|importScripts|XMLHttpRequest|WebSocket|sendBeacon", made)
    assert "http" not in made and "//" not in made.partition("*/")[2]


def test_the_page_and_the_server_speak_of_the_same_things() -> None:
    assert make_wire.FILE.read_text(encoding="utf-8") == make_wire.text(), "run python tools/make_wire.py"


def test_data_reaches_the_page_as_text_alone() -> None:
    """Preact sets text unless it is told otherwise, and nothing here tells it."""
    for file in SOURCES:
        if file.suffix in (".ts", ".tsx"):
            words = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|dangerouslySet|\bhref="
            found = re.findall(words, file.read_text(encoding="utf-8"))
            # the one link, to the evidence of a name, is held to files (tests/e2e/test_explanation_page.py)
            assert found == (["href="] if file.name == "names.tsx" and file.parent.name == "kit" else []), (
                file
            )


def test_versions_are_pinned_and_licences_are_told() -> None:
    packages = json.loads((web.WEB / "package.json").read_text())
    locked = json.loads((web.WEB / "package-lock.json").read_text())["packages"]
    assert "dependencies" not in packages
    for name, version in packages["devDependencies"].items():
        assert locked[f"node_modules/{name}"]["version"] == version
    assert all("integrity" in one for place, one in locked.items() if place)
    header = part(BUNDLE)[:3000]
    assert f"preact {packages['devDependencies']['preact']} (MIT)" in header
    assert "Permission is hereby granted, free of charge" in header


@pytest.mark.slow
def test_the_wheel_holds_the_bundle(tmp_path: Path) -> None:
    """A user has neither Node nor ``web/``: what pages need is in the package."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=web.WEB.parent, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with ZipFile(wheel) as opened:
        pages = ("kit/mounted.html", "kit/app.html", "kit/icon.svg")
        for name in (BUNDLE, STYLE, APP, SCREENS, *pages):
            assert opened.read(f"headwise/show/{name}").decode() == part(name)
        assert not [name for name in opened.namelist() if name.endswith((".ts", ".tsx", ".mjs"))]
