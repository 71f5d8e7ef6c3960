"""The server: loopback only, one process, until it is interrupted."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from urllib.parse import urlencode

import uvicorn
from starlette.applications import Starlette
from starlette.types import ASGIApp

from headwise.app.guard import Guard, Keys
from headwise.app.routes import HANDLERS, routes
from headwise.app.session import Session
from headwise.errors import HeadwiseError

ADDRESS = "127.0.0.1"


def application(session: Session, *, port: int, keys: Keys) -> ASGIApp:
    """Everything that the server does, behind its guard."""

    @asynccontextmanager
    async def life(_: Starlette) -> AsyncIterator[None]:
        session.begin()
        yield
        session.close()

    inside = Starlette(routes=routes(session), exception_handlers=HANDLERS, lifespan=life)
    inside.router.redirect_slashes = False
    return Guard(inside, port=port, keys=keys)


def listening(port: int) -> socket.socket:
    """A socket on this machine's own address; port 0 takes any that is free."""
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((ADDRESS, port))
    except (OSError, OverflowError) as error:
        bound.close()
        reason = getattr(error, "strerror", None) or str(error)
        raise HeadwiseError(f"port {port} cannot be used ({reason}): give another port, or none") from None
    return bound


def prepared(
    session: Session, bound: socket.socket, query: Mapping[str, str] | None = None
) -> tuple[uvicorn.Server, str]:
    """A server on a bound socket, and the link that opens it, with what the link asks for."""
    port, keys = bound.getsockname()[1], Keys()
    config = uvicorn.Config(
        application(session, port=port, keys=keys),
        http="h11",
        ws="none",
        lifespan="on",
        log_level="warning",
        access_log=False,
        server_header=False,
        # Nobody is in front of us: whoever sends such headers lies.
        proxy_headers=False,
        timeout_graceful_shutdown=1,
    )
    path = "/heads" if query else "/"
    link = f"http://{ADDRESS}:{port}{path}?{urlencode({**(query or {}), 'token': keys.token})}"
    bound.listen(128)
    return uvicorn.Server(config), link


def serve(
    session: Session,
    bound: socket.socket,
    *,
    query: Mapping[str, str] | None = None,
    ready: Callable[[str], None],
) -> None:
    """Serve until interrupted; ``ready`` is told the link once the socket listens."""
    server, link = prepared(session, bound, query)
    ready(link)
    server.run(sockets=[bound])
