"""The walk as one self-contained page: groups that open and close, a bar for each cost, no script."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from headwise.doctor.page_style import CSS
from headwise.doctor.places import place, visible
from headwise.pages import document
from headwise.see.walk.axes import LEGEND
from headwise.see.walk.page_rules import RULES
from headwise.see.walk.steps import Group, Part, Row, Step, steps_of
from headwise.see.walk.text import costs, counted, main_file, meanings, shaped, sized, sums, title, where

if TYPE_CHECKING:
    from headwise.see.walk.walk import Walk

_STYLE = f"{CSS}{RULES}"
_HEADS = ("Step", "Operation", "Shape", "FLOPs", "Memory", "Line")


def to_html(walk: Walk) -> str:
    """The whole page. Its policy forbids scripts and every load, and allows this one style sheet."""
    return document(f"headwise trace: {visible(walk.target)}", _STYLE, _main(walk))


def fragment(walk: Walk) -> str:
    """The same walk without a page about it, for a notebook's output; it brings its own style sheet."""
    return f"<style>{_STYLE}</style>\n{_main(walk)}"


@dataclass(frozen=True)
class _Most:
    """What all rows are shown against: the largest costs of one step, and the file that need not be named."""

    flops: int
    bytes: int
    file: str


def _main(walk: Walk) -> str:
    steps = list(steps_of(walk.rows))
    file = main_file(walk.rows)
    most = _Most(
        max((step.flops for step in steps), default=0),
        max((step.bytes for step in steps), default=0),
        file,
    )
    lines = f"lines of {place(file, 0).rpartition(':')[0]} where no other is named"
    sizes = "".join(
        f"<div><dt>{_text(name)} {_text(LEGEND[name])}</dt><dd>{size}</dd></div>"
        for name, size in walk.sizes.items()
    )
    parts = [
        '<main class="hw-report hw-walk">\n<header>\n<h1>headwise trace</h1>\n',
        f'<p class="target">{_text(walk.target)}</p>\n<p class="summary">{_text(costs(walk))}</p>\n',
        f'<p class="remark">{_text(lines)}</p>\n' if file else "",
        f'<h2>Sizes</h2>\n<dl class="assumed">{sizes}</dl>\n' if sizes else "",
        "".join(f'<p class="remark">Note: {_text(note)}</p>\n' for note in walk.notes),
        "</header>\n",
        _rows(walk.rows, most, is_top=True),
        _failed(walk),
        '<ul class="meaning">' + "".join(f"<li>{_text(each)}</li>" for each in meanings(walk)) + "</ul>\n",
        "</main>\n",
    ]
    return "".join(parts)


def _rows(rows: Sequence[Row], most: _Most, is_top: bool = False) -> str:
    """Runs of steps as tables, groups between them as details."""
    parts: list[str] = []
    run: list[Step] = []
    for row in rows:
        if isinstance(row, Step):
            run.append(row)
            continue
        parts.append(_table(run, most, is_top and not parts))
        run = []
        parts.append(_group(row, most))
    parts.append(_table(run, most, is_top and not parts))
    return "".join(parts)


def _group(group: Group, most: _Most) -> str:
    params, flops, size = sums(group)
    told = [
        f"{counted(params)} parameters" if params else "",
        f"{counted(flops)} FLOPs" if flops else "",
        sized(size),
    ]
    each = " each" if group.times > 1 else ""
    return (
        f'<details class="group {group.kind}" open><summary><b>{_text(title(group))}</b> '
        f"<small>{_text(', '.join(word for word in told if word))}{each}</small></summary>\n"
        f"{_rows(group.rows, most)}</details>\n"
    )


def _table(steps: Sequence[Step], most: _Most, is_first: bool) -> str:
    """Some steps; what the columns are is shown above the first ones, and said of all."""
    if not steps:
        return ""
    columns = "<colgroup>" + "".join(f'<col class="k{n}">' for n in range(len(_HEADS))) + "</colgroup>"
    again = "" if is_first else ' class="again"'
    heads = "".join(f'<th scope="col">{head}</th>' for head in _HEADS)
    body = "".join(_step(step, most) for step in steps)
    return (
        '<div class="wide" tabindex="0" role="region" aria-label="Steps">\n'
        f'<table class="steps">{columns}<thead{again}><tr>{heads}</tr></thead>\n'
        f"<tbody>\n{body}</tbody></table></div>\n"
    )


def _step(step: Step, most: _Most) -> str:
    params = f"<small>{counted(step.params)} parameters</small>" if step.params else ""
    held = f"<small>held as {_text(str(list(step.held)))}</small>" if step.held else ""
    line = where(step.file, step.line, most.file)
    line = f'<span class="place">{_text(line)}</span>' if line else ""
    code = f"<code>{_text(step.code)}</code>" if step.code else ""
    return (
        f'<tr class="{step.kind}"><th scope="row">{_text(step.name)}{_parts(step.parts)}</th>'
        f"<td>{_text(step.operation)}{params}</td>"
        f"<td><code>{_text(shaped(step))}</code><small>{_text(' '.join(step.axes))}</small>{held}</td>"
        f"<td>{_bar(counted(step.flops), step.flops, most.flops, 'flops')}</td>"
        f"<td>{_bar(sized(step.bytes), step.bytes, most.bytes, 'bytes')}</td>"
        f"<td>{line}{code}</td></tr>\n"
    )


def _bar(told: str, value: int, most: int, kind: str) -> str:
    if not value:
        return ""
    share = max(1, round(100 * value / most)) if most else 0
    return (
        f'{_text(told)}<svg class="bar {kind}" viewBox="0 0 100 6" preserveAspectRatio="none" '
        f'aria-hidden="true"><rect width="{share}" height="6"></rect></svg>'
    )


def _parts(parts: Sequence[Part]) -> str:
    if not parts:
        return ""
    many = f"{len(parts)} operation" + ("s" if len(parts) > 1 else "")
    items = "".join(
        f"<li>{_text(part.name)} <code>{list(part.shape)}</code> {_text(' '.join(part.axes))}</li>"
        for part in parts
    )
    return f'<details class="parts"><summary>{many}</summary><ol>{items}</ol></details>'


def _failed(walk: Walk) -> str:
    failed = walk.failed
    if failed is None:
        return ""
    line = f'<p class="place">{_text(place(failed.file, failed.line))}</p>' if failed.file else ""
    operands = "".join(f"<li>{_text(each)}</li>" for each in failed.operands)
    return (
        '<section class="finding error"><h2><span class="badge error">fails here</span> '
        f"<code>{_text(failed.code)}</code></h2>{line}<ul>{operands}</ul><p>{_text(failed.message)}</p></section>\n"
    )


def _text(text: str) -> str:
    return escape(visible(text))
