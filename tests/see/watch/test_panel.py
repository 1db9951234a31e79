"""The live panel: on a terminal only, with the latest numbers and what is unusual."""

from __future__ import annotations

import io

from rich.console import Console

from headwise.see.watch.judge import Unusual
from headwise.see.watch.panel import Panel
from headwise.see.watch.watch import watch
from see.watch.loops import MODELS
from see.watch.test_sample import SAMPLE


def shown(is_terminal: bool) -> str:
    seen = watch(MODELS["by hand"](), live=False, step=7, history=[SAMPLE])
    seen.findings = [Unusual(5, "warning", "something [bold]odd[/bold]", "HW410")] * 6
    out = io.StringIO()
    panel = Panel(seen, Console(file=out, force_terminal=is_terminal, width=100, color_system=None))
    panel.start()
    panel.step(8)
    panel.stop()
    return out.getvalue()


def test_it_shows_the_numbers_and_what_is_unusual() -> None:
    text = shown(True)
    assert "headwise watch, step 7" in text and "loss 2.5" in text
    assert "something [bold]odd[/bold]" in text and "and 2 more in the report" in text


def test_where_there_is_no_terminal_there_is_no_panel() -> None:
    assert shown(False) == ""


def test_a_watch_draws_it_where_asked(capsys) -> None:
    with watch(MODELS["by hand"](), live=True):
        pass
    assert capsys.readouterr().err == ""  # no terminal here
