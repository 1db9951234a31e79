"""Docstrings as Markdown, for mkdocstrings, which would run a formula into the sentence beneath it.

x + dropout(sublayer(norm(x)))        Some Paper, eq. 1     a block with a gap or indented: as it stands
keep: True where a query may look.                          a named line: a paragraph of its own
"""

from __future__ import annotations

import re
from html import escape
from typing import Any

import griffe

_GAP = re.compile(r"\S {2,}\S")
_NAMED = re.compile(r"^([a-z]\w*(?:, \w+)*|Laws?|Errors|Cost|Returns|Args): ")


class AsMarkdown(griffe.Extension):
    """Rewrites every docstring before it is parsed; what stands under `Args:` is the parser's."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Called for each object once it and its docstring are read."""
        if obj.docstring is not None:
            prose, listing, arguments = obj.docstring.value.partition("\nArgs:\n")
            obj.docstring.value = as_markdown(prose) + "\n" + listing + arguments


def as_markdown(prose: str) -> str:
    """Blocks of sentences as paragraphs, formulas and drawings as code."""
    return "\n\n".join(_block(block) for block in re.split(r"\n\s*\n", prose.strip("\n")))


def _block(block: str) -> str:
    lines = block.splitlines()
    is_drawn = any(_GAP.search(line) for line in lines) or lines[0].startswith(" ")
    if is_drawn:
        return f"```text\n{block}\n```"
    told: list[str] = []
    for line in lines:
        named = _NAMED.match(line)
        told += (
            ["", f"**{named[1]}**: {_escaped(line[named.end() :])}"] if named else [_escaped(line.strip())]
        )
    return "\n".join(told).strip("\n")


def _escaped(line: str) -> str:
    """The line without what Markdown and HTML would take for theirs; `code` stays."""
    parts = re.split(r"(`[^`]*`)", line)
    return "".join(each if each.startswith("`") else _plain(each) for each in parts)


def _plain(text: str) -> str:
    return re.sub(r"([*_\[\]])", r"\\\1", escape(text, quote=False))
