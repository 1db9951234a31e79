"""Where a block begins and ends: by the module call that runs it, or by who owns its weights.

Post-norm, as in BERT, has the operations of a pre-norm block whose residual is taken after the norm, in the
same order: only the bounds of the block tell the two apart.
"""

from __future__ import annotations

from headwise.doctor.blocks import Blocks
from headwise.doctor.flow import is_sum, weight_name, weight_of
from headwise.doctor.graph import Value
from headwise.doctor.norms import Norm, norms
from headwise.doctor.sub_layers import SubLayer

Call = tuple[str, int]


def pre_norm_block(found: Blocks, layer: SubLayer, norm: Norm) -> str | None:
    """The path of the block that begins with this norm and ends with a sum; None where it may be post-norm.

    norm: what both the sub-layer and the other side of its sum read.
    """
    if _goes_round_the_norm(found, found.entrance(norm.entered)):
        return None
    return _called_block(found, layer, norm) or _owning_block(found, layer, norm)


def _called_block(found: Blocks, layer: SubLayer, norm: Norm) -> str | None:
    """By the module call: the stream comes in from outside, meets the norm first, and goes out as a sum."""
    assert layer.sum is not None
    call = next((c for c in reversed(norm.op.modules) if c in layer.sum.modules and c[0]), None)
    if call is None:
        return None
    entered = found.entrance(norm.entered)
    if not _comes_from_outside(call, entered) and not _first_is_pre_norm(found, call, entered):
        return None
    outs = [found.entrance(value) for value in _leaving(found, call, layer.sum.out)]
    return call[0] if outs and all(is_sum(value) for value in outs) else None


def _owning_block(found: Blocks, layer: SubLayer, norm: Norm) -> str | None:
    """By who owns the weights, where one function runs all blocks in a loop.

    The norm belongs to the sub-layer's own block ("layers.3"), and it normalises what another block made; the
    last block's sum is not normalised by a norm of its own.
    """
    block = _block_path(found, layer, norm)
    entered = found.entrance(norm.entered)
    if not block:
        return None
    before = next((s for s in found.layers if s.sum is not None and s.sum.out is entered), None)
    is_start = entered in found.starts.get(layer.stream, []) or is_sum(entered)
    if before is None and not (is_start and layer is found.sums(layer.stream)[0]):
        return None
    if before is not None and block in {_index_path(path) for path in _owners(found, before)}:
        return None
    last = found.last_sum(layer.stream)
    if last is None or last.sum is None:
        return None
    ends = {_index_path(path) for path in _owners(found, last)}
    after = [n for n in norms(found.probe) if found.entrance(n.entered) is last.sum.out]
    return None if any(_index_path(gain) in ends for n in after for gain in n.gains) else block


def _goes_round_the_norm(found: Blocks, entered: Value) -> bool:
    """Does the value reach the output on a way that passes none of the norms that read it?"""
    alike = {norm.out for norm in norms(found.probe) if found.entrance(norm.entered) is entered}
    return found.probe.base.logits_value in found.probe.base.record.descendants([entered], stop=alike)


def _owners(found: Blocks, layer: SubLayer) -> set[str]:
    """The parameters that a sub-layer's products multiply with, as paths."""
    readers = [op for value in layer.reads for op, _ in found.meets(value) if weight_of(op) is not None]
    products = [*readers, *(op for op in (layer.up, layer.down) if op is not None)]
    return {weight_name(op) for op in products} - {""}


def _index_path(path: str) -> str:
    """A path up to its first number: the block of a stack ("layers.3"), "" where there is none."""
    parts = path.split(".")
    place = next((i for i, part in enumerate(parts) if part.isdigit()), None)
    return ".".join(parts[: place + 1]) if place is not None else ""


def _block_path(found: Blocks, layer: SubLayer, norm: Norm) -> str:
    """The block that owns both a norm and its sub-layer, "" where no one does."""
    blocks_of = {_index_path(path) for path in (*norm.gains, *_owners(found, layer))}
    return blocks_of.pop() if len(blocks_of) == 1 and norm.gains else ""


def _comes_from_outside(call: Call, value: Value) -> bool:
    return value.op is None or call not in value.op.modules


def _first_is_pre_norm(found: Blocks, call: Call, entered: Value) -> bool:
    """Did an earlier sub-layer of the same block, whose sum this is, go round its norm as it should?"""
    for layer in found.layers:
        if layer.sum is None or layer.sum.out is not entered or call not in layer.sum.modules:
            continue
        if layer.before is None or layer.skip is None or call not in layer.before.op.modules:
            return False
        return found.norm_behind(layer.skip) is None and _comes_from_outside(call, found.entrance(layer.skip))
    return False


def _leaving(found: Blocks, call: Call, after: Value) -> list[Value]:
    """What a call makes, from the sum on, and something outside reads (or that is the output)."""
    below = found.probe.base.record.descendants([after])
    inside = [value for value in below if value.op is not None and call in value.op.modules]
    out = found.probe.base.logits_value
    return [value for value in inside if value is out or any(call not in op.modules for op in value.users)]
