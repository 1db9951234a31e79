"""Steps put into groups: encoder and decoder, blocks, sub-layers; and blocks that repeat folded into one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headwise.doctor.flow import stream_of
from headwise.doctor.graph import Op, Value
from headwise.doctor.sub_layers import SubLayer
from headwise.see.walk.layers import Layers
from headwise.see.walk.once import Once
from headwise.see.walk.steps import Draft, Group, Row, Step

Span = tuple[str, int]  # a module's path and which of its calls


@dataclass(eq=False)
class Block:
    """A block: a self-attention with what follows it up to the next one."""

    stream: str
    layers: list[SubLayer]
    span: Span | None = None
    first: float = 0.0
    last: float = 0.0

    def holds(self, draft: Draft) -> bool:
        """Is a step this block's?"""
        if draft.layer is not None and draft.layer in self.layers:
            return True
        if self.span is not None:
            return draft.main is not None and self.span in draft.main.modules
        return self.first <= draft.at <= self.last


def grouped(
    probe: Once, layers: Layers, drafts: Sequence[Draft], write: Callable[[Draft], Step]
) -> list[Row]:
    """The rows of a walk, in order, with what repeats folded."""
    blocks = _blocks(probe, layers, drafts)
    ordered = sorted(drafts, key=lambda draft: draft.at)
    if probe.source is None or probe.main is None or not _has_both(probe, ordered):
        return _rows(probe, ordered, blocks, write)
    sides: dict[str, list[Draft]] = {"": [], "encoder": [], "decoder": []}
    last = "encoder"
    for draft in ordered:
        side = _side(probe, draft)
        if side is None:  # what is only read by Python: it is where its block is, or the step before it
            block = next((each for each in blocks if each.holds(draft)), None)
            side = last if block is None else "encoder" if block.stream == "encoder" else "decoder"
        sides[side].append(draft)
        last = side or last
    rows = _rows(probe, sides[""], [], write)
    for name in ("encoder", "decoder"):
        own = _rows(probe, sides[name], blocks, write)
        if own:
            rows.append(Group(name, "section", 1, ("",), tuple(own)))
    return rows


def _has_both(probe: Once, drafts: Sequence[Draft]) -> bool:
    return {"encoder", "decoder"} <= {_side(probe, draft) for draft in drafts}


def _side(probe: Once, draft: Draft) -> str | None:
    """Encoder where only the source takes part in a step, decoder where the target does, None for neither."""
    if draft.kind == "input":
        return ""
    if draft.layer is not None:
        return "encoder" if draft.layer.stream == "encoder" else "decoder"
    made = [value for op in sorted(draft.ops, key=lambda op: op.index) for value in op.outputs]
    todo, seen = [*draft.results, *made], set[Value]()
    while todo:  # where nothing of the input takes part, what reads it tells
        value = todo.pop(0)
        if value.sources and value.tensor.is_floating_point():
            return "encoder" if stream_of(probe, value) == "encoder" else "decoder"
        if value not in seen:
            seen.add(value)
            todo.extend(out for op in value.users for out in op.outputs)
    return None


# Blocks


def _blocks(probe: Once, layers: Layers, drafts: Sequence[Draft]) -> list[Block]:
    found: list[Block] = []
    by_stream: dict[str, list[SubLayer]] = {}
    for layer in layers.all:
        by_stream.setdefault(layer.stream, []).append(layer)
    for stream, members in by_stream.items():
        members = sorted(members, key=lambda layer: layer.last.index)
        own: list[Block] = []
        for layer in members:
            is_self = layer.kind == "attention" and probe.site_kind(layer.sites[0]) != "cross"
            if is_self or not own:
                own.append(Block(stream, []))
            own[-1].layers.append(layer)
        found.extend(own)
    heads = [_core(block) for block in found]
    for block in found:
        others = [op for other, ops in zip(found, heads, strict=True) if other is not block for op in ops]
        block.span = _span(block, others)
    if len({block.span for block in found}) < len(found):
        for block in found:
            block.span = None
    _reach(layers, found, drafts)
    return [block for block in found if block.span is None or block.span[0]]


def _core(block: Block) -> list[Op]:
    return [op for layer in block.layers for op in (layer.last, layer.sum) if op is not None]


def _span(block: Block, others: Sequence[Op]) -> Span | None:
    """The innermost call of a module that holds all of a block and nothing of another."""
    core = _core(block)
    common = [span for span in core[0].modules if all(span in op.modules for op in core)]
    for span in reversed(common):
        if not any(span in op.modules for op in others):
            return span
    return None


def _reach(layers: Layers, blocks: Sequence[Block], drafts: Sequence[Draft]) -> None:
    """Where a block without a module of its own begins and ends, in the order of the steps."""
    place = {op: draft.at for draft in drafts for op in draft.ops}
    for block in blocks:
        if block.span is not None:
            continue
        own = [draft.at for draft in drafts if draft.layer in block.layers]
        for layer in block.layers:
            before, after = layer.before, layer.sum
            if before is not None and not _is_post(layers, before.entered.op, before.out):
                own.append(place.get(before.op, own[0]))
            for norm in layers.norms:
                if after is not None and norm.entered is after.out and _is_post(layers, after, norm.out):
                    own.append(place.get(norm.op, own[-1]))
        block.first, block.last = min(own), max(own)


def _is_post(layers: Layers, added: Op | None, out: object) -> bool:
    """Does a norm's result go on as the stream: is it what goes round a sub-layer, or the end of one?"""
    sums = [layer.sum for layer in layers.all if layer.sum is not None]
    if added not in sums:
        return False
    skips = [layers.found.entrance(layer.skip) for layer in layers.all if layer.skip is not None]
    normed = [layer for layer in layers.all if layer.sum is not None and layers.found.is_normed_after(layer)]
    return out in skips or (len(normed) == len(sums) and len(sums) > 1)


# Rows


def _rows(
    probe: Once, drafts: Sequence[Draft], blocks: Sequence[Block], write: Callable[[Draft], Step]
) -> list[Row]:
    """Steps in order, those of a block in a group of its own, those of a sub-layer in one within."""
    rows: list[Row] = []
    placed: dict[Block, list[Draft]] = {}
    order: list[Draft | Block] = []
    for draft in drafts:
        block = next((each for each in blocks if each.holds(draft)), None)
        if block is None:
            order.append(draft)
            continue
        if block not in placed:
            order.append(block)
        placed.setdefault(block, []).append(draft)
    loose: list[Draft] = []
    for item in order:
        if isinstance(item, Draft):
            loose.append(item)
            continue
        rows.extend(_within(probe, loose, "", write))
        loose = []
        path = item.span[0] if item.span is not None else _path(placed[item])
        own = _within(probe, placed[item], path, write)
        rows.append(Group("block", "block", 1, (path,), tuple(own)))
    rows.extend(_within(probe, loose, "", write))
    return folded(rows)


def _within(probe: Once, drafts: Sequence[Draft], above: str, write: Callable[[Draft], Step]) -> list[Row]:
    """The rows of a block: its sub-layers as groups, its norms and sums beside them."""
    rows: list[Row] = []
    members: dict[SubLayer, list[Draft]] = {}
    for draft in drafts:
        if draft.inside and draft.layer is not None:
            members.setdefault(draft.layer, []).append(draft)
    for draft in drafts:  # what lies between two steps of a sub-layer, and in its module, is inside of it
        if draft.layer is None and draft.kind != "norm":
            for layer, own in members.items():
                low, high = min(d.at for d in own), max(d.at for d in own)
                module = draft.main.module if draft.main is not None else ""
                if low < draft.at < high and layer.module and module.startswith(layer.module):
                    own.append(draft)
                    draft.layer, draft.inside = layer, True
                    break
    done = set[SubLayer]()
    place = {layer: _place(own) for layer, own in members.items()}

    def at(draft: Draft) -> float:
        return place[draft.layer] if draft.inside and draft.layer is not None else draft.at

    for draft in sorted(drafts, key=at):
        if not draft.inside or draft.layer is None:
            rows.append(write(draft))
        elif draft.layer not in done:
            done.add(draft.layer)
            own = sorted(members[draft.layer], key=lambda each: each.at)
            path = _path(own)
            shown = "" if path == above else path
            title = _title(probe, draft.layer)
            rows.append(Group(title, draft.layer.kind, 1, (shown,), tuple(write(each) for each in own)))
    return folded(rows)


def _place(drafts: Sequence[Draft]) -> float:
    """Where a sub-layer stands: an attention where it looks, whenever its keys and values were made."""
    scores = [draft.at for draft in drafts if draft.kind == "scores"]
    return min(scores or [draft.at for draft in drafts])


def _title(probe: Once, layer: SubLayer) -> str:
    if layer.kind == "feed-forward":
        return "feed-forward"
    return "cross-attention" if probe.site_kind(layer.sites[0]) == "cross" else "attention"


def _path(drafts: Sequence[Draft]) -> str:
    """The path of the innermost module that all of these steps lie in."""
    paths = [draft.main.module.split(".") for draft in drafts if draft.main is not None]
    common: list[str] = []
    for parts in zip(*paths, strict=False):
        if len(set(parts)) > 1:
            break
        common.append(parts[0])
    return ".".join(common)


def folded(rows: Sequence[Row]) -> list[Row]:
    """Groups that follow one another with the same rows made one, which says how often it comes."""
    found: list[Row] = []
    for row in rows:
        last = found[-1] if found else None
        if isinstance(row, Group) and isinstance(last, Group) and signature(row) == signature(last):
            found[-1] = Group(
                last.title, last.kind, last.times + row.times, (*last.modules, *row.modules), last.rows
            )
        else:
            found.append(row)
    return found


def signature(row: Row) -> object:
    """What must agree for two rows to be shown as one: all but where in the model they run."""
    if isinstance(row, Step):
        return (
            row.name, row.kind, row.operation, row.shape, row.axes, row.count, row.dtype, row.held,
            row.params, row.flops, row.bytes, row.file, row.line,
        )  # fmt: skip
    return row.title, row.kind, tuple((signature(each), _times(each)) for each in row.rows)


def _times(row: Row) -> int:
    return row.times if isinstance(row, Group) else 1
