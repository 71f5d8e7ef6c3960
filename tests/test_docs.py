"""The documentation holds: links lead somewhere, commands exist with their options, examples print what they say."""

from __future__ import annotations

import ast
import contextlib
import inspect
import io
import math
import re
import shlex
from collections.abc import Callable, Iterator
from importlib import import_module
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

import headwise
from headwise.cli.main import VERBS
from headwise.cli.verb import loads
from make_reference import CLI, NUMBERS, PYTHON, attributes, cli_page, numbers_page, parts, python_page
from wrap_docs import pages, wrapped

ROOT = Path(__file__).parent.parent
PAGES = pages()
RUN = [ROOT / "README.md", ROOT / "docs" / "quickstart.md"]

_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`(headwise [^`\n]+|make [a-z][^`\n]*)`")
_NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?(?:e[-+]\d+)?")


def _name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def _without_blocks(text: str) -> str:
    return _BLOCK.sub("", text)


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_relative_links_lead_to_files(page: Path) -> None:
    for target in _LINK.findall(_without_blocks(page.read_text(encoding="utf-8"))):
        if re.match(r"[a-z]+:", target) or target.startswith("#"):
            continue
        path = page.parent / target.partition("#")[0]
        assert path.exists(), f"{target!r} does not exist"


def _commands(text: str) -> Iterator[str]:
    for kind, block in _BLOCK.findall(text):
        if kind in ("bash", "console", "sh"):
            yield from block.replace("\\\n", " ").splitlines()
    yield from _INLINE.findall(_without_blocks(text))


def _options(command: Any) -> set[str]:
    known = {"-h", "--help"}
    for parameter in command.params:
        known |= {*parameter.opts, *parameter.secondary_opts}
    return known


def _check_headwise(words: list[str]) -> None:
    verb, *rest = words
    if verb in ("--help", "--version", "VERB", "COMMAND"):
        return
    assert verb in VERBS, f"there is no verb {verb!r}"
    app = import_module(VERBS[verb][0]).app
    command: Any = typer.main.get_command(app)
    known = _options(command) | set(loads(app))
    under = getattr(command, "commands", {})
    if rest and not rest[0].startswith("-") and under:
        assert rest[0] in under, f"headwise {verb} has no command {rest[0]!r}"
        known |= _options(under[rest[0]])
    for word in takewhile(lambda word: word != "--", rest):
        if word.startswith("-") and not _NUMBER.fullmatch(word):
            assert word.partition("=")[0] in known, f"headwise {verb} has no option {word!r}"


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_quoted_commands_exist_with_their_options(page: Path) -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for line in _commands(page.read_text(encoding="utf-8")):
        words = shlex.split(line.replace("…", ""), comments=True)
        if words[:1] == ["headwise"] and len(words) > 1:
            _check_headwise(words[1:])
        elif words[:1] == ["make"]:
            asked = {word for word in words[1:] if "=" not in word}
            assert asked <= set(targets), f"the Makefile has no target of {line!r}"


# --- whole: every page, verb, public name, parameter and equation ---------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_prose_is_wrapped_at_one_width(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert wrapped(text) == text, "run: python tools/wrap_docs.py"


@pytest.mark.parametrize(
    ("page", "now"),
    [(CLI, cli_page), (PYTHON, python_page), (NUMBERS, numbers_page)],
    ids=["cli", "python", "numbers"],
)
def test_reference_is_what_the_program_says_now(page: Path, now: Callable[[], str]) -> None:
    assert page.read_text(encoding="utf-8") == now(), "run: make reference"


def test_navigation_holds_every_page() -> None:
    def listed(entries: list[Any]) -> Iterator[str]:
        for entry in entries:
            target = next(iter(entry.values()))
            yield from listed(target) if isinstance(target, list) else [target]

    docs = ROOT / "docs"
    navigation = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
    # docs/results_nav.py adds every page of results by itself.
    there = {str(page.relative_to(docs)) for page in docs.rglob("*.md") if page.parent.name != "results"}
    assert sorted(listed(navigation)) == sorted(there)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_is_shown_in_a_guide(verb: str) -> None:
    guides = [*(ROOT / "docs" / "guides").glob("*.md"), ROOT / "docs" / "quickstart.md"]
    shown = [line.split() for page in guides for line in _commands(page.read_text(encoding="utf-8"))]
    assert any(words[:2] == ["headwise", verb] for words in shown)


def _public() -> Iterator[tuple[str, Any]]:
    """Every public function, class and method of a class, by name."""
    for name in headwise.__all__:
        thing = getattr(headwise, name)
        if inspect.isclass(thing):
            yield name, thing
            for method, value in vars(thing).items():
                inner = value.__func__ if isinstance(value, classmethod | staticmethod) else value
                inner = inner.fget if isinstance(inner, property) else inner
                if inspect.isfunction(inner) and not method.startswith("_"):
                    yield f"{name}.{method}", inner
        elif callable(thing):
            yield name, thing


@pytest.mark.parametrize(("name", "thing"), _public(), ids=lambda x: x if isinstance(x, str) else "")
def test_every_public_name_and_parameter_is_described(name: str, thing: Any) -> None:
    """A function, and a method that takes more than three things, says in its section of parameters what each is."""
    said = inspect.getdoc(thing)
    assert said, f"{name} has no docstring"
    if inspect.isclass(thing):
        return
    taken = [
        parameter for parameter in inspect.signature(thing).parameters if parameter not in ("self", "cls")
    ]
    if "." in name and len(taken) <= 3 and "Parameters\n---" not in said:
        return
    section = re.search(r"^Parameters\n-+\n(.*?)(?=^\w[^\n]*\n-+\n|\Z)", said, re.MULTILINE | re.DOTALL)
    assert section, f"{name} does not describe its parameters"
    assert re.findall(r"^(\w+):\n +\S", section[1], re.MULTILINE) == taken


PUBLIC_TYPES = [getattr(headwise, n) for n in headwise.__all__ if inspect.isclass(getattr(headwise, n))]


@pytest.mark.parametrize("kind", [*PUBLIC_TYPES, *parts()], ids=lambda kind: kind.__name__)
def test_every_field_of_a_public_type_is_described_in_a_sentence(kind: type) -> None:
    for field, said in attributes(kind):
        assert said, f"{kind.__name__}.{field} has no docstring below it"
        assert said.endswith("."), f"{kind.__name__}.{field}: {said!r} is no sentence"


def test_the_parts_of_results_are_found() -> None:
    assert {"FeatureRow", "BankFeature", "Family", "Agreement", "HeadSparsity"} <= {
        k.__name__ for k in parts()
    }


def test_equations_and_sections_that_the_code_cites_exist() -> None:
    method = {page.stem: page.read_text(encoding="utf-8") for page in (ROOT / "docs" / "method").glob("*.md")}
    labels = set(re.findall(r"^ {4}\(([A-Z]\d+)\)", "\n".join(method.values()), re.MULTILINE))
    assert {"W1", "S1", "T1", "F1", "C1"} <= labels
    cited = 0
    for file in [*(ROOT / "src").rglob("*.py"), *(ROOT / "src").rglob("*.md"), *PAGES]:
        text = file.read_text(encoding="utf-8")
        for group in re.findall(r"\bEqs?\.\s*([A-Z]?\d+(?:[–-][A-Z]?\d+)?)", text):
            for label in re.split("[–-]", group):
                assert label in labels, f"{file.name} cites Eq. {label}, which no page of docs/method has"
                cited += 1
        for page, sections in re.findall(r"docs/method/(\w+)\.md ((?:§\d(?:, )?)+)", text):
            for section in re.findall(r"§\d", sections):
                assert f"## {section} " in method[page], f"{file.name} cites {page}.md {section}"
                cited += 1
    assert cited > 20


def test_refusals_that_troubleshooting_explains_are_those_that_headwise_makes() -> None:
    """Every quoted line is made of texts of the program, in order; what stands for data in it is left out."""
    page = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    lines = [" ".join(line.split()) for line in re.findall(r'\*\*"([^"]+)"\*\*', page)]
    assert len(lines) > 6
    made = []
    for file in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                made.append(
                    "".join(str(one.value) if isinstance(one, ast.Constant) else "…" for one in node.values)
                )
    for line in lines:
        parts = [part.strip() for part in re.split(r"…|^key|' \w+'|\d+(?: and \d+)?", line) if part.strip()]
        assert any(re.search(".*".join(map(re.escape, parts)), one) for one in made), f"nothing says {line!r}"


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_files_that_pages_name_exist(page: Path) -> None:
    names = re.findall(
        r"`((?:src|tests|docs|tools|benchmarks|headwise)/[\w./-]+)`", page.read_text(encoding="utf-8")
    )
    for name in names:
        assert any((root / name).exists() for root in (ROOT, ROOT / "src")), f"{name!r} does not exist"


# --- true: what examples print -------------------------------------------------------------------------------------


def _same(said: str, printed: str) -> bool:
    """Equal text, numbers up to what may differ between machines."""
    if _NUMBER.sub("#", said) != _NUMBER.sub("#", printed):
        return False
    pairs = zip(map(float, _NUMBER.findall(said)), map(float, _NUMBER.findall(printed)), strict=True)
    return all(math.isclose(a, b, rel_tol=0.02, abs_tol=2e-3) for a, b in pairs)


def test_numbers_are_compared_with_a_tolerance() -> None:
    assert _same("L22H4 gives 0.677, error 2.4e-07", "L22H4 gives 0.678, error 1.9e-07")
    assert not _same("L22H4 gives 0.677", "L22H4 gives 0.777")
    assert not _same("L22H4 gives 0.677", "L22H4 got 0.677")


@pytest.mark.real
@pytest.mark.parametrize("page", RUN, ids=_name)
def test_python_examples_run_and_print_what_the_page_says(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All ```python blocks of a page in one process; a ```text block right after one is what it prints."""
    monkeypatch.chdir(tmp_path)
    text = page.read_text(encoding="utf-8")
    blocks = list(_BLOCK.finditer(text))
    space: dict[str, Any] = {}
    ran = 0
    for i, block in enumerate(blocks):
        if block[1] != "python":
            continue
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(block[2], f"{page.name}, example {ran + 1}", "exec"), space)
        ran += 1
        after = blocks[i + 1] if i + 1 < len(blocks) else None
        if after is not None and after[1] == "text" and not text[block.end() : after.start()].strip():
            assert _same(after[2].strip(), out.getvalue().strip()), f"example {ran} prints:\n{out.getvalue()}"
    assert ran


@pytest.mark.real
def test_notebook_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    import nbformat
    from nbclient import NotebookClient

    monkeypatch.setenv("PYDEVD_DISABLE_FILE_VALIDATION", "1")
    path = ROOT / "docs" / "notebooks" / "explain.ipynb"
    notebook = nbformat.read(path, as_version=4)
    said = [_printed(cell) for cell in notebook.cells]
    NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
    for cell, before in zip(notebook.cells, said, strict=True):
        assert _same(before, _printed(cell)), cell.source
    assert path.stat().st_size < 100_000


def _printed(cell: Any) -> str:
    """What a cell writes to its standard output."""
    outputs = cell.get("outputs", [])
    return "".join(o["text"] for o in outputs if o["output_type"] == "stream" and o["name"] == "stdout")
