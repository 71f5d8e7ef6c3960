"""The words of the command line. An option that several verbs have is defined here once, so it is spelt alike, means
the same everywhere, and is checked as soon as it is read: before torch is imported or a model loaded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from headwise.errors import HeadwiseError
from headwise.files import refuse_unwritable
from headwise.head_names import head_and_row, layer_and_head
from headwise.strings import shortened, well_formed
from headwise.tasks import names

A_CORPUS = "a name that `headwise corpus` lists, a folder, or a .txt, .jsonl or .parquet file"
"""What ``--corpus`` takes, wherever texts are asked for."""

# --- checks and completions -----------------------------------------------------------------------------------------


def _text(context: typer.Context, parameter: typer.CallbackParam, value: str | None) -> str | None:
    return value if value is None else well_formed(value, parameter.opts[0])


def texts(context: typer.Context, parameter: typer.CallbackParam, value: list[str] | None) -> list[str]:
    """Texts of an option that may be repeated; an empty one is refused."""
    for one in value or []:
        if not well_formed(one, parameter.opts[0]).strip():
            raise HeadwiseError(f"{parameter.opts[0]} {one!r} is empty: give the text the model is to read")
    return value or []


def one_text(context: typer.Context, parameter: typer.CallbackParam, value: str | None) -> str | None:
    """One text of an option; an empty one is refused."""
    texts(context, parameter, None if value is None else [value])
    return value


def _output(value: Path | None) -> Path | None:
    if value is not None:
        refuse_unwritable(value)
    return value


def readable(value: Path | None) -> Path | None:
    """A file that is read later on: it should not take a loaded model to find that it is not there."""
    if value is None:
        return None
    try:
        value.open("rb").close()
    except (OSError, ValueError) as error:
        raise HeadwiseError(
            f"cannot read {str(value)!r}: {getattr(error, 'strerror', None) or error}"
        ) from None
    return value


def output_file(help: str) -> Any:
    """An option that names a file to write; the place is tried before any work is done."""
    return typer.Option(help=help, metavar="FILE", callback=_output)


def refuse_foreign_folder(value: Path | None) -> Path | None:
    """A run folder must be new, empty, or the folder of a run, in a place that can be written."""
    from headwise.scale.place import refuse_foreign

    if value is not None:
        refuse_foreign(value)
    return value


def _banks(values: list[Path] | None) -> list[Path]:
    for path in values or []:
        if not path.exists():
            raise HeadwiseError(
                f"there are no features at {str(path)!r}: make them with `headwise features TASK --out DIR`"
            )
    return values or []


def _share(context: typer.Context, parameter: typer.CallbackParam, value: float | None) -> float | None:
    if value is not None and not 0 < value <= 1:
        raise HeadwiseError(
            f"{parameter.opts[0]} {value:g} is not an attention: give a number above 0 and up to 1"
        )
    return value


def head(context: typer.Context, parameter: typer.CallbackParam, value: str | None) -> str | None:
    if _text(context, parameter, value) is not None:
        layer_and_head(str(value))
    return value


def _heads(context: typer.Context, parameter: typer.CallbackParam, value: str) -> str:
    if _text(context, parameter, value) != "auto":
        for one in value.split(","):
            layer_and_head(one)
    return value


def _placed_heads(context: typer.Context, parameter: typer.CallbackParam, value: str | None) -> str | None:
    if _text(context, parameter, value) is not None:
        for one in str(value).split(","):
            head_and_row(one)
    return value


def placed_heads(help: str) -> Any:
    """An option that names heads of a prompt, each at all positions or at one."""
    return typer.Option(help=help, metavar="HEADS", callback=_placed_heads)


def alignment(value: str) -> dict[int, int]:
    """Positions of the prompt, each with that of the other one.

    >>> alignment("9=10,-1=-1")
    {9: 10, -1: -1}
    """
    made: dict[int, int] = {}
    for pair in value.split(","):
        found = re.fullmatch(r"\s*(-?[0-9]{1,9})\s*=\s*(-?[0-9]{1,9})\s*", pair)
        if found is None:
            raise HeadwiseError(
                f"--align {shortened(value)!r}: {shortened(pair)!r} is not two positions: write them as 9=10,13=15"
            )
        if int(found[1]) in made:
            raise HeadwiseError(
                f"--align {shortened(value)!r} names position {int(found[1])} twice: give it once"
            )
        made[int(found[1])] = int(found[2])
    return made


def _align(value: str | None) -> str | None:
    if value is not None:
        alignment(value)
    return value


def _seed(value: int) -> int:
    if not 0 <= value < 2**64:
        raise HeadwiseError(f"--seed {shortened(str(value))} is out of range: give one from 0 to {2**64 - 1}")
    return value


def _labelled(value: str | None) -> str | None:
    if value is not None:
        names.check_task_name(value)
        if value not in names.LABELLED:
            from headwise.tasks.labelled.jsonl import check_jsonl

            check_jsonl(value)
    return value


def _answers(value: str | None) -> str | None:
    if value is not None:
        names.check_answer_task(value)
        if value not in names.ANSWERS:
            from headwise.tasks.answers.lines import check_answer_lines

            check_answer_lines(value)
    return value


def _starting(choices: Iterable[str]) -> Any:
    """Completion of a value that is one of some names, or anything else."""
    return lambda incomplete: [one for one in choices if one.startswith(incomplete)]


def _task(words: str, check: Callable[[str | None], str | None], choices: Iterable[str]) -> Any:
    """The argument TASK: one of the tasks of that kind, or a file."""
    return typer.Argument(help=words, metavar="TASK", callback=check, autocompletion=_starting(choices))


def model_names(incomplete: str) -> list[str]:
    from headwise.model.loading.catalogue import known_models

    return [model.name for model in known_models() if model.name.startswith(incomplete)]


# --- what is asked of the model -------------------------------------------------------------------------------------

Model = Annotated[
    str | None,
    typer.Option(
        help="A known model, hub id, folder or .gguf.",
        metavar="M",
        callback=_text,
        autocompletion=model_names,
    ),
]
ModelArgument = Annotated[
    str | None,
    typer.Argument(
        help="A known model, hub id, folder or .gguf (default: smollm2).",
        metavar="MODEL",
        callback=_text,
        autocompletion=model_names,
    ),
]
Prompt = Annotated[
    str | None,
    typer.Argument(
        help="The text the model reads; - reads it from standard input.", metavar="PROMPT", show_default=False
    ),
]
PromptFile = Annotated[Path | None, typer.Option(help="Read the prompt from this file.", metavar="FILE")]
Chat = Annotated[
    bool, typer.Option("--chat", help="Put the prompt into the model's chat template, as the user's turn.")
]
Start = Annotated[
    int,
    typer.Option(
        min=0, help="The position of the prompt's first token, with nothing before it.", metavar="N"
    ),
]
Head = Annotated[str | None, typer.Option(help="The head, such as L22H4.", metavar="HEAD", callback=head)]
Heads = Annotated[
    str, typer.Option(help="auto, or a list such as L18H6,L20H3.", metavar="HEADS", callback=_heads)
]
Alignment = Annotated[
    str | None,
    typer.Option(
        "--align",
        help="Positions of the prompt and of the other one: 9=10,13=15 (default: the same, at equal lengths).",
        metavar="PAIRS",
        callback=_align,
    ),
]
Query = Annotated[
    str | None,
    typer.Option(help="The token that attends, as text or position.", metavar="TOKEN", callback=_text),
]
Key = Annotated[
    str | None,
    typer.Option(help="The token it attends to, as text or position.", metavar="TOKEN", callback=_text),
]
Answer = Annotated[
    str | None,
    typer.Option(
        help="The answer's token (explain: or several); default: what the model predicts.",
        metavar="TOKEN",
        callback=_text,
    ),
]
Wrong = Annotated[
    str | None, typer.Option(help="The token it is compared with.", metavar="TOKEN", callback=_text)
]
Features = Annotated[
    list[Path] | None,
    typer.Option(
        help="A feature bank, or the folder of a features run; may be repeated.",
        metavar="BANK",
        callback=_banks,
    ),
]


def _names(value: Path | None) -> Path | None:
    """Tried before a model is loaded."""
    if value is not None:
        from headwise.known_names import KnownNames

        KnownNames.load(value)
    return value


def known_names(folder: Path | None, model: Any) -> Any:
    """The names of a folder for a loaded model; those of another one are refused before any work is done."""
    if folder is None:
        return None
    from headwise.known_names import KnownNames

    return KnownNames.load(folder).fit(model.name, model.weight_hash)


Names = Annotated[
    Path | None,
    typer.Option(
        help="Show names, each with its verdict: the folder that headwise name made.",
        metavar="DIR",
        callback=_names,
    ),
]

# --- what is studied ------------------------------------------------------------------------------------------------

_LABELLED = _task("binding, filter, or a .jsonl file of labelled prompts.", _labelled, names.LABELLED)
LabelledTask = Annotated[str, _LABELLED]
OptionalLabelledTask = Annotated[str | None, _LABELLED]
_ANSWERS = _task("ioi, greater-than, pronouns, facts, or a .jsonl file of prompts.", _answers, names.ANSWERS)
AnswerTask = Annotated[str, _ANSWERS]
TaskPrompts = Annotated[
    str | None,
    typer.Option(
        "--task",
        help="Read the prompts of ioi, greater-than, pronouns, facts, or of a .jsonl file.",
        metavar="TASK",
        callback=_answers,
        autocompletion=_starting(names.ANSWERS),
    ),
]
OptionalTask = Annotated[str | None, _ANSWERS]
TaskOption = Annotated[
    str | None,
    typer.Option(
        help="Many prompts instead of one: ioi, greater-than, pronouns, facts, or a .jsonl file.",
        metavar="TASK",
        callback=_answers,
        autocompletion=_starting(names.ANSWERS),
    ),
]
Pairs = Annotated[int | None, typer.Option(min=2, help="binding: entity–box pairs in a prompt.", metavar="N")]
Categories = Annotated[
    str | None, typer.Option(help="filter: 5, 13 or a list of names.", metavar="NAMES", callback=_text)
]
Jitter = Annotated[
    bool,
    typer.Option(
        "--jitter",
        help="Vary sentence lengths so that order and token position are not confounded.",
    ),
]
Format = Annotated[Literal["plain", "few-shot", "chat"] | None, typer.Option(help="How a prompt is written.")]

# --- how ------------------------------------------------------------------------------------------------------------

Mode = Annotated[
    Literal["exact", "published"], typer.Option(help="published follows the authors' rules to the letter.")
]
Rule = Annotated[Literal["gauss", "trapezoid"] | None, typer.Option(help="Integration rule.")]
Tau = Annotated[
    float | None,
    typer.Option(
        help="The attention must fall below this; default a quarter of it or 2.5 / keys.",
        metavar="P",
        callback=_share,
    ),
]
Basis = Annotated[
    Literal["singular", "balanced", "rotated"],
    typer.Option(help="Which channels; balanced ones need `headwise calibrate`."),
]
Draws = Annotated[int, typer.Option(min=1, help="Random controls.", metavar="N")]
ControlDraws = Annotated[
    int,
    typer.Option(
        min=1,
        help="Random controls of each kind; one in 50, at least 19, is tried in the model for the answer.",
        metavar="N",
    ),
]
Seed = Annotated[int, typer.Option(help="Seed of everything random.", metavar="N", callback=_seed)]
Top = Annotated[int, typer.Option(min=1, help="How many rows to show.", metavar="N")]

# --- where results go -----------------------------------------------------------------------------------------------

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]
Html = Annotated[Path | None, output_file("Write a page that opens offline.")]
Save = Annotated[Path | None, output_file("Write the result as JSON.")]
Out = Annotated[
    Path | None,
    typer.Option(help="Run folder: tables, numbers, report.", metavar="DIR", callback=refuse_foreign_folder),
]
RequiredOut = Annotated[
    Path,
    typer.Option(
        "--out", help="Run folder: tables and numbers.", metavar="DIR", callback=refuse_foreign_folder
    ),
]


def refuse_unused(context: typer.Context, used: Iterable[str], because: str) -> None:
    """Refuse options that were given and would do nothing: nobody should wait for a file that is never written."""
    for parameter in context.command.params:
        given = context.get_parameter_source(str(parameter.name))
        if given is not None and given.name == "COMMANDLINE" and parameter.name not in used:
            raise HeadwiseError(f"{parameter.opts[0]} {because}: leave it out")
