"""Follow the residual stream: the same position table may be added to it once."""

from __future__ import annotations

from collections.abc import Iterator

from headwise.doctor.blame import related
from headwise.doctor.check import Found, NotApplicable, Tried, check
from headwise.doctor.positions import Added, holder, in_library, table_behind, tables
from headwise.doctor.probe import Probe
from headwise.doctor.sites import is_product
from headwise.doctor.trace import Op, Value


@check(
    id="HW308",
    title="The same positions are added again and again",
    why="Each time the positions grow louder in the residual stream, and the words weigh less.",
    fix="Add the positions once, to the embeddings, before the first layer.",
    severity="warning",
    needs={"stream", "rows", "finite"},
    quick=True,
)
def positions_added_repeatedly(probe: Probe) -> Iterator[Found | Tried]:
    found = [added for added in tables(probe) if _stays(probe, added)]
    if not found:
        raise NotApplicable("no position table is added to the residual stream")
    for first in found:
        after = probe.base.record.descendants([first.op.out])
        again = [
            added
            for added in found
            if added.op is not first.op and added.token in after and _same_table(first, added)
            and added.stream == first.stream and not _same_weights(probe, first, added)
        ]  # fmt: skip
        if not again:
            continue
        second = again[0]
        products = [op for op in probe.base.record.ops if is_product(op)]
        place = holder(second.op, *products)
        yield Found(
            f"the same positions are added {1 + len(again)} times to the residual stream of the "
            f"{first.stream.name}, one upon the other, by layers that do not share their weights",
            at=place,
            module=second.op.module,
            related=tuple(
                related([second.op.place, holder(first.op, *products)], "they are added here too", place)
            ),
            severity="note" if in_library(second.op) else None,
        )
        return
    yield Tried(f"followed {len(found)} additions of positions")


def _same_table(first: Added, second: Added) -> bool:
    """One table read twice, or two that hold the same numbers."""
    if table_behind(first.table) is table_behind(second.table):
        return True
    a, b = first.by_position, second.by_position
    return a.shape == b.shape and bool((a - b).abs().max() <= 1e-9 * a.abs().max())


def _stays(probe: Probe, added: Added) -> bool:
    """Does the sum itself run on in the residual stream, rather than only into queries and keys?"""
    alive: set[Value] = {added.op.out}
    todo = [added.op.out]
    while todo:
        for op in todo.pop().users:
            if op.moves or op.name in {"update", "native_dropout", "native_layer_norm"}:
                news = [out for out in op.outputs[:1] if out not in alive]
                alive.update(news)
                todo.extend(news)
    down = probe.base.record.descendants([added.op.out])
    for value in alive:
        for op in value.users:
            if op.name in {"add", "add_"} and len(op.inputs) == 2:
                other = op.inputs[1] if op.inputs[0] is value else op.inputs[0]
                if other in down and other not in alive:
                    return True
                if other not in down:  # another addition, of types or of the same positions: the sum goes on
                    alive_later = Added(
                        op, value, other, added.stream, added.batch_axis, added.time_axis, added.is_early
                    )
                    if (
                        op.index > added.op.index
                        and op.out.shape == added.op.out.shape
                        and _stays(probe, alive_later)
                    ):
                        return True
    return False


def _same_weights(probe: Probe, first: Added, second: Added) -> bool:
    """Does the same layer follow both sums (the turns of a Universal Transformer)?"""
    ops = probe.base.record.ops
    if not any(is_product(op) for op in ops[first.op.index : second.op.index]):
        return False  # no layer lies between them
    return _next_weight(ops, first.op) is _next_weight(ops, second.op)


def _next_weight(ops: list[Op], start: Op) -> Value | None:
    for op in ops[start.index + 1 :]:
        if is_product(op):
            for value in op.inputs:
                leaf = table_behind(value)
                if leaf.name.startswith("parameter") and leaf.tensor.dim() >= 2:
                    return leaf
    return None
