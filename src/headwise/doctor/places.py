"""Lines of source as the user knows them: the name of a place, what stands there, and text safe to show."""

from __future__ import annotations

import linecache
import os
import re
import sys
import unicodedata
from typing import Any

# Control characters, the marks that reorder text, line separators, lone surrogates, byte order marks: none of
# them may reach a terminal, a page or an XML file as it is. Escapes only, so this file holds none of them.
_UNSEEN = re.compile(
    "[\\x00-\\x1f\\x7f-\\x9f\\u061c\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069\\ud800-\\udfff\\ufeff\\ufffe\\uffff]"
)
_NAMED = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}
_COUNTED = re.compile(r"ipython-input-(\d+)-")


def visible(text: str) -> str:
    r"""One line of text with nothing hidden in it: an escape character becomes `\x1b`, a line break `\n`."""
    return _UNSEEN.sub(_name, text)


def _name(match: re.Match[str]) -> str:
    number = ord(match[0])
    return _NAMED.get(match[0]) or (f"\\x{number:02x}" if number < 256 else f"\\u{number:04x}")


def visible_lines(text: str) -> list[str]:
    """The lines of a text, each with nothing hidden in it, tabs made spaces, none blank."""
    lines = text.replace("\r\n", "\n").split("\n")
    return [visible(line.expandtabs(4).rstrip()) for line in lines if line.strip()]


def columns(text: str) -> int:
    """How many columns of a terminal a text takes: two for a wide letter, none for a combining mark."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text
    )


def fold(text: str, width: int) -> list[str]:
    """Break one line into lines of at most `width` columns, at spaces where it can, losing only those."""
    lines: list[str] = []
    line = ""
    for piece in re.findall(r"\s*\S+", text):
        if line and columns(line + piece) > width:
            lines.append(line)
            line = piece.lstrip()
        else:
            line += piece
        while columns(line) > width:
            cut = min(width, len(line) - 1)
            while cut > 1 and columns(line[:cut]) > width:
                cut -= 1
            lines.append(line[:cut])
            line = line[cut:]
    return [*lines, line] if line or not lines else lines


def beneath(file: str) -> str | None:
    """The path from the current directory, where the file lies beneath it, else None."""
    try:
        here = os.getcwd()
        path = os.path.relpath(os.path.join(here, file), here)
    except (OSError, ValueError):  # the directory is gone; another drive
        return None
    return None if path.split(os.sep)[0] == os.pardir else path


def cell_of(file: str) -> int | None:
    """The number a notebook shows beside the cell compiled under this name, None where there is none.

    IPython compiles a cell under a made-up path and alone knows which; it is asked only where it is loaded.
    """
    ipython: Any = sys.modules.get("IPython")
    shell: Any = ipython.get_ipython() if ipython is not None and hasattr(ipython, "get_ipython") else None
    name_of: Any = getattr(getattr(shell, "compile", None), "format_code_name", None)
    named: Any = name_of(file) if callable(name_of) else None  # ("Cell", "In[3]"), or None
    told = re.search(r"In ?\[(\d+)\]", str(named)) or _COUNTED.search(os.path.basename(file))
    return int(told[1]) if told else None


def place(file: str, line: int) -> str:
    """`my_model.py:13`, from the current directory where beneath it; `Cell In[3], line 13` in a notebook."""
    cell = cell_of(file)
    if cell is not None:
        return f"Cell In[{cell}], line {line}"
    inside = None if file.startswith("<") else beneath(file)
    return f"{visible(inside or file)}:{line}"


def source(file: str, line: int) -> str:
    """The code on a line without its indentation; "" where it cannot be read."""
    return visible(linecache.getline(file, line).strip().expandtabs(4))


def excerpt(file: str, line: int, around: int = 3) -> list[tuple[int, str]]:
    """The lines about a line, with their numbers; none where that line cannot be read."""
    lines = linecache.getlines(file)
    if not 1 <= line <= len(lines):
        return []
    first, last = max(1, line - around), min(len(lines), line + around)
    return [(n, visible(lines[n - 1].rstrip().expandtabs(4))) for n in range(first, last + 1)]
