"""The wheels that pip could find, for every platform, in the places that pip's configuration names.

pip tells only about files that this machine could install. A lock for several platforms has to name what the others
take as well, so this module reads the same pages and folders itself (the simple repository API).
"""

from __future__ import annotations

import hashlib
import io
import re
import shlex
import ssl
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from email.parser import HeaderParser
from functools import cached_property
from html.parser import HTMLParser
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.parse import unquote, urljoin, urlsplit
from urllib.request import Request, urlopen

from packaging.requirements import Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.tags import Tag
from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import Version

PIP_DEFAULT = "https://pypi.org/simple"
"""Where pip looks when its configuration names no index."""


class NotServed(Exception):
    """A place cannot be read, or does not serve what the lock needs."""


@dataclass(frozen=True)
class Wheel:
    """One file that a place offers."""

    file: str
    url: str
    sha256: str
    python: SpecifierSet = field(default_factory=SpecifierSet)
    yanked: bool = False

    @cached_property
    def version(self) -> Version:
        return parse_wheel_filename(self.file)[1]

    @cached_property
    def tags(self) -> frozenset[Tag]:
        return parse_wheel_filename(self.file)[3]


@dataclass(frozen=True)
class Places:
    """Where pip looks: pages with one page per package, and folders of files."""

    indexes: tuple[str, ...]
    folders: tuple[str, ...] = ()
    certificates: str | None = None

    @classmethod
    def of_pip(cls) -> Places:
        """The places of pip's configuration on this machine."""
        command = [sys.executable, "-I", "-m", "pip", "--disable-pip-version-check", "config", "list"]
        return cls.listed(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

    @classmethod
    def listed(cls, listing: str) -> Places:
        r"""The places in what ``pip config list`` prints; the environment goes before the files, as for pip.

        >>> Places.listed("global.index-url='https://one.example'\n:env:.index-url='https://two.example/simple/'")
        Places(indexes=('https://two.example/simple',), folders=(), certificates=None)
        >>> Places.listed("global.find-links='wheels more'").folders
        ('wheels', 'more')
        """
        found = {
            key: shlex.split(value)[0] for key, value in re.findall(r"^(\S+?)=(.+)$", listing, re.MULTILINE)
        }

        def value(name: str) -> str:
            of = (found.get(f"{section}.{name}") for section in (":env:", "install", "global"))
            return next((text for text in of if text), "")

        indexes = [value("index-url") or PIP_DEFAULT, *value("extra-index-url").split()]
        cleaned = tuple(url.rstrip("/") for url in indexes)
        return cls(cleaned, tuple(value("find-links").split()), value("cert") or None)


class Index:
    """The wheels of all places; ``extra`` names one more index for single packages, which may be out of reach."""

    def __init__(self, places: Places, extra: dict[str, str] | None = None) -> None:
        self._places = places
        self._extra = extra or {}
        self._ssl = ssl.create_default_context(cafile=places.certificates)
        self._wheels: dict[str, tuple[Wheel, ...]] = {}
        self._requires: dict[str, tuple[Requirement, ...]] = {}
        self.out_of_reach: list[str] = []

    def read_ahead(self, names: Iterable[str]) -> None:
        """Read the pages of many packages at once; one after the other takes minutes."""
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(self.wheels, names))

    def wheels(self, name: str) -> tuple[Wheel, ...]:
        """Every wheel of a package (``name`` in its canonical spelling), by file name."""
        if name not in self._wheels:
            found: dict[str, Wheel] = {}
            for wheel in self._look_everywhere(name):
                known = found.setdefault(wheel.file, wheel)
                if known.sha256 != wheel.sha256:
                    raise NotServed(f"{wheel.file} is not the same file in {known.url} and {wheel.url}")
            self._wheels[name] = tuple(sorted(found.values(), key=lambda wheel: wheel.file))
        return self._wheels[name]

    def requires(self, wheel: Wheel) -> tuple[Requirement, ...]:
        """What a wheel's metadata asks for."""
        if wheel.url not in self._requires:
            with zipfile.ZipFile(self._open(wheel.url)) as archive:
                (name,) = (n for n in archive.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", n))
                fields = HeaderParser().parsestr(archive.read(name).decode("utf-8"))
            self._requires[wheel.url] = tuple(Requirement(r) for r in fields.get_all("Requires-Dist") or ())
        return self._requires[wheel.url]

    def _look_everywhere(self, name: str) -> Iterator[Wheel]:
        for folder in self._places.folders:
            yield from self._in_folder(folder, name)
        for place in self._places.indexes:
            yield from self._on_page(f"{place}/{name}/", name)
        if name in self._extra:
            place = self._extra[name].rstrip("/")
            try:
                yield from self._on_page(f"{place}/{name}/", name)
            except NotServed:
                self.out_of_reach.append(place)

    def _in_folder(self, folder: str, name: str) -> Iterator[Wheel]:
        path = Path(unquote(urlsplit(folder).path) if folder.startswith("file:") else folder)
        if not path.is_dir():
            yield from self._on_page(folder, name)
            return
        for file in sorted(path.glob("*.whl")):
            if _is_wheel_of(file.name, name):
                yield Wheel(
                    file.name, file.absolute().as_uri(), hashlib.sha256(file.read_bytes()).hexdigest()
                )

    def _on_page(self, url: str, name: str) -> Iterator[Wheel]:
        page = self._page(url)
        for link in _links(page):
            target = urlsplit(urljoin(url, link["href"]))
            file = unquote(target.path.rpartition("/")[2])
            digest = re.fullmatch(r"sha256=([0-9a-f]{64})", target.fragment)
            # A file without a hash cannot be locked, and releases with malformed versions of Python are long past.
            with suppress(InvalidSpecifier):
                python = SpecifierSet(link.get("data-requires-python", ""))
                if digest and _is_wheel_of(file, name):
                    whole = target._replace(fragment="").geturl()
                    yield Wheel(file, whole, digest[1], python, "data-yanked" in link)

    def _page(self, url: str) -> str:
        """A page's text; empty where the place does not have it."""
        parts = urlsplit(url)
        if parts.scheme == "file":
            file = Path(unquote(parts.path)) / "index.html"
            return file.read_text(encoding="utf-8") if file.is_file() else ""
        try:
            with urlopen(
                Request(url, headers={"Accept": "text/html"}), timeout=60, context=self._ssl
            ) as answer:
                return answer.read().decode("utf-8")
        except HTTPError as error:
            # Indexes answer 403 or 404 for packages that they do not have.
            if error.code in (403, 404):
                return ""
            raise NotServed(f"{url} answers {error.code}") from None
        except (URLError, TimeoutError) as error:
            raise NotServed(f"{url} cannot be read: {error}") from None

    def _open(self, url: str) -> io.BufferedIOBase:
        parts = urlsplit(url)
        if parts.scheme == "file":
            return Path(unquote(parts.path)).open("rb")
        return io.BufferedReader(_Remote(url, self._ssl), 1 << 16)


class _Remote(io.RawIOBase):
    """A file on a server, of which only the parts that are read are fetched: the metadata of torch lies in 500 MB."""

    def __init__(self, url: str, context: ssl.SSLContext) -> None:
        self._url = url
        self._ssl = context
        self._at = 0
        _, length = self._fetch(0, 0)
        self._length = length

    def _fetch(self, first: int, last: int) -> tuple[bytes, int]:
        request = Request(self._url, headers={"Range": f"bytes={first}-{last}"})
        with urlopen(request, timeout=60, context=self._ssl) as answer:
            if answer.status != 206:
                raise NotServed(f"{self._url}: the server does not give parts of files")
            return answer.read(), int(answer.headers["Content-Range"].rpartition("/")[2])

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._length}[whence]
        self._at = base + offset
        return self._at

    def readinto(self, buffer: bytearray | memoryview, /) -> int:  # pyright: ignore[reportIncompatibleMethodOverride]
        last = min(self._at + len(buffer), self._length) - 1
        if last < self._at:
            return 0
        data, _ = self._fetch(self._at, last)
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)


def _is_wheel_of(file: str, name: str) -> bool:
    """
    >>> _is_wheel_of("mkdocs_material-9.8.1-py3-none-any.whl", "mkdocs-material")
    True
    >>> _is_wheel_of("mkdocs_material-9.8.1.tar.gz", "mkdocs-material"), _is_wheel_of("a.whl", "a")
    (False, False)
    """
    try:
        return file.endswith(".whl") and parse_wheel_filename(file)[0] == name
    except InvalidWheelFilename:
        return False


def _links(page: str) -> list[dict[str, str]]:
    """The attributes of every link.

    >>> _links("<a href='x.whl#sha256=1' data-yanked>x</a> <a>no link</a>")
    [{'href': 'x.whl#sha256=1', 'data-yanked': ''}]
    """
    found: list[dict[str, str]] = []

    class Parser(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            values = {key: value or "" for key, value in attrs}
            if tag == "a" and "href" in values:
                found.append(values)

    Parser().feed(page)
    return found
