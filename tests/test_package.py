"""What is packed: the wheel holds all that the program reads and nothing else, and the sdist makes the same wheel."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email import message_from_string
from functools import lru_cache
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import headwise
from make_lock import LOCK, read_lock
from smoke import CALLS
from try_package import constraints

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
pytestmark = pytest.mark.slow


def _build(where: Path, out: Path, target: str) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(out), "-t", target]
    subprocess.run(command, cwd=where, check=True, capture_output=True)
    (made,) = out.glob({"wheel": "*.whl", "sdist": "*.tar.gz"}[target])
    return made


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    return zipfile.ZipFile(_build(ROOT, tmp_path_factory.mktemp("wheel"), "wheel"))


@lru_cache(maxsize=1)
def _tracked() -> set[str]:
    """Every file of the package that the repository keeps."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "src/headwise"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip("this is no git repository")
    return {line.removeprefix("src/") for line in done.stdout.splitlines() if (ROOT / line).exists()}


def _inside(wheel: zipfile.ZipFile) -> tuple[set[str], set[str]]:
    names = set(wheel.namelist())
    about = {name for name in names if ".dist-info/" in name}
    return names - about, about


def test_the_wheel_holds_the_package_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    package, about = _inside(wheel)
    assert package == _tracked()
    assert {name.split("/", 1)[1] for name in about} == {
        "METADATA",
        "WHEEL",
        "RECORD",
        "entry_points.txt",
        "licenses/LICENSE",
    }
    assert not [name for name in package if re.search("(^|/)(tests?|docs|benchmarks|node_modules)/", name)]


@pytest.mark.parametrize(
    "file",
    [
        "py.typed",
        "show/assets/headwise.js",
        "show/assets/headwise.css",
        "show/assets/app.js",
        "show/assets/screens.js",
        "show/kit/plotly.min.js",
        "show/kit/plotly.LICENSE",
        "show/kit/app.html",
        "toy/data/small_lm/model.safetensors",
        "toy/data/small_lm/tokenizer.json",
    ],
)
def test_the_wheel_holds_what_the_program_reads(wheel: zipfile.ZipFile, file: str) -> None:
    assert wheel.read(f"headwise/{file}") == (ROOT / "src" / "headwise" / file).read_bytes()


def test_the_metadata_says_what_the_project_says(wheel: zipfile.ZipFile) -> None:
    (name,) = (name for name in wheel.namelist() if name.endswith("METADATA"))
    about = message_from_string(wheel.read(name).decode())
    assert about["Version"] == PROJECT["version"] == headwise.__version__
    assert about["License-Expression"] == "MIT"
    assert about["Requires-Python"] == PROJECT["requires-python"]
    assert set(about.get_all("Provides-Extra") or ()) == set(PROJECT["optional-dependencies"])
    entries = wheel.read(name.replace("METADATA", "entry_points.txt")).decode()
    assert "headwise = headwise.cli.main:run" in entries


def test_the_sdist_makes_the_same_wheel(wheel: zipfile.ZipFile, tmp_path: Path) -> None:
    with tarfile.open(_build(ROOT, tmp_path, "sdist")) as sdist:
        names = sdist.getnames()
        sdist.extractall(tmp_path / "source", filter="data")
    root = tmp_path / "source" / f"headwise-{headwise.__version__}"
    assert not [name for name in names if re.search("/(tests|docs|benchmarks|node_modules)/", name)]
    assert (root / "web" / "package-lock.json").is_file(), "the bundle's sources belong to it"
    again = zipfile.ZipFile(_build(root, tmp_path / "again", "wheel"))
    assert {i.filename: i.CRC for i in again.infolist()} == {i.filename: i.CRC for i in wheel.infolist()}


def test_every_extra_is_tried() -> None:
    extras = set(PROJECT["optional-dependencies"]) - {"dev"}
    assert extras == set(CALLS) - {"wheel"}


def test_constraints_hold_every_version_of_the_lock() -> None:
    lock = (ROOT / LOCK).read_text()
    lines = [Requirement(line) for line in constraints(lock).splitlines()]
    assert {line.name: str(line.specifier) for line in lines} == {
        pin.name: f"=={pin.version}" for pin in read_lock(lock).values()
    }
