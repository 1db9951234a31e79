"""Steps put into groups: encoder and decoder, blocks, sub-layers; and blocks that repeat folded into one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from headwise.doctor.flow import stream_of
from headwise.doctor.graph import Op, Value
from headwise.doctor.norms import Norm
from headwise.doctor.places import visible
from headwise.doctor.sub_layers import SubLayer
from headwise.see.walk.layers import Layers
from headwise.see.walk.once import Once
from headwise.see.walk.steps import Draft, Group, Row, Step, steps_of

LONGEST = 40  # rows of a run that comes again
_WHOLE = {"section", "repeat"}  # groups that are told by themselves
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
    names = _sections(probe)
    if not names or not set(names) <= {_side(probe, draft) for draft in ordered}:
        return _rows(probe, ordered, blocks, write)
    sides: dict[str, list[Draft]] = {"": [], **{name: [] for name in names}}
    last = names[0]
    known = {draft: _side(probe, draft) for draft in ordered}
    for draft in reversed(ordered):
        if known[draft] is None:
            known[draft] = _beside(draft, known)
    for draft in ordered:
        side = known[draft]
        if side is None:  # what is only read by Python: it is where its block is, or the step before it
            block = next((each for each in blocks if each.holds(draft)), None)
            layer = None if block is None or probe.is_dual else block
            side = last if layer is None else "encoder" if layer.stream == "encoder" else "decoder"
        sides[side].append(draft)
        last = side or last
    sections = [
        Group(name, "section", 1, ("",), tuple(_rows(probe, sides[name], blocks, write))) for name in names
    ]
    rest = _rows(probe, sides[""], [], write)  # of two towers what compares them
    return [*sections, *rest] if probe.is_dual else [*rest, *sections]


def _beside(draft: Draft, known: dict[Draft, str | None]) -> str | None:
    """Of what only Python reads: the section of the step that reads it, or of the module that it runs in."""
    read = {user for op in draft.ops for out in op.outputs for user in out.users} - set(draft.ops)
    for other, side in known.items():
        if side and read & set(other.ops):
            return side
    for span in reversed(draft.main.modules if draft.main is not None else ()):
        near = {
            side for other, side in known.items() if other.main is not None and span in other.main.modules
        }
        near -= {None, ""}
        if near:
            return near.pop() if len(near) == 1 else None
    return None


def _sections(probe: Once) -> tuple[str, ...]:
    """Encoder and decoder; two towers are called by what they read; none for a model with one stream."""
    if probe.is_dual:
        names = [visible(probe.adapted.leaves[stream.leaf].name) for stream in probe.adapted.streams]
        return tuple(names) if len({*names, ""}) == len(names) + 1 else ()
    return ("encoder", "decoder") if probe.source is not None and probe.main is not None else ()


def _side(probe: Once, draft: Draft) -> str | None:
    """Encoder where only the source takes part in a step, decoder where the target does, None for neither."""
    if draft.kind == "input":
        return ""
    if draft.layer is not None and not probe.is_dual:
        return "encoder" if draft.layer.stream == "encoder" else "decoder"
    streams = [1 << stream.leaf for stream in probe.adapted.streams]
    floats = sum(1 << place for place, leaf in enumerate(probe.adapted.leaves) if leaf.role == "floats")
    ops = sorted(draft.ops, key=lambda op: op.index)
    made = [*draft.results, *(value for op in ops for value in op.outputs)]
    for todo in (made, [value for op in ops for value in op.inputs]):
        seen = set[Value]()
        while todo:  # where no data take part (a mask, a table), what reads it tells
            value = todo.pop(0)
            is_data = value.trained or bool(value.sources & floats)
            if is_data and value.sources & sum(streams) and value.tensor.is_floating_point():
                if probe.is_dual:
                    read = [bool(value.sources & bit) for bit in streams]
                    return "" if all(read) else _sections(probe)[read.index(True)]
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
    is_post = _posts(layers)
    entering: dict[Value, list[Norm]] = {}
    for norm in layers.norms:
        entering.setdefault(norm.entered, []).append(norm)
    at: dict[SubLayer, list[float]] = {}
    for draft in drafts:
        if draft.layer is not None:
            at.setdefault(draft.layer, []).append(draft.at)
    for block in blocks:
        if block.span is not None:
            continue
        own = [each for layer in block.layers for each in at.get(layer, ())]
        for layer in block.layers:
            before, after = layer.before, layer.sum
            if before is not None and not is_post(before.entered.op, before.out):
                own.append(place.get(before.op, own[0]))
            for norm in entering.get(after.out, ()) if after is not None else ():
                if is_post(after, norm.out):
                    own.append(place.get(norm.op, own[-1]))
        block.first, block.last = min(own), max(own)


def _inside(norm: Norm) -> list[Op]:
    """What `Recording.between` finds of a norm, without a way through the whole of a deep model for each."""
    up, todo = set[Value](), [norm.out]
    while todo:
        value = todo.pop()
        if value in up or value.index < norm.entered.index:
            continue
        up.add(value)
        if value.op is not None:
            todo.extend(value.op.inputs)
    down, found = {norm.entered}, list[Op]()
    for op in sorted({v.op for v in up if v.op is not None}, key=lambda op: op.index):
        if any(v in down for v in op.inputs):
            down.update(op.outputs)
            found.append(op)
    return found


def _posts(layers: Layers) -> Callable[[Op | None, Value], bool]:
    """Does a norm's result go on as the stream: is it what goes round a sub-layer, or the end of one?"""
    sums = {layer.sum for layer in layers.all if layer.sum is not None}
    layers.found.norm_ops = {op for norm in layers.norms for op in (norm.op, *_inside(norm))}
    skips = {layers.found.entrance(layer.skip) for layer in layers.all if layer.skip is not None}
    normed = [layer for layer in layers.all if layer.sum is not None and layers.found.is_normed_after(layer)]
    every = len(normed) == len(sums) > 1
    return lambda added, out: added in sums and (out in skips or every)


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
    return _common([draft.main.module for draft in drafts if draft.main is not None])


def _common(paths: Sequence[str]) -> str:
    common: list[str] = []
    for parts in zip(*(path.split(".") for path in paths), strict=False):
        if len(set(parts)) > 1:
            break
        common.append(parts[0])
    return ".".join(common)


def folded(rows: Sequence[Row]) -> list[Row]:
    """Groups that follow one another with the same rows made one, which says how often it comes."""
    found: list[Row] = []
    for row in rows:
        last = found[-1] if found else None
        if isinstance(row, Group) and isinstance(last, Group) and _alike(last, row):
            found[-1] = Group(
                last.title, last.kind, last.times + row.times, (*last.modules, *row.modules), last.rows
            )
        else:
            found.append(row)
    return _repeated(found)


def _repeated(rows: Sequence[Row]) -> list[Row]:
    """Runs of steps that come again at once, with the same lines and shapes, as one group: `repeat x 3`."""
    marks = [(signature(row), _times(row)) for row in rows]
    found: list[Row] = []
    place = 0
    while place < len(rows):
        length, times = _run(marks, rows, place)
        if times < 2:
            found.append(rows[place])
            place += 1
            continue
        runs = [rows[place + n * length : place + (n + 1) * length] for n in range(times)]
        paths = tuple(_common([step.module for step in steps_of(run)]) for run in runs)
        found.append(Group("repeat", "repeat", times, paths, tuple(runs[0])))
        place += length * times
    return found


def _run(marks: Sequence[object], rows: Sequence[Row], start: int) -> tuple[int, int]:
    """How long the steps are that come again from here, and how often they come; 1 where they do not.

    Of the lengths the one that covers most, the shortest of those. Weights are all the same, or none are.
    """
    best = (0, 1)
    for length in range(1, min(LONGEST, (len(rows) - start) // 2) + 1):
        first = rows[start : start + length]
        if any(isinstance(row, Group) and row.kind in _WHOLE for row in first):
            break
        if not any(_costs(step) for step in steps_of(first)):
            continue
        times, way = 1, _again(marks, rows, start, start + length, length)
        while way and _again(marks, rows, start, start + times * length, length) == way:
            times += 1
        if times > 1 and length * times > best[0] * best[1]:
            best = (length, times)
    return best


def _again(marks: Sequence[object], rows: Sequence[Row], start: int, other: int, length: int) -> str:
    """How steps come again from another row: with the "same" weights, with "new" ones, or "" not at all."""
    if other + length > len(rows) or marks[start : start + length] != marks[other : other + length]:
        return ""
    first, again = (steps_of(rows[at : at + length]) for at in (start, other))
    pairs = list(zip(first, again, strict=True))
    if all(a.weights == b.weights for a, b in pairs):
        return "same"
    return "" if any(a.earlier or b.earlier for a, b in pairs) else "new"


def _costs(step: Step) -> bool:
    return step.kind not in {"input", "embedding"} and bool(step.params or step.flops)


def _alike(one: Group, other: Group) -> bool:
    """May two groups be shown as one: with the same rows, and weights shared in none, or all, or alike?"""
    if signature(one) != signature(other):
        return False
    pairs = list(zip(one.steps, other.steps, strict=True))
    if all(a.weights == b.weights for a, b in pairs) and (set(one.modules) == set(other.modules)):
        return True
    return all((a.weights if a.earlier else None) == (b.weights if b.earlier else None) for a, b in pairs)


def with_shares(rows: Sequence[Row], above: tuple[str, ...] = ()) -> list[Row]:
    """Steps in blocks whose weights an earlier block has used say so, where the block's own path does not."""
    found: list[Row] = []
    for row in rows:
        if isinstance(row, Group):
            inner = with_shares(row.rows, row.modules if row.kind == "block" else above)
            found.append(replace(row, rows=tuple(inner)))
        elif row.earlier and above and not all(path and _within_path(row.module, path) for path in above):
            told = f"{row.operation}; shares its weights with {row.earlier}".removeprefix("; ")
            found.append(replace(row, operation=told))
        else:
            found.append(row)
    return found


def _within_path(module: str, path: str) -> bool:
    return module == path or module.startswith(f"{path}.")


def signature(row: Row) -> object:
    """What must agree for two rows to be shown as one: all but where in the model they run."""
    if isinstance(row, Step):
        return (
            row.name, row.kind, row.operation, row.shape, row.axes, row.count, row.dtype, row.held,
            row.params, row.flops, row.bytes, row.file, row.line, row.pattern,
        )  # fmt: skip
    return row.title, row.kind, tuple((signature(each), _times(each)) for each in row.rows)


def _times(row: Row) -> int:
    return row.times if isinstance(row, Group) else 1
