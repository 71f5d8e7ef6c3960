"""A real server on loopback that speaks OpenAI's protocol for chat, with answers as a test wants them."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = Callable[[str], Any]
"""From a question to its answer, or to a whole reply, or to a status."""


@dataclass
class Served:
    base_url: str
    questions: list[str] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)


@contextmanager
def chat_server(answer: Answer) -> Iterator[Served]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            question = asked["messages"][0]["content"]
            found.questions.append(question)
            found.keys.append(self.headers.get("Authorization", ""))
            said = answer(question)
            status, body = (said, {"error": {"message": "no"}}) if isinstance(said, int) else (200, said)
            if isinstance(said, str):
                body = {
                    "id": "1",
                    "object": "chat.completion",
                    "created": 0,
                    "model": asked["model"],
                    "choices": [
                        {
                            "index": 0,
                            "finish_reason": "stop",
                            "message": {"role": "assistant", "content": said},
                        }
                    ],
                }
            content = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found = Served(f"http://127.0.0.1:{server.server_address[1]}/v1")
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def examples_in(question: str) -> list[list[Any]]:
    """The numbered examples of a judge's question."""
    return [json.loads(line) for line in re.findall(r"^\d+: (\[.*\])$", question, re.MULTILINE)]


def token_of(pieces: list[Any], slot: str) -> str:
    """The token of a slot in an example; one that looks at itself is both."""
    for piece in pieces:
        if isinstance(piece, dict) and (slot in piece or "both" in piece):
            return str(next(iter(piece.values())))
    raise AssertionError(f"no {slot} in {pieces}")


def says_where(test: Callable[[list[Any]], bool]) -> Answer:
    """A judge that answers each example by a function of it."""
    return lambda question: "\n".join(
        f"{number}: {'yes' if test(pieces) else 'no'}"
        for number, pieces in enumerate(examples_in(question), 1)
    )


def slow(seconds: float) -> Answer:
    def answer(_: str) -> str:
        time.sleep(seconds)
        return "1: yes"

    return answer
