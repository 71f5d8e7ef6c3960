"""Who may ask: only this machine's own browser, from our own page, after it was shown the link.

A server on the loopback address is reached by every page that the browser has open, under any name that somebody lets
point to it, and by every program on the machine. So each request is held to four things, in this order:

* **Host** is this machine *and our port*, else 421: a foreign name that was made to point here is not us;
* **method**: GET, POST, DELETE, else 405; there is no CORS, so a preflight is refused like any other;
* **Origin and Sec-Fetch-Site** say that our own page asks (for ``/api`` and whatever changes something), else 403;
* **the cookie**, for ``/api``, else 401. It is given once, in exchange for the token of the link that was printed.

The page itself and its scripts hold nothing that is secret; they are given without the cookie, so that a link which
was kept elsewhere opens although ``SameSite=Strict`` keeps the cookie from it.
"""

from __future__ import annotations

import hmac
import secrets
import threading
from collections.abc import Sequence
from urllib.parse import parse_qsl, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

METHODS = ("GET", "POST", "DELETE")
LONGEST_QUERY = 16_000
POLICY = "; ".join(
    [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' blob:",
        "connect-src 'self'",
        "frame-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
    ]
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


def refusal(
    status: int,
    error: str,
    hint: str | None = None,
    where: str | None = None,
    choices: Sequence[str] = (),
) -> JSONResponse:
    """Every error has this form."""
    return JSONResponse({"error": error, "hint": hint, "where": where, "choices": list(choices)}, status)


class Keys:
    """The token of the link, which is good once, and the secret of the cookie that it is exchanged for."""

    def __init__(self) -> None:
        self.token, self._secret = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
        self._spent = False
        self._lock = threading.Lock()

    def exchange(self, token: str) -> str | None:
        """The cookie's secret for the right token, the first time."""
        with self._lock:
            if self._spent or not _same(token, self.token):
                return None
            self._spent = True
            return self._secret

    def fit(self, secret: str) -> bool:
        return _same(secret, self._secret)


class Guard:
    """Outermost: nothing behind it sees a request that it does not let through."""

    def __init__(self, app: ASGIApp, *, port: int, keys: Keys) -> None:
        self.app, self.keys = app, keys
        self.cookie = f"headwise-{port}"  # cookies know no ports: two apps must not overwrite each other's
        at = "" if port == 80 else f":{port}"
        self.hosts = {f"{name}{at}" for name in ("127.0.0.1", "localhost", "[::1]")}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        answer = self._refused(scope) or self._exchanged(scope) or self._locked(scope)
        await (self.app if answer is None else answer)(scope, receive, guarded)

    def _refused(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        hosts = headers.getlist("host")
        if len(hosts) != 1 or hosts[0].lower() not in self.hosts:
            return refusal(421, "this is not the address of the app", "open the link that was printed")
        if scope["method"] not in METHODS:
            return refusal(405, f"there is no method {scope['method'][:20]!r}")
        if len(scope["query_string"]) > LONGEST_QUERY:
            return refusal(414, "the address is too long")
        if scope["method"] != "GET" or _is_api(scope):
            origins, sites = headers.getlist("origin"), headers.getlist("sec-fetch-site")
            ours = [one == f"http://{hosts[0].lower()}" for one in origins] + [
                one == "same-origin" for one in sites
            ]
            if not ours or not all(ours):
                return refusal(403, "only the app's own page may ask this")
        if scope["method"] == "GET" and (
            headers.get("content-length", "0") != "0" or "transfer-encoding" in headers
        ):
            return refusal(400, "a request that only reads has no body")
        return None

    def _exchanged(self, scope: Scope) -> Response | None:
        """The link that was printed: its token becomes a cookie, and leaves the address."""
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        tokens = [value for name, value in query if name == "token"]
        if not tokens or _is_api(scope) or scope["method"] != "GET":
            return None
        secret = self.keys.exchange(tokens[0]) if len(tokens) == 1 else None
        if secret is None and not self._known(scope):
            return refusal(403, "this link was used before, or is not ours", "start headwise app again")
        rest = urlencode([(name, value) for name, value in query if name != "token"])
        # A path that begins with two slashes would lead to another machine.
        path = "/" + scope["path"].lstrip("/\\")
        answer = RedirectResponse(f"{path}?{rest}" if rest else path, 303)
        if secret is not None:
            answer.set_cookie(self.cookie, secret, httponly=True, samesite="strict", path="/")
        return answer

    def _locked(self, scope: Scope) -> Response | None:
        if not _is_api(scope) or self._known(scope):
            return None
        return refusal(401, "this browser has not opened the app's link", "open the link that was printed")

    def _known(self, scope: Scope) -> bool:
        for line in Headers(scope=scope).getlist("cookie"):
            for pair in line.split(";"):
                name, _, value = pair.strip().partition("=")
                if name == self.cookie and self.keys.fit(value):
                    return True
        return False


def _is_api(scope: Scope) -> bool:
    return scope["path"] == "/api" or scope["path"].startswith("/api/")


def _same(given: str, ours: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "replace"), ours.encode())
