"""One question to a language model and its answer: through any endpoint that speaks OpenAI's protocol.

Nothing is sent unless an endpoint was named. Its key comes from the environment alone and is never stored. Answers are
kept by the SHA-256 of model and question, so an interrupted run asks nothing twice.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from headwise import jsons
from headwise.errors import HeadwiseError
from headwise.files import write_bytes
from headwise.strings import printable, shortened

KEY = "OPENAI_API_KEY"
CHARACTERS = 3.5
"""Characters per token, on the low side: an estimate of cost should not be too small."""
CAP = 5_000_000
"""Tokens that are sent at most unless more are allowed."""
TIMEOUT = 120.0
LOOPBACK = ("localhost", "127.0.0.1", "::1")


class Chat(Protocol):
    """Anything that answers a question."""

    @property
    def name(self) -> str:
        """What the model is called: part of the cache's key, and shown beside its names."""
        ...

    def ask(self, prompt: str, *, tokens: int) -> str:
        """The answer to one question, of at most so many tokens; empty if there was none."""
        ...


@dataclass(frozen=True)
class Bill:
    """About how much would be sent and received."""

    questions: int
    sent: int
    """Tokens."""
    received: int

    @classmethod
    def of(cls, prompts: Iterable[str], tokens: int) -> Bill:
        """
        >>> Bill.of(["x" * 350] * 10, tokens=20)
        Bill(questions=10, sent=1000, received=200)
        """
        found = list(prompts)
        sent = sum(map(tokens_in, found))
        return cls(len(found), sent, tokens * len(found))

    def __add__(self, other: Bill) -> Bill:
        return Bill(self.questions + other.questions, self.sent + other.sent, self.received + other.received)

    def times(self, number: float) -> Bill:
        """So many times as much, rounded up.

        >>> Bill(1, 90, 8).times(2.5)
        Bill(questions=3, sent=225, received=20)
        """
        return Bill(*(math.ceil(number * part) for part in (self.questions, self.sent, self.received)))

    def require(self, cap: int, where: str) -> None:
        """Refuse before anything is sent.

        >>> Bill(10, 9000, 200).require(5000, "example.org")
        Traceback (most recent call last):
        ...
        headwise.errors.HeadwiseError: this would send about 9,000 tokens to example.org, more than the 5,000 allowed:
        name fewer signals, or allow more with cap=
        """
        if self.sent > cap:
            raise HeadwiseError(
                f"this would send about {self.sent:,} tokens to {where}, more than the {cap:,} allowed: "
                "name fewer signals, or allow more with cap="
            )


def tokens_in(prompt: str) -> int:
    """About how many tokens a question has."""
    return round(len(prompt) / CHARACTERS)


def host_of(base_url: str) -> str:
    """The machine that text would be sent to.

    >>> host_of("https://example.org:8443/v1")
    'example.org:8443'
    >>> host_of("file:///etc/passwd")
    Traceback (most recent call last):
    ...
    headwise.errors.HeadwiseError: 'file:///etc/passwd' is not an endpoint: give a URL such as http://127.0.0.1:8080/v1
    """
    try:
        parts = urlsplit(base_url)
        usable = parts.scheme in ("http", "https") and parts.hostname and not parts.username
        port = parts.port
    except ValueError:
        usable, port, parts = False, None, None
    if not usable or parts is None:
        raise HeadwiseError(
            f"{shortened(base_url)!r} is not an endpoint: give a URL such as http://127.0.0.1:8080/v1"
        )
    return f"{parts.hostname}:{port}" if port else str(parts.hostname)


@dataclass
class Endpoint:
    """A model behind an OpenAI-compatible endpoint."""

    base_url: str
    name: str
    timeout: float = TIMEOUT
    seed: int = 0
    cap: int | None = None
    """Tokens that are sent at most, whatever was estimated; None: any number."""
    sent: int = field(default=0, init=False)
    """Questions that were really sent."""
    spent: int = field(default=0, init=False)
    """About how many tokens they had."""
    _client: Any = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        self.host = host_of(self.base_url)
        """Printed before the first question: text of the corpus goes there."""

    @property
    def is_local(self) -> bool:
        """Whether nothing leaves this machine."""
        return urlsplit(self.base_url).hostname in LOOPBACK

    def ask(self, prompt: str, *, tokens: int) -> str:
        """One question. A question that times out has no answer; an endpoint that cannot be used at all is an error."""
        openai = _openai()
        self._client = self._client or self._connected(openai)
        if self.cap is not None and self.spent + tokens_in(prompt) > self.cap:
            raise HeadwiseError(
                f"{self.cap:,} tokens were sent to {self.host}, all that is allowed: allow more with cap="
            )
        self.sent += 1
        self.spent += tokens_in(prompt)
        try:
            reply = self._client.chat.completions.create(
                model=self.name,
                messages=[{"role": "user", "content": prompt}],
                temperature=0.0,
                seed=self.seed,
                max_tokens=tokens,
            )
            return str(reply.choices[0].message.content or "")
        except openai.APITimeoutError:
            return ""
        except openai.AuthenticationError:
            raise HeadwiseError(f"{self.host} refuses the key in {KEY}: set another") from None
        except openai.NotFoundError:
            raise HeadwiseError(
                f"{self.host} has no model {shortened(self.name)!r}: name one it has"
            ) from None
        except openai.APIConnectionError:
            raise HeadwiseError(
                f"{self.host} cannot be reached: start it, or give another endpoint"
            ) from None
        except openai.APIStatusError as error:
            raise HeadwiseError(
                f"{self.host} answered with status {error.status_code} ({_reason(error)}): try again later"
            ) from None
        except (openai.APIError, AttributeError, IndexError, TypeError, ValueError):
            return ""  # an answer that is no answer counts as none

    def _connected(self, openai: Any) -> Any:
        key = os.environ.get(KEY, "")
        if not key and not self.is_local:
            raise HeadwiseError(f"{self.host} needs a key: set the environment variable {KEY}")
        return openai.OpenAI(
            base_url=self.base_url, api_key=key or "none", timeout=self.timeout, max_retries=2
        )


def _reason(error: Any) -> str:
    """What a server says of its refusal, on one short line: it may say anything."""
    body = error.body if isinstance(error.body, dict) else {}
    return shortened(printable(" ".join(str(body.get("message") or "no reason given").split())), 120)


def _openai() -> Any:
    try:
        import openai
    except ImportError:
        raise HeadwiseError("language models need the package openai: pip install 'headwise[llm]'") from None
    return openai


@dataclass
class Remembered:
    """A chat whose answers are kept in a folder, one file each."""

    chat: Chat
    folder: Path
    recalled: int = field(default=0, init=False)

    @property
    def name(self) -> str:
        return self.chat.name

    def ask(self, prompt: str, *, tokens: int) -> str:
        """The kept answer, or that of the chat, which is then kept; no answer is not kept."""
        key = hashlib.sha256(jsons.dumps([self.name, tokens, prompt], indent=None).encode()).hexdigest()
        file = self.folder / key[:2] / f"{key}.json"
        if file.is_file():
            kept = jsons.read(file, "a kept answer", "delete it")
            if isinstance(kept, dict) and isinstance(kept.get("answer"), str):
                self.recalled += 1
                return kept["answer"]
        answer = self.chat.ask(prompt, tokens=tokens)
        if answer:
            write_bytes(file, jsons.dumps({"model": self.name, "answer": answer}).encode())
        return answer
