"""The one way to write a file: beside its place, on the disk, then renamed, so that it is whole or absent.

A link is followed, so what it points to is what changes. A pipe or a device is written into, never replaced.
Whatever goes wrong, nothing half-written is left and what was there before stays as it was.
"""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from headwise.errors import HeadwiseError

PART = ".headwise-*.part"
"""What unfinished files match: a process killed in the middle of writing leaves one."""


@contextmanager
def writing(path: str | Path) -> Iterator[Path]:
    """A place to write to; what is there when the block ends becomes ``path`` in one step.

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with writing(Path(folder, "new", "page.html")) as part:
    ...         _ = part.write_text("whole")
    ...     Path(folder, "new", "page.html").read_text()
    'whole'
    """
    try:
        with replacing(path) as part:
            yield part
    except OSError as error:
        raise unwritable(path, error) from None


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """:func:`writing` for callers that have their own words for a full disk: an ``OSError`` stays one."""
    if "\0" in str(path):
        raise OSError(errno.EINVAL, "a name cannot hold a NUL character")
    if not _is_replaceable(path):
        with tempfile.TemporaryDirectory(prefix="headwise-") as folder:
            part = Path(folder, "part")
            part.touch()
            yield part
            _write_through(part, path)
        return
    target = Path(os.path.realpath(path))
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f".headwise-{os.getpid()}-{secrets.token_hex(4)}.part")
    try:
        mode = stat.S_IMODE(target.stat().st_mode) if target.exists() else None
        os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
        created = stat.S_IMODE(part.stat().st_mode)
        yield part
        # Some writers (safetensors) make a file of their own that only its owner can read.
        os.chmod(part, created if mode is None else mode)
        to_disk(part)
        os.replace(part, target)
        to_disk(target.parent)
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)


def write_bytes(path: str | Path, content: bytes) -> Path:
    """Write a whole file of bytes."""
    with writing(path) as part:
        part.write_bytes(content)
    return Path(path)


def write_text(path: str | Path, text: str) -> Path:
    """Write a whole file of UTF-8 text. A lone half of a character, which UTF-8 does not have, becomes ``?``."""
    return write_bytes(path, text.encode("utf-8", "replace"))


def write_json(path: str | Path, value: Any) -> Path:
    """Write one JSON document in the project's one style."""
    from headwise import jsons

    return write_text(path, jsons.dumps(value) + "\n")


def refuse_unwritable(path: str | Path) -> None:
    """One line now instead of a lost result later: try the place before any work is done.

    >>> refuse_unwritable("/proc/nothing/page.html")
    Traceback (most recent call last):
    ...
    headwise.errors.HeadwiseError: '/proc/nothing/page.html' cannot be written (...): choose another place
    """
    try:
        if os.path.isdir(path):
            raise IsADirectoryError(errno.EISDIR, "it is a folder; give a file name")
        if not _is_replaceable(path):
            if not os.access(path, os.W_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
            return
        target = Path(os.path.realpath(path))
        if target.exists() and not os.access(target, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        target.lstat()  # the name itself may be impossible
    except FileNotFoundError:
        pass
    except (OSError, ValueError) as error:
        raise unwritable(path, error) from None
    _try_folder(path)


def _try_folder(path: str | Path) -> None:
    parent = Path(os.path.realpath(path)).parent
    while not parent.exists() and parent != parent.parent:
        parent = parent.parent
    try:
        if not parent.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, f"{str(parent)!r} is not a folder")
        descriptor, probe = tempfile.mkstemp(prefix=".headwise-", suffix=".part", dir=parent)
        os.close(descriptor)
        os.unlink(probe)
    except OSError as error:
        raise unwritable(path, error) from None


def unwritable(path: str | Path, error: Exception) -> HeadwiseError:
    """The one line about a place that cannot be written."""
    reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return HeadwiseError(f"{str(path)!r} cannot be written ({reason}): choose another place")


def sha256_of(path: str | Path, told: Callable[[float], None] = lambda share: None) -> str:
    """The SHA-256 of a file, read once in pieces; ``told`` hears the share that is done."""
    digest, done = hashlib.sha256(), 0
    with open(path, "rb") as file:
        total = max(os.fstat(file.fileno()).st_size, 1)
        while block := file.read(1 << 22):
            digest.update(block)
            done += len(block)
            told(done / total)
    return digest.hexdigest()


def _is_replaceable(path: str | Path) -> bool:
    """Whether a new file may take the place of what is at ``path``: nothing, or a regular file of the user's.

    ``/dev/stdout`` may lead to a regular file, but it is the open file that is meant, not its name.
    """
    if str(os.path.abspath(path)).startswith(("/dev/", "/proc/")) and os.path.exists(path):
        return False
    target = os.path.realpath(path)
    if os.path.islink(target):
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    try:
        return stat.S_ISREG(os.stat(target).st_mode)
    except FileNotFoundError:
        return True


def _write_through(part: Path, path: str | Path) -> None:
    if os.path.isdir(path):
        raise IsADirectoryError(errno.EISDIR, "it is a folder; give a file name")
    # Without truncation: the open file behind /dev/stdout may hold what was printed before.
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND)
    with part.open("rb") as source, os.fdopen(descriptor, "wb") as out:
        shutil.copyfileobj(source, out)


def to_disk(path: Path) -> None:
    """Return only when a file, or the names in a folder, would survive a loss of power."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        if path.is_dir():  # some systems do not open folders; the file itself is on the disk by then
            return
        raise
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # file systems without fsync
            raise
    finally:
        os.close(descriptor)
