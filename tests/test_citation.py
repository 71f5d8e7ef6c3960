"""The citation file is valid, and every place that names the version names the same one."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import yaml

import headwise

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CITATION = yaml.safe_load((ROOT / "CITATION.cff").read_text())
# The keys of the format's version 1.2.0 that belong to a piece of software as such.
ALLOWED = {
    *(
        "abstract",
        "authors",
        "cff-version",
        "commit",
        "contact",
        "date-released",
        "doi",
        "identifiers",
        "keywords",
    ),
    *(
        "license",
        "license-url",
        "message",
        "preferred-citation",
        "references",
        "repository",
        "repository-artifact",
    ),
    *("repository-code", "title", "type", "url", "version"),
}


def test_the_citation_file_has_what_the_format_asks_for() -> None:
    assert {"cff-version", "message", "title", "authors"} <= set(CITATION) <= ALLOWED
    assert CITATION["cff-version"] == "1.2.0" and CITATION["type"] == "software"
    assert CITATION["authors"] and all(author.get("name") for author in CITATION["authors"])
    assert all(isinstance(CITATION[key], str) and CITATION[key] for key in ("message", "title", "abstract"))


def test_the_version_is_the_same_everywhere() -> None:
    newest = re.search(r"^## (\d+\.\d+\.\d+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest is not None
    # A version such as 0.10 would be read as the number 0.1: it has to be text.
    assert isinstance(CITATION["version"], str)
    assert {headwise.__version__, newest[1], CITATION["version"]} == {PROJECT["version"]}


def test_the_citation_says_what_the_package_says() -> None:
    assert CITATION["license"] == PROJECT["license"]
    assert CITATION["keywords"] == PROJECT["keywords"]
