"""Does what an attention mixed reach any result, and does moving it move them?"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from headwise.doctor.blame import related
from headwise.doctor.check import Found, NotApplicable, Place, Tried, check
from headwise.doctor.heads import results
from headwise.doctor.probe import Probe, differs
from headwise.doctor.sites import Site, is_product, matrices, softmaxes
from headwise.doctor.trace import Op, Value


@check(
    id="HW214",
    title="An attention is computed and its result is not used",
    why="Positions do not see one another there: the layer reads single tokens, and its weights never learn.",
    fix="Hand the attention's output on: project it and add it to the residual stream.",
    needs=set(),
    explains={
        "unused-parameters", "gradient-cut", "positions-missing", "mask-not-forwarded",
        "residual-missing", "cannot-memorise", "padding-attended", "output-projection-missing",
        "residual-from-normed",
    },
    quick=True,
)  # fmt: skip
def attention_ignored(probe: Probe) -> Iterator[Found | Tried]:
    record = probe.base.record
    ends = results(probe)
    used = record.ancestors(ends)
    for site in probe.sites:
        if site.mix.out in used or _belongs_to_unused_encoder(probe, site, used):
            continue
        yield _found(probe, site.mix.out, site.module, "reaches no result")
        return
    for op, score, weight in softmaxes(record):
        if weight not in used and op.frames and _is_attention(score):
            yield _found(probe, weight, op.module, "is weights that are put on no values")
            return
    blind = any(
        not bool(site.allowed.any(-1).all()) for site in probe.sites
    )  # the mask is what stops it there
    suspected = [] if blind or not any(map(_kills, record.ops)) else probe.sites
    for site in (each for each in suspected if each.mix.out in used):
        died = _dies(probe, site, ends)
        if died is not None and _kills(died):
            yield Found(
                "moving the mixed values of this attention moves no result",
                at=died.place,
                module=site.module,
                related=tuple(related([site.mix.place], "the attention", died.place)),
            )
            return
    if not probe.sites:
        raise NotApplicable("no attention (product, softmax, product) was recognised")
    yield Tried(f"followed the mixed values of {len(probe.sites)} attention(s) to a result")


def _kills(op: Op) -> bool:
    """Can an operation wipe a value out: a factor of nought that nobody trains, a write over it?

    (Cutting a part off, or a position that nobody asks for, is no mistake.)
    """
    if op.name in {"zero_", "fill_", "copy_", "update"}:
        return True
    if op.name not in {"mul", "mul_"}:
        return False
    fixed = [v for v in op.inputs if not v.sources and not v.trained]
    return 0.0 in op.numbers() or any(not bool(v.tensor.any()) for v in fixed)


def _found(probe: Probe, value: Value, module: str, what: str) -> Found:
    at, fell = _let_fall(probe, value)
    return Found(
        f"what this attention computes {what}: no operation leads from it to an output",
        at=at,
        module=module,
        related=(
            *related([fell], "the result was last touched here", at),
            *related([value.op.place if value.op else None], "the attention", at),
        ),
    )


def _let_fall(probe: Probe, value: Value) -> tuple[Place | None, Place | None]:
    """The line that should have used it (the next to run in that function), and where it was last seen."""
    record = probe.base.record
    dead = max(record.descendants([value]), key=lambda v: v.index)
    assert dead.op is not None
    here = {frame.call: frame.place.function for frame in dead.op.frames}
    for op in record.ops[dead.op.index + 1 :]:
        for frame in op.frames:
            if here.get(frame.call) == frame.place.function:
                return frame.place, dead.op.place
    return dead.op.place, dead.op.place


def _belongs_to_unused_encoder(probe: Probe, site: Site, used: set[Value]) -> bool:
    """Is this the encoder's, and is all of the encoder unused (encoder-output-unused says so)?"""
    if probe.site_kind(site) != "encoder":
        return False
    return all(each.mix.out not in used for each in probe.sites_of("encoder"))


def _is_attention(score: Value) -> bool:
    """Does a softmax read a product of two things that both depend on the data?"""
    seen = {score}
    todo = [score]
    while todo and len(seen) < 60:
        op = todo.pop().op
        if op is None:
            continue
        if is_product(op):
            a, b = matrices(op)
            return bool(a.sources and b.sources)
        if op.moves or op.pointwise:
            todo.extend(v for v in op.inputs if v not in seen and v.tensor.is_floating_point())
            seen.update(op.inputs)
    return False


def _dies(probe: Probe, site: Site, ends: list[Value]) -> Op | None:
    """The operation at which a change of the mixed values is lost.

    Other weights must lose it too: a gate that is trained may start at zero.
    """
    record = probe.base.record
    start = site.mix.out
    generator = torch.Generator().manual_seed(0)
    size = float(start.tensor.double().square().mean().sqrt()) or 1.0
    noise = torch.randn(start.shape, generator=generator, dtype=torch.float64).to(start.tensor) * size * 100
    if _moves(probe, {start: start.tensor + noise}, {}, ends):
        return None
    trained = {
        v: v.tensor + torch.rand(v.shape, generator=generator, dtype=torch.float64).to(v.tensor) + 0.1
        for v in record.values
        if v.op is None and v.trained and v.tensor.is_floating_point()
    }
    if _moves(probe, {**trained, start: start.tensor + noise}, trained, ends):
        return None
    return _last_moved(probe, start, noise, ends)


@torch.no_grad()
def _moves(
    probe: Probe, after: dict[Value, torch.Tensor], before: dict[Value, torch.Tensor], ends: list[Value]
) -> bool:
    record = probe.base.record
    old = record.replay(before, ends) if before else [v.tensor for v in ends]
    new = record.replay(after, ends)
    return any(bool(differs(a, b, probe.eps).any()) for a, b in zip(old, new, strict=True))


@torch.no_grad()
def _last_moved(probe: Probe, start: Value, noise: torch.Tensor, ends: list[Value]) -> Op | None:
    record = probe.base.record
    ops = [op for op in record.between([start], ends) if op.outputs]
    wanted = [op.out for op in ops]
    new = record.replay({start: start.tensor + noise}, wanted)
    moved = {v: bool(differs(v.tensor, b, probe.eps).any()) for v, b in zip(wanted, new, strict=True)}
    moved[start] = True
    return next((op for op in ops if not moved[op.out] and any(moved.get(v) for v in op.inputs)), start.op)
