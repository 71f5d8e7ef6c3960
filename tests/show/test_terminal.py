"""The terminal shows what data says and does nothing it says."""

from __future__ import annotations

import io
import sys
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import pytest
from rich.console import Group
from rich.table import Table
from rich.text import Text

from headwise.circuits.faithfulness import Faithfulness
from headwise.cli.main import main
from headwise.cli.progress import live_bar, stage_bars, timed_bar
from headwise.errors import HeadwiseError
from headwise.progress import Working, drawn_by
from headwise.show.circuits.terminal import effects_table
from headwise.show.contrast.terminal import heads_table
from headwise.show.kit.terminal import PlainConsole, attention_table, console
from headwise.show.kit.terminal import table as rows_table
from headwise.show.sinks.terminal import _shared
from headwise.types import Claim

NASTY = "\x1b]0;owned\x9c\x9b31m[/x][link=https://a.b]:smile: \u202eabc"
SHOWN = r"\x1b]0;owned\x9c\x9b31m[/x][link=https://a.b]:smile: \u202eabc"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def harmless(text: str) -> bool:
    return not any(c in text for c in "\x1b\x9c\x9b\u202e")


def test_text_is_shown_as_it_is_and_never_acts(capsys: pytest.CaptureFixture[str]) -> None:
    out = console()
    table = Table(title=NASTY)
    table.add_column(NASTY)
    table.add_row(NASTY)
    table.add_row(Text(NASTY))
    for one in (NASTY, Text(NASTY), table, attention_table(NASTY, [(NASTY, 0.5)])):
        out.print(one)
    shown = capsys.readouterr().out
    assert harmless(shown)
    assert shown.count(SHOWN) == 8
    assert all(len(line) <= 100 for line in shown.splitlines())


def test_colours_still_reach_a_terminal() -> None:
    out = Terminal()
    PlainConsole(file=out, force_terminal=True, color_system="standard", width=80).print(
        Text("a\x1bb", style="red")
    )
    assert out.getvalue() == "\x1b[31ma\\x1bb\x1b[0m\n"


@pytest.mark.parametrize("terminal", [False, True])
def test_stages_and_titles_are_data(monkeypatch: pytest.MonkeyPatch, terminal: bool) -> None:
    err = Terminal() if terminal else io.StringIO()
    monkeypatch.setattr(sys, "stderr", err)
    monkeypatch.setattr(Working, "_PATIENCE", -1.0)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")
    for bars in (stage_bars, timed_bar):
        with bars() as told:
            told(NASTY, 1, 2)
            told(NASTY, 2, 2)
    # As a Python caller hears it, and as the command line draws it.
    for drawn in (nullcontext(), drawn_by(live_bar)):
        with drawn, Working(NASTY) as progress:
            progress.stage(NASTY, 0.5)
    assert "\\x1b]0;owned" in err.getvalue()
    assert "\x1b]0;" not in err.getvalue() and "\x9c" not in err.getvalue() and "\x9b" not in err.getvalue()


def test_the_error_line_is_one_harmless_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(arguments: list[str]) -> int:
        raise HeadwiseError(f"{NASTY}\nis not known \udce9")

    monkeypatch.setattr("headwise.cli.main._dispatch", refuse)
    assert main([]) == 2
    assert capsys.readouterr().err == f"headwise: {SHOWN} is not known \\udce9\n"


@pytest.mark.parametrize("width", range(12, 60))
def test_no_line_ends_inside_a_quoted_token(width: int) -> None:
    said = "of all heads' reads, L2H1's brings ' her' over ' old man' and \" it's\" by reading ' ⏎her' (3)"
    tokens = ["' her'", "' old man'", '" it\'s"', "' ⏎her'"]
    table = Table(box=None)
    table.add_column("who")
    table.add_row(said)
    for renderable in (said, Text(said), Group(Text(said, style="bold")), table):
        out = io.StringIO()
        PlainConsole(file=out, width=width).print(renderable)
        lines = [line.rstrip() for line in out.getvalue().splitlines()]
        for token in tokens:
            assert sum(token in line for line in lines) == 1, (width, lines)
        assert max(map(len, lines)) <= width
        assert " ".join(" ".join(lines).split()).count("L2H1's") == 1


def test_a_quotation_longer_than_a_token_is_wrapped_like_any_text() -> None:
    out = io.StringIO()
    PlainConsole(file=out, width=30).print(f"He said 'I {'never ' * 20}saw it'.")
    assert out.getvalue().splitlines()[0].rstrip() == "He said 'I never never never"


def test_words_that_glue_stands_for_are_spaces_again() -> None:
    out = io.StringIO()
    PlainConsole(file=out, width=80).print("' a b' and ' c'", Text("' d'", style="bold"), soft_wrap=True)
    assert out.getvalue() == "' a b' and ' c' ' d'\n"


def test_headers_that_leave_no_room_for_the_cells_take_two_lines(capsys: pytest.CaptureFixture[str]) -> None:
    columns = (
        "signals of",
        "not of",
        "number",
        "in own prompts (control)",
        "in the other's (control)",
        "gap",
    )
    row = ("a family", "another", "4", "-0.21 (-0.00)", "+0.09 (-0.01)", "-0.30 (-0.35 to -0.25), p 0.001")
    console().print(rows_table(columns, [row]))
    shown = capsys.readouterr().out.splitlines()
    assert shown[-1].split("  ")[-1].strip() == row[-1]
    assert ["gap" in line for line in shown] == [False, True, False]
    assert "in own prompts" in shown[0] and "(control)" in shown[1]
    console().print(rows_table(columns[:3], [row[:3]]))
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_a_circuit_that_beats_matched_ones_is_not_called_sufficient(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A sixth of the answer kept is more than matched circuits keep, and far from all of it."""
    yes = Claim(null="matched circuits", draws=20, p=0.048, q=0.048, group="", supported=True)
    found = Faithfulness(
        firings=26,
        clean=4.0,
        none=-2.0,
        outside_ablated=-2.0,
        inside_ablated=-3.0,
        random_outside_ablated=(-2.0,),
        random_inside_ablated=(3.8,),
        matched_outside_ablated=(-2.1,),
        matched_inside_ablated=(3.0,),
        others=4,
        resampled_none=0.1,
        resampled_outside=0.64,
        resampled_inside=0.2,
        matched_resampled_outside=(0.28,),
        necessary=yes,
        sufficient=yes,
        sufficient_by_means=replace(yes, q=0.2, supported=False),
    )
    console().print(effects_table([], found))
    shown = capsys.readouterr().out
    assert "16% kept; matched circuits 7%" in shown and "against 20 matched circuits:" in shown
    assert "it keeps more, everything outside resampled: supported (p 0.048, q 0.048)" in shown
    assert "it keeps more, everything outside at its mean: not supported" in shown
    assert "sufficient" not in shown


def test_heads_that_were_asked_for_are_not_said_to_do_the_task(capsys: pytest.CaptureFixture[str]) -> None:
    for asked, said in ((True, "* was asked for"), (False, "* does the task by its rule")):
        console().print(heads_table([], "accuracy", asked=asked))
        assert said in capsys.readouterr().out


def test_no_number_of_the_shared_directions_is_cut_off(capsys: pytest.CaptureFixture[str]) -> None:
    one = SimpleNamespace(
        side="query",
        name="largest cluster",
        heads=range(116),
        attention=0.7381,
        removed=SimpleNamespace(mean=0.2442),
        control=0.7174,
        claim=SimpleNamespace(q=0.0161, supported=True),
        loss_change=SimpleNamespace(mean=1.351, low=-0.592, high=2.114),
        control_loss_change=0.0912,
    )
    console().print(_shared(SimpleNamespace(shared=[one])))  # pyright: ignore[reportArgumentType]
    row = capsys.readouterr().out.splitlines()[-1]
    assert row.split() == [
        *("query", "largest", "cluster", "116", "0.738", "0.244", "0.717", "0.016*"),
        *("+1.35", "(-0.59", "to", "+2.11)", "+0.09"),
    ]
