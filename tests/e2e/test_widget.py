"""The widget in JupyterLab, in a real browser: it draws, a click explains another cell, nothing leaves the machine."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browsing import browsed

import headwise

pytestmark = [browsed, pytest.mark.slow]
HELPERS = Path(__file__).parents[1] / "helpers"
CODE = """\
import headwise
from tiny import prompts_of, tiny

shown = headwise.widget(tiny("llama"), prompts_of(9)[0], head="L3H1", query=8, key=2)
shown
"""


def _notebook() -> dict[str, Any]:
    cell = {
        "cell_type": "code",
        "id": "one",
        "source": CODE,
        "metadata": {},
        "outputs": [],
        "execution_count": None,
    }
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return {"cells": [cell], "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}


@contextlib.contextmanager
def _lab(folder: Path) -> Iterator[str]:
    """JupyterLab on loopback, with settings and files of its own."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    token = secrets.token_hex(16)
    at = {
        name: str(folder / name) for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR")
    }
    paths = os.pathsep.join(map(str, (HELPERS, Path(headwise.__file__).parents[1])))
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--ip=127.0.0.1"]
    command += [
        f"--port={port}",
        f"--IdentityProvider.token={token}",
        f"--ServerApp.root_dir={folder / 'work'}",
    ]
    command += ["--LabApp.news_url=", "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate"]
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(
            command, env={**os.environ, **at, "PYTHONPATH": paths}, stdout=log, stderr=log, cwd=folder
        )
    address = f"http://127.0.0.1:{port}"
    try:
        for _ in range(300):
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"{address}/api/status?token={token}", timeout=2).close()
                break
            assert server.poll() is None, (folder / "log").read_text()
            time.sleep(0.2)
        yield f"{address}/lab/tree/why.ipynb?token={token}&reset"
    finally:
        server.terminate()
        server.wait(20)


def test_a_widget_in_jupyterlab_explains_what_is_clicked(browser: Any, tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "why.ipynb").write_text(json.dumps(_notebook()), encoding="utf-8")
    with _lab(tmp_path) as address:
        page = browser.new_page(viewport={"width": 1300, "height": 1000})
        elsewhere: list[str] = []
        page.on("request", lambda asked: _note(asked.url, elsewhere))
        page.goto(address)
        page.locator(".jp-CodeCell").first.click(timeout=60_000)
        page.wait_for_function("() => document.body.innerText.includes('Idle')", timeout=60_000)
        page.keyboard.press("Control+Enter")
        drawn = page.locator(".jp-OutputArea .headwise.explanation")
        drawn.wait_for(timeout=90_000)
        assert "L3H1" in drawn.locator("h1").inner_text()
        before = drawn.locator("h1").inner_text()
        width = "fact => getComputedStyle(fact).float"
        assert drawn.locator("dt").first.evaluate(width) == "none"  # the notebook's own style stays outside
        chart = drawn.locator("canvas").last
        chart.scroll_into_view_if_needed()
        chart.focus()
        page.keyboard.press("ArrowUp")
        page.keyboard.press("Enter")
        drawn.locator("h1", has_not_text=before).wait_for(timeout=60_000)
        assert drawn.locator("h1").inner_text() != before
        assert elsewhere == []
        page.close()


def _note(url: str, elsewhere: list[str]) -> None:
    if not url.startswith(("http://127.0.0.1:", "ws://127.0.0.1:", "data:", "blob:")):
        elsewhere.append(url)
