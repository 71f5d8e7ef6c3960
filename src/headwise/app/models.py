"""The models that an app may load: those named on the command line, and those that are ready on this machine.

A page can choose among them and no more: it can neither name a folder nor send the app to the network.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from headwise.errors import HeadwiseError
from headwise.model.loading import store
from headwise.model.loading.catalogue import is_known
from headwise.model.loading.load import load
from headwise.model.model import Model


class ModelChoices:
    """By the name that the page shows: what is to be loaded."""

    def __init__(
        self,
        first: str,
        source: str | None,
        also: Sequence[str] = (),
        loader: Callable[[str | Path | None], Model] = load,
    ) -> None:
        """``first`` is the name of the model that ``source`` gave (None: the default one)."""
        self._load = loader
        self._named: dict[str, str | None] = {first: source, **{one: one for one in also if one != source}}

    def all(self) -> dict[str, str | Path | None]:
        """Those of the command line first; what is ready is looked up anew, since models come and go."""
        ready = [one for one in store.list_ready() if one.name not in self._named]
        return {**self._named, **{one.name: one.name if is_known(one.name) else one.path for one in ready}}

    def require(self, name: str) -> None:
        """Refuse a name that is not in the list."""
        known = self.all()
        if name not in known:
            raise HeadwiseError(
                f"the model {name!r} is not one that this app may load: it may load {', '.join(known)}"
            )

    def load(self, name: str) -> Model:
        """A model by its name in the list."""
        self.require(name)
        return self._load(self.all()[name])

    def source(self, name: str) -> str | None:
        """What a command says after --model to load the same."""
        found = self.all().get(name)
        return None if found is None else str(found)
