"""Explanations as jobs: told to the tabs that hear them, and offered to others where their tab was closed meanwhile.

A tab that was listening and is no longer has been closed, or loaded anew. What it had asked for goes on, and is kept
until a tab asks the same: that one hears all that was told so far, and the rest as it comes. What failed is kept
likewise, with its error.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from headwise.app import wire
from headwise.app.events import Events
from headwise.app.lane import Lane, Turn
from headwise.app.results import KEPT, ExplanationMade, KeptResults
from headwise.errors import HeadwiseError, WrongField
from headwise.model.forward import Stopped
from headwise.strings import printable, shortened

Tell = Callable[[str, dict[str, Any]], None]


@dataclass(eq=False)
class ExplainJob:
    """One explanation that was asked for."""

    asked: wire.CellRequest
    text: str
    hearers: list[tuple[str, str]]
    """Tabs, each with the name that it gave the job."""
    heard: bool
    """Whether a tab was listening at any time since it was begun."""
    parts: list[dict[str, Any]] = field(default_factory=list)
    """What was told so far."""
    turn: Turn | None = None
    made: ExplanationMade | None = None
    trouble: BaseException | None = None
    """Why it gave nothing, where it failed."""

    @property
    def over(self) -> bool:
        return self.made is not None or self.trouble is not None

    def asks(self, other: wire.CellRequest) -> bool:
        """Whether another request asks the same."""
        own = {"tab", "job", "address"}
        return self.asked.model_dump(exclude=own) == other.model_dump(exclude=own)

    @property
    def about(self) -> str:
        """What was asked, in a line."""
        found = self.parts[0]["part"] if self.parts else self.asked.model_dump()
        cell = f"{found['head']}" if found.get("head") else "the answer"
        if found.get("query") is not None and found.get("key") is not None:
            cell += f" from {found['query']} to {found['key']}"
        return f"{cell} in {shortened(printable(self.text), 60)!r}"


class Jobs:
    """All explanations that are under way, and those that nobody has heard the end of."""

    def __init__(self, lane: Lane, events: Events, results: KeptResults) -> None:
        self.lane, self.events, self.results = lane, events, results
        self._jobs: list[ExplainJob] = []
        self._offered: list[tuple[str, bool]] = []
        self._lock = threading.RLock()
        events.watch(self._opened, self._closed)

    def begin(
        self,
        asked: wire.CellRequest,
        text: str,
        work: Callable[[Turn, Tell], ExplanationMade],
        over: Callable[[], None],
    ) -> wire.Begun:
        """Begin an explanation, or hear one that a tab has left."""
        with self._lock:
            if self._named(asked.job) or asked.job in self.results:
                raise HeadwiseError(f"there is a job {asked.job!r} already: give another name")
            found = next((one for one in self._jobs if self._is_left(one) and one.asks(asked)), None)
            if found is not None:
                return self._join(found, asked)
            job = ExplainJob(asked, text, [(asked.tab, asked.job)], self.events.listening(asked.tab))
            self._jobs.append(job)

            def tell(step: str, part: dict[str, Any]) -> None:
                with self._lock:
                    job.parts.append({"step": step, "part": part})
                    for tab, name in job.hearers:
                        self.events.tell(tab, "part", {"job": name, **job.parts[-1]})

            def end(made: ExplanationMade | None, trouble: BaseException | None) -> None:
                self._end(job, made, trouble)
                over()

            job.turn = self.lane.submit(lambda turn: work(turn, tell), end, tab=asked.tab, kind="explain")
            return wire.Begun(job=asked.job, ahead=self.lane.ahead_of(job.turn))

    def left(self) -> wire.JobList:
        """What tabs have left, and nobody has taken since."""
        with self._lock:
            return wire.JobList(
                jobs=tuple(
                    wire.LeftJob(
                        job=one.hearers[0][1],
                        about=one.about,
                        address=one.asked.address,
                        done=one.made is not None,
                        error=None if one.trouble is None else why(one.trouble),
                    )
                    for one in self._jobs
                    if self._is_left(one)
                )
            )

    def cancel(self, name: str) -> bool:
        """Stop a job, or let what it made go; whether there was one."""
        with self._lock:
            job = self._named(name)
            if job is None:
                return False
            others = [one for one in job.hearers if one[1] != name]
            if any(self.events.listening(tab) for tab, _ in others):
                (tab,) = (tab for tab, one in job.hearers if one == name)
                job.hearers = others
                self.events.tell(tab, "cancelled", {"job": name})
            elif job.over:
                self._drop(job)
            elif job.turn is not None:
                self.lane.cancel(job.turn)
            return True

    def _named(self, name: str) -> ExplainJob | None:
        return next((one for one in self._jobs if any(name == known for _, known in one.hearers)), None)

    def _is_left(self, job: ExplainJob) -> bool:
        return job.heard and not any(self.events.listening(tab) for tab, _ in job.hearers)

    def _join(self, job: ExplainJob, asked: wire.CellRequest) -> wire.Begun:
        """One more tab hears a job, from its first part on."""
        job.hearers.append((asked.tab, asked.job))
        for part in job.parts:
            self.events.tell(asked.tab, "part", {"job": asked.job, **part})
        ahead = 0
        if job.made is not None:
            self._hand(job, job.made, *job.hearers[-1:])
            self._drop(job)
        elif job.trouble is not None:
            self.events.tell(asked.tab, *ended(asked.job, job.trouble))
            self._drop(job)
        elif job.turn is not None:
            # What this tab asks next takes its place.
            job.turn.tab = asked.tab
            ahead = self.lane.ahead_of(job.turn)
        self._say()
        return wire.Begun(job=asked.job, ahead=ahead)

    def _end(self, job: ExplainJob, made: ExplanationMade | None, trouble: BaseException | None) -> None:
        with self._lock:
            # Asked before they are told: whoever hears it may be gone the moment after.
            there = any(self.events.listening(tab) for tab, _ in job.hearers)
            if made is None:
                for tab, name in job.hearers:
                    self.events.tell(tab, *ended(name, trouble))
                job.trouble = None if isinstance(trouble, Stopped) else trouble
            else:
                job.made = made
                self._hand(job, made, *job.hearers)
            if there or not job.over:
                self._drop(job)
            for old in [one for one in self._jobs if one.over][:-KEPT]:
                self._drop(old)
            self._say()

    def _hand(self, job: ExplainJob, made: ExplanationMade, *hearers: tuple[str, str]) -> None:
        document = made.why.to_json()
        for tab, name in hearers:
            self.results.keep(name, made)
            self.events.tell(tab, "done", {"job": name, "document": document})

    def _drop(self, job: ExplainJob) -> None:
        if job in self._jobs:
            self._jobs.remove(job)
        self._say()

    def _say(self) -> None:
        """Every tab hears when something else is offered than before."""
        left = [(one.hearers[0][1], one.over) for one in self._jobs if self._is_left(one)]
        if left != self._offered:
            self._offered = left
            self.events.tell_all("jobs", {})

    def _opened(self, tab: str) -> None:
        """A tab listens (again): it hears what it has missed."""
        with self._lock:
            for job in [one for one in self._jobs if any(tab == name for name, _ in one.hearers)]:
                job.heard = True
                if job.over:
                    self._drop(job)

    def _closed(self, tab: str) -> None:
        with self._lock:
            self._say()


def ended(job: str, trouble: BaseException | None) -> tuple[str, dict[str, Any]]:
    """The last event of a job that gave nothing."""
    if trouble is None or isinstance(trouble, Stopped):
        return "cancelled", {"job": job}
    said = (
        {"where": trouble.where, "choices": list(trouble.choices)} if isinstance(trouble, WrongField) else {}
    )
    return "failed", {"job": job, "error": why(trouble), **said}


def why(trouble: BaseException) -> str:
    """What went wrong, in a line."""
    return str(trouble) if isinstance(trouble, HeadwiseError) else f"it failed ({type(trouble).__name__})"
