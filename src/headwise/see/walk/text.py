"""The walk as text of a fixed width: a table whose columns give way where there is no room."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwise.doctor.places import columns, fold, place, visible
from headwise.see.walk.axes import LEGEND
from headwise.see.walk.steps import Group, Row, Step, steps_of

if TYPE_CHECKING:
    from headwise.see.walk.walk import Walk

Line = list[tuple[str, str]]  # spans of text, each with its style

NARROWEST = 40
_GAP = 2
# columns in order: title, narrowest useful width, set to the right
_COLUMNS = {
    "step": (14, False), "operation": (14, False), "shape": (12, False), "axes": (6, False),
    "params": (6, True), "FLOPs": (6, True), "memory": (6, True), "line": (5, False), "code": (24, False),
}  # fmt: skip
_FOLDED = {"operation", "code"}
# columns given up for lack of room, and the least that is left to the operation's words
_DROPPED = (
    ((), 22), (("code",), 22), (("code", "params"), 22), (("code", "params"), 14),
    (("code", "params", "memory"), 14), (("code", "params", "memory", "FLOPs"), 12),
    (("code", "params", "memory", "FLOPs", "line"), 12),
    (("code", "params", "memory", "FLOPs", "line", "operation"), 0),
)  # fmt: skip
MEANING = (
    "FLOPs: of products, two for each multiplication with its addition",
    "memory: new bytes for the results of a step; a view takes none",
    "peak: the most bytes of results at once, each freed after its last use",
    "a group's numbers are those of one of its times",
)

_TORN = "an axis with a question mark was made by a view of elements of several others: was it meant?"


@dataclass(frozen=True)
class _Cells:
    """One row of the table, by column; `style` is that of its first cell."""

    cells: dict[str, str]
    style: str = ""


def to_text(walk: Walk, color: bool, width: int, all: bool) -> str:
    """The walk's text form. Law: without its colour codes, the coloured text is the plain one."""
    lines = list(_layout(walk, max(width, NARROWEST), all))
    if color:
        from headwise.doctor.colour import colored

        return colored(lines)
    return "".join("".join(span for span, _ in line).rstrip() + "\n" for line in lines)


def counted(value: int) -> str:
    """A count in few characters: 816, 30.7k, 1.03M; nothing for none."""
    if value < 1000:
        return str(value) if value else ""
    for unit, size in (("k", 1e3), ("M", 1e6), ("G", 1e9), ("T", 1e12)):
        if value < 999.5 * size or unit == "T":
            return f"{value / size:.3g}{unit}"
    raise AssertionError


def sized(value: int) -> str:
    """Bytes in few characters: 512B, 31.5K, 2.3M, in powers of 1024; nothing for none."""
    if value < 1024:
        return f"{value}B" if value else ""
    for unit, size in (("K", 2**10), ("M", 2**20), ("G", 2**30), ("T", 2**40)):
        if value < 999.5 * size or unit == "T":
            return f"{value / size:.3g}{unit}"
    raise AssertionError


def title(group: Group) -> str:
    """`block x 6  blocks.0 .. blocks.5`"""
    times = f" x {group.times}" if group.times > 1 else ""
    paths = [visible(path) for path in group.modules if path]
    ends = paths[:1] if len(set(paths)) < 2 else [paths[0], paths[-1]]
    return f"{group.title}{times}  {' .. '.join(ends)}".rstrip()


def shaped(step: Step) -> str:
    """`[2, 10, 16]`, or `3 x [2, 10, 16]` where a step has several results."""
    if not step.shape and not step.axes and step.kind == "failure":
        return ""
    return (f"{step.count} x " if step.count > 1 else "") + str(list(step.shape))


def sums(group: Group) -> tuple[int, int, int]:
    """Parameters, FLOPs and bytes of a group, once."""
    total = [0, 0, 0]
    for row in group.rows:
        each = (row.params, row.flops, row.bytes) if isinstance(row, Step) else sums(row)
        times = row.times if isinstance(row, Group) else 1
        total = [a + times * b for a, b in zip(total, each, strict=True)]
    return total[0], total[1], total[2]


def meanings(walk: Walk) -> list[str]:
    """What the columns mean, and the marks that this walk has."""
    is_torn = any(name.endswith("?") for step in steps_of(walk.rows) for name in step.axes)
    return [*MEANING, _TORN] if is_torn else [*MEANING]


def main_file(rows: Sequence[Row]) -> str:
    """The file that most steps were written in, which the lines need not name."""
    files = Counter(step.file for step in steps_of(rows) if step.file)
    return files.most_common(1)[0][0] if files else ""


def costs(walk: Walk) -> str:
    """What the whole pass costs, in one line."""
    peak = f"peak {sized(walk.peak) or '0B'}" + (f" ({walk.peak_at})" if walk.peak_at else "")
    return (
        f"{walk.parameters:,} parameters, {counted(walk.flops) or 0} FLOPs, "
        f"{sized(walk.bytes) or '0B'} of results, {peak}"
    )


def _layout(walk: Walk, width: int, all: bool) -> Iterator[Line]:
    yield from _hanging("headwise trace", walk.target, width, "bold")
    sizes = ", ".join(f"{name}={size} {LEGEND[name]}" for name, size in walk.sizes.items())
    yield from _hanging("sizes", sizes, width) if sizes else ()
    yield from _hanging("cost ", costs(walk), width)
    file = main_file(walk.rows)
    if file:
        yield from _hanging("lines", f"of {place(file, 0).rpartition(':')[0]} where no other is named", width)
    for note in walk.notes:
        yield from _hanging("note ", note, width)
    yield []
    rows = list(_cells(walk.rows, 0, file, all))
    yield from _table(rows, width)
    if walk.failed is not None:
        yield []
        where = (
            f"{place(walk.failed.file, walk.failed.line)}   {walk.failed.code}" if walk.failed.file else ""
        )
        yield from _hanging("fails here", where or walk.failed.code, width, "bold red")
        for each in walk.failed.operands:
            yield from _hanging("      with", each, width)
        yield from _hanging("      says", walk.failed.message, width)
    yield []
    for meaning in meanings(walk):
        yield from _hanging("", meaning, width)


def _hanging(label: str, text: str, width: int, style: str = "") -> Iterator[Line]:
    start = f"{label}  " if label else ""
    folded = fold(visible(text), max(8, width - len(start)))
    for number, part in enumerate(folded):
        yield [(start if number == 0 else " " * len(start), style), (part, "")]


def _cells(rows: Sequence[Row], depth: int, file: str, all: bool) -> Iterator[_Cells]:
    indent = "  " * depth
    for row in rows:
        if isinstance(row, Group):
            params, flops, size = sums(row)
            yield _Cells(
                {
                    "step": indent + title(row), "params": counted(params), "FLOPs": counted(flops),
                    "memory": sized(size),
                },
                "bold",
            )  # fmt: skip
            yield from _cells(row.rows, depth + 1, file, all)
            continue
        held = f"; held as {list(row.held)}" if row.held else ""
        yield _Cells(
            {
                "step": indent + row.name, "operation": f"{row.operation}{held}".removeprefix("; "),
                "shape": shaped(row), "axes": " ".join(row.axes), "params": counted(row.params),
                "FLOPs": counted(row.flops), "memory": sized(row.bytes),
                "line": where(row.file, row.line, file), "code": row.code,
            }
        )  # fmt: skip
        for part in row.parts if all else ():
            yield _Cells(
                {
                    "step": f"{indent}  . {part.name}", "shape": str(list(part.shape)),
                    "axes": " ".join(part.axes), "FLOPs": counted(part.flops), "memory": sized(part.bytes),
                    "line": where(part.file, part.line, file),
                },
                "dim",
            )  # fmt: skip


def where(file: str, line: int, main: str) -> str:
    """`:13` in the main file, `other.py:13` elsewhere, nothing where only torch wrote it."""
    if not file:
        return ""
    if file == main:
        return f":{line}"
    named = place(file, line)
    return named if named.startswith("Cell ") else visible(os.path.basename(file)) + f":{line}"


# The table


def _table(rows: Sequence[_Cells], width: int) -> Iterator[Line]:
    wide, gap = _widths(rows, width)
    heads = _Cells({name: name for name in wide} | {"shape": "shape"}, "dim")
    for row in (heads, *rows):
        yield from _row(row, wide, gap)


def _widths(rows: Sequence[_Cells], width: int) -> tuple[dict[str, int], int]:
    """The width of each column that is shown, and of the gap between: narrower where there is no room."""
    steps = [row for row in rows if _is_step(row)]
    natural = {
        name: max(len(name), *(columns(row.cells.get(name, "")) for row in steps))
        for name in _COLUMNS
        if any(row.cells.get(name) for row in rows)
    }
    for gone, told in _DROPPED:
        shown = {name: size for name, size in natural.items() if name not in gone}
        least = {
            name: min(size, told if name == "operation" else _COLUMNS[name][0]) if name in _FOLDED else size
            for name, size in shown.items()
        }
        least["step"] = min(shown["step"], max((_longest(row.cells["step"]) for row in steps), default=8))
        for gap in (_GAP, 1):
            room = width - gap * (len(least) - 1)
            needed = {name: size for name, size in shown.items() if name != "code"}
            if "code" in shown and sum(needed.values()) + least["code"] > room:
                continue  # code has what the others leave
            if sum(least.values()) <= room:
                return _shared(shown, least, room), gap
    shown = {name: natural[name] for name in ("step", "shape") if name in natural}
    return _shared(shown, dict.fromkeys(shown, 8), width - 1), 1


def _longest(step: str) -> int:
    """The columns that a name needs to be folded between its words alone."""
    return len(step) - len(step.lstrip()) + max((columns(word) for word in step.split()), default=1)


def _is_step(row: _Cells) -> bool:
    return "shape" in row.cells  # titles of groups run on over the columns behind


def _shared(natural: dict[str, int], least: dict[str, int], room: int) -> dict[str, int]:
    """Natural widths, cut where they are too wide together: code first, then operations, then the rest."""
    wide = dict(natural)
    for name in ("code", "operation", "step", "axes", "shape", "line"):
        over = sum(wide.values()) - room
        if over > 0 and name in wide:
            wide[name] = max(least[name], wide[name] - over)
    return wide


def _row(row: _Cells, wide: dict[str, int], gap: int) -> Iterator[Line]:
    cells = dict(row.cells)
    step = cells.get("step", "")
    indent = len(step) - len(step.lstrip())
    if not _is_step(row) and "operation" in wide and row.style == "bold":  # a title may run on
        room = wide["step"] + sum(wide[name] + gap for name in ("operation", "shape", "axes") if name in wide)
        wide = {"step": room} | {
            n: w for n, w in wide.items() if n not in {"step", "operation", "shape", "axes"}
        }
    folded: dict[str, list[str]] = {}
    for name, size in wide.items():
        text = visible(cells.get(name, ""))
        if name == "step":
            inside = max(4, size - indent)
            folded[name] = [" " * min(indent, size - 4) + part for part in fold(text.strip(), inside)]
        else:
            folded[name] = fold(text, size) if text else []
        if name == "code" and columns(text) > size:
            folded[name] = [fold(text, size - 3)[0] + " .."]
    for number in range(max((len(parts) for parts in folded.values()), default=0)):
        line: Line = []
        for name, size in wide.items():
            part = folded[name][number] if number < len(folded[name]) else ""
            blank = " " * max(0, size - columns(part))
            text = blank + part if _COLUMNS[name][1] else part + blank
            style = row.style if name == "step" or row.style == "dim" else "cyan" if name == "line" else ""
            line.append((text + " " * gap, style))
        yield line
