"""What must hold of a healthy model of the zoo, measured without the doctor; and what a damage must break.

Five numbers a model, each the largest change of logits (float64 where the model runs in it, no dropout):
the same input twice, tokens after a position (decoders), what stands at padding, other rows of the batch, and
order of the words (which must matter).
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from headwise.doctor.subject import Subject
from zoo.batches import FIRST, PAD, VOCAB, logits_of


@dataclass(frozen=True)
class Measured:
    """Largest changes of the logits; nan where the question does not arise."""

    noise: float
    future: float
    padding: float
    rows: float
    order: float


def call(model: Any, inputs: Any) -> Any:
    """The model's output, for whichever form the inputs have."""
    if isinstance(inputs, dict):
        return model(**inputs)
    return model(*inputs) if isinstance(inputs, tuple) else model(inputs)


def _parts(inputs: Any) -> dict[str, Tensor]:
    if isinstance(inputs, dict):
        return dict(inputs)
    return {str(place): each for place, each in enumerate(inputs if isinstance(inputs, tuple) else (inputs,))}


def _whole(parts: dict[str, Tensor], like: Any) -> Any:
    if isinstance(like, dict):
        return parts
    return tuple(parts.values()) if isinstance(like, tuple) else next(iter(parts.values()))


def measure(subject: Subject) -> Measured:
    """Ask the five questions; the subject stays as it is."""
    model = copy.deepcopy(subject.model).eval()
    parts = _parts(subject.inputs)
    doubled = {k: p.double() if p.is_floating_point() else p for k, p in parts.items()}
    try:
        in_double = copy.deepcopy(model).double()
        with torch.no_grad():
            logits = logits_of(call(in_double, _whole(doubled, subject.inputs)))
        # a softmax in float32 of float64's lowest number is NaN: then, too, it is measured as it is
        if bool(logits.isfinite().all()):
            model, parts = in_double, doubled
    except RuntimeError:
        pass  # a kernel without float64

    axis = 0 if subject.layout == "time-major" else 1

    @torch.no_grad()
    def run(changed: dict[str, Tensor]) -> Tensor:
        logits = logits_of(call(model, _whole(changed, subject.inputs)))
        return logits.transpose(0, 1) if axis == 0 else logits

    before = run(parts)
    ids = {k: p for k, p in parts.items() if p.dtype == torch.long and "mask" not in k}
    first, last = next(iter(parts)), list(ids)[-1] if ids else ""
    nan = float("nan")
    noise = _change(before, run(parts))

    def other(tokens: Tensor) -> Tensor:
        return torch.where(tokens < FIRST, tokens, FIRST + (tokens - FIRST + 7) % (VOCAB - FIRST))

    future = padding = order = nan
    if ids:
        flipped = ids[first].flip(axis) if subject.pad_id is None else _flip_words(ids[first], axis)
        order = _change(before, run({**parts, first: flipped}))
    if subject.kind != "encoder":
        # a different word at the fifth place may move nothing before it
        tokens = ids[last].clone()
        rest = tokens.narrow(axis, 4, tokens.size(axis) - 4)
        rest.copy_(other(rest))
        future = _change(before[:, :4], run({**parts, last: tokens})[:, :4])
    masks = [k for k in parts if "mask" in k]
    if masks:
        # with the mask given, the id at a pad is anything: no row may notice but at the pads themselves
        keep = parts[masks[0]].bool()
        tokens = torch.where(keep, ids[first], ids[first] + 9)
        after = run({**parts, first: tokens})
        same = before.ndim == 3 and before.shape[1] == keep.shape[1]
        padding = _change(before[keep], after[keep]) if same else _change(before, after)
    elif ids and subject.kind != "decoder" and axis == 1:
        # pads are told by their id: more of them may change nothing
        more = {k: torch.cat([p, torch.full_like(p[:, :3], PAD)], 1) for k, p in parts.items() if k == first}
        padding = _change(before, run({**parts, **more}))
    moved = parts[first].clone()
    row = moved.select(1 - axis, 1) if ids else moved[1]
    row.copy_(other(row) if ids else -row)
    rows = _change(before[[0, 2, 3, 4]], run({**parts, first: moved})[[0, 2, 3, 4]])
    return Measured(noise, future, padding, rows, order)


def _flip_words(ids: Tensor, axis: int) -> Tensor:
    """The first four words of each row in the opposite order."""
    flipped = ids.clone()
    flipped.narrow(axis, 0, 4).copy_(ids.narrow(axis, 0, 4).flip(axis))
    return flipped


def _change(before: Tensor, after: Tensor) -> float:
    return float((before - after).abs().max())


def broken(measured: Measured, limit: float = 3e-6) -> list[str]:
    """The laws that a healthy model may not break, in words."""
    if not math.isfinite(measured.noise):
        return ["logits are not finite"]
    wrong = [
        f"{name} moves the logits by {value:.1g}"
        for name, value in (
            ("the same input", measured.noise),
            ("the future", measured.future),
            ("padding", measured.padding),
            ("another row", measured.rows),
        )
        if value > limit
    ]
    if measured.order <= limit:
        wrong.append(f"the order of the words moves the logits by only {measured.order:.1g}")
    return wrong
