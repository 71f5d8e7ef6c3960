"""What is on a screen, to be taken along: the ``headwise`` command that gives it, and Python that does.

The app has no numbers of its own, so whatever it shows can be had without it.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from headwise.app import wire, wire_edits
from headwise.app.runs import Run
from headwise.why.controls import DRAWS

_SETTINGS = ("dtype", "device", "device_map", "max_memory", "offload_folder")


def loaded_by(
    source: str | None, loading: Sequence[str] = (), origin: Mapping[str, Any] | None = None
) -> str:
    """What ``headwise.load`` is given for the model at work."""
    settings = {name: (origin or {}).get(name) for name in _SETTINGS} if loading else {}
    how = [f"{name}={value!r}" for name, value in settings.items() if value is not None]
    return ", ".join([*([] if source is None else [repr(source)]), *how])


class Takeaway:
    """One place in the app, with a model that ``source`` names and the run folders that it mentions.

    How the model was loaded, ``loading`` says in words of a command, and ``origin`` as parameters of ``headwise.load``.
    """

    def __init__(
        self,
        asked: wire_edits.PlaceAsked,
        source: str | None,
        runs: Sequence[Run],
        loading: Sequence[str] = (),
        origin: Mapping[str, Any] | None = None,
        prompt: str | list[int] | None = None,
    ) -> None:
        """``prompt`` is what the model read, where that is not the text on the screen."""
        self.prompt, self.asked, self.source, self.loading = prompt, asked, source, loading
        self.load = loaded_by(source, loading, origin)
        self.features = [str(runs[index].path) for index in asked.features if index < len(runs)]
        self.names = None if asked.names is None or asked.names >= len(runs) else str(runs[asked.names].path)
        self.run = None if asked.run is None or asked.run >= len(runs) else str(runs[asked.run].path)

    def said(self) -> wire.PlaceSaid:
        screen = self.asked.screen
        if screen == "runs":
            return wire.PlaceSaid(command=self._app(), python=self._tables())
        if screen in ("prompt", "heads"):
            return wire.PlaceSaid(command=self._attention(), python=self._python(*self._captured()))
        if screen == "circuit":
            return wire.PlaceSaid(command=self._trace(), python=self._python(*self._traced()))
        if screen == "compare" and self.asked.other:
            return wire.PlaceSaid(command=self._both(), python=self._python(*self._compared()))
        edited = bool(self.asked.edits)
        lines = self._tried() if edited else self._explained()
        return wire.PlaceSaid(command=self._explain(), python=self._python(*lines))

    # --- commands ------------------------------------------------------------------------------------------------

    def _command(self, verb: str, text: str | None, **options: Any) -> str:
        words = ["headwise", verb, *([] if text is None else ["--", text] if text[:1] == "-" else [text])]
        given: list[str] = []
        for name, value in {**options, "model": self.source}.items():
            for one in value if isinstance(value, list) else [value]:
                if one is not None and one is not False:
                    given += [f"--{name}"] if one is True else [f"--{name}", str(one)]
        # Options go before a prompt that begins with a dash.
        return shlex.join([*words[:2], *given, *self.loading, *words[2:]])

    def _explain(self) -> str:
        asked = self.asked
        return self._command(
            "explain",
            asked.text,
            **{name: getattr(asked, name) for name in ("head", "query", "key", "answer", "wrong")},
            features=self.features,
            names=self.names,
            tau=asked.tau,
            draws=None if asked.draws == DRAWS else asked.draws,
            seed=asked.seed or None,
            chat=asked.chat,
        )

    def _attention(self) -> str:
        asked = self.asked
        return self._command("attention", asked.text, to=asked.key, query=asked.query, chat=asked.chat)

    def _trace(self) -> str:
        asked, walk = self.asked, {}
        if self.run is None:
            begin = [] if asked.root is not None else ["answer"]
            walk = {"from": asked.root, "open": list(asked.opened) or begin}
        return self._command(
            "trace", asked.text, answer=asked.answer, wrong=asked.wrong, **walk, chat=asked.chat
        )

    def _both(self) -> str:
        asked = self.asked
        return self._command(
            "explain",
            asked.text,
            against=asked.other,
            align=",".join(f"{one[0]}={one[1]}" for one in asked.align) or None,
            **{name: getattr(asked, name) for name in ("head", "query", "key", "answer", "wrong")},
            draws=None if asked.draws == DRAWS else asked.draws,
            seed=asked.seed or None,
            chat=asked.chat,
        )

    def _app(self) -> str:
        return self._command("app", None, runs=[] if self.run is None else [self.run])

    # --- Python --------------------------------------------------------------------------------------------------

    def _python(self, *lines: str) -> str:
        asked = self.asked
        given = (
            _prompt("prompt", asked.text, chat=asked.chat)
            if self.prompt is None
            else [f"prompt = {self.prompt!r}"]
        )
        return "\n".join(["import headwise", "", f"model = headwise.load({self.load})", *given, *lines, ""])

    def _call(self, what: str, **settings: Any) -> str:
        given = [f"{name}={value!r}" for name, value in settings.items() if value not in (None, [], ())]
        return f"{what}({', '.join(['model', 'prompt', *given])})"

    def _explained(self) -> list[str]:
        asked = self.asked
        call = self._call(
            "headwise.explain",
            **{name: getattr(asked, name) for name in ("head", "query", "key", "answer", "wrong")},
            features=self.features,
            names=self.names,
            tau=asked.tau,
            draws=None if asked.draws == DRAWS else asked.draws,
            seed=asked.seed or None,
        )
        return [f"why = {call}", "print(why.sentence)"]

    def _tried(self) -> list[str]:
        """The bench, as the app itself runs it."""
        asked = self.asked
        edits = [one.model_dump(exclude_defaults=False) for one in asked.edits]
        call = self._call(
            "try_edits",
            **{name: getattr(asked, name) for name in ("head", "query", "key", "answer", "wrong")},
            edits=edits,
            features=self.features,
            dose=None if asked.dose == 1 else asked.dose,
            draws=None if asked.draws == DRAWS else asked.draws,
            seed=asked.seed or None,
        )
        return [
            "from headwise.app.bench import try_edits",
            "",
            f"seen = {call}",
            "print(seen.before.attention, seen.predicted, seen.after.attention, seen.change)",
        ]

    def _traced(self) -> list[str]:
        if self.run is None:
            return self._walked()
        call = self._call("headwise.trace", answer=self.asked.answer, wrong=self.asked.wrong)
        return [f"circuit = {call}", "print(circuit)"]

    def _walked(self) -> list[str]:
        """The circuit as far as it was opened, as the app itself finds it."""
        asked = self.asked
        call = self._call(
            "walk_circuit", opened=list(asked.opened), root=asked.root, answer=asked.answer, wrong=asked.wrong
        )
        return ["from headwise.app.walks import walk_circuit", "", f"circuit = {call}", "print(circuit)"]

    def _captured(self) -> list[str]:
        query, key = self.asked.query, self.asked.key
        at = f"{-1 if query is None else query}])  # what every head reads from there: [heads, tokens]"
        if key is not None:
            at = f":, {key}])  # who reads it in every head: [heads, tokens]"
        return [
            "seen = model.capture(prompt, want=('pattern',), logits='last')",
            f"print(seen.pattern[0, :, {at}",
            "print(seen.logits[0, -1].softmax(-1).topk(5))",
        ]

    def _compared(self) -> list[str]:
        asked = self.asked
        call = self._call(
            "headwise.explain_difference",
            **{name: getattr(asked, name) for name in ("head", "query", "key", "answer", "wrong")},
            align={one[0]: one[1] for one in asked.align} or None,
            draws=None if asked.draws == DRAWS else asked.draws,
            seed=asked.seed or None,
        ).replace("(model, prompt", "(model, prompt, other", 1)
        return [
            *_prompt("other", asked.other, chat=asked.chat),
            f"found = {call}",
            "print(found.sentence)",
        ]

    def _tables(self) -> str:
        folder = "the run folder" if self.run is None else self.run
        return "\n".join(
            [
                "from pathlib import Path",
                "",
                f"for file in sorted(Path({folder!r}).iterdir()):",
                "    print(file)",
                "",
            ]
        )


def _prompt(name: str, text: str, *, chat: bool) -> list[str]:
    if not chat:
        return [f"{name} = {text!r}"]
    return ["from headwise.tokens import chat_prompt", "", f"{name} = chat_prompt(model.tokenizer, {text!r})"]
