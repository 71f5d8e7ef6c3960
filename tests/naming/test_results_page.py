"""The page of names says what its kept numbers say."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


def test_the_page_is_what_its_numbers_make() -> None:
    spec = importlib.util.spec_from_file_location("make_names", ROOT / "tools" / "make_names.py")
    assert spec is not None
    assert spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    page = (ROOT / "docs" / "results" / "names.md").read_text(encoding="utf-8")
    data = json.loads((ROOT / "docs" / "results" / "data" / "names.json").read_text(encoding="utf-8"))
    assert tool.filled(page, data) == page
    assert {"shares", "heads", "fits", "fails"} <= {found[1] for found in tool.BLOCK.findall(page)}
    for one in data.values():
        assert one["named"]["n"] == len(one["rows"])
        assert one["swapped"] is not None
        assert one["rotated"] is not None
