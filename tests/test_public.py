"""The public names: all there, imported only when used."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import headwise


def test_every_public_name_is_importable_and_listed() -> None:
    assert set(headwise.__all__) == {"__version__", *headwise._HOMES}
    for name in headwise.__all__:
        assert getattr(headwise, name) is not None
    assert dir(headwise) == headwise.__all__
    with pytest.raises(AttributeError, match="no attribute 'explane'"):
        _ = headwise.explane  # pyright: ignore[reportAttributeAccessIssue]


def test_type_checkers_and_python_find_the_same_names_in_the_same_places() -> None:
    tree = ast.parse(Path(headwise.__file__).read_text(encoding="utf-8"))
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    homes = {
        alias.asname: node.module
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert homes == headwise._HOMES


def test_importing_headwise_does_not_import_torch() -> None:
    code = "import sys, headwise; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
