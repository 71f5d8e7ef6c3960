"""Every route refuses whoever is not the app's own page, in every way in which one can be wrong."""

from __future__ import annotations

import json
from typing import Any

import pytest
from serving import TAB, Served, served
from toy_answers import small_model

from headwise.app.guard import HEADERS, POLICY, Keys
from headwise.app.routes import routes
from headwise.app.server import listening
from headwise.errors import HeadwiseError

ID = "0" * 32
READS = [
    "/api/state",
    f"/api/prompts/{ID}/heads",
    f"/api/prompts/{ID}/thumbs",
    f"/api/prompts/{ID}/pattern/L0H0",
    f"/api/prompts/{ID}/row/0",
    f"/api/prompts/{ID}/column/0",
    f"/api/events?tab={TAB}",
    f"/api/export/{TAB}.json",
    f"/api/texts/{'0' * 64}",
    "/api/runs/0/report.html",
    "/api/runs",
    "/api/runs/0/tables/edges",
    "/api/runs/0/circuits/0",
    "/api/runs/0/circuits/0.graphml",
    "/api/jobs",
]
BODIES: dict[str, dict[str, Any]] = {
    "/api/tokens": {"text": "a"},
    "/api/texts": {"text": "a"},
    "/api/model": {"tab": TAB, "job": TAB, "name": "none"},
    "/api/prompts": {"tab": TAB, "text": "a b"},
    "/api/cell": {"prompt": ID},
    "/api/explain": {"tab": TAB, "job": TAB, "prompt": ID},
    "/api/difference": {"tab": TAB, "prompt": ID, "other": ID},
    "/api/walk": {"tab": TAB, "prompt": ID},
    "/api/takeaway": {"screen": "cell", "text": "a b"},
    "/api/studies": {"study": {"kind": "families", "runs": ["nowhere"]}},
    "/api/studies/none": {},
    "/api/edit": {
        "tab": TAB,
        "prompt": ID,
        "head": "L0H0",
        "query": 1,
        "key": 0,
        "edits": [{"kind": "cut"}],
    },
}
CHANGES = [*(("POST", path) for path in BODIES), ("DELETE", "/api/jobs/1"), ("DELETE", "/api/studies/none")]
API = [*(("GET", path) for path in READS), *CHANGES]
SCREENS = [
    "/",
    "/heads",
    "/cell",
    "/circuit",
    "/compare",
    "/runs",
    "/assets/headwise.js",
    "/assets/headwise.css",
    "/assets/app.js",
    "/assets/screens.js",
]
EVERYTHING = [*(("GET", path) for path in SCREENS), *API]

FOREIGN = [
    "evil.example",
    "127.0.0.1",
    "127.0.0.1:1",
    "localhost",
    "localhost.evil.example:{port}",
    "[::1]",
    "0.0.0.0:{port}",
    "127.0.0.1:{port}.evil.example",
    "",
    "127.0.0.1:{port}@evil.example",
    "127.1:{port}",
    "2130706433:{port}",
]
ORIGINS = [
    "http://evil.example",
    "null",
    "http://127.0.0.1",
    "http://127.0.0.1:1",
    "https://127.0.0.1:{port}",
    "http://localhost:{port}",
    "file://",
    "",
]
SITES = ["cross-site", "same-site", "none", ""]


def ask(app: Served, method: str, path: str, headers: dict[str, str | None] | None = None) -> Any:
    return app.ask(method, path, headers, BODIES.get(path) if method == "POST" else None)


def test_every_route_is_tried_here(app: Served) -> None:
    """A new route cannot be forgotten."""
    known = {
        (next(iter(route.methods - {"HEAD"})), route.path_regex)
        for route in routes(app.session)
        if route.methods
    }
    for method, path in known:
        tried = [
            one
            for how, one in [*EVERYTHING, ("GET", "/runs")]
            if how == method and path.match(one.split("?")[0])
        ]
        assert tried, path.pattern


@pytest.mark.parametrize("host", FOREIGN)
@pytest.mark.parametrize(("method", "path"), EVERYTHING)
def test_another_host_is_not_us(app: Served, method: str, path: str, host: str) -> None:
    got = ask(app, method, path, {"host": host.format(port=app.port)})
    assert got.status == 421
    assert got.data["error"]


@pytest.mark.parametrize("origin", ORIGINS)
@pytest.mark.parametrize(("method", "path"), API)
def test_another_origin_may_not_ask(app: Served, method: str, path: str, origin: str) -> None:
    """Not even with a browser's word that the site is the same."""
    assert ask(app, method, path, {"origin": origin.format(port=app.port)}).status == 403


@pytest.mark.parametrize("site", SITES)
@pytest.mark.parametrize(("method", "path"), API)
def test_another_site_may_not_ask(app: Served, method: str, path: str, site: str) -> None:
    assert ask(app, method, path, {"sec-fetch-site": site}).status == 403


@pytest.mark.parametrize(("method", "path"), API)
def test_somebody_who_says_nothing_may_not_ask(app: Served, method: str, path: str) -> None:
    assert ask(app, method, path, {"sec-fetch-site": None, "origin": None}).status == 403


@pytest.mark.parametrize(
    "cookie", [None, "headwise-{port}=", "headwise-{port}=x", "headwise-1={right}", "other={right}"]
)
@pytest.mark.parametrize(("method", "path"), API)
def test_without_the_cookie_nothing_is_told(app: Served, method: str, path: str, cookie: str | None) -> None:
    right = app.cookie.partition("=")[2]
    given = None if cookie is None else cookie.format(port=app.port, right=right)
    got = ask(app, method, path, {"cookie": given})
    assert got.status == 401
    assert "link" in got.data["hint"]


@pytest.mark.parametrize("method", ["OPTIONS", "PUT", "PATCH", "HEAD", "TRACE", "CONNECT", "PROPFIND", "get"])
@pytest.mark.parametrize("path", ["/", "/api/state", "/api/prompts", "/assets/app.js"])
def test_other_methods_are_not_done(app: Served, method: str, path: str) -> None:
    got = app.ask(method, path)
    assert got.status in (400, 405)
    assert not [name for name in got.headers if name.startswith("access-control")]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        *(("POST", path) for path in READS),
        *(("GET", path) for path in BODIES),
        ("GET", "/api/jobs/1"),
        ("DELETE", "/api/state"),
        ("POST", "/"),
    ],
)
def test_a_route_has_one_method(app: Served, method: str, path: str) -> None:
    got = app.ask(method, path, body={} if method == "POST" else None)
    assert got.status == 405
    assert set(got.data) == {"error", "hint", "where", "choices"}


WRONG_BODIES: list[tuple[bytes, int]] = [
    (b"", 400),
    (b"{", 400),
    (b"\xff\xfe", 400),
    (b'{"text": "a", "text": "b"}', 400),
    (b'{"text": NaN}', 400),
    (b"[" * 100_000, 400),
    (b"null", 422),
    (b"[]", 422),
    (b"{}", 422),
    (b'{"text": 1, "tab": 2, "prompt": 3}', 422),
    (b'{"text": "a", "unknown": 1}', 422),
    (b'"' + b"a" * 3_000_000 + b'"', 413),
]


@pytest.mark.parametrize(("body", "status"), WRONG_BODIES)
@pytest.mark.parametrize("path", BODIES)
def test_a_wrong_body_is_one_line(app: Served, path: str, body: bytes, status: int) -> None:
    got = app.ask("POST", path, body=body)
    assert got.status == status
    assert "\n" not in got.data["error"] and len(got.data["error"]) < 600


@pytest.mark.parametrize(
    "kind",
    ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "", "application/jsonp"],
)
@pytest.mark.parametrize("path", BODIES)
def test_a_form_cannot_pose_as_the_page(app: Served, path: str, kind: str) -> None:
    assert app.ask("POST", path, {"content-type": kind}, BODIES[path]).status == 415


@pytest.mark.parametrize("path", READS)
def test_a_request_that_reads_has_no_body(app: Served, path: str) -> None:
    assert app.ask("GET", path, {"content-type": "application/json"}, {"a": 1}).status == 400


@pytest.mark.parametrize(
    "path",
    [
        "/assets/../guard.py",
        "/assets/..%2fguard.py",
        "/assets/%2e%2e/%2e%2e/etc/passwd",
        "/assets/",
        "/assets/app.html",
        "//evil.example/",
        "/api",
        "/api/",
        "/api//state",
        "/api/state/",
        "/API/state",
        "/api/prompts/x/heads",
        f"/api/prompts/{ID.upper()[:-1]}G/heads",
        f"/api/prompts/{ID}/row/-1",
        f"/api/prompts/{ID}/row/1e9",
        f"/api/prompts/{ID}/row/x",
        "/etc/passwd",
        "/heads/",
        "/%00",
        "/docs",
        "/openapi.json",
    ],
)
def test_there_is_nothing_else(app: Served, path: str) -> None:
    got = app.ask("GET", path)
    assert got.status == 404
    assert set(got.data) == {"error", "hint", "where", "choices"}


def test_two_hosts_or_none_are_refused(app: Served) -> None:
    own = f"127.0.0.1:{app.port}".encode()
    for hosts in (b"", b"Host: %b\r\nHost: evil.example\r\n" % own):
        got = app.raw(b"GET / HTTP/1.1\r\n%bConnection: close\r\n\r\n" % hosts)
        assert got.split(b" ", 2)[1] in (b"400", b"421")
    assert app.raw(b"GET / HTTP/1.0\r\n\r\n").split(b" ", 2)[1] == b"421"


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost", "LOCALHOST", "[::1]"])
def test_our_own_names_are_let_in(app: Served, name: str) -> None:
    host = f"{name}:{app.port}"
    assert app.ask("GET", "/", {"host": host}).status == 200
    allowed = {"host": host, "origin": f"http://{host.lower()}"}
    assert app.ask("GET", "/api/state", allowed).status == 200


def test_every_answer_has_the_policy_and_none_shares_itself(app: Served) -> None:
    for method, path in [*EVERYTHING, ("GET", "/nothing"), ("PUT", "/")]:
        if path.startswith("/api/events"):
            continue
        got = ask(app, method, path)
        for name, value in HEADERS.items():
            assert got.headers[name] == value, (path, name)
        assert not [name for name in got.headers if name.startswith("access-control") or name == "server"]
    assert "unsafe" not in POLICY and "*" not in POLICY and "http" not in POLICY


def test_the_page_loads_nothing_from_elsewhere_and_has_no_script_of_its_own(app: Served) -> None:
    page = app.ask("GET", "/cell?p=%3Cscript%3Ealert(1)%3C/script%3E", {"cookie": None}).content.decode()
    assert "//" not in page.replace("<!doctype", "")
    assert page.count("<script") == 2 and page.count("<script src=") == 2
    assert "alert" not in page and "style=" not in page and "<style" not in page


def test_a_link_opens_the_app_once() -> None:
    with served(small_model()) as app:
        path = f"/cell?h=L1H1&token={app.token}&p=a+b"
        assert app.ask("GET", f"/?token={app.token[:-1]}x", {"cookie": None}).status == 403
        assert app.ask("GET", f"/?token={app.token}&token={app.token}", {"cookie": None}).status == 403
        first = app.ask("GET", path, {"cookie": None})
        assert first.status == 303
        assert first.headers["location"] == "/cell?h=L1H1&p=a+b"
        said = first.headers["set-cookie"].lower()
        assert said.startswith(f"headwise-{app.port}=")
        assert "httponly" in said and "samesite=strict" in said and "path=/" in said
        assert app.token not in first.headers["set-cookie"]
        assert app.ask("GET", path, {"cookie": None}).status == 403
        app.cookie = first.headers["set-cookie"].split(";")[0]
        assert app.ask("GET", path).status == 303  # the same browser may follow its link again
        assert app.ask("GET", "/api/state").status == 200
        assert app.ask("GET", f"//evil.example/x?token={app.token}").headers["location"] == "/evil.example/x"


def test_two_apps_do_not_share_a_cookie() -> None:
    first, second = Keys(), Keys()
    secret = first.exchange(first.token)
    assert secret is not None and first.fit(secret) and not second.fit(secret)
    assert first.exchange(first.token) is None
    assert len({first.token, second.token, secret}) == 3


def test_the_socket_is_this_machines_own() -> None:
    with listening(0) as bound:
        address, port = bound.getsockname()
        assert address == "127.0.0.1"
        bound.listen(1)
        with pytest.raises(HeadwiseError, match=f"port {port} cannot be used"):
            listening(port)


def test_an_address_that_is_too_long_is_refused(app: Served) -> None:
    assert app.ask("GET", "/?p=" + "a" * 20_000).status == 414


def test_errors_are_json(app: Served) -> None:
    got = app.ask("POST", "/api/prompts", body={"tab": TAB, "text": " "})
    assert got.status == 422
    assert json.loads(got.content) == {
        "error": "the prompt is empty: give the text the model is to read",
        "hint": None,
        "where": "prompt",
        "choices": [],
    }
