"""`headwise.trace`: one forward pass told step by step, with shapes, lines, FLOPs and memory."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from headwise.doctor.adapt import adapt, flatten
from headwise.doctor.available import check_device
from headwise.doctor.runner import is_large
from headwise.doctor.subject import KINDS, Kind, Layout, Subject
from headwise.doctor.untouched import untouched
from headwise.errors import ConfigError
from headwise.files import write_text_atomically
from headwise.see.walk import page, text
from headwise.see.walk.record import to_dict
from headwise.see.walk.steps import Group, Row, Step, steps_of

VERSION = "1"


@dataclass(frozen=True)
class Failed:
    """Where a pass ended before its time: the line, torch's words, the operands with their axes."""

    file: str
    line: int
    code: str
    module: str
    message: str
    operands: tuple[str, ...]

    def __str__(self) -> str:
        return self.message


@dataclass(frozen=True)
class Walk:
    """What `headwise.trace` returns; print it, or take one of its forms.

    target: what was walked through. sizes: the named axes with their sizes in this batch, in order.
    rows: steps, and groups of steps. flops, bytes: of the whole pass; peak: the most bytes of results held
    at once where each is freed after its last use, and peak_at, the step at which they are.
    failed: where the pass ended, None where it ran through. notes: what the reader should know.
    """

    version: str
    target: str
    sizes: dict[str, int]
    rows: tuple[Row, ...]
    parameters: int
    flops: int
    bytes: int
    peak: int
    peak_at: str
    failed: Failed | None = None
    notes: tuple[str, ...] = ()

    @property
    def steps(self) -> tuple[Step, ...]:
        """Every step in order, those of a repeated group once."""
        return tuple(steps_of(self.rows))

    def outline(self) -> list[tuple[str, tuple[int, ...]]]:
        """The walk as a textbook has it: name and shape, a feed-forward layer as one row, no bare softmax."""
        return _outline(self.rows)

    def __str__(self) -> str:
        return self.to_text().rstrip("\n")

    def to_text(self, color: bool = False, width: int = 110, all: bool = False) -> str:
        """Text of at most `width` columns; with `all` every operation of torch's beneath its step."""
        return text.to_text(self, color, width, all)

    def to_dict(self) -> dict[str, Any]:
        """The JSON form as plain objects, as `record` describes it."""
        return to_dict(self)

    def to_json(self) -> str:
        """One JSON object, as `headwise.see.walk.record` describes it."""
        return json.dumps(self.to_dict(), indent=2, allow_nan=False) + "\n"

    def to_html(self) -> str:
        """One self-contained page, without scripts and without a network."""
        return page.to_html(self)

    def save(self, path: str | Path) -> None:
        """Write the walk in the form that the path's ending names: .json, .html, or text.

        Errors: StorageError as write_atomically.
        """
        ending = Path(path).suffix.lower()
        form = (
            self.to_json
            if ending == ".json"
            else self.to_html
            if ending in {".html", ".htm"}
            else self.to_text
        )
        write_text_atomically(Path(path), form())

    def _repr_html_(self) -> str:
        return page.fragment(self)

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        # IPython in a terminal would show the dataclass's own repr, which is no reading matter
        return {"text/plain": str(self), "text/html": page.fragment(self)}


def trace(
    model: Any,
    inputs: Any,
    *,
    kind: Kind | None = None,
    pad_id: int | None = None,
    call: Callable[..., Any] | None = None,
    layout: Layout | None = None,
    device: str | None = None,
) -> Walk:
    """Walk through one forward pass of a model, step by step.

    model, inputs and the rest: see Subject. The pass is on the batch as given, in eval mode and the model's
    own precision; the model comes back exactly as it was. Where it fails, the walk ends there and says so in
    `failed`. Errors: ConfigError where there is nothing to call, or nothing ran at all.
    """
    if kind is not None and kind not in KINDS:
        raise ConfigError(f"kind must be {', '.join(KINDS[:-1])} or {KINDS[-1]}: got {kind!r}")
    subject = Subject(model, inputs, call=call, kind=kind, pad_id=pad_id, layout=layout)
    return trace_subject(subject, device=device)


def trace_subject(
    subject: Subject, *, device: str | None = None, target: str = "", notes: tuple[str, ...] = ()
) -> Walk:
    """Walk through a subject; target: how the user calls it."""
    from headwise.see.walk.writing import written

    if device is not None:
        check_device(device)
    if any(leaf.layout is not torch.strided for leaf in flatten(subject.inputs)):
        raise ConfigError("the inputs must be dense tensors: got a sparse one; give `inputs.to_dense()`")
    adapted = adapt(subject)
    with untouched(adapted.model, subject.optimizer), warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        if not is_large(adapted.model):  # on small tensors threads only wait for one another
            torch.set_num_threads(1)
        return written(adapted, device, target or type(adapted.model).__name__, (*notes, *adapted.notes))


def _outline(rows: tuple[Row, ...]) -> list[tuple[str, tuple[int, ...]]]:
    found: list[tuple[str, tuple[int, ...]]] = []
    for row in rows:
        if isinstance(row, Group) and row.kind == "feed-forward":
            found.append((row.title, list(row.steps)[-1].shape))
        elif isinstance(row, Group):
            found.extend(_outline(row.rows) * row.times)
        elif row.kind != "softmax":
            found.append((row.name, row.shape))
    return found
