"""Lines of styled spans as a terminal shows them."""

from __future__ import annotations

from collections.abc import Sequence
from io import StringIO


def colored(lines: Sequence[list[tuple[str, str]]]) -> str:
    """The lines with their colours. Law: without the codes it is their plain text."""
    from rich.console import Console
    from rich.text import Text

    out = StringIO()
    # the caller has decided that there is colour: no variable of the environment may
    console = Console(
        file=out,
        force_terminal=True,
        color_system="standard",
        width=10_000,
        legacy_windows=False,
        _environ={},
    )
    for line in lines:
        spans = [(span, style) for span, style in line if span]
        while spans and not spans[-1][0].rstrip():
            spans.pop()
        if spans:
            spans[-1] = (spans[-1][0].rstrip(), spans[-1][1])
        console.print(Text.assemble(*spans, no_wrap=True, end=""), soft_wrap=True, highlight=False)
    return out.getvalue()
