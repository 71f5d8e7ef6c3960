"""Tabs of a browser that the app has let in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from serving import Served

REFUSED = "the server responded with a status of 4"
"""What the browser itself says of a refusal, which the page shows."""
Tab = Callable[..., Any]


@contextmanager
def tabs(browser: Any, app: Served, **settings: Any) -> Iterator[Tab]:
    """Opens tabs of one browser that was let in; none may say anything, or ask anybody but the app."""
    context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **settings})
    name, _, value = app.cookie.partition("=")
    context.add_cookies([{"name": name, "value": value, "url": app.origin, "sameSite": "Strict"}])
    troubles: list[str] = []
    asked: list[str] = []

    def opened(path: str = "/", **place: Any) -> Any:
        page = context.new_page()
        page.on("console", lambda said: None if REFUSED in said.text else troubles.append(said.text))
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("dialog", lambda dialog: (troubles.append(f"dialog {dialog.message}"), dialog.dismiss()))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(f"{app.origin}{path}" + (f"?{urlencode(place)}" if place else ""))
        return page

    yield opened
    context.close()
    assert troubles == []
    assert [url for url in asked if not url.startswith((f"{app.origin}/", f"blob:{app.origin}/"))] == []


def place_of(page: Any) -> dict[str, str]:
    """What the address says."""
    return {name: values[0] for name, values in parse_qs(urlsplit(page.url).query).items()}
