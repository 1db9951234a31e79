"""Take a table of sines apart: rows differ, neighbours are alike, products tell the distance alone."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from headwise.doctor.blame import made_places, related
from headwise.doctor.check import Found, NotApplicable, Place, Tried, check
from headwise.doctor.positions import Added, in_library, is_fixed, making_steps, table_behind, tables
from headwise.doctor.probe import Probe

WAVES = ("sin", "cos")
RATES = ("pow", "exp", "reciprocal", "logspace", "div", "floor_divide", "mul")
# Measured on sin/cos(t / base^(2i/d)), both layouts, bases 100 to 1e8, d 8 to 1024: neighbours 0.77 to 0.99
# alike (1 is the same), products off by 1e-6 in float32 and 1e-3 in bfloat16.
LEAST_ALIKE, MOST_OFF = 0.4, 0.03


@check(
    id="HW305",
    title="The sinusoid table does not encode positions as the formula does",
    why="Order is told wrongly or not at all: far and near positions look alike, or the distance between two "
    "words looks different in each place of the text.",
    fix="Let column pairs be sin and cos of position / 10000^(2i/d_model), with one frequency for each pair.",
    needs={"stream", "rows", "finite"},
    explains={"positions-missing"},
    quick=True,
)
def sinusoid_wrong(probe: Probe) -> Iterator[Found | Tried]:
    found = [added for added in tables(probe) if added.is_early and is_fixed(probe, added.table)]
    tried = 0
    for added in found:
        rows = added.by_position.flatten(1).double()
        if not added.stream.is_ids or min(rows.shape) < 4 or not _is_of_waves(probe, added, rows):
            continue
        tried += 1
        told = _fault(rows / rows.abs().max())
        if told is None:
            continue
        what, names = told
        lines = _lines(probe, added, names)
        place = lines[0] if lines else added.op.place
        yield Found(
            f"the table added to the {added.stream.name} (first {len(rows)} positions, {rows.shape[1]} "
            f"columns): {what}",
            at=place,
            module=added.op.module,
            related=tuple(related([*lines[1:], added.op.place], "the table is made or added here", place)),
            severity="note" if in_library(added.op) else None,
        )
        return
    if not tried:
        raise NotApplicable("no fixed table of sines is added to the tokens")
    yield Tried(f"{tried} tables: rows differ, neighbours are alike, products depend on the distance alone")


def _fault(rows: Tensor) -> tuple[str, tuple[str, ...]] | None:
    """What is wrong with a table [T, D], and the operations that such a mistake is written with."""
    rates = _rates(rows)
    products = rows @ rows.T
    products = products / products.diagonal().mean()
    alike = float(products.diagonal(1).mean())
    if len(rates) > max(2, rows.shape[1] // 2) and float(rates.max() - rates.min()) < 1e-3:
        return f"all its columns swing at the same rate, {float(rates.mean()):.2g} radians a position", RATES
    if alike < LEAST_ALIKE:
        return f"neighbouring rows are hardly alike (cosine {alike:.2f}): its columns swing too fast", RATES
    if float((rows - rows[:1]).square().sum(1).max() / rows.square().sum(1).mean()) < 1e-3:
        return "all its rows are nearly the same", RATES
    off = float((products[1:, 1:] - products[:-1, :-1]).abs().max())
    if off > MOST_OFF:
        return (
            "the product of two rows depends on where they stand, not only on their distance (by "
            f"{off:.0%}): the columns are no pairs of a sine and a cosine at one rate",
            WAVES,
        )
    return None


def _rates(rows: Tensor) -> Tensor:
    """Radians a position of each column that is a pure wave: x[t+1] + x[t-1] = 2 cos(w) x[t]."""
    middle, around = rows[1:-1], rows[2:] + rows[:-2]
    power = middle.square().sum(0)
    swing = power > 1e-6
    cosine = (middle * around).sum(0)[swing] / power[swing] / 2
    off = (around[:, swing] - 2 * cosine * middle[:, swing]).abs().amax(0)
    return cosine[off < 1e-3].clamp(-1, 1).acos()


def _is_of_waves(probe: Probe, added: Added, rows: Tensor) -> bool:
    """Was the table computed with sines, or are many of its columns waves that turn visibly?"""
    names = {op.name for value in probe.base.record.ancestors([added.table]) if (op := value.op) is not None}
    names |= {
        op.removeprefix("aten.").split(".")[0] for _, op in making_steps(probe, table_behind(added.table))
    }
    if names & {"sin", "cos", "sin_", "cos_"}:
        return bool(rows.abs().max() <= 1.001) or bool(torch.isfinite(rows).all())
    rates = _rates(rows / rows.abs().max())
    return int((rates > 0.1).sum()) >= max(2, rows.shape[1] // 16) and len(rates) > rows.shape[1] // 2


def _lines(probe: Probe, added: Added, names: tuple[str, ...]) -> list[Place]:
    """The lines that made the table with such operations, the last first, then all other lines."""
    steps = making_steps(probe, table_behind(added.table))
    held = sorted(probe.base.record.ancestors([added.table]), key=lambda value: -value.index)
    steps = [(op.place, op.name) for v in held if (op := v.op) is not None and op.place is not None] + steps
    named = [place for place, op in steps if op.removeprefix("aten.").split(".")[0].rstrip("_") in names]
    # The rates are made before the waves: the first of their lines, in the function that made the table.
    rates = [
        place for place, op in steps if op.removeprefix("aten.").split(".")[0].rstrip("_") in {"exp", "pow"}
    ]
    if names is RATES and rates:
        named = [*rates, *named]
    return list(
        dict.fromkeys(
            [*named, *(place for place, _ in steps), *made_places(probe, table_behind(added.table))]
        )
    )
