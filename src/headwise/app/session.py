"""One model, the prompts that were read with it, and the jobs that run on it."""

from __future__ import annotations

import asyncio
import copy
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import torch

from headwise.app import wire, wire_edits
from headwise.app.bench import Bench, needed
from headwise.app.events import Events
from headwise.app.jobs import Jobs, Tell, ended
from headwise.app.lane import INTERACTIVE, PREFETCH, Lane, Turn
from headwise.app.memory import ROOM, KeptPrompt, Memory, said_of_memory
from headwise.app.models import ModelChoices
from headwise.app.patterns import Glance, glance
from headwise.app.results import CircuitMade, ExplanationMade, Gone, KeptResults
from headwise.app.runs import Run
from headwise.app.seen import app_state, heads_seen
from headwise.app.shelf import Shelf, refused_by
from headwise.app.takeaway import Takeaway
from headwise.app.walks import walked
from headwise.circuits.circuit import Circuit
from headwise.circuits.walk import Steps
from headwise.contrast.roles import HeadRoles, head_roles
from headwise.errors import HeadwiseError
from headwise.model.check import examine
from headwise.model.model import Model
from headwise.tokens import NoTokenizer, chat_prompt, encode_one, one_cell, one_position, shown, shown_after
from headwise.validation import check
from headwise.why.explain import explain_steps
from headwise.why.pair.explain import difference_of
from headwise.why.question import PromptReading, ask, find_answer

Result = TypeVar("Result")
ANSWERS = 5
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
        self.lane = Lane(lambda error: said_of_memory(error, self._longest))
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
        # Texts are cut into tokens while the lane may be using the tokenizer, which two threads must not do at once.
        self._tokenizer = copy.deepcopy(model.tokenizer)

    def begin(self) -> None:
        """In the server's loop: from now on events are told, and the heads' habits are measured when there is time."""
        self.events.begin()
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
        self.shelf.studies.close()

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

    def tokens(self, asked: wire.TypedText) -> wire.TokenList:
        """Only cut into tokens: while it is typed."""
        given = chat_prompt(self._tokenizer, asked.text) if asked.chat else asked.text
        if isinstance(self._tokenizer, NoTokenizer) or (isinstance(given, str) and not given):
            return wire.TokenList(tokens=())
        ids = encode_one(self._tokenizer, given, self.model.context, self.model.vocabulary)
        return wire.TokenList(tokens=shown(self._tokenizer, ids))

    async def read(self, asked: wire.PromptRequest) -> wire.PromptRead:
        """Read a prompt, or remember it."""
        if (asked.text is None) == (asked.token_ids is None):
            raise HeadwiseError("text and token_ids are two ways to give a prompt: give one of them")

        def work(_: Turn) -> tuple[str, KeptPrompt]:
            given: Any = list(asked.token_ids) if asked.token_ids is not None else asked.text
            if asked.chat:
                given = chat_prompt(self.model.tokenizer, str(asked.text))
            if isinstance(given, str) and not given.strip():
                raise HeadwiseError("the prompt is empty: give the text the model is to read")
            ids = self.model.prompt_ids(given)
            name = self._name(ids, asked.basis)
            kept = self.memory.get(name)
            if kept is None:
                kept = KeptPrompt(PromptReading.of(self.model, given, basis=asked.basis))
            elif isinstance(given, str) and kept.read.prompt is None:
                kept.read = replace(kept.read, prompt=given)
            self.memory.put(name, kept)
            return name, kept

        name, kept = await self.in_lane(work, tab=asked.tab, kind="read")
        self._longest = max(self._longest, len(kept.read.tokens))
        read, context = kept.read, self.model.context
        best = read.logits.double().softmax(-1).topk(min(ANSWERS, len(read.logits)))
        return wire.PromptRead(
            id=name,
            tokens=read.tokens,
            ids=read.token_ids,
            answer=tuple(
                wire.TokenChance(token=self.after(read, token), p=p)
                for token, p in zip(best.indices.tolist(), best.values.tolist(), strict=True)
            ),
            context_left=None if context is None else context - len(read.tokens),
            basis=asked.basis,
        )

    def after(self, read: PromptReading, token: int) -> str:
        """A token's text where it follows the prompt."""
        return shown_after(self.model.tokenizer, list(read.token_ids), token)

    def _name(self, ids: Sequence[int], basis: str) -> str:
        content = f"{self.model.weight_hash} {basis} {','.join(map(str, ids))}"
        return hashlib.sha256(content.encode()).hexdigest()[:32]

    def kept(self, name: str) -> KeptPrompt:
        """A prompt by its id."""
        kept = self.memory.get(name)
        if kept is None:
            raise Gone(GONE)
        return kept

    def _still(self, kept: KeptPrompt) -> PromptReading:
        """In the lane: what was read, unless the model was changed while it waited."""
        if kept.read.up.stream.model is not self.model:
            raise Gone(GONE)
        return kept.read

    # --- all heads -----------------------------------------------------------------------------------------------

    async def glance(self, name: str) -> Glance:
        """Thumbnails and statistics, made once per prompt."""
        kept = self.kept(name)
        if kept.glance is None:

            def work(_: Turn) -> Glance:
                read = self._still(kept)
                if kept.glance is None:
                    found = find_answer(self.model, read.token_ids, read.logits, None, None)
                    kept.glance = glance(
                        read, found, ask(self.model, read.up, read.tokens, found, None, None, None)
                    )
                return kept.glance

            await self.in_lane(work)
            self.memory.tidy()
        assert kept.glance is not None
        return kept.glance

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
                self._still(kept),
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
                *(self._still(one) for one in both),
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

        def work(_: Turn) -> Circuit:
            return walked(self._still(kept), steps, asked.answer, asked.wrong)

        circuit = await self.in_lane(work, tab=asked.tab, kind="walk")
        if asked.job is not None:
            place = asked.model_dump(include={"answer", "wrong", "root", "opened"})
            self.results.keep(asked.job, CircuitMade(circuit, self._script(kept, place, "circuit")))
        return circuit.to_json()

    async def edit(self, plan: wire_edits.EditPlan) -> wire_edits.EditSeen:
        """Change the running model; a newer plan of the same tab takes the place of an older one."""
        kept, sources = self.kept(plan.prompt), {name: self.kept(name) for name in needed(plan)}

        def work(_: Turn) -> wire_edits.EditSeen:
            read, others = self._still(kept), {name: self._still(one) for name, one in sources.items()}
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
