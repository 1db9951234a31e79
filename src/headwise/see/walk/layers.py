"""The sub-layers of a pass: those the doctor finds, and feed-forward layers with no attention behind them.

The doctor asks that a feed-forward layer repeats, or lies between attentions; a walk also shows those of a
model with a single block. They are told from a head by their residual sum.
"""

from __future__ import annotations

from dataclasses import dataclass

from headwise.doctor.blocks import Blocks, blocks
from headwise.doctor.flow import Flow, data_of, stream_of, weight_of
from headwise.doctor.graph import Op, Value
from headwise.doctor.norms import Norm
from headwise.doctor.sub_layers import SubLayer
from headwise.see.walk.activations import is_bend
from headwise.see.walk.once import Once
from headwise.see.walk.ways import (
    backward,
    followed,
    is_data,
    is_fold,
    is_join,
    is_projection,
    stops_projecting,
)

PASSED = 60  # values looked at between a product and the next


@dataclass(eq=False)
class Layers:
    """What was recognised in a pass: its norms and its sub-layers, in order."""

    found: Blocks
    all: list[SubLayer]
    norms: list[Norm]
    norm_ops: dict[Op, Norm]


def layers_of(probe: Once) -> Layers:
    """Recognise the sub-layers and norms of a pass."""
    found = blocks(probe)
    layers = [layer for layer in found.layers if layer.kind == "attention" or _is_plain(layer)]
    taken = _taken(found)
    record = probe.record
    for op in record.ops:
        if not op.outputs or weight_of(op) is None or op in taken:
            continue
        downs = _downs(found, op)
        for down in downs:
            if down in taken or any(layer.down is down for layer in layers):
                continue
            layer = SubLayer("feed-forward", stream_of(probe, op.out), (data_of(op),), (down.out,))
            layer.up, layer.down = op, down
            if _is_plain(layer) and _join(layer):
                layers.append(layer)
                taken |= {op, down}
    layers.sort(key=lambda layer: layer.last.index)
    norm_ops: dict[Op, Norm] = {}
    listed = list(found.by_out.values())
    for norm in listed:
        norm_ops[norm.op] = norm
        ways, _ = backward([norm.out], lambda op: False, {norm.entered})
        if len(ways) < PASSED:
            norm_ops.update(dict.fromkeys(ways, norm))
    return Layers(found, layers, listed, norm_ops)


def _taken(found: Blocks) -> set[Op]:
    """The products with weights that belong to attentions and known feed-forward layers."""
    taken: set[Op] = set()
    for layer in found.layers:
        for site in layer.sites:
            _, halts = backward([site.q_value, site.k_value, site.v_value], stops_projecting)
            taken |= set(halts)
        if layer.kind == "attention":
            output = output_projection(layer)
            taken |= {output} if output is not None else set()
        else:
            taken |= set(inner_products(layer))
    return taken


def output_projection(layer: SubLayer) -> Op | None:
    """The first product with weights that reads what an attention gives."""
    mixes = set(layer.results)
    todo, seen = list(layer.results), set(layer.results)
    while todo and len(seen) < PASSED * len(mixes):
        todo.sort(key=lambda v: v.index)
        for op in todo.pop(0).users:
            if not op.outputs:
                continue
            if is_projection(op):
                return op
            if is_join(op) or not (op.moves or op.pointwise or op.name in {"update", "native_layer_norm"}):
                continue
            todo.extend(out for out in op.outputs if out not in seen)
            seen.update(op.outputs)
    return None


def inner_products(layer: SubLayer) -> list[Op]:
    """The products with weights of a feed-forward layer: one or two that widen, and one that narrows."""
    assert layer.down is not None
    _, halts = backward([data_of(layer.down)], is_projection, set(layer.reads))
    ups = [op for op in halts if weight_of(op) is not None and data_of(op).shape == layer.reads[0].shape]
    return sorted({*ups, layer.down, *([layer.up] if layer.up else [])}, key=lambda op: op.index)


def _downs(found: Flow, up: Op) -> list[Op]:
    """The products with weights that read another's result through element-wise steps and norms alone."""
    downs: list[Op] = []
    todo, seen = [up.out], {up.out}
    is_bent = False
    while todo and len(seen) < PASSED:
        value = todo.pop(0)
        norm = found.by_entered.get(value)
        outs = [norm.out] if norm is not None else []
        for op in value.users:
            if not op.outputs or is_join(op):
                continue
            if weight_of(op) is not None:
                if data_of(op) is value and is_bent and op not in downs:
                    downs.append(op)
            elif op.name not in {"cat", "stack"} and (op.moves or is_bend(op) or op.name == "update"):
                is_bent = is_bent or not is_fold(op)
                outs.extend(op.outputs)
        todo.extend(out for out in outs if out not in seen)
        seen.update(outs)
    return downs


def _is_plain(layer: SubLayer) -> bool:
    """Is a layer's middle treated element by element, with nothing along positions (no scan, no softmax)?"""
    assert layer.down is not None
    read = layer.reads[0]
    inside, halts = backward([data_of(layer.down)], is_projection, {read})
    if any(weight_of(op) is None for op in halts):
        return False
    before, _ = backward([read], is_projection)
    return all(_is_own(op, len(read.shape)) for op in inside if op not in set(before))


def _is_own(op: Op, rank: int) -> bool:
    """Does an operation leave every position by itself?"""
    name = op.name.rstrip("_")
    if name in {"unbind", "select", "slice", "split", "split_with_sizes", "chunk", "cat", "stack"}:
        if name == "slice" and op.out.shape == op.inputs[0].shape:
            return True
        count = len(op.out.shape) if name == "stack" else len(op.inputs[0].shape)
        given = op.kwargs.get("dim", op.args[_DIM.get(name, 1)] if len(op.args) > _DIM.get(name, 1) else 0)
        return int(given) % count >= rank - 1  # pyright: ignore
    return is_bend(op) or is_fold(op) or name in _STATISTICS


_DIM = {"split": 2, "split_with_sizes": 2, "chunk": 2}
_STATISTICS = {
    "mean", "var", "std", "var_mean", "std_mean", "sum", "linalg_vector_norm", "norm", "native_layer_norm",
    "native_group_norm", "native_batch_norm", "_native_batch_norm_legit_no_training", "_fused_rms_norm",
    "amax", "index", "index_put", "constant_pad_nd",
}  # fmt: skip


def _join(layer: SubLayer) -> bool:
    """Find the residual sum of a feed-forward layer: its branch and what it reads, or that before a norm."""
    read = layer.reads[0]
    around, _ = backward([read], lambda op: is_projection(op) or is_join(op))
    near: set[Value] = {read, *(v for op in around for v in (*op.inputs, *op.outputs) if is_data(v))}
    branch = [*layer.results]
    for op in followed(branch, lambda op: not is_projection(op) and not is_join(op) and len(op.inputs) < 4):
        branch.extend(out for out in op.outputs if not _is_gate(op, set(branch)))
    held = set(branch)
    for value in branch:
        for op in value.users:
            if not is_join(op) or not op.outputs:
                continue
            skip = next((v for v in op.inputs if v not in held and is_data(v)), None)
            if skip is not None and (skip in near or _leads(skip, near)):
                layer.sum, layer.skip = op, skip
                return True
    return False


def _is_gate(op: Op, branch: set[Value]) -> bool:
    """Is a branch only a factor of something larger that the inputs made (a gate on channels)?"""
    own = max((v.tensor.numel() for v in op.inputs if v in branch), default=0)
    others = [v for v in op.inputs if v not in branch and is_data(v)]
    return op.name.rstrip("_") == "mul" and any(v.tensor.numel() > own for v in others)


def _leads(value: Value, near: set[Value]) -> bool:
    ways, _ = backward([value], lambda op: is_projection(op) or is_join(op))
    return any(v in near for op in ways for v in op.inputs)
