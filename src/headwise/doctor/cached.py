"""Where a cached step parts from the uncached pass: in the new token's position, or in what was kept."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from headwise.doctor.blame import applied_at, origin
from headwise.doctor.check import NotApplicable, Place
from headwise.doctor.counting import start_of
from headwise.doctor.decoding import (
    Decoding,
    Fed,
    apart,
    calling_line,
    fed,
    from_the_start,
    last_scores,
    up_to,
    wordy_decoding,
)
from headwise.doctor.positions import made_line, tables, varies
from headwise.doctor.probe import Probe, Run
from headwise.doctor.sites import attention_sites
from headwise.doctor.trace import Op, Recording, Value
from headwise.doctor.turning import rotations

JOINS = {
    "cat", "stack", "copy_", "index_put", "index_put_", "index_copy", "index_copy_", "scatter", "scatter_",
    "slice_scatter", "select_scatter", "roll", "constant_pad_nd",
}  # fmt: skip


@dataclass(frozen=True)
class Mismatch:
    """kind "position" or "cache"; what was seen; by: the difference as a share of the scores' spread."""

    kind: str
    what: str
    count: int
    by: float
    at: Place | None
    others: tuple[Place | None, ...]
    module: str
    is_whole: bool = False  # fed with the whole text rather than with the new token

    @property
    def evidence(self) -> str:
        if self.is_whole:
            return (
                f"fed the whole text of {self.count} tokens at a step of generate, the model gives scores "
                f"that differ by {self.by:.2g} of their spread from those of the uncached pass: {self.what}"
            )
        return (
            f"fed token {self.count} alone, with the {self.count - 1} before it in the cache, the model "
            f"gives scores that differ by {self.by:.2g} of their spread from those of the uncached pass: "
            f"{self.what}"
        )


@dataclass(frozen=True)
class Compared:
    """How many cached steps were compared, and the first that differs."""

    steps: int
    mismatch: Mismatch | None


def compared(probe: Probe) -> Compared:
    """Compare each cached step of generate with the uncached pass. Raises NotApplicable."""
    return probe.memo("cached.compared", lambda: _compared(probe))


def _compared(probe: Probe) -> Compared:
    decoding = wordy_decoding(probe)
    if not decoding.steps:
        raise NotApplicable("generate does not call the model that it is handed")
    steps = fed(decoding)
    first = decoding.steps[0]
    start = from_the_start(decoding, first)
    if start:
        plain = last_scores(probe, up_to(probe, decoding, start))
        if plain.shape != first.scores.shape or apart(probe, first.scores, plain) > 0:
            raise NotApplicable(
                "generate calls the model in another way: on the prompt alone the scores differ"
            )
    if not steps:
        return Compared(0, _fed_again(probe, decoding))
    done = 0
    for each in steps:
        if each.count > min(probe.length, decoding.ids.shape[1]):
            break
        run = up_to(probe, decoding, each.count)
        by = apart(probe, each.step.scores, last_scores(probe, run))
        done += 1
        if by > 0:
            return Compared(done, _why(probe, decoding.record, each, run, by))
    return Compared(done, None)


def _fed_again(probe: Probe, decoding: Decoding) -> Mismatch | None:
    """A step that is given the whole text and, beside it, a cache that holds it already."""
    for step in decoding.steps[1:]:
        count = from_the_start(decoding, step)
        if not 0 < count <= probe.length:
            continue
        by = apart(probe, step.scores, last_scores(probe, up_to(probe, decoding, count)))
        if by > 0:
            ops = decoding.record.ops[step.first : step.last]
            called = calling_line(probe, ops[0]) if ops else None
            what = "what an earlier step kept is there a second time"
            return Mismatch("cache", what, count, by, called, (), "", is_whole=True)
    return None


def _why(probe: Probe, record: Recording, each: Fed, run: Run, by: float) -> Mismatch:
    part = Recording()
    part.ops = record.ops[each.step.first : each.step.last]
    called = calling_line(probe, part.ops[0]) if part.ops else None

    def found(kind: str, what: str, at: Place | None, *others: Place | None, module: str = "") -> Mismatch:
        return Mismatch(kind, what, each.count, by, at, (*others, called), module)

    if not each.is_expected:
        return found("cache", "the token that the model is fed is not the one that was chosen last", called)
    mine, theirs = attention_sites(part), attention_sites(run.record)
    kept = mine[0].shape[2] if len(mine) == len(theirs) > 0 else each.count
    if kept < each.count and bool(
        theirs[0].allowed[:, -1, : each.count - kept].any()
    ):  # no window hides them
        what = f"{kept} of the {each.count} tokens up to now are among its keys"
        at = called if kept > mine[0].shape[1] else mine[0].place
        return found("cache", what, at, mine[0].place, module=mine[0].module)
    added = _added(probe, part, each.count)
    if added is not None:
        return found(
            "position", "another row of the position table is added than in the uncached pass", *added
        )
    turned = _turned(probe, part, each.count)
    if turned is not None:
        what = "the new token is turned by another position than in the uncached pass"
        return found("position", what, *turned)
    if len(mine) != len(theirs):
        return found("cache", "the cached step takes other steps than the uncached pass", called)
    for site, full in zip(mine, theirs, strict=True):
        new, kept = site.shape[1:]
        if site.shape[0] != full.shape[0] or full.shape[1] < new:
            break
        where = (site.place, *(origin(probe, site.masks[-1][1]) if site.masks else ()))
        if _far(site.q, full.q[:, -new:]) or not _has(site.k, full.k[:, -new:]):
            at = site.q_value.op.place if site.q_value.op is not None else None
            what = "the new token asks or answers otherwise than in the uncached pass, as by another position"
            return found("position", what, at, site.place, module=site.module)
        for name, value, own, other in (
            ("keys", site.k_value, site.k, full.k),
            ("values", site.v_value, site.v, full.v),
        ):
            if own.shape[1] <= other.shape[1] and not _far(own, other[:, -own.shape[1] :]):
                continue
            op = _join(value, part)
            is_moved = own.shape[1] == other.shape[1] and _has(own, other)
            what = f"the cached {name} {'stand in another order' if is_moved else 'are other ones'}"
            at = op.place if op is not None else site.place
            return found("cache", f"{what} than in the uncached pass", at, site.place, module=site.module)
        seen = full.allowed[:, -new:]
        beyond = seen[:, :, : seen.shape[2] - kept]
        if bool(beyond.any()) or not torch.equal(site.allowed, seen[:, :, -kept:]):
            missing = int(seen.sum() - site.allowed.sum()) // max(1, site.shape[0])
            what = f"the new token sees {abs(missing)} tokens {'fewer' if missing > 0 else 'more'}"
            join = _join(site.k_value, part) if kept < seen.shape[2] else None
            at = applied_at(site) if join is None else join.place
            return found("cache", f"{what} than in the uncached pass", at, *where, module=site.module)
        own, other = site.bias.masked_fill(site.hidden, 0), full.bias.masked_fill(full.hidden, 0)
        if _far(own, other[:, -new:, -kept:]):
            what = "the scores carry another bias than in the uncached pass"
            return found("position", what, applied_at(site), *where, module=site.module)
    return found("cache", "keys, values and masks look alike, and still the scores differ", called)


def _far(a: Tensor, b: Tensor) -> bool:
    return a.shape != b.shape or bool(((a - b).abs() > 1e-5 * b.abs().max().clamp(min=1e-12)).any())


def _has(many: Tensor, few: Tensor) -> bool:
    """Is each of the few vectors [N, t, D] among the many [N, T, D], anywhere?"""
    gaps = (many[:, :, None] - few[:, None]).abs().amax(-1).amin(1)
    return bool((gaps < 1e-5 * few.abs().max().clamp(min=1e-12)).all())


def _join(value: Value, part: Recording) -> Op | None:
    """The nearest operation of this step that put old and new together."""
    inside = set(part.ops)
    todo, seen = [value], set[Value]()
    while todo:
        current = todo.pop(0)
        op = current.op
        if op is None or op not in inside or current in seen:
            continue
        seen.add(current)
        if op.name in JOINS and op.place is not None and len(op.inputs) > 1:
            return op
        todo.extend(op.inputs)
    return None


def _added(probe: Probe, part: Recording, count: int) -> tuple[Place | None, Place | None] | None:
    """The lines of a position table whose row for the new token is not that of its place in the text."""
    for added in tables(probe):
        if not added.is_early or count > len(added.by_position):
            continue
        want = added.by_position[count - 1]
        at = added.op.inputs.index(added.table)
        op = _same_call(added.op, probe.base.record, part)
        if op is None or op.out.tensor.dim() != added.op.out.tensor.dim():
            continue
        table = op.inputs[at]
        shown = table.tensor.expand(op.out.shape).movedim([added.batch_axis, added.time_axis], [0, 1])
        if shown[0, -1].shape == want.shape and _far(shown[0, -1], want):
            return start_of(_maker(table)) or made_line(probe, table), op.place
    return None


def _maker(value: Value) -> Op | None:
    """The operation that counts positions (arange) behind a table or a factor."""
    todo, seen = [value], set[Value]()
    while todo:
        current = todo.pop(0)
        if current.op is None or current in seen:
            continue
        seen.add(current)
        if not current.op.inputs and current.op.name in {"arange", "full", "scalar_tensor", "lift_fresh"}:
            return current.op
        todo.extend(current.op.inputs)
    return None


def _turned(probe: Probe, part: Recording, count: int) -> tuple[Place | None, Place | None] | None:
    """The lines of a factor that turns the new token by another angle than that of its place in the text."""
    if not probe.sites:
        return None
    length = probe.length
    for op, factor in [pair for each in rotations(probe, probe.sites[0])[:2] for pair in each.factors]:
        axes = [
            a for a in range(factor.tensor.dim()) if factor.shape[a] == length and varies(factor.tensor, a)
        ]
        twin = _same_call(op, probe.base.record, part)
        if len(axes) != 1 or twin is None or count > length:
            continue
        held = twin.inputs[op.inputs.index(factor)]
        if held.tensor.dim() != factor.tensor.dim():
            continue
        got, want = held.tensor.select(axes[0], -1), factor.tensor.select(axes[0], count - 1)
        if got.dim() and want.shape[0] != got.shape[0]:  # tables made for each row of the batch
            got, want = got[:1], want[:1]
        if got.shape == want.shape and _far(got, want):
            maker = _maker(held)
            at = start_of(maker) or (held.op.place if held.op is not None else None) or twin.place
            return at, twin.place
    return None


def _same_call(op: Op, base: Recording, part: Recording) -> Op | None:
    """The step's operation that stands where this one does in the uncached pass: same line, same turn."""
    here = [each for each in base.ops if _is_at(each, op)]
    there = [each for each in part.ops if _is_at(each, op)]
    turn = here.index(op)
    return there[turn] if turn < len(there) and len(there[turn].inputs) == len(op.inputs) else None


def _is_at(each: Op, op: Op) -> bool:
    """Is it the same operation of the same innermost line, be it the user's or a library's?"""
    return each.name == op.name and [f.place for f in each.frames[:1]] == [f.place for f in op.frames[:1]]
