"""One model, the prompts that were read with it, and the jobs that run on it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch
from starlette.concurrency import run_in_threadpool

from headwise.app import wire, wire_edits
from headwise.app.again import traced_again
from headwise.app.bench import Bench, needed
from headwise.app.events import Events
from headwise.app.jobs import Jobs, Tell, ended
from headwise.app.lane import INTERACTIVE, PREFETCH, Lane, Turn
from headwise.app.memory import ROOM, KeptPrompt, Memory, said_of_memory
from headwise.app.models import ModelChoices
from headwise.app.patterns import Glance
from headwise.app.prompts import Prompts
from headwise.app.results import CircuitMade, ExplanationMade, Gone, KeptResults
from headwise.app.runs import Run
from headwise.app.seen import app_state, heads_seen
from headwise.app.shelf import Shelf, refused_by
from headwise.app.takeaway import Takeaway, loaded_by
from headwise.app.walks import walked
from headwise.circuits.circuit import Circuit
from headwise.circuits.walk import Steps
from headwise.contrast.roles import HeadRoles, head_roles
from headwise.errors import HeadwiseError
from headwise.model.check import examine
from headwise.model.model import Model
from headwise.positions import one_cell, one_position
from headwise.validation import check
from headwise.why.explain import explain_steps
from headwise.why.pair.explain import difference_of
from headwise.why.question import PromptReading

Result = TypeVar("Result")
GONE = "this prompt is no longer in memory: read it again"


class Session:
    """What the routes work with."""

    def __init__(
        self,
        model: Model,
        runs: Sequence[Run] = (),
        *,
        room: int = ROOM,
        studies: Path | None = None,
        source: str | None = None,
        loading: Sequence[str] = (),
        models: ModelChoices | None = None,
    ) -> None:
        """``studies`` is the folder of the studies that are begun here, with the model that ``source`` names and that
        the words of ``loading`` say how to load; ``models`` are all that may be loaded.
        """
        self.shelf, self.loading = Shelf(runs, studies, source, loading=loading), tuple(loading)
        self.models = ModelChoices(model.name, source) if models is None else models
        self._longest = 0
        self.lane = Lane(lambda error, turn: said_of_memory(error, self._longest, turn.tokens, self.model))
        self.memory, self.events, self.results = Memory(room), Events(), KeptResults()
        self.jobs = Jobs(self.lane, self.events, self.results)
        self._jobs: dict[str, Turn] = {}
        self._use(model, model.name, source)

    def _use(self, model: Model, name: str, source: str | None) -> None:
        """From now on work with this model, ``name`` in the list; nothing that was read with another is kept."""
        self.model, self._checks = model, examine(model).checks
        self._roles: HeadRoles | None = None
        self.chosen, self.source = name, model.name if source is None else source
        self.shelf.use(source, model.weight_hash)
        self.memory.clear()
        self.prompts = Prompts(model, self.memory)

    def begin(self) -> None:
        """In the server's loop: from now on events are told, and the heads' habits are measured when there is time."""
        self.events.begin()
        self.shelf.watch(lambda: self.events.tell_all("runs", {}))
        self._measure_roles()

    def _measure_roles(self) -> None:
        self.lane.submit(lambda turn: head_roles(self.model), self._know_roles, priority=PREFETCH)

    def choose(self, asked: wire.ModelRequest) -> wire.Begun:
        """Begin to load another model; the present one stays until it is there."""
        job, name = asked.job, asked.name
        self._free(job)
        self.models.require(name)

        def work(_: Turn) -> Model:
            model = self.models.load(name)
            self._use(model, name, self.models.source(name))
            return model

        def over(model: Model | None, trouble: BaseException | None) -> None:
            self._jobs.pop(job, None)
            if model is None:
                self.events.tell(asked.tab, *ended(job, trouble))
                return
            self._measure_roles()
            self.events.tell(asked.tab, "done", {"job": job})
            self.events.tell_all("model", {"model": model.name})

        return self._begun(job, self.lane.submit(work, over, tab=asked.tab, kind="model"))

    def close(self) -> None:
        self.lane.close()
        self.shelf.close()

    def _know_roles(self, roles: HeadRoles | None, trouble: BaseException | None) -> None:
        if roles is not None:
            self._roles = roles

    async def in_lane(
        self,
        work: Callable[[Turn], Result],
        *,
        tab: str = "",
        kind: str = "",
        priority: int = INTERACTIVE,
    ) -> Result:
        """The result of work on the model."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Result] = loop.create_future()

        def settle(result: Result, trouble: BaseException | None) -> None:
            if future.cancelled():
                return
            if trouble is None:
                future.set_result(result)
            else:
                future.set_exception(trouble)

        def over(result: Any, trouble: BaseException | None) -> None:
            loop.call_soon_threadsafe(settle, result, trouble)

        turn = self.lane.submit(work, over, tab=tab, kind=kind, priority=priority)
        try:
            return await future
        except asyncio.CancelledError:
            self.lane.cancel(turn)
            raise

    # --- what the app is -----------------------------------------------------------------------------------------

    def state(self) -> wire.AppState:
        return app_state(
            self.model, self._checks, self.chosen, tuple(self.models.all()), self.shelf.entries()
        )

    # --- prompts -------------------------------------------------------------------------------------------------

    async def read(self, asked: wire.PromptRequest) -> wire.PromptRead:
        """Read a prompt, or remember it."""
        if (asked.text is None) == (asked.token_ids is None):
            raise HeadwiseError("text and token_ids are two ways to give a prompt: give one of them")
        found = await run_in_threadpool(self.prompts.known, asked)
        if found is None:
            found = await self.in_lane(
                lambda turn: self.prompts.read(asked, turn), tab=asked.tab, kind="read"
            )
        self._longest = max(self._longest, len(found[1].read.tokens))
        return await run_in_threadpool(self.prompts.said, *found, asked.basis)

    def kept(self, name: str) -> KeptPrompt:
        """A prompt by its id."""
        kept = self.memory.get(name)
        if kept is None:
            raise Gone(GONE)
        return kept

    def _still(self, kept: KeptPrompt, turn: Turn | None = None) -> PromptReading:
        """What was read, for a turn of the lane, unless the model was changed since."""
        if turn is not None:
            turn.tokens = max(turn.tokens, len(kept.read.tokens))
        if kept.read.up.stream.model is not self.model:
            raise Gone(GONE)
        return kept.read

    # --- all heads -----------------------------------------------------------------------------------------------

    async def glance(self, name: str) -> Glance:
        """Thumbnails and statistics, made once per prompt, beside the lane."""
        kept = self.kept(name)
        self._still(kept)
        return kept.glance or await run_in_threadpool(self.prompts.glance, kept)

    async def heads(self, name: str) -> wire.HeadsSeen:
        """What can be said of every head of a prompt."""
        return heads_seen(self.model, await self.glance(name), self._roles)

    # --- explanations --------------------------------------------------------------------------------------------

    def cell(self, asked: wire.CellNamed) -> wire.CellMeant:
        """The cell that is meant; where that cannot be said, the field and what could stand there."""
        tokens = self.kept(asked.prompt).read.tokens
        head = None if asked.head is None else str(self.model.head(asked.head.strip()))
        if asked.query is not None and asked.key is not None:
            query, key = one_cell(tokens, asked.query, asked.key)
        else:
            query = None if asked.query is None else one_position(tokens, asked.query, "query")
            key = None if asked.key is None else one_position(tokens, asked.key, "key")
        return wire.CellMeant(head=head, query=query, key=key)

    def explain(self, asked: wire.CellRequest) -> wire.Begun:
        """Begin an explanation; its parts are told as they become known."""
        kept = self.kept(asked.prompt)
        self._free(asked.job)
        # A folder that is not there is refused now, not when its turn has come.
        named = [self.shelf.run(index).path for index in (*asked.features, *_some(asked.names))]
        names = None if asked.names is None else named[-1]

        def work(turn: Turn, tell: Tell) -> ExplanationMade:
            features, banks = asked.features, self.shelf.banks(asked.features, self.model)
            refused = None
            if asked.head is not None:
                # One chooses banks once and then looks at many heads: those that a bank says nothing of, too.
                head = self.model.head(asked.head)
                refused = refused_by(banks, head)
                features = tuple(i for i, bank in zip(features, banks, strict=True) if head in bank.heads)
                banks = [bank for bank in banks if head in bank.heads]
            steps = explain_steps(
                self.model,
                self._still(kept, turn),
                head=asked.head,
                query=asked.query,
                key=asked.key,
                answer=asked.answer,
                wrong=asked.wrong,
                features=banks,
                names=names,
                tau=asked.tau,
                draws=asked.draws,
                seed=asked.seed,
            )
            while True:
                turn.go_on()
                try:
                    step = next(steps)
                except StopIteration as finished:
                    place = {name: getattr(asked, name) for name in shared} | {"features": features}
                    return ExplanationMade(finished.value, self._script(kept, place, "cell"))
                if step.name != "done":
                    tell(step.name, step.part())
                if step.name == "question" and refused is not None:
                    tell("features", {"refused": refused})

        shared = wire_edits.PlaceAsked.model_fields.keys() & wire.CellRequest.model_fields.keys()
        text = kept.read.prompt or "".join(kept.read.tokens)
        return self.jobs.begin(asked, text, work, self.memory.tidy)

    def _script(self, kept: KeptPrompt, place: dict[str, Any], screen: str) -> Callable[[], str]:
        """Python that makes the same again, of this prompt with this model."""
        asked = check(wire_edits.PlaceAsked, {"screen": screen, "text": "", **place}, "")
        given = kept.read.prompt
        prompt = list(kept.read.token_ids) if given is None else given
        made = Takeaway(asked, self.source, self.shelf.runs, self.loading, self.model.origin, prompt)
        return lambda: made.said().python

    def _free(self, job: str) -> None:
        """Refuse a job's name that is taken."""
        if job in self._jobs or job in self.results:
            raise HeadwiseError(f"there is a job {job!r} already: give another name")

    def _begun(self, job: str, turn: Turn) -> wire.Begun:
        self._jobs[job] = turn
        return wire.Begun(job=job, ahead=self.lane.ahead_of(turn))

    async def difference(self, asked: wire.DifferenceRequest) -> dict[str, Any]:
        """Why here and not there: the document of two prompts."""
        both = [self.kept(name) for name in (asked.prompt, asked.other)]
        here, there = (one.read for one in both)
        if here.up.bases.name != there.up.bases.name:
            raise HeadwiseError("the prompts were read with two bases: read both with one")
        places = {pair[0]: pair[1] for pair in asked.align}
        if len(places) < len(asked.align):
            raise HeadwiseError("align names a position of the prompt twice: give it once")

        def work(turn: Turn) -> dict[str, Any]:
            return difference_of(
                *(self._still(one, turn) for one in both),
                head=asked.head,
                query=asked.query,
                key=asked.key,
                answer=asked.answer,
                wrong=asked.wrong,
                align=places or None,
                draws=asked.draws,
                seed=asked.seed,
                progress=lambda _: turn.go_on(),
            ).to_json()

        return await self.in_lane(work, tab=asked.tab, kind="difference")

    async def walk(self, asked: wire.WalkRequest) -> dict[str, Any]:
        """A circuit as far as it was opened: the document of a circuit file."""
        kept, steps = self.kept(asked.prompt), Steps.parse(asked.opened, asked.root)
        if asked.job is not None:
            self._free(asked.job)

        def work(turn: Turn) -> Circuit:
            return walked(self._still(kept, turn), steps, asked.answer, asked.wrong)

        circuit = await self.in_lane(work, tab=asked.tab, kind="walk")
        if asked.job is not None:
            place = asked.model_dump(include={"answer", "wrong", "root", "opened"})
            self.results.keep(asked.job, CircuitMade(circuit, self._script(kept, place, "circuit")))
        return circuit.to_json()

    def circuit_of_run(self, index: int, number: int) -> CircuitMade:
        """A circuit of a run folder, to be saved."""
        found = self.shelf.circuit(index, number)
        here = found.circuit.weight_hash == self.model.weight_hash
        load = loaded_by(self.source, self.loading, self.model.origin) if here else repr(found.circuit.model)
        python = traced_again(found, load)
        return CircuitMade(found.circuit, None if python is None else lambda: python)

    async def edit(self, plan: wire_edits.EditPlan) -> wire_edits.EditSeen:
        """Change the running model; a newer plan of the same tab takes the place of an older one."""
        kept, sources = self.kept(plan.prompt), {name: self.kept(name) for name in needed(plan)}

        def work(turn: Turn) -> wire_edits.EditSeen:
            read, others = self._still(kept, turn), {name: self._still(one) for name, one in sources.items()}
            with torch.no_grad():
                return Bench(read, plan, others, self.shelf.banks(plan.features, self.model)).run()

        return await self.in_lane(work, tab=plan.tab, kind="edit")

    def taken(self, asked: wire_edits.PlaceAsked) -> wire.PlaceSaid:
        """What is on a screen, as a command and as Python."""
        edits = tuple(
            one.model_copy(update={"source": self.kept(one.source).read.prompt or ""})
            if isinstance(one, wire_edits.PatchHead)
            else one
            for one in asked.edits
        )
        place = asked.model_copy(update={"edits": edits})
        return Takeaway(place, self.source, self.shelf.runs, self.loading, self.model.origin).said()

    def cancel(self, job: str) -> bool:
        """Stop a job; whether it was still there to be stopped."""
        turn = self._jobs.get(job)
        if turn is not None:
            self.lane.cancel(turn)
        return turn is not None or self.jobs.cancel(job)


def _some(value: int | None) -> tuple[int, ...]:
    return () if value is None else (value,)
