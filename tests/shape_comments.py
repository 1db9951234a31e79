"""Run code and hold every trailing shape comment against the value just assigned.

    with check_shape_comments(headwise.model.attention, {"B": 2, "H": 3, ...}) as seen:
        ...                                      # run that module's code
    assert seen.missed == []                     # every comment was met

A shape comment is a trailing `# [B, T, H*Dh]` on the first or last line of a statement that
assigns or returns. Several values take several shapes (`return mixed, weights  # [B, T, D], [B, T]`)
or share one. An axis is a name, a number or arithmetic; `...` first stands for any leading axes, and
`#B` for B or 1. A name that the sizes do not give is bound where a call first meets it, for the rest
of that call.
None has no shape and is not counted. Give each axis its own size, or a swapped axis hides.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

_SHAPE = r"\[([^\[\]]*)\]"
_COMMENT = re.compile(rf"#\s*{_SHAPE}(?:,\s*{_SHAPE})*")
_AXIS = re.compile(r"(\.\.\.|#?[A-Za-z0-9_+*/() -]+)")


@dataclass(frozen=True)
class ShapeComment:
    """One comment: the statement it speaks of and the shapes it claims, one list of axes a value."""

    line: int
    text: str
    statement: ast.stmt
    shapes: tuple[tuple[str, ...], ...]


@dataclass
class Seen:
    """What a checked run met: `checked` counts values by line, `wrong` holds one sentence a mismatch."""

    comments: list[ShapeComment]
    checked: Counter[int] = field(default_factory=Counter[int])
    wrong: list[str] = field(default_factory=list[str])

    @property
    def missed(self) -> list[str]:
        """Comments that no executed line was held against: untested, so not to be believed."""
        return [f"line {c.line}: {c.text}" for c in self.comments if not self.checked[c.line]]


def find_shape_comments(path: Path) -> list[ShapeComment]:
    """The shape comments of a file; one that speaks of no assigned or returned value is refused."""
    source = path.read_text(encoding="utf-8")
    statements = [n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.stmt)]
    found: list[ShapeComment] = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        match = _COMMENT.match(token.string) if token.type == tokenize.COMMENT else None
        shapes = [_axes(s) for s in re.findall(_SHAPE, match.group())] if match else []
        if match is None or None in shapes or not token.line[: token.start[1]].strip():
            continue  # prose, or a comment on a line of its own
        line = token.start[0]
        about = [s for s in statements if line in (s.lineno, s.end_lineno) and _values(s)]
        if len(about) != 1:
            raise AssertionError(
                f"{path}:{line}: a shape comment belongs on the first or last line of a statement that "
                f"assigns or returns: got {token.string!r}"
            )
        found.append(ShapeComment(line, match.group(), about[0], tuple(s for s in shapes if s is not None)))
    return found


@contextmanager
def check_shape_comments(code: ModuleType | Path, sizes: Mapping[str, int]) -> Iterator[Seen]:
    """Trace the body of the `with`; at its end raise AssertionError naming every comment that was wrong."""
    path = Path(code if isinstance(code, Path) else str(code.__file__))
    seen = Seen(find_shape_comments(path))
    at = {line: c for c in seen.comments for line in range(c.statement.lineno, _end(c.statement) + 1)}

    def trace_calls(frame: FrameType, event: str, arg: Any) -> Any:
        return _Call(path, dict(sizes), at, seen) if frame.f_code.co_filename == str(path) else None

    before = sys.gettrace()
    sys.settrace(trace_calls)
    try:
        yield seen
    finally:
        sys.settrace(before)
    if seen.wrong:
        raise AssertionError("\n".join(seen.wrong))


@dataclass
class _Call:
    """The trace function of one call: it waits for a commented statement to be over, then compares."""

    path: Path
    sizes: dict[str, int]
    at: Mapping[int, ShapeComment]
    seen: Seen
    waiting: ShapeComment | None = None

    def __call__(self, frame: FrameType, event: str, arg: Any) -> _Call:
        if event == "exception":
            self.waiting = None  # the statement never came to its end
        elif event == "return" and self.waiting and isinstance(self.waiting.statement, ast.Return):
            self._compare(self.waiting, arg)
        elif event in ("line", "return"):
            comment = self.at.get(frame.f_lineno) if event == "line" else None
            if self.waiting is not None and comment is not self.waiting:
                for target in _values(self.waiting.statement):
                    self._compare(self.waiting, _evaluate(target, frame))
            self.waiting = comment
        return self

    def _compare(self, comment: ShapeComment, value: Any) -> None:
        several = len(comment.shapes) > 1 or (isinstance(value, tuple) and not hasattr(value, "shape"))
        values: list[Any] = list(value) if several else [value]
        shapes = comment.shapes * len(values) if len(comment.shapes) == 1 else comment.shapes
        if len(shapes) != len(values):
            self._say(comment, f"{len(values)} values")
            return
        for axes, each in zip(shapes, values, strict=True):
            if each is None:
                continue
            self.seen.checked[comment.line] += 1
            if not hasattr(each, "shape"):
                self._say(comment, f"a {type(each).__name__} without a shape")
            elif not self._fits(axes, tuple(each.shape)):
                self._say(comment, str(list(each.shape)))

    def _fits(self, axes: tuple[str, ...], shape: tuple[int, ...]) -> bool:
        if axes[:1] == ("...",):
            axes = axes[1:]
            shape = shape[max(0, len(shape) - len(axes)) :]
        if len(axes) != len(shape):
            return False
        for axis, size in zip(axes, shape, strict=True):
            if axis.startswith("#") and size == 1:
                continue
            axis = axis.removeprefix("#")
            if axis.isidentifier():
                self.sizes.setdefault(axis, size)
            try:
                wanted = eval(axis, {"__builtins__": {}}, self.sizes)  # arithmetic by _AXIS
            except NameError as error:
                raise AssertionError(f"{self.path}: {error}, needed by the shape comment {axis!r}") from error
            if wanted != size:
                return False
        return True

    def _say(self, comment: ShapeComment, came: str) -> None:
        names = sorted({n for axes in comment.shapes for a in axes for n in re.findall(r"[A-Za-z]\w*", a)})
        with_sizes = ", ".join(f"{n}={self.sizes[n]}" for n in names if n in self.sizes)
        self.seen.wrong.append(f"{self.path}:{comment.line}: {comment.text} with {with_sizes}: got {came}")


def _axes(text: str) -> tuple[str, ...] | None:
    axes = tuple(axis.strip() for axis in text.split(",")) if text.strip() else ()
    return axes if all(_AXIS.fullmatch(axis) for axis in axes) else None


def _values(statement: ast.stmt) -> list[ast.expr]:
    """The expressions that hold what the statement made; none for a statement that makes nothing."""
    if isinstance(statement, ast.Assign):
        return statement.targets[:1]
    if isinstance(statement, (ast.AnnAssign, ast.AugAssign, ast.Return)) and statement.value is not None:
        return [statement.value if isinstance(statement, ast.Return) else statement.target]
    return []


def _end(statement: ast.stmt) -> int:
    return statement.end_lineno or statement.lineno


def _evaluate(target: ast.expr, frame: FrameType) -> Any:
    if isinstance(target, (ast.Tuple, ast.List)):
        return tuple(_evaluate(element, frame) for element in target.elts)
    return eval(ast.unparse(target), frame.f_globals, frame.f_locals)
