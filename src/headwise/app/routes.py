"""What can be asked, and how an answer or an error is said: JSON, or bytes where there are many numbers."""

from __future__ import annotations

import re
import sys
import traceback
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from headwise import jsons
from headwise.app import patterns, wire, wire_edits, wire_runs
from headwise.app.guard import refusal
from headwise.app.memory import TooLarge, said_of_memory
from headwise.app.results import Gone, Result
from headwise.app.session import Session
from headwise.app.tables import table_page
from headwise.app.texts import keep_text, kept_text
from headwise.errors import HeadwiseError, WrongField
from headwise.model.forward import Stopped
from headwise.show.kit.page import APP, BUNDLE, SCREENS, STYLE, part
from headwise.show.why.long_pattern import LONG
from headwise.validation import check

MOST = 2_000_000
"""Bytes of a body."""
PATHS = ("/", "/heads", "/cell", "/circuit", "/compare", "/runs")
ASSETS = {
    "headwise.js": (BUNDLE, "text/javascript; charset=utf-8"),
    "headwise.css": (STYLE, "text/css; charset=utf-8"),
    "app.js": (APP, "text/javascript; charset=utf-8"),
    "screens.js": (SCREENS, "text/javascript; charset=utf-8"),
    "icon.svg": ("kit/icon.svg", "image/svg+xml"),
}
CONFINED = (
    "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src data: blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
)
"""A page that was found in a run folder: whatever its scripts are, they have no origin, and nobody to speak to."""
FIELDS = re.compile(r"\b(text|head|query|key|answer|wrong|tau|draws|seed|features|prompt|edits|align)\b")
Body = TypeVar("Body", bound=BaseModel)
Handler = Callable[[Request], Awaitable[Response]]


def routes(session: Session) -> list[Route]:
    """Everything that the server answers."""
    shelf = session.shelf

    async def state(_: Request) -> Response:
        return said(await run_in_threadpool(session.state))

    async def choose(request: Request) -> Response:
        return said(session.choose(await body(request, wire.ModelRequest)), 202)

    async def keep(request: Request) -> Response:
        text = (await body(request, wire.LongText)).text
        return said(wire.KeptText(digest=await run_in_threadpool(keep_text, text), text=text))

    async def kept(request: Request) -> Response:
        digest = request.path_params["digest"]
        text = await run_in_threadpool(kept_text, digest) if re.fullmatch("[0-9a-f]{64}", digest) else None
        if text is None:
            return refusal(404, "the prompt of this link is not on this machine", "open it where it was made")
        return said(wire.KeptText(digest=digest, text=text))

    async def tokens(request: Request) -> Response:
        return said(await run_in_threadpool(session.prompts.tokens, await body(request, wire.TypedText)))

    async def read(request: Request) -> Response:
        return said(await session.read(await body(request, wire.PromptRequest)))

    async def heads(request: Request) -> Response:
        return said(await session.heads(prompt_id(request)))

    async def thumbs(request: Request) -> Response:
        seen = await session.glance(prompt_id(request))
        return in_bytes(seen.thumbs, len(seen.highest), seen.side, seen.side)

    async def pattern(request: Request) -> Response:
        kept, head = session.kept(prompt_id(request)), session.model.head(request.path_params["head"])
        cell = cell_of(request, len(kept.read.tokens))
        if cell is not None and len(kept.read.tokens) > LONG:
            return in_json(await run_in_threadpool(patterns.long_pattern_of, kept.read, head, *cell))
        cells = await run_in_threadpool(patterns.pattern_of, kept.read, head)
        return in_bytes(cells.tobytes(), len(kept.read.tokens), cells.itemsize)

    async def row(request: Request) -> Response:
        kept, at = session.kept(prompt_id(request)), request.path_params["at"]
        in_prompt(at, len(kept.read.tokens))
        found = await run_in_threadpool(patterns.rows_of, kept.read, at)
        return in_bytes(found, len(session.model.heads), len(kept.read.tokens))

    async def column(request: Request) -> Response:
        kept, at = session.kept(prompt_id(request)), request.path_params["at"]
        in_prompt(at, len(kept.read.tokens))
        found = await run_in_threadpool(patterns.columns_of, kept.read, at)
        return in_bytes(found, len(session.model.heads), len(kept.read.tokens))

    async def explain(request: Request) -> Response:
        return said(session.explain(await body(request, wire.CellRequest)), 202)

    async def edit(request: Request) -> Response:
        return said(await session.edit(await body(request, wire_edits.EditPlan)))

    async def difference(request: Request) -> Response:
        return in_json(await session.difference(await body(request, wire.DifferenceRequest)))

    async def walk(request: Request) -> Response:
        return in_json(await session.walk(await body(request, wire.WalkRequest)))

    async def taken(request: Request) -> Response:
        return said(session.taken(await body(request, wire_edits.PlaceAsked)))

    async def events(request: Request) -> Response:
        tab = request.query_params.get("tab", "")
        if not re.fullmatch("[0-9a-f]{16}", tab):
            return refusal(422, "a tab is named by 16 hexadecimal digits", where="tab")
        last = request.headers.get("last-event-id", "0")
        after = int(last) if re.fullmatch("[0-9]{1,15}", last) else 0
        return StreamingResponse(session.events.stream(tab, after), media_type="text/event-stream")

    async def cancel(request: Request) -> Response:
        stopped = session.cancel(request.path_params["job"])
        return Response(status_code=204) if stopped else refusal(404, "there is no such job: it is over")

    async def saved(request: Request) -> Response:
        found = shelf.run(request.path_params["run"]).page(request.path_params["name"])
        if found is None:
            return refusal(404, "there is no such page in this run folder")
        content = await run_in_threadpool(found.read_bytes)
        return Response(content, media_type="text/html", headers={"content-security-policy": CONFINED})

    async def runs(_: Request) -> Response:
        return said(await run_in_threadpool(shelf.seen))

    async def table(request: Request) -> Response:
        given, run = request.query_params, shelf.run(request.path_params["run"])
        start = given.get("start", "0")
        if not re.fullmatch("[0-9]{1,12}", start):
            return refusal(422, "start is a whole number", where="start")
        page = partial(
            table_page,
            run,
            request.path_params["table"],
            start=int(start),
            sort=given.get("sort", ""),
            down=given.get("down") == "1",
            words=given.get("words", ""),
        )
        return said(await run_in_threadpool(page))

    async def circuit(request: Request) -> Response:
        where = request.path_params["run"], request.path_params["number"]
        return in_json((await run_in_threadpool(shelf.circuit, *where)).circuit.to_json())

    async def begin(request: Request) -> Response:
        asked = await body(request, wire_runs.AnyStudy)
        return said(await run_in_threadpool(shelf.begin, asked.study), 202)

    async def go_on(request: Request) -> Response:
        await body(request, wire_runs.StudyToContinue)
        return said(await run_in_threadpool(shelf.go_on, request.path_params["study"]), 202)

    async def stop(request: Request) -> Response:
        return said(await run_in_threadpool(shelf.stop, request.path_params["study"]))

    async def export(request: Request) -> Response:
        return await exported(session.results.get(request.path_params["job"]), request.path_params["kind"])

    async def export_run(request: Request) -> Response:
        where = request.path_params["run"], request.path_params["number"]
        made = await run_in_threadpool(session.circuit_of_run, *where)
        return await exported(made, request.path_params["kind"])

    async def left(_: Request) -> Response:
        return said(session.jobs.left())

    async def cell(request: Request) -> Response:
        return said(session.cell(await body(request, wire.CellNamed)))

    job, at = "{job:str}", "{at:int}"
    prompt = "/api/prompts/{prompt}"
    answers: list[tuple[str, str, Handler]] = [
        *(("GET", path, shell) for path in PATHS),
        ("GET", "/assets/{name}", asset),
        ("GET", "/api/state", state),
        ("POST", "/api/model", choose),
        ("POST", "/api/texts", keep),
        ("GET", "/api/texts/{digest}", kept),
        ("POST", "/api/tokens", tokens),
        ("POST", "/api/prompts", read),
        ("GET", f"{prompt}/heads", heads),
        ("GET", f"{prompt}/thumbs", thumbs),
        ("GET", f"{prompt}/pattern/{{head}}", pattern),
        ("GET", f"{prompt}/row/{at}", row),
        ("GET", f"{prompt}/column/{at}", column),
        ("POST", "/api/cell", cell),
        ("POST", "/api/explain", explain),
        ("POST", "/api/edit", edit),
        ("POST", "/api/difference", difference),
        ("POST", "/api/walk", walk),
        ("POST", "/api/takeaway", taken),
        ("GET", "/api/events", events),
        ("GET", "/api/jobs", left),
        ("DELETE", f"/api/jobs/{job}", cancel),
        ("GET", "/api/runs", runs),
        ("GET", "/api/runs/{run:int}/tables/{table}", table),
        ("GET", "/api/runs/{run:int}/circuits/{number:int}", circuit),
        ("GET", "/api/runs/{run:int}/circuits/{number:int}.{kind}", export_run),
        ("GET", "/api/runs/{run:int}/{name}", saved),
        ("POST", "/api/studies", begin),
        ("POST", "/api/studies/{study}", go_on),
        ("DELETE", "/api/studies/{study}", stop),
        ("GET", f"/api/export/{job}.{{kind}}", export),
    ]
    return [Route(path, handler, methods=[method]) for method, path, handler in answers]


# --- pages -----------------------------------------------------------------------------------------------------------


async def shell(_: Request) -> Response:
    return Response(part("kit/app.html"), media_type="text/html")


async def asset(request: Request) -> Response:
    found = ASSETS.get(request.path_params["name"])
    if found is None:
        return refusal(404, "there is no such file")
    return Response(part(found[0]), media_type=found[1])


async def exported(result: Result, kind: str) -> Response:
    """What was made as a file: one to be kept, never a page of this server."""
    if kind not in result.forms:
        forms = list(result.forms)
        return refusal(
            404, f"{kind[:20]!r} is no form of {result.what}", f"take {', '.join(forms[:-1])} or {forms[-1]}"
        )
    made = await run_in_threadpool(result.forms[kind])
    return Response(made, media_type="application/json" if kind == "json" else "application/octet-stream")


# --- in and out ------------------------------------------------------------------------------------------------------


async def body(request: Request, shape: type[Body]) -> Body:
    """The request's body in its shape."""
    kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if kind != "application/json":
        raise HTTPException(415, "a body is JSON")
    content = b""
    async for piece in request.stream():
        content += piece
        if len(content) > MOST:
            raise HTTPException(413, "the body is too long")
    try:
        data = jsons.parse(content)
    except jsons.NotJson as error:
        raise HTTPException(400, f"the body is not JSON ({error})") from None
    return check(shape, data, "")


def prompt_id(request: Request) -> str:
    name = request.path_params["prompt"]
    if not re.fullmatch("[0-9a-f]{32}", name):
        raise HTTPException(404, "there is no such prompt")
    return name


def in_prompt(position: int, tokens: int) -> None:
    if position >= tokens:
        raise HTTPException(404, f"the prompt has no position {position}: it has {tokens} tokens")


def cell_of(request: Request, tokens: int) -> tuple[int, int] | None:
    """The cell that an address names; None where it names none."""
    given = [request.query_params.get(name) for name in ("query", "key")]
    if given == [None, None]:
        return None
    if not all(one is not None and re.fullmatch("[0-9]{1,9}", one) for one in given):
        raise HTTPException(422, "a cell is two positions: query and key")
    query, key = (int(one or 0) for one in given)
    in_prompt(query, tokens)
    if key > query:
        raise HTTPException(422, f"position {query} cannot see position {key}, which comes later")
    return query, key


def said(answer: BaseModel, status: int = 200) -> Response:
    return in_json(answer.model_dump(), status)


def in_json(content: Any, status: int = 200) -> Response:
    return Response(jsons.dumps(content, indent=None), status, media_type="application/json")


def in_bytes(content: bytes, *shape: int) -> Response:
    headers = {"x-shape": ",".join(map(str, shape))}
    return Response(content, media_type="application/octet-stream", headers=headers)


# --- what goes wrong -------------------------------------------------------------------------------------------------


async def wrong_use(_: Request, error: Exception) -> Response:
    """What was asked for cannot be used: the core's own line."""
    if isinstance(error, WrongField):
        return refusal(422, str(error), where=error.where, choices=error.choices)
    if isinstance(error, TooLarge):
        return refusal(507, str(error), where="text")
    found = FIELDS.search(str(error))
    return refusal(410 if isinstance(error, Gone) else 422, str(error), where=found[1] if found else None)


async def replaced(_: Request, __: Exception) -> Response:
    return refusal(409, "a newer request took its place")


async def http(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    words = {404: "there is nothing here", 405: "that is not done here"}
    return refusal(
        error.status_code,
        words.get(error.status_code, error.detail) if error.detail in STOCK else error.detail,
    )


STOCK = {"Not Found", "Method Not Allowed"}


async def failed(_: Request, error: Exception) -> Response:
    """Ours: the page hears that it failed, the terminal hears why."""
    traceback.print_exception(error, file=sys.stderr)
    if isinstance(said := said_of_memory(error), TooLarge):
        return refusal(507, str(said))
    return refusal(500, f"it failed ({type(error).__name__})", "the terminal says more")


HANDLERS: dict[Any, Any] = {
    HeadwiseError: wrong_use,
    Stopped: replaced,
    HTTPException: http,
    Exception: failed,
}
