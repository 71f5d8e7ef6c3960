"""A page that opens offline and can do nothing but show itself.

Its policy (a Content-Security-Policy in the page) names the page's own scripts by their digests. Whatever gets
into a page, no other script runs, nothing is loaded, nothing is sent.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

from headwise.show.kit.escape import script_json, text

BUNDLE, STYLE = "assets/headwise.js", "assets/headwise.css"
"""What ``web/`` builds: the parts that pages are made of."""
APP = "assets/app.js"
"""What the app's page has besides: the script that asks the app's server. No saved page has it."""
SCREENS = "assets/screens.js"
"""Screens of the app that are opened seldom: its page loads them when the first of them is."""


def mounted(title: str, data: Mapping[str, Any], plain: str) -> str:
    """The page of a JSON document that the bundle draws; ``plain`` is markup for a browser without scripts.

    The bundle only ever sets text, so nothing in the data can become markup. With the document goes what its numbers
    mean.
    """
    from headwise.show.kit.glossary import glossary

    data = {**data, "glossary": glossary()}
    parts = {"title": text(title), "data": script_json(data), "plain": plain, "style": part(STYLE)}
    return page("kit/mounted.html", parts, [f"{part(BUNDLE)}headwise.open();"], no_markup=True)


def page(template: str, parts: Mapping[str, str], scripts: Sequence[str], *, no_markup: bool = False) -> str:
    """The page of a template file: ``{{name}}`` becomes the part of that name, which must be markup already.

    ``{{head}}`` is how every page begins: its policy and its title. ``scripts`` are ours, never made from data; they
    run in this order where the template says ``{{scripts}}``. With ``no_markup`` the browser itself refuses whatever
    would turn a string into elements.
    """
    filled = {
        **parts,
        "policy": policy(scripts) + "; require-trusted-types-for 'script'" * no_markup,
        "scripts": "\n".join(f"<script>{script}</script>" for script in scripts),
    }
    return _filled(template, {**filled, "head": _filled("kit/head.html", filled)})


def _filled(template: str, parts: Mapping[str, str]) -> str:
    # In one pass: a part may hold what looks like the name of another.
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], part(template))


def policy(scripts: Sequence[str]) -> str:
    """What a page may do: run exactly these scripts, be styled, and show pictures that it holds itself.

    >>> policy([])
    "default-src 'none'; script-src 'none'; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; ..."
    """
    digests = (hashlib.sha256(script.encode()).digest() for script in scripts)
    allowed = " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
    return (
        f"default-src 'none'; script-src {allowed or chr(39) + 'none' + chr(39)}; style-src 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )


def script(*names: str) -> str:
    """Some of our script files as one script with names of its own."""
    return "\n".join(["(() => {", "'use strict';", *map(part, names), "})();"])


def part(name: str) -> str:
    """A file that belongs to the pages."""
    return resources.files("headwise.show").joinpath(name).read_text(encoding="utf-8")
