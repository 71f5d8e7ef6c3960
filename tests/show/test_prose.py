"""Reports' prose: every section that a report asks for is in its file, and data never becomes markup."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import headwise
from headwise.show.kit import markdown
from headwise.show.kit.markdown import Prose

SHOW = Path(headwise.__file__).parent / "show"
REPORTS = [file for file in sorted(SHOW.rglob("*.py")) if "Prose.read(" in file.read_text(encoding="utf-8")]


@pytest.mark.parametrize(
    "file", [f for f in REPORTS if f.parent.name != "kit"], ids=lambda f: f"{f.parent.name}-{f.stem}"
)
def test_every_section_that_a_report_names_is_in_its_file(file: Path) -> None:
    source = file.read_text(encoding="utf-8")
    found = re.search(r'Prose\.read\("([^"]+)"\)', source)
    assert found is not None
    sections = Prose.read(found[1]).sections
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    first = [call.args[0] for call in calls if getattr(call.func, "id", "") == "PROSE"]
    named = {one.value for node in first for one in ast.walk(node) if isinstance(one, ast.Constant)}
    assert len(named) > 3
    assert named <= set(sections)
    # What is filled in is named as the report names it.
    for call in calls:
        if (
            getattr(call.func, "id", "") == "PROSE"
            and isinstance(call.args[0], ast.Constant)
            and not any(keyword.arg is None for keyword in call.keywords)
        ):
            places = set(re.findall(r"\{(\w+)", sections[call.args[0].value]))
            assert places == {keyword.arg for keyword in call.keywords}, call.args[0].value


def test_data_in_prose_is_text() -> None:
    prose = Prose("## a\n\n**{name}** of `{name}`, {share:.1%}\n")
    shown = markdown.html(prose("a", name="<b>*{x}*`", share=0.5))
    assert shown == "<p><strong>&lt;b&gt;*{x}*`</strong> of <code>&lt;b&gt;*{x}*`</code>, 50.0\u00a0%</p>"


PAGES = [f for f in sorted(SHOW.rglob("*.py")) if re.search(r"import .*\bReport\b", f.read_text("utf-8"))]


@pytest.mark.parametrize("file", PAGES, ids=lambda f: f"{f.parent.name}-{f.stem}")
def test_sentences_of_reports_are_in_their_markdown_files(file: Path) -> None:
    """A title or a label may be in the code; whatever is longer than ten words is prose."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    said = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}  # docstrings
    texts = [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in said
    ]
    assert [text for text in texts if len(text.split()) > 10] == []


def test_every_report_has_its_markdown_file() -> None:
    assert {f for f in PAGES if f.parent.name != "kit"} <= set(REPORTS)


@pytest.mark.parametrize("file", sorted(SHOW.rglob("*.md")), ids=lambda f: f"{f.parent.name}-{f.stem}")
def test_prose_uses_only_the_marks_that_pages_know(file: Path) -> None:
    """A star or a backtick that marks nothing would be shown as it is."""
    for name, body in Prose(file.read_text(encoding="utf-8")).sections.items():
        shown = markdown.html(body)
        assert not set("*`_") & set(re.sub(r"\{.*?\}|<code>.*?</code>", "", shown)), name


def test_a_page_that_speaks_of_the_paper_names_it() -> None:
    pages = [path for path in SHOW.rglob("*.md") if " the paper" in path.read_text()]
    assert pages
    for path in pages:
        assert "“The paper” is" in path.read_text(), path.name
