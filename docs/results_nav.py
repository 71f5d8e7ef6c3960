"""Puts every page of docs/results into the site's navigation, so that a new result needs no second entry."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def on_config(config: Any) -> Any:
    pages = sorted((Path(config["docs_dir"]) / "results").glob("*.md"))
    if pages:
        config["nav"].append({"Results": [f"results/{page.name}" for page in pages]})
    return config
