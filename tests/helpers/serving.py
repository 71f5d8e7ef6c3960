"""The app on a socket of this machine, and a client that can say anything, right or wrong."""

from __future__ import annotations

import http.client
import json
import re
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from headwise.app.runs import Run
from headwise.app.server import listening, prepared
from headwise.app.session import Session
from headwise.model.model import Model

TAB = "0123456789abcdef"


@dataclass
class Answer:
    """A response."""

    status: int
    headers: dict[str, str]
    content: bytes

    @property
    def data(self) -> Any:
        return json.loads(self.content)


@dataclass
class Served:
    """A running app and what its own page would send."""

    link: str
    session: Session
    cookie: str = ""
    port: int = field(init=False)

    def __post_init__(self) -> None:
        self.port = urlsplit(self.link).port or 80

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def token(self) -> str:
        return parse_qs(urlsplit(self.link).query)["token"][0]

    def enter(self) -> None:
        """Exchange the link's token for the cookie."""
        opened = self.ask("GET", self.link.removeprefix(self.origin), {"cookie": None})
        found = re.match(r"headwise-\d+=[^;]+", opened.headers["set-cookie"])
        assert found is not None
        self.cookie = found[0]

    def ask(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str | None] | None = None,
        body: Any = None,
    ) -> Answer:
        """Ask as the page does; ``headers`` change or (None) take away what it sends."""
        sent = {
            "host": f"127.0.0.1:{self.port}",
            "sec-fetch-site": "same-origin",
            "cookie": self.cookie or None,
            **({"origin": self.origin} if method != "GET" else {}),
            **({} if body is None else {"content-type": "application/json"}),
            **(headers or {}),
        }
        content = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            for name, value in sent.items():
                if value is not None:
                    connection.putheader(name, value)
            if content is not None and "content-length" not in sent:
                connection.putheader("content-length", str(len(content)))
            connection.endheaders(content)
            got = connection.getresponse()
            return Answer(got.status, {k.lower(): v for k, v in got.getheaders()}, got.read())
        finally:
            connection.close()

    def raw(self, text: bytes) -> bytes:
        """What the server says to these bytes."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=10) as to:
            to.sendall(text)
            got = b""
            while piece := to.recv(65536):
                got += piece
            return got

    def read(self, text: str) -> dict[str, Any]:
        got = self.ask("POST", "/api/prompts", body={"tab": TAB, "text": text})
        assert got.status == 200, got.content
        return got.data

    def events(
        self, tab: str = TAB, after: int = 0, until: tuple[str, ...] = ("done", "failed", "cancelled")
    ) -> list[tuple[int, str, Any]]:
        """The events of a tab, to the first that ends a job."""
        return list(self._events(tab, after, until))

    def _events(self, tab: str, after: int, until: tuple[str, ...]) -> Iterator[tuple[int, str, Any]]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        headers = {
            "Host": f"127.0.0.1:{self.port}",
            "Sec-Fetch-Site": "same-origin",
            "Cookie": self.cookie,
            "Last-Event-ID": str(after),
        }
        connection.request("GET", f"/api/events?tab={tab}", headers=headers)
        stream = connection.getresponse()
        assert stream.status == 200
        number, kind = 0, ""
        try:
            while line := stream.readline().decode():
                name, _, value = line.rstrip("\n").partition(": ")
                if name == "id":
                    number = int(value)
                elif name == "event":
                    kind = value
                elif name == "data":
                    yield number, kind, json.loads(value)
                    if kind in until:
                        return
        finally:
            connection.close()


@contextmanager
def served(model: Model, runs: tuple[Path, ...] = (), **settings: Any) -> Iterator[Served]:
    """The app with a model; the page has been let in."""
    session = Session(model, [Run.named(path) for path in runs], **settings)
    bound = listening(0)
    server, link = prepared(session, bound)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]}, daemon=True)
    thread.start()
    deadline = time.monotonic() + 30
    while not server.started and time.monotonic() < deadline:
        time.sleep(0.01)
    opened = Served(link, session)
    try:
        yield opened
    finally:
        server.should_exit = True
        thread.join(timeout=30)
