"""The public names: all there, imported only when used."""

from __future__ import annotations

import subprocess
import sys

import pytest

import headwise


def test_every_public_name_is_importable_and_listed() -> None:
    assert set(headwise.__all__) == {"__version__", *headwise._HOMES}
    for name in headwise.__all__:
        assert getattr(headwise, name) is not None
    assert dir(headwise) == headwise.__all__
    with pytest.raises(AttributeError, match="no attribute 'explane'"):
        _ = headwise.explane  # pyright: ignore[reportAttributeAccessIssue]


def test_importing_headwise_does_not_import_torch() -> None:
    code = "import sys, headwise; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
