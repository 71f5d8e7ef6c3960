"""The lock is whole for every supported machine, and the script that writes it finds all that it has to hold."""

from __future__ import annotations

import hashlib
import re
import threading
import tomllib
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

import pytest
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from headwise.model.loading.catalogue import DEFAULT, known
from machines import MACHINES, PLATFORMS, PYTHONS, Machine
from make_lock import CUDA_LOCK, LOCK, make_lock, read_lock, requested
from package_index import Index, NotServed, Places

ROOT = Path(__file__).parent.parent
PYPROJECT = (ROOT / "pyproject.toml").read_text()
PINS = read_lock((ROOT / LOCK).read_text())


def _pinned_on(machine: Machine, requirement: Requirement) -> bool:
    pin = PINS.get(canonicalize_name(requirement.name))
    if pin is None or not requirement.specifier.contains(pin.version, prereleases=True):
        return False
    return not pin.marker or Marker(pin.marker).evaluate(machine.markers)


@pytest.mark.parametrize("file", [LOCK, CUDA_LOCK])
def test_every_package_has_a_version_and_hashes(file: str) -> None:
    pins = read_lock((ROOT / file).read_text())
    assert pins
    for pin in pins.values():
        assert pin.hashes, f"{pin.name} has no hash"
        assert all(re.fullmatch("[0-9a-f]{64}", digest) for digest in pin.hashes), pin.name


def test_what_the_project_asks_for_is_pinned_on_every_machine() -> None:
    for machine in MACHINES:
        missing = [str(r) for r in requested(PYPROJECT) if machine.needs(r) and not _pinned_on(machine, r)]
        assert not missing, machine


def test_what_the_packages_ask_for_is_pinned_on_every_machine() -> None:
    """pip follows no dependencies when it installs the lock, so one that is left out would be missing."""
    model = {part.package for part in known(DEFAULT).parts}
    extras: dict[str, set[str]] = {canonicalize_name(r.name): r.extras for r in requested(PYPROJECT)}
    looked = 0
    for name in PINS.keys() - model:
        try:
            asked = [Requirement(text) for text in requires(name) or ()]
        except PackageNotFoundError:
            assert PINS[name].marker, f"{name} is in the lock for every machine but is not installed"
            continue
        looked += 1
        for machine in MACHINES:
            if not PINS[name].marker or Marker(PINS[name].marker).evaluate(machine.markers):
                judge = Machine("macOS arm64", machine.python) if name == "torch" else machine
                needed = [r for r in asked if judge.needs(r, extras.get(name, ()))]
                assert all(_pinned_on(machine, r) for r in needed), (name, machine)
    assert looked > 100


def test_torch_is_locked_in_both_builds_and_its_cuda_libraries_apart() -> None:
    assert len(PINS["torch"].hashes) > len(MACHINES)
    cuda = read_lock((ROOT / CUDA_LOCK).read_text())
    assert "triton" in cuda and not cuda.keys() & PINS.keys()
    assert not [name for name in PINS if name.startswith("nvidia-")]


def test_the_default_model_is_locked() -> None:
    for part in known(DEFAULT).parts:
        assert PINS[part.package].version == part.version


def test_the_header_names_the_machines() -> None:
    header = "".join(line for line in (ROOT / LOCK).read_text().splitlines() if line.startswith("#"))
    assert all(name in header for name in (*PLATFORMS, *PYTHONS, "make lock", "--require-hashes"))
    assert tomllib.loads(PYPROJECT)["project"]["requires-python"] == f">={PYTHONS[0]}"


def test_set_up_installs_nothing_without_a_hash_but_the_project() -> None:
    makefile = (ROOT / "Makefile").read_text()
    assert re.search(
        r"^LOCKED := install --require-hashes --no-deps --only-binary :all:$", makefile, re.MULTILINE
    )
    installs = [line for line in makefile.splitlines() if "$(PIP)" in line]
    assert [line for line in installs if "$(LOCKED)" not in line] == [
        "\t@$(PIP) install --no-deps --no-build-isolation -e ."
    ]
    assert len(installs) == 4


@pytest.mark.parametrize("page", ["Makefile", "CONTRIBUTING.md"])
def test_how_the_lock_is_made_is_documented(page: str) -> None:
    assert re.search(r"make lock\b", (ROOT / page).read_text())


# A small index. Wheels are archives with nothing but metadata.


class Shelf:
    """A folder that pip could read as an index: one page per package, and the files."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @property
    def url(self) -> str:
        return self.root.as_uri()

    def add(self, file: str, *needs: str, salt: str = "") -> str:
        """Put a wheel on its package's page; its SHA-256."""
        name, version = file.split("-")[:2]
        page = self.root / canonicalize_name(name)
        page.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(page / file, "w") as archive:
            fields = [f"Name: {name}", f"Version: {version}", *(f"Requires-Dist: {need}" for need in needs)]
            archive.writestr(f"{name}-{version}.dist-info/METADATA", "\n".join([*fields, "", salt]))
        digest = hashlib.sha256((page / file).read_bytes()).hexdigest()
        with (page / "index.html").open("a") as html:
            html.write(f'<a href="{file.replace("+", "%2B")}#sha256={digest}">{file}</a>\n')
        return digest

    def index(self, torch_index: str | None = None) -> Index:
        return Index(Places((self.url,)), {"torch": torch_index} if torch_index else {})


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    shelf = Shelf(tmp_path / "simple")
    for name in ("editables", "hatchling"):
        shelf.add(f"{name}-1.0-py3-none-any.whl")
    shelf.add("plain-1.0-py3-none-any.whl", "helper>=1; platform_system == 'Darwin'", "test; extra == 'test'")
    shelf.add("helper-1.0-py3-none-any.whl")
    shelf.add("model-0.1-py3-none-any.whl", "a-program-that-runs-it")
    return shelf


def _project(folder: Path, *needs: str, lock: str = "") -> Path:
    folder.mkdir(exist_ok=True)
    listed = ", ".join(f'"{need}"' for need in needs)
    build = '[build-system]\nrequires = ["hatchling"]\n'
    (folder / "pyproject.toml").write_text(f"{build}[project]\ndependencies = [{listed}]\n")
    if lock:
        (folder / LOCK).write_text(lock)
    return folder


def _write(folder: Path, index: Index, upgrade: tuple[str, ...] = ()) -> dict[str, str]:
    texts = make_lock(folder, index, {"model": "0.1"}, upgrade)
    for file, text in texts.items():
        (folder / file).write_text(text)
    return texts


def test_again_without_changes_it_is_the_same_bytes(shelf: Shelf, tmp_path: Path) -> None:
    project = _project(tmp_path / "project", "plain>=1")
    first = _write(project, shelf.index())
    assert _write(project, shelf.index()) == first
    pins = read_lock(first[LOCK])
    assert [*pins] == ["editables", "hatchling", "helper", "model", "plain"]
    assert pins["helper"].marker == 'sys_platform == "darwin"'
    assert not read_lock(first[CUDA_LOCK])


def test_versions_stay_until_an_upgrade_is_asked_for(shelf: Shelf, tmp_path: Path) -> None:
    shelf.add("plain-1.1-py3-none-any.whl")
    shelf.add("plain-2.0rc1-py3-none-any.whl")
    project = _project(tmp_path / "project", "plain>=1", lock="Plain==1.0\nnobody-asks==3.0\n")
    pins = read_lock(_write(project, shelf.index())[LOCK])
    assert pins["plain"].version == "1.0" and "nobody-asks" not in pins
    newer = read_lock(_write(project, shelf.index(), ("Plain",))[LOCK])
    assert newer["plain"].version == "1.1" and "helper" not in newer


def test_a_pin_that_is_no_longer_allowed_gives_way(shelf: Shelf, tmp_path: Path) -> None:
    shelf.add("plain-1.1-py3-none-any.whl")
    shelf.add("user-1.0-py3-none-any.whl", "plain<1.1")
    project = _project(tmp_path / "project", "plain>=1", lock="plain==1.1\n")
    assert read_lock(_write(project, shelf.index())[LOCK])["plain"].version == "1.1"
    _project(project, "plain>=1", "user")
    assert read_lock(_write(project, shelf.index())[LOCK])["plain"].version == "1.0"
    shelf.add("enemy-1.0-py3-none-any.whl", "plain>=1.1")
    _project(project, "user", "enemy")
    with pytest.raises(NotServed, match=r"no version of plain suits all: .*plain<1\.1"):
        _write(project, shelf.index())


def test_the_wheels_of_all_supported_machines_and_no_others(shelf: Shelf, tmp_path: Path) -> None:
    taken = {
        shelf.add(f"built-1.0-{tag}.whl")
        for python in ("cp311-cp311", "cp312-cp312", "cp313-cp313")
        for tag in (
            f"{python}-manylinux_2_28_x86_64",
            f"{python}-manylinux2014_aarch64.manylinux_2_17_aarch64",
            f"{python}-macosx_11_0_arm64",
        )
    }
    taken.add(shelf.add("built-1.0-cp38-abi3-macosx_12_0_universal2.whl"))
    for tag in (
        "cp310-cp310-manylinux_2_28_x86_64",
        "cp313-cp313t-manylinux_2_28_x86_64",
        "cp312-cp312-win_amd64",
    ):
        shelf.add(f"built-1.0-{tag}.whl")
    shelf.add("built-1.0-cp312-cp312-musllinux_1_2_x86_64.whl")
    shelf.add("built-1.1-cp312-cp312-manylinux_2_28_x86_64.whl")
    project = _project(tmp_path / "project", "built")
    pin = read_lock(_write(project, shelf.index())[LOCK])["built"]
    assert pin.version == "1.0", "1.1 does not serve every machine"
    assert pin.hashes == taken and not pin.marker


def test_a_version_that_a_machine_cannot_take_is_refused(shelf: Shelf, tmp_path: Path) -> None:
    shelf.add("built-1.1-cp312-cp312-manylinux_2_28_x86_64.whl")
    project = _project(tmp_path / "project", "built", lock="built==1.1\n")
    with pytest.raises(NotServed, match=r"built==1\.1 for Linux arm64, 3\.11"):
        _write(project, shelf.index())


def test_both_builds_of_torch_and_the_cuda_libraries_apart(shelf: Shelf, tmp_path: Path) -> None:
    cuda = ("plain", "cuda-lib[x]==13; platform_system == 'Linux'")
    default = {
        shelf.add(f"torch-2.0-cp3{n}-cp3{n}-{tag}.whl", *cuda)
        for n in (11, 12, 13)
        for tag in ("manylinux_2_28_x86_64", "manylinux_2_28_aarch64", "macosx_14_0_arm64")
    }
    shelf.add("cuda_lib-13-py3-none-manylinux_2_27_x86_64.manylinux_2_27_aarch64.whl", "more; extra == 'x'")
    shelf.add("more-1.0-py3-none-any.whl")
    cpu = Shelf(tmp_path / "cpu")
    build = cpu.add("torch-2.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl", "plain")
    project = _project(tmp_path / "project", "torch>=2")
    texts = _write(project, shelf.index(cpu.url))
    pins, apart = read_lock(texts[LOCK]), read_lock(texts[CUDA_LOCK])
    assert pins["torch"].version == "2.0" and pins["torch"].hashes == {*default, build}
    assert [*apart] == ["cuda-lib", "more"]
    assert {pin.marker for pin in apart.values()} == {'sys_platform == "linux"'}
    # A machine that does not reach the index of the CPU builds keeps their hashes, and says so.
    elsewhere = shelf.index("http://127.0.0.1:9/cpu")
    assert _write(project, elsewhere) == texts
    assert elsewhere.out_of_reach == ["http://127.0.0.1:9/cpu"]


def test_one_file_name_with_two_contents_is_refused(shelf: Shelf, tmp_path: Path) -> None:
    other = Shelf(tmp_path / "other")
    other.add("plain-1.0-py3-none-any.whl", salt="something else")
    index = Index(Places((shelf.url, other.url)))
    with pytest.raises(NotServed, match="not the same file"):
        index.wheels("plain")


def test_a_folder_of_wheels_is_hashed(shelf: Shelf, tmp_path: Path) -> None:
    folder = Shelf(tmp_path / "wheels")
    digest = folder.add("plain-1.0+cpu-py3-none-any.whl")
    index = Index(Places((shelf.url,), (str(folder.root / "plain"), folder.url + "/plain")))
    assert digest in {wheel.sha256 for wheel in index.wheels("plain")}
    assert len(index.wheels("plain")) == 2


@pytest.fixture
def server(shelf: Shelf) -> Iterator[tuple[str, list[str]]]:
    """The small index over HTTP on the loopback, parts of files included; and what was asked of it."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = shelf.root / self.path.strip("/")
            if path.is_dir():
                path /= "index.html"
            asked.append(f"{self.path} {self.headers.get('Range', '')}".strip())
            if not path.is_file():
                self.send_error(404)
                return
            data = path.read_bytes()
            part = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
            first, last = (int(part[1]), int(part[2])) if part else (0, len(data) - 1)
            self.send_response(206 if part else 200)
            self.send_header("Content-Range", f"bytes {first}-{last}/{len(data)}")
            self.end_headers()
            self.wfile.write(data[first : last + 1])

        def log_message(self, format: str, *args: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}", asked
        running.shutdown()
        thread.join()


def test_over_http_it_reads_pages_and_only_parts_of_files(
    shelf: Shelf, server: tuple[str, list[str]], tmp_path: Path
) -> None:
    url, asked = server
    shelf.add("large-1.0-py3-none-any.whl", "plain", salt="x" * 300_000)
    project = _project(tmp_path / "project", "large")
    assert _write(project, Index(Places((url,)))) == _write(project, shelf.index())
    assert "/large/" in asked and "/plain/" in asked
    assert not [request for request in asked if request.endswith(".whl")], "a whole file was fetched"


def test_an_index_that_cannot_be_read_ends_the_lock_instead_of_thinning_it(
    shelf: Shelf, tmp_path: Path
) -> None:
    project = _project(tmp_path / "project", "plain")
    with pytest.raises(NotServed, match="cannot be read"):
        _write(project, Index(Places((shelf.url, "http://127.0.0.1:9/simple"))))


def test_a_package_that_nobody_serves_is_named(shelf: Shelf, tmp_path: Path) -> None:
    project = _project(tmp_path / "project", "absent", lock="absent==1.0\n")
    with pytest.raises(NotServed, match=r"absent==1\.0"):
        _write(project, shelf.index())


def test_a_lock_with_one_name_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="twice"):
        read_lock("a_b==1.0\na-b==1.1\n")
