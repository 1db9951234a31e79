"""What each operation does to the labels of its operands: one rule for each kind of operation."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from headwise.doctor.graph import Op, Value, flat
from headwise.doctor.sites import matrices

if TYPE_CHECKING:
    from headwise.see.walk.labels import Labels

Axis = tuple[int, ...]
Label = tuple[Axis, ...]


def spread(labels: Labels, op: Op) -> None:
    """Give each result of an operation its label."""
    name = op.name if op.name in _RULES else op.name.rstrip("_")
    rule = _RULES.get(name, _broadcast if op.pointwise or op.name in _ALIKE else _same)
    try:
        found = rule(labels, op)
    except (IndexError, TypeError, ValueError):
        found = [labels.fresh(value.shape) for value in op.outputs]
    for value, label in zip(op.outputs, found, strict=False):
        fits = len(label) == len(value.shape) and all(
            labels.sizes(axis) == size for axis, size in zip(label, value.shape, strict=True)
        )
        labels.put(value, label if fits else labels.fresh(value.shape))


def _broadcast(labels: Labels, op: Op) -> list[Label]:
    """Element by element, or alike: axes from the right; those that meet are one."""
    return [_over(labels, list(dict.fromkeys(op.inputs)), out.shape) for out in op.outputs]


def _over(labels: Labels, values: list[Value], shape: tuple[int, ...]) -> Label:
    found: list[Axis] = []
    values = sorted(values, key=lambda v: not v.sources)
    if len(values) == 1 and len(values[0].shape) != len(shape):
        return labels.fresh(shape)
    for place in range(-len(shape), 0):
        size = shape[place]
        axes = [labels[v][place] for v in values if len(v.shape) >= -place and v.shape[place] == size]
        if size == 1 or not axes:
            found.append(labels.axis(size))
            continue
        for other in axes[1:]:
            labels.unite(axes[0], other)
        found.append(axes[0])
    return tuple(found)


def _view(labels: Labels, op: Op) -> list[Label]:
    return [_regrouped(labels, labels[op.inputs[0]], op.out.shape)]


def _regrouped(labels: Labels, label: Label, shape: tuple[int, ...]) -> Label:
    """The same elements in another shape: atoms are merged and cut as the sizes ask, and else new."""
    todo = [atom for axis in label for atom in axis][::-1]
    found: list[Axis] = []
    for place, size in enumerate(shape):
        axis: list[int] = []
        got = 1
        while got < size:
            if not todo or size % got:
                return (*found, *labels.tear(shape[place:]))
            atom, need = todo.pop(), size // got
            if need % labels.size(atom):
                if labels.size(atom) % need:
                    return (*found, *labels.tear(shape[place:]))
                atom, rest = labels.split(atom, need)
                todo.append(rest)
            axis.append(atom)
            got *= labels.size(atom)
        found.append(labels.healed(tuple(labels.root(atom) for atom in axis)))
    return tuple(found)


def _same(labels: Labels, op: Op) -> list[Label]:
    first = labels[op.inputs[0]]
    return [first if v.shape == op.inputs[0].shape else labels.fresh(v.shape) for v in op.outputs]


def _permute(labels: Labels, op: Op) -> list[Label]:
    label = labels[op.inputs[0]]
    count = len(label)
    if op.name == "t":
        order = list(range(count))[::-1]
    elif op.name.startswith("transpose"):
        order = list(range(count))
        a, b = (int(x) % count for x in op.args[1:3])
        order[a], order[b] = order[b], order[a]
    else:
        order = [int(x) % count for x in op.args[1]]
    return [tuple(label[i] for i in order)]


def _as_complex(labels: Labels, op: Op) -> list[Label]:
    """Pairs of numbers made one complex number each: the axis of the pairs is remembered."""
    label = labels[op.inputs[0]]
    labels.pairs |= set(label[-1])
    return [label[:-1]]


def _as_real(labels: Labels, op: Op) -> list[Label]:
    """Pairs again, along the axis that they were made from where the halves tell it."""
    label = labels[op.inputs[0]]
    return [(*label, labels.partner(label[-1] if label else ()))]


def _unsqueeze(labels: Labels, op: Op) -> list[Label]:
    label = list(labels[op.inputs[0]])
    label.insert(int(op.args[1]) % (len(label) + 1), ())
    return [tuple(label)]


def _squeeze(labels: Labels, op: Op) -> list[Label]:
    value = op.inputs[0]
    label, count = labels[value], len(value.shape)
    given = op.args[1] if len(op.args) > 1 else range(count)
    gone = {int(x) % count for x in (given if isinstance(given, (list, tuple, range)) else [given])}  # pyright: ignore
    return [tuple(axis for i, axis in enumerate(label) if i not in gone or value.shape[i] != 1)]


def _expand(labels: Labels, op: Op) -> list[Label]:
    value, shape = op.inputs[0], op.out.shape
    label, new = labels[value], len(shape) - len(value.shape)
    old = [1] * new + list(value.shape)
    axes = [()] * new + list(label)
    pairs = zip(axes, old, shape, strict=True)
    return [tuple(axis if had == size else labels.axis(size) for axis, had, size in pairs)]


def _select(labels: Labels, op: Op) -> list[Label]:
    label = list(labels[op.inputs[0]])
    label.pop(_dim(op, 1))
    return [tuple(label)] * len(op.outputs)


def _unbind(labels: Labels, op: Op) -> list[Label]:
    return _select(labels, op)


def _slice(labels: Labels, op: Op) -> list[Label]:
    label = labels[op.inputs[0]]
    return [
        tuple(labels.narrow(axis, size) for axis, size in zip(label, out.shape, strict=True))
        for out in op.outputs
    ]


def _cat(labels: Labels, op: Op) -> list[Label]:
    values = [v for v in op.inputs if len(v.shape) == len(op.out.shape)]
    dim = _dim(op, 1)
    found: list[Axis] = []
    for place, size in enumerate(op.out.shape):
        axes = [labels[v][place] for v in values]
        if place == dim:
            found.append(labels.joined(axes, size))
            continue
        for other in axes[1:]:
            labels.unite(axes[0], other)
        found.append(axes[0])
    return [tuple(found)]


def _stack(labels: Labels, op: Op) -> list[Label]:
    label = list(_over(labels, list(op.inputs), op.inputs[0].shape))
    dim = int(op.args[1]) if len(op.args) > 1 else int(op.kwargs.get("dim", 0))
    label.insert(dim % (len(label) + 1), labels.axis(len(op.inputs)))
    return [tuple(label)]


def _index(labels: Labels, op: Op) -> list[Label]:
    """table[ids]: the axes of the ids, and what is left of the table's."""
    table, given = op.inputs[0], cast("list[Value | None]", op.args[1])
    if not given or given[0] is None or any(v is None for v in given):
        return _same(labels, op)
    ids = [v for v in given if v is not None and "bool" not in str(v.tensor.dtype)]
    if len(ids) != len(given):
        return [labels.fresh(op.out.shape)]
    rest = labels[table][len(given) :]
    shape = op.out.shape[: len(op.out.shape) - len(rest)]
    found = labels[ids[0]] if ids[0].shape == shape else _over(labels, ids, shape)
    return [(*found, *rest)]


def _index_select(labels: Labels, op: Op) -> list[Label]:
    label = list(labels[op.inputs[0]])
    dim = _dim(op, 1)
    if op.inputs[0].shape[dim] != op.out.shape[dim]:
        label[dim] = labels[op.inputs[1]][0] if len(op.inputs) > 1 else labels.axis(op.out.shape[dim])
    return [tuple(label)]


def _embedding(labels: Labels, op: Op) -> list[Label]:
    return [(*labels[op.inputs[1]], labels[op.inputs[0]][1])]


def _product(labels: Labels, op: Op) -> list[Label]:
    left, right = matrices(op)
    a, b = labels[left], labels[right]
    labels.unite(a[len(a) - 1], b[max(0, len(b) - 2)])
    batch = a[:-2] if len(a) > 2 else ()
    if len(a) > 2 and len(b) > 2:
        labels.unite(a[0], b[0])
        batch = (a[0] if len(a[0]) >= len(b[0]) else b[0],)
    found: list[Axis] = [*batch, *a[-2:-1], *b[-1:]] if len(b) > 1 else list(a[:-1])
    if op.name in {"addmm", "baddbmm", "addmv"} and float(op.kwargs.get("beta", 1)) != 0:
        added = labels[op.inputs[0]]
        for place in range(-len(added), 0):
            if op.inputs[0].shape[place] == op.out.shape[place]:
                labels.unite(found[len(found) + place], added[place])
    return [tuple(found)]


def _convolution(labels: Labels, op: Op) -> list[Label]:
    data, weight = labels[op.inputs[0]], labels[op.inputs[1]]
    is_transposed = len(op.args) > 6 and bool(op.args[6])  # then the weights are [in, out / groups, ...]
    own = weight[1] if is_transposed else weight[0]
    channels = own if labels.sizes(own) == op.out.shape[1] else labels.axis(op.out.shape[1])
    spatial = [
        axis if had == size and size != 1 else labels.axis(size)
        for axis, had, size in zip(data[2:], op.inputs[0].shape[2:], op.out.shape[2:], strict=True)
    ]
    return [(data[0], channels, *spatial)]


def _reduce(labels: Labels, op: Op) -> list[Label]:
    value = op.inputs[0]
    label, found = labels[value], list[Label]()
    given = op.args[1] if len(op.args) > 1 else op.kwargs.get("dim")
    for out in op.outputs:
        if len(out.shape) == len(value.shape):
            kept = zip(label, value.shape, out.shape, strict=True)
            found.append(tuple(axis if had == size else labels.axis(size) for axis, had, size in kept))
            continue
        dims = cast("list[int]", given if isinstance(given, (list, tuple)) else [given])
        gone = {int(x) % len(label) for x in dims} if given is not None else set(range(len(label)))
        found.append(tuple(axis for i, axis in enumerate(label) if i not in gone))
    return found


def _norm(labels: Labels, op: Op) -> list[Label]:
    label = labels[op.inputs[0]]
    for weight in op.inputs[1:3]:
        if len(weight.shape) == 1 and op.name == "native_layer_norm":
            labels.unite(label[-1], labels[weight][0])
    return [label if v.shape == op.inputs[0].shape else labels.fresh(v.shape) for v in op.outputs]


def _update(labels: Labels, op: Op) -> list[Label]:
    known = next((v for v in op.inputs if v.shape == op.out.shape), None)
    return [labels[known] if known is not None else labels.fresh(op.out.shape)]


def _dim(op: Op, place: int) -> int:
    """The axis that an operation names, counted from the front."""
    count = len(flat_shape(op))
    given: Any = op.args[place] if len(op.args) > place else op.kwargs.get("dim", 0)
    return int(given) % count


def flat_shape(op: Op) -> tuple[int, ...]:
    """The shape of what an operation reads first."""
    return op.inputs[0].shape if op.inputs else tuple(flat(op.args)[0].shape)


def _split(labels: Labels, op: Op) -> list[Label]:
    return _slice(labels, op)


def _rows(labels: Labels, op: Op) -> list[Label]:
    """Operations on images: each row by itself, and axes of places that stay as long are the same."""
    label, shape = labels[op.inputs[0]], op.inputs[0].shape
    found: list[Label] = []
    for out in op.outputs:
        kept = [
            label[n] if n == 0 or (len(shape) == len(out.shape) and shape[n] == size) else labels.axis(size)
            for n, size in enumerate(out.shape)
        ]
        found.append(tuple(kept))
    return found


_ALIKE = {"copy", "copy_", "lerp", "where", "addcmul", "addcdiv", "clamp", "pow", "fill", "isin"}
_RULES: dict[str, Callable[[Labels, Op], list[Label]]] = {
    "update": _update, "embedding": _embedding, "convolution": _convolution, "index": _index,
    "index_select": _index_select, "cat": _cat, "stack": _stack, "expand": _expand, "select": _select,
    "unbind": _unbind, "unsqueeze": _unsqueeze, "squeeze": _squeeze, "native_layer_norm": _norm,
    "_fused_rms_norm": _norm, "view_as_complex": _as_complex, "view_as_real": _as_real,
    **dict.fromkeys(("im2col", "col2im", "max_pool2d_with_indices", "avg_pool2d", "_adaptive_avg_pool2d",
                     "upsample_bilinear2d", "upsample_bicubic2d", "upsample_nearest2d", "pixel_shuffle",
                     "pixel_unshuffle", "topk", "sort", "native_group_norm", "native_batch_norm",
                     "_native_batch_norm_legit", "_native_batch_norm_legit_no_training",
                     "cudnn_batch_norm"), _rows),
    **dict.fromkeys(("view", "_unsafe_view", "_reshape_alias", "view_as"), _view),
    **dict.fromkeys(("permute", "transpose", "t"), _permute),
    **dict.fromkeys(("slice", "split", "split_with_sizes", "chunk", "unsafe_chunk", "unsafe_split",
                     "unsafe_split_with_sizes", "narrow"), _split),
    **dict.fromkeys(("mm", "bmm", "addmm", "baddbmm", "mv", "addmv"), _product),
    **dict.fromkeys(("clone", "detach", "alias", "_to_copy", "contiguous", "lift_fresh", "flip", "roll",
                     "_softmax", "_safe_softmax", "_log_softmax", "cumsum", "native_dropout", "tril",
                     "triu"), _same),
    **dict.fromkeys(("sum", "mean", "amax", "amin", "max", "min", "var", "std", "var_mean", "std_mean",
                     "linalg_vector_norm", "norm", "any", "all", "argmax", "logsumexp"), _reduce),
}  # fmt: skip
