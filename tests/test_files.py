"""One way of writing: whole or absent, through links and pipes, and never over what is not ours."""

from __future__ import annotations

import os
import re
import stat
import threading
from pathlib import Path

import pytest

from headwise import jsons
from headwise.errors import HeadwiseError
from headwise.files import refuse_unwritable, replacing, write_json, write_text, writing


def left(folder: Path) -> set[str]:
    return {file.name for file in folder.iterdir()}


def test_a_failure_in_the_middle_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    target = write_text(tmp_path / "a.json", "old")

    def broken() -> None:
        with writing(target) as part:
            part.write_text("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        broken()
    assert target.read_text() == "old" and left(tmp_path) == {"a.json"}


def test_a_link_stays_a_link_and_its_target_changes(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    target = write_text(tmp_path / "real" / "page.html", "old")
    (tmp_path / "link.html").symlink_to(target)
    write_text(tmp_path / "link.html", "new")
    assert (tmp_path / "link.html").is_symlink() and target.read_text() == "new"
    (tmp_path / "dangling").symlink_to(tmp_path / "real" / "later.html")
    write_text(tmp_path / "dangling", "made")
    assert (tmp_path / "real" / "later.html").read_text() == "made"


def test_a_link_to_itself_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for attempt in (refuse_unwritable, lambda path: write_text(path, "x")):
        with pytest.raises(HeadwiseError, match="cannot be written"):
            attempt(tmp_path / "loop")
    assert (tmp_path / "loop").is_symlink()


def test_a_pipe_is_written_into(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    heard: list[str] = []
    reader = threading.Thread(target=lambda: heard.append(pipe.read_text()))
    reader.start()
    refuse_unwritable(pipe)
    write_text(pipe, "through")
    reader.join(10)
    assert heard == ["through"] and stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_device_is_written_into(tmp_path: Path) -> None:
    write_text("/dev/null", "gone")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    if os.path.exists("/dev/full"):
        with pytest.raises(HeadwiseError, match="No space left"):
            write_text("/dev/full", "x")
        assert stat.S_ISCHR(os.stat("/dev/full").st_mode)


def test_permissions_are_those_of_the_old_file_or_of_a_new_one(tmp_path: Path) -> None:
    target = write_text(tmp_path / "a", "x")
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE(target.stat().st_mode) == 0o666 & ~umask
    target.chmod(0o640)
    with writing(target) as part:
        part.unlink()
        part.write_text("y")
        part.chmod(0o600)
    assert stat.S_IMODE(target.stat().st_mode) == 0o640 and target.read_text() == "y"


@pytest.mark.parametrize("name", ["x" * 300, "a\x00b", ".", "file/inside.html"])
def test_impossible_places_are_refused_before_the_work(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("a file")
    with pytest.raises(HeadwiseError, match="cannot be written"):
        refuse_unwritable(tmp_path / name if name != "." else tmp_path)
    assert left(tmp_path) == {"file"}


def test_a_writer_with_its_own_words_sees_the_system_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("a file")
    with pytest.raises(OSError, match=r"File exists|Not a directory"), replacing(tmp_path / "file" / "x"):
        pass


def test_json_is_json_whatever_the_value(tmp_path: Path) -> None:
    path = write_json(tmp_path / "a.json", {"x": [float("inf"), 1.5], "t": "\x1b\x9b\u2028\ud800é"})
    assert jsons.parse(path.read_bytes().replace(rb"\ud800", b"")) == {
        "x": [None, 1.5],
        "t": "\x1b\x9b\u2028é",
    }


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[" * 100_000, "nested too deeply"),
        ('{"a": ' * 100_000, "nested too deeply"),
        ("1" * 5000, "5000 digits"),
        ("[NaN]", "NaN is not a number"),
        ("[1e999]", "too large"),
        ('"\\ud800"', "half of a surrogate pair"),
        ('{"\\udc00": 1}', "half of a surrogate pair"),
        ('{"a": 1, "a": 1}', "occurs twice"),
        ("{", "line 1, column 2"),
        (b"\xff\xfe", "byte 0 is not UTF-8"),
    ],
)
def test_what_is_not_json_is_refused_with_its_reason(text: str | bytes, reason: str) -> None:
    with pytest.raises(jsons.NotJson, match=reason):
        jsons.parse(text)


def test_a_pair_of_escapes_is_one_character() -> None:
    assert jsons.parse('"\\ud83d\\ude00"') == "😀"


OWN = re.compile(
    r"\.write_text\(|\.write_bytes\(|\.open\(\"[wax]|open\([^)]*, \"[wax]|os\.replace|save_file\(|json\.dump\("
)
THROUGH_THE_MODULE = re.compile(r"(part|files|folder|self)\.(write_text|write_bytes|open)\(")


def test_no_other_module_writes_files_its_own_way() -> None:
    """Only what fills a new folder that is renamed as a whole may write plainly, and a process into its log."""
    source = Path(jsons.__file__).parent
    found = {
        str(file.relative_to(source))
        for file in source.rglob("*.py")
        for line in file.read_text("utf-8").splitlines()
        if "replacing(" not in line and OWN.search(THROUGH_THE_MODULE.sub("", line))
    }
    assert found <= {
        "files.py",
        "app/studies.py",
        "research/reproduce.py",
        "model/loading/fetch.py",
        "model/loading/store.py",
        "model/loading/convert.py",
    }
