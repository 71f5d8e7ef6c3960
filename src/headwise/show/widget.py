"""An explanation or a circuit in a cell of a notebook, drawn by the script that draws pages and app.

anywidget is an extra, imported when it is first used. A notebook that is saved without its widgets, and a viewer that
runs no scripts, show the table that a result shows by itself.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, overload

from headwise import jsons
from headwise.circuits.circuit import Circuit
from headwise.errors import HeadwiseError
from headwise.model.model import Model
from headwise.show import notebook
from headwise.show.kit.page import BUNDLE, STYLE, part
from headwise.strings import in_short
from headwise.tokens import Prompt
from headwise.why.explain import explain
from headwise.why.explanation import Explanation

if TYPE_CHECKING:
    from anywidget import AnyWidget

Shown = Explanation | Circuit


@overload
def widget(given: Shown) -> AnyWidget: ...
@overload
def widget(given: Model, prompt: Prompt, **question: Any) -> AnyWidget: ...
def widget(given: Shown | Model, prompt: Prompt | None = None, **question: Any) -> AnyWidget:
    """Show an explanation or a circuit in a notebook, with everything that its page can do.

    Of a model and a prompt the widget is live: click a cell, and it is explained. Needs the extra
    ``headwise[notebook]``.

    Parameters
    ----------
    given:
        An explanation, a circuit, or a loaded model.
    prompt:
        With a model: the prompt to explain.
    question:
        With a model: what else :func:`headwise.explain` takes, such as ``head``, ``query`` and ``key``.

    Returns
    -------
    AnyWidget
        Its ``shown`` is what it shows now: of a live widget, the explanation of the cell that was asked for last.
    """
    made = _widget_class()
    if isinstance(given, Model):
        if prompt is None:
            raise HeadwiseError(
                "a widget of a model needs a prompt: write widget(model, 'When John and Mary …')"
            )
        return made(explain(given, prompt, **question), given, prompt, question)
    if not isinstance(given, Shown):
        raise HeadwiseError(
            f"{in_short(given)} cannot be shown as a widget: give an explanation, a circuit, or a model and a prompt"
        )
    if prompt is not None or question:
        raise HeadwiseError(
            f"{type(given).__name__} already has its prompt: a prompt and a question belong to a model"
        )
    return made(given)


@cache
def _widget_class() -> type[AnyWidget]:
    """The widget's class, once there is anywidget."""
    try:
        import anywidget
        import traitlets
    except ImportError:
        raise HeadwiseError("anywidget is not installed: pip install 'headwise[notebook]'") from None

    class HeadwiseWidget(anywidget.AnyWidget):
        """A result that a notebook's browser draws."""

        _esm = f"{part(BUNDLE)}export default headwise.widget({jsons.dumps(part(STYLE), indent=None)});"
        document: dict[str, Any] = traitlets.Dict().tag(sync=True)  # pyright: ignore[reportAssignmentType]
        live: bool = traitlets.Bool(False).tag(sync=True)  # pyright: ignore[reportAssignmentType]
        asked: dict[str, Any] = traitlets.Dict().tag(sync=True)  # pyright: ignore[reportAssignmentType]
        said: str = traitlets.Unicode("").tag(sync=True)  # pyright: ignore[reportAssignmentType]

        def __init__(
            self,
            shown: Shown,
            model: Model | None = None,
            prompt: Prompt | None = None,
            question: dict[str, Any] | None = None,
        ) -> None:
            super().__init__(document=_document(shown), live=model is not None)
            self.shown, self._model, self._prompt = shown, model, prompt
            self._question = question or {}

        @traitlets.observe("asked")
        def _explain(self, change: Any) -> None:
            """A cell was clicked: the browser says which, and nothing else is taken from it."""
            cell, question = change["new"], self._question
            if self._model is None or self._prompt is None or not cell:
                return
            self.said = "explaining …"
            try:
                where = {name: cell.get(name) for name in ("head", "query", "key")}
                self.shown = explain(self._model, self._prompt, **{**question, **where})
            except HeadwiseError as error:
                self.said = str(error)
                return
            self.document, self.said = _document(self.shown), ""

        def _repr_mimebundle_(self, **kwargs: Any) -> Any:
            """With the table of a result, for whoever cannot run a widget."""
            made = super()._repr_mimebundle_(**kwargs)
            data, metadata = made if isinstance(made, tuple) else (made or {}, {})
            return {**data, "text/html": _plain(self.shown), "text/plain": repr(self.shown)}, metadata

    return HeadwiseWidget


def _document(shown: Shown) -> dict[str, Any]:
    from headwise.show.kit.glossary import glossary
    from headwise.show.why.page import drawn

    document = shown.to_json() if isinstance(shown, Circuit) else drawn(shown)
    return {**document, "glossary": glossary()}


def _plain(shown: Shown) -> str:
    return notebook.circuit(shown) if isinstance(shown, Circuit) else notebook.explanation(shown)
