"""Where a wrong turning by position was written: at tables, at the pairing, at the product, or at a call."""

from __future__ import annotations

from torch import Tensor

from headwise.doctor.blame import watched
from headwise.doctor.calls import Call
from headwise.doctor.check import Place
from headwise.doctor.positions import holder, made_line, making_steps, table_behind
from headwise.doctor.probe import Probe
from headwise.doctor.sites import Site
from headwise.doctor.trace import Value
from headwise.doctor.turning import Turned, fault, matrices_of, partner_op

MOST = 0.02  # of the largest score: bfloat16 tables give 0.004, mismatched pairs 0.3 and more
SPREADERS = {
    "cat",
    "stack",
    "clone",
    "expand",
    "repeat",
    "index_select",
    "index",
    "repeat_interleave",
    "view",
}


def blamed(
    probe: Probe, site: Site, queries: Turned, keys: Turned, raw: Tensor
) -> tuple[str, Place | None, list[Place | None]]:
    """What is wrong with the turning, and the lines."""
    for one, other, names in ((queries, keys, "queries"), (keys, queries, "keys")):
        if not one.factors or other.factors:
            continue
        op = one.factors[0][0]
        if _given_both(probe, one, other):  # the helper got both, and turned one
            return f"only the {names} are turned", op.place, [holder(op, site.product)]
        return f"only the {names} are turned", holder(op, site.product), [op.place]
    op, factor = keys.factors[0]
    second = (keys.factors[1:] or keys.factors)[0][0]
    here = [op.place, second.place, holder(op, site.product)]
    for each, at in ((queries, site.q_at), (keys, site.k_at)):
        held = matrices_of(probe, each, at)
        wrong = fault(held) if held is not None else None
        if wrong is None:
            continue
        table = _table_line(probe, each.factors[0][1])
        partner = partner_op(each)
        if wrong.where == "partner" and partner is not None:
            return wrong.what, partner.place, [*here, table]
        if wrong.where == "product" and _one_table(probe, each):
            return wrong.what, each.factors[-1][0].place, [table, *here]
        return wrong.what, table, [*here, partner.place if partner is not None else None]
    flipped = raw.flip(-1)
    if float((flipped[:, 1:, 1:] - flipped[:, :-1, :-1]).abs().max()) < MOST * float(raw.abs().max()):
        return "queries and keys are turned in opposite directions", holder(op, site.product), here
    return "queries and keys are turned by different angles", _table_line(probe, factor), here


def _given_both(probe: Probe, one: Turned, other: Turned) -> bool:
    """Was the function that turns one of them handed the other as well?"""
    frames = one.factors[0][0].frames
    if len(frames) < 2:
        return False
    name = (frames[0].place.file, frames[0].place.function)
    family = probe.base.record.ancestors([other.operand], stop=set(other.starts))
    return any(
        (call.place.file, call.place.function) == name and _takes(call, family) for call in watched(probe)
    )


def _takes(call: Call, family: set[Value]) -> bool:
    return not call.library and any(v in family and v.sources for v in call.given.values())


def _one_table(probe: Probe, turned: Turned) -> bool:
    """Are all factors taken from one wave (two cosines), though the other one was made?"""
    names = [
        {op.name for v in probe.base.record.ancestors([f]) if (op := v.op)} & {"sin", "cos"}
        for _, f in turned.factors
    ]
    return all(len(held) == 1 for held in names) and len({next(iter(held)) for held in names}) == 1


def _table_line(probe: Probe, factor: Value) -> Place | None:
    """Where the angles were spread over the features, else where the table was made."""
    todo, seen = [factor], set[Value]()
    spread: list[Place] = []
    while todo:
        value = todo.pop(0)
        op = value.op
        if op is None or value in seen:
            continue
        seen.add(value)
        wide = op.outputs and op.inputs and op.out.tensor.numel() > op.inputs[0].tensor.numel()
        if (
            op.place is not None
            and wide
            and op.name in SPREADERS
            and value.shape[-1:] != op.inputs[0].shape[-1:]
        ):
            spread.append(op.place)
        todo.extend(op.inputs)
    return spread[0] if spread else _made_line(probe, factor)


def _made_line(probe: Probe, factor: Value) -> Place | None:
    steps = making_steps(probe, table_behind(factor))
    for place, op in steps:
        if op.removeprefix("aten.").split(".")[0] in {
            "repeat_interleave",
            "cat",
            "stack",
            "repeat",
            "expand",
        }:
            return place
    return steps[0][0] if steps else made_line(probe, factor)
