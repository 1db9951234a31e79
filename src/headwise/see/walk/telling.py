"""Every operation of a pass told as a step: norms, attentions, feed-forward layers, sums, tables, others."""

from __future__ import annotations

import torch

from headwise.doctor.flow import data_of, weight_of
from headwise.doctor.graph import Op, Value
from headwise.doctor.heads import results
from headwise.doctor.norms import Norm, ask, factors_after, is_torchs, like_noise
from headwise.doctor.sites import constant, is_product, matrices
from headwise.doctor.sub_layers import SubLayer
from headwise.see.walk import words
from headwise.see.walk.activations import activation, is_bend
from headwise.see.walk.attention import Attention
from headwise.see.walk.axes import Axes
from headwise.see.walk.layers import Layers, inner_products
from headwise.see.walk.once import Once
from headwise.see.walk.rest import Rest
from headwise.see.walk.steps import Claims
from headwise.see.walk.ways import (
    backward,
    end_of,
    is_data,
    is_projection,
    only,
    tail,
)

_NORMS = {
    "layer": "LayerNorm", "rms": "RMSNorm", "group": "GroupNorm", "batch": "BatchNorm",
    "instance": "InstanceNorm",
}  # fmt: skip


def tell(probe: Once, layers: Layers, axes: Axes) -> Claims:
    """Claim every operation of the pass for a step, recognised or not."""
    claims = Claims()
    if probe.failure is not None and probe.record.error is not None and probe.record.ops:
        failed = probe.record.ops[-1]
        if not failed.outputs:
            claims.claim("failure", "fails here", [failed], [], words.told(failed))
    apart = {eps for eps in map(_eps, layers.norms) if eps is not None}
    for norm in layers.norms:
        _norm(claims, probe, axes, norm, len(apart) > 1)
    for layer in layers.all:
        if layer.sum is not None:
            is_cross = layer.kind == "attention" and probe.site_kind(layer.sites[0]) == "cross"
            told = f"stream + {'cross-attention' if is_cross else layer.kind}"
            claims.claim("add", "add", [layer.sum], [layer.sum.out], told, layer=layer, inside=False)
    for layer in layers.all:
        if layer.kind == "attention":
            Attention(claims, probe, layers, axes, layer).claim()
        else:
            _feed_forward(claims, probe, layer)
    _tables(claims, probe)
    _products(claims, probe)
    Rest(claims, probe, axes).claim()
    return claims


def _norm(claims: Claims, probe: Once, axes: Axes, norm: Norm, with_eps: bool) -> None:
    ways, _ = backward([norm.out], lambda op: False, {norm.entered})
    own = {norm.op, *ways}
    for op in factors_after(norm.out):
        if op.moves or any(v.trained and not v.sources for v in op.inputs):
            own.add(op)
    last = max(own, key=lambda op: op.index)
    for op in only(last.out):
        others = [v for v in op.inputs if v is not last.out]
        if op.name in {"add", "add_"} and others and all(v.trained and not v.sources for v in others):
            own.add(op)
            last = op
    while last.moves and len(own) > 1:  # moves to the next step are the next step's
        own.discard(last)
        last = max(own, key=lambda op: op.index)
    result = last.out if last is not norm.op else norm.out
    name = _NORMS.get(norm.kind, "")
    by_hand = ""
    if not name:
        name = "LayerNorm" if _centres(probe, norm) else "RMSNorm"
        by_hand = "" if is_torchs(probe, norm.module) else " (by hand)"
    eps = _eps(norm) if with_eps else None
    told = f"{_along(axes, norm)}{by_hand}" + (f", eps {eps:.3g}" if eps is not None else "")
    claims.claim("norm", name, own, [result], told.removeprefix(", "), main=norm.op)


def _eps(norm: Norm) -> float | None:
    """The small number that is added to the variance; None where it is not found."""
    if norm.op.name in {"native_layer_norm", "native_group_norm", "native_batch_norm", "_fused_rms_norm"}:
        numbers = norm.op.numbers()
        return numbers[-1] if numbers else None
    ways, _ = backward([norm.out], lambda op: False, {norm.entered})
    for op in ways:
        if op.name in {"add", "add_"} and len({v for v in op.inputs if v.sources}) == 1:
            held = [constant(v) for v in op.inputs if not v.sources] + [*op.numbers()]
            small = [x for x in held if x is not None and 0 < x < 0.1]
            if small:
                return small[0]
    return None


@torch.no_grad()
def _centres(probe: Once, norm: Norm) -> bool:
    """Does a norm take the mean off: is it blind to a number that is added to all?"""
    noise = like_noise(norm.entered)
    try:
        one, other = (ask(probe.record, norm, x) for x in (noise, noise + 3))
    except RuntimeError:
        return False
    return torch.allclose(one, other, rtol=1e-2, atol=1e-3)


def _along(axes: Axes, norm: Norm) -> str:
    """`over D`: the axes whose elements are normalised together."""
    shape = norm.entered.shape
    if norm.op.name in {"native_layer_norm", "_fused_rms_norm"} and len(norm.op.args) > 1:
        count = len(norm.op.args[1])
        dims = list(range(len(shape) - count, len(shape)))
    elif norm.statistics:
        statistic = norm.statistics[-1]
        kept, whole = statistic.out.shape, statistic.inputs[0].shape
        if len(kept) != len(whole) or len(whole) != len(shape):
            return ""
        dims = [place for place, (a, b) in enumerate(zip(kept, whole, strict=True)) if a != b]
    else:
        return ""
    names = axes.names(norm.entered, shape)
    return "over " + ", ".join(names[place] for place in dims) if dims else ""


def _feed_forward(claims: Claims, probe: Once, layer: SubLayer) -> None:
    products = inner_products(layer)
    down, ups = products[-1], products[:-1]
    inside, _ = backward([data_of(down)], is_projection, set(layer.reads))
    bent = [op for op in inside if is_bend(op) and op not in claims.of]
    is_gated = len(ups) > 1 or any(end_of(op).shape[-1] != data_of(down).shape[-1] for op in ups)
    meet = [op for op in bent if is_gated and op.name.rstrip("_") == "mul" and _meets(op)]
    gates = {op: _gate(op, ups) for op in meet}
    gate = next((found for found in gates.values() if found is not None), None)
    for op in ups:
        name = "gate" if op is gate else "up"
        claims.claim(
            "gate" if op is gate else "up", name, {op, *tail(op)}, [end_of(op)], words.weights(op),
            main=op, layer=layer,
        )  # fmt: skip
    meeting = [op for op in gates if op not in claims.of]
    held = [op for op in bent if op not in meeting and op.name != "native_dropout"]
    if held:
        entered = next((v for v in held[0].inputs if is_data(v)), held[0].inputs[0])
        last = held[-1].out
        whole = activation(probe.record, held, entered) or words.listed(held)
        between = [op for op in inside if held[0].index <= op.index <= held[-1].index and op not in meeting]
        claims.claim("activation", "activation", between, [last], whole, layer=layer)
    if meeting:
        claims.claim("gate", "times gate", meeting, [meeting[-1].out], "element by element", layer=layer)
    claims.claim(
        "down", "down", {down, *tail(down)}, [end_of(down)], words.weights(down), main=down, layer=layer
    )


def _meets(op: Op) -> bool:
    return len({v for v in op.inputs if is_data(v)}) > 1


def _gate(op: Op, ups: list[Op]) -> Op | None:
    """Of a product of two branches the projection that passes an activation; None where there is no such."""
    for value in op.inputs:
        ways, halts = backward([value], is_projection)
        others = [v for v in op.inputs if v is not value]
        straight = [backward([v], is_projection)[0] for v in others]
        bent = any(o.pointwise and not _is_bias(o) for o in ways)
        if bent and not any(o.pointwise and not _is_bias(o) for each in straight for o in each):
            found = [halt for halt in halts if halt in ups]
            if len(found) == 1 and len(ups) > 1:
                return found[0]
    return None


def _is_bias(op: Op) -> bool:
    return any(v.trained and not v.sources for v in op.inputs)


def _tables(claims: Claims, probe: Once) -> None:
    """Tokens and positions looked up in tables; images cut into patches."""
    leaves = probe.adapted.leaves
    streams = {1 << stream.leaf: stream for stream in probe.adapted.streams}
    for op in probe.record.ops:
        if not op.outputs or op in claims.of:
            continue
        if op.name == "embedding":
            rows, width = op.inputs[0].shape
            looked = f"{rows} x {width} table"
            sources = op.inputs[1].sources
            chosen = [leaf.name for place, leaf in enumerate(leaves) if sources >> place & 1]
            if sources in streams and _is_straight(op.inputs[1]):
                several = streams[sources].name if probe.source is not None else chosen[0]
                name = "embedding" if len(streams) == 1 else f"{several} embedding"
            elif not sources or _counts(op.inputs[1]):
                name = "positions"
            else:
                name = f"embedding of {', '.join(chosen)}"
            claims.claim("embedding", name, [op], [op.out], looked)
        elif op.name == "convolution" and len(op.out.shape) == 4 and not op.inputs[0].trained:
            name = "patches" if op.inputs[1].shape[2:] == tuple(op.args[3]) != (1, 1) else "convolution"
            claims.claim("embedding", name, {op, *tail(op)}, [op.out], words.weights(op))


def _is_straight(value: Value) -> bool:
    """Are these ids those that were given, moved about at most?"""
    while value.op is not None:
        if not value.op.moves:
            return False
        value = value.op.inputs[0]
    return True


def _counts(value: Value) -> bool:
    """Do ids count positions (made by counting, or by a running sum)?"""
    todo, seen = [value], set[Value]()
    while todo:
        each = todo.pop()
        if each.op is None or each in seen:
            continue
        seen.add(each)
        if each.op.name in {"cumsum", "arange"}:
            return True
        todo.extend(each.op.inputs)
    return False


def _products(claims: Claims, probe: Once) -> None:
    """Products with weights outside of every sub-layer: heads, poolers, stems."""
    final = {v for v in results(probe)[:1]} if probe.failure is None else set[Value]()
    for op in probe.record.ops:
        if not op.outputs or op in claims.of:
            continue
        if _of_constant(op):
            told = f"{words.weights(op)}, of a constant"
            claims.claim("linear", _module_name(op), {op, *tail(op)}, [end_of(op)], told, main=op)
        if op in claims.of or not (weight_of(op) is not None or op.name == "convolution"):
            continue
        own = {op, *tail(op)}
        out = end_of(op)
        claims.claim("linear", _module_name(op), own, [out], words.weights(op), main=op)
        if out in final or any(_reaches(out, v) for v in final):
            draft = claims.of.get(op)
            if draft is not None:
                draft.name = "logits" if probe.main is not None and probe.main.is_ids else draft.name


def _of_constant(op: Op) -> bool:
    """Is this a product of weights with numbers that no input takes part in (a state that starts at zero)?"""
    if not is_product(op) or any(v.sources for v in matrices(op)):
        return False
    return sum(v.trained for v in matrices(op)) == 1


def _reaches(value: Value, end: Value) -> bool:
    """Is one value the other, moved at most?"""
    while end.op is not None and end is not value and end.op.moves:
        end = end.op.inputs[0]
    return end is value


def _module_name(op: Op) -> str:
    """What its author calls a layer: the end of its module's path."""
    parts = [part for part in op.module.split(".") if part and not part.isdigit()]
    return parts[-1] if parts else "linear"
