"""Where attention happens: product of queries and keys, softmax, product with values, in one canonical form.

However it is written (matmul, einsum, scaled_dot_product_attention, nn.MultiheadAttention, heads folded into
the batch, time first, keys transposed), a recorded site comes down to

    raw [N, Tq, Tk] = q [N, Tq, Dh] k^T     scores = what the softmax reads     mixed = weights v [N, Tk, Dv]

where N runs over batch rows and heads in whatever order the code has. The form is found by sending indices,
not numbers, through the operations that only move elements.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from headwise.doctor.check import Place
from headwise.doctor.follow import FILLS, follow, indices, leads, through, unfolded
from headwise.doctor.trace import Op, Recording, Value

__all__ = [
    "HIDDEN", "REACH", "Site", "attention_sites", "constant", "factor_before", "follow", "is_product",
    "matrices", "softmaxes", "upstream",
]  # fmt: skip

SOFTMAXES = {"_softmax", "_safe_softmax"}
REACH = 40  # operations between a product and its softmax; the longest seen in public models is 12
HIDDEN = -80.0  # a bias below this leaves exp(-80) = 1e-35 of a weight: nothing in any precision


@dataclass(eq=False)
class Site:
    """One attention, in canonical form. `*_value` is the recorded operand, `*_at` where its elements went."""

    index: int
    product: Op
    softmax: Op
    mix: Op
    q_value: Value
    k_value: Value
    v_value: Value
    q_at: Tensor
    k_at: Tensor
    v_at: Tensor
    raw_at: Tensor
    weights_at: Tensor
    path: tuple[Op, ...]
    scores_value: Value
    weights_value: Value
    after: tuple[Op, ...] = ()

    @cached_property
    def q(self) -> Tensor:
        return self.take(self.q_value.tensor, self.q_at)

    @cached_property
    def k(self) -> Tensor:
        return self.take(self.k_value.tensor, self.k_at)

    @cached_property
    def v(self) -> Tensor:
        return self.take(self.v_value.tensor, self.v_at)

    @cached_property
    def raw(self) -> Tensor:
        return torch.einsum("nid,njd->nij", self.q, self.k)

    @cached_property
    def scores(self) -> Tensor:
        return self.take(self.scores_value.tensor, self.weights_at)

    @cached_property
    def weights(self) -> Tensor:
        return self.take(self.weights_value.tensor, self.weights_at)

    @staticmethod
    def take(tensor: Tensor, at: Tensor) -> Tensor:
        """The elements of an operand (or of anything of its shape) in canonical order."""
        return tensor.reshape(-1)[at]

    @property
    def d_head(self) -> int:
        return self.q_at.shape[-1]

    @property
    def shape(self) -> tuple[int, int, int]:
        """N, Tq, Tk"""
        n, rows, columns = self.weights_at.shape
        return n, rows, columns

    @cached_property
    def inner_scale(self) -> float:
        """The constant factor between the product and the softmax."""
        return _constant_factor(self.path, self.product)

    @cached_property
    def scale(self) -> float:
        """The constant factor between q k^T, as projected, and the softmax: 1/sqrt(d_head) in the paper."""
        return self.inner_scale * factor_before(self.q_value)[0] * factor_before(self.k_value)[0]

    @cached_property
    def has_learned_scale(self) -> bool:
        """Does a factor that is trained or computed from the data take part (QK-norm, cosine attention)?"""
        for op in self.path:
            if op.name.rstrip("_") in {"mul", "div"}:
                others = [v for v in op.inputs if v.tensor.numel() < max(2, op.out.tensor.numel())]
                if any(v.trained or v.sources for v in others if v.tensor.numel() <= self.shape[0]):
                    return True
        return factor_before(self.q_value)[1] or factor_before(self.k_value)[1]

    @cached_property
    def bias(self) -> Tensor:
        """What was added to (or put in place of) the scaled product: masks, position biases. [N, Tq, Tk]"""
        return self.scores - self.inner_scale * self.raw

    @cached_property
    def hidden(self) -> Tensor:
        """True where a query may not look, by the mask actually in force. [N, Tq, Tk]"""
        return torch.isneginf(self.scores) | (self.bias < HIDDEN)

    @cached_property
    def allowed(self) -> Tensor:
        return ~self.hidden

    @cached_property
    def masks(self) -> tuple[tuple[Op, Value], ...]:
        """The operations between product and softmax that add or fill, each with its other operand."""
        return tuple(_masks(self))

    @property
    def module(self) -> str:
        return self.softmax.module or self.mix.module

    @property
    def place(self) -> Place | None:
        return self.softmax.place


def attention_sites(record: Recording, *, with_learned: bool = False) -> list[Site]:
    """Every attention of the recording, in order; with_learned: also of queries that are not of the input."""
    found: list[Site] = []
    for op, score, weight in softmaxes(record):
        site = _site(len(found), op, score, weight)
        if site is None and with_learned:
            site = _site(len(found), op, score, weight, with_learned=True)
        if site is not None:
            found.append(site)
    return found


def unread(record: Recording, sites: list[Site]) -> list[Op]:
    """The softmaxes that weigh something, but in no attention that was found: heads mixed, diagonals."""
    known = {site.softmax for site in sites}
    return [op for op, _, weight in softmaxes(record) if op not in known and _forward(weight) is not None]


def softmaxes(record: Recording) -> Iterator[tuple[Op, Value, Value]]:
    """Each softmax with what it reads and what it gives, written by hand (exp, sum, divide) or not."""
    for op in record.ops:
        if op.name in SOFTMAXES and op.outputs:
            yield op, op.inputs[0], op.out
        elif op.name in {"div", "div_"} and len(op.inputs) == 2 and op.outputs:
            top, bottom = op.inputs
            exponent = _back(top, {"exp"})
            total = _back(bottom, {"sum"})
            if exponent is None or total is None or total.inputs[0] not in {exponent.out, top}:
                continue
            if bottom.tensor.numel() < top.tensor.numel():
                yield op, _before_shift(exponent.inputs[0]), op.out


def _before_shift(value: Value) -> Value:
    """The scores before the maximum was subtracted (exp(s - max))."""
    op = value.op
    if op is not None and op.name == "sub" and len(op.inputs) == 2 and _back(op.inputs[1], {"max", "amax"}):
        return op.inputs[0]
    return value


def _back(value: Value, names: set[str]) -> Op | None:
    """The operation of that name behind moves and small guards (a clamp, an added epsilon)."""
    for _ in range(6):
        op = value.op
        if op is None:
            return None
        if op.name in names:
            return op
        if op.moves or op.name in {"clamp", "clamp_min", "add", "update"}:
            value = op.inputs[0]
            continue
        return None
    return None


def _site(index: int, softmax: Op, score: Value, weight: Value, *, with_learned: bool = False) -> Site | None:
    forward = _forward(weight)
    backward = _backward(score, with_learned)
    if forward is None or backward is None:
        return None
    (after, mix, side), (path, product) = forward, backward
    a, b = matrices(product)
    if not (a.sources or b.sources):
        return None
    went = through(weight, after)
    came = through(product.out, path)
    if went is None or came is None or came.shape != weight.tensor.shape:
        return None
    left, right = matrices(mix)
    weights_at = _three(went) if side == 0 else _three(went).mT
    v_at = _three(indices(right)) if side == 0 else _three(indices(left)).mT
    v_value = right if side == 0 else left
    weights_at = weights_at - 1
    if (weights_at < 0).any() or v_at.shape[0] != weights_at.shape[0]:
        return None
    weights_at, v_at = unfolded(weights_at, v_at, weight)
    raw_at = came.reshape(-1)[weights_at] - 1
    kept = (raw_at >= 0).all(0).all(0)  # a column of its own (an attention sink) is no key
    if not bool(kept.all()):
        if not bool(kept.any()):
            return None
        raw_at, weights_at, v_at = raw_at[..., kept], weights_at[..., kept], v_at[:, kept]
    rows, columns = (1, 1, *product.out.shape)[-2:]
    batch, r, c = raw_at // (rows * columns), raw_at // columns % rows, raw_at % columns
    straight = _varies(r, 1) or (not _varies(c, 1) and _varies(c, 2)) or rows == columns == 1
    left_at, right_at = _three(indices(a)), _three(indices(b)).mT  # shaped [N', R, Dh], [N', C, Dh]
    if left_at.shape[-1] != right_at.shape[-1]:
        return None
    first, second = (left_at, right_at) if straight else (right_at, left_at)
    along, across = (r, c) if straight else (c, r)
    q_value, k_value = (a, b) if straight else (b, a)
    if not k_value.sources:  # a product with weights (a router, a readout), not with keys
        return None
    q_at = first[batch[:, :, 0] % first.shape[0], along[:, :, 0]] - 1
    if with_learned and not q_value.sources and q_at.shape[1] > 1 and _is_weight(q_value):
        return None  # a layer whose features are normalised over the tokens, as in linear attention
    k_at = second[batch[:, 0] % second.shape[0], across[:, 0]] - 1
    return Site(
        index, product, softmax, mix, q_value, k_value, v_value, q_at, k_at, v_at - 1, raw_at, weights_at,
        path, score, weight, after,
    )  # fmt: skip


def _is_weight(value: Value) -> bool:
    """Is it a parameter as it is, but for moves?"""
    while value.op is not None and value.op.moves:
        value = value.op.inputs[0]
    return value.op is None


def matrices(op: Op) -> tuple[Value, Value]:
    """The two factors of a product."""
    if op.name in {"baddbmm", "addmm", "addbmm", "addmv"}:
        return op.inputs[1], op.inputs[2]
    return op.inputs[0], op.inputs[1]


def is_product(op: Op) -> bool:
    return op.name in {"bmm", "mm", "baddbmm", "addmm", "mv", "addmv"}


def upstream(value: Value) -> Iterator[Op]:
    """The operations that made a value, the last first: back along the largest operand the inputs reach."""
    for _ in range(REACH):
        op = value.op
        if op is None:
            return
        yield op
        if not op.inputs:
            return
        value = max(op.inputs, key=lambda v: v.tensor.numel() if v.sources else -1)


def _forward(weight: Value) -> tuple[tuple[Op, ...], Op, int] | None:
    """From a softmax through moves and element-wise steps to the product with the values."""
    todo: list[tuple[Value, tuple[Op, ...]]] = [(weight, ())]
    seen = {weight}
    while todo:
        value, path = todo.pop(0)
        if len(path) > REACH:
            continue
        for op in value.users:
            if is_product(op):
                a, b = matrices(op)
                if value is a or value is b:
                    other = b if value is a else a
                    if other.sources or not other.trained:
                        return path, op, 0 if value is a else 1
            elif _passes(op) and op.outputs:
                for out in op.outputs:
                    if out not in seen:
                        seen.add(out)
                        todo.append((out, (*path, op)))
    return None


def _backward(score: Value, with_learned: bool) -> tuple[tuple[Op, ...], Op] | None:
    """From a softmax back through masks and factors to the product of queries and keys."""
    todo: list[tuple[Value, tuple[Op, ...]]] = [(score, ())]
    seen = {score}
    while todo:
        value, path = todo.pop(0)
        op = value.op
        if op is None or len(path) > REACH:
            continue
        if is_product(op):
            a, b = matrices(op)
            if (a.sources and b.sources) or not (a.trained and b.trained) or with_learned:
                return path, op
            continue
        if _passes(op):
            wide = [v for v in op.inputs if v.tensor.is_floating_point() and v not in seen]
            for each in sorted(wide, key=lambda v: -v.tensor.numel()):
                seen.add(each)
                todo.append((each, (op, *path)))
    return None


def _passes(op: Op) -> bool:
    return op.moves or op.pointwise or op.name == "update" or op.name in FILLS


def _three(tensor: Tensor) -> Tensor:
    return tensor if tensor.dim() == 3 else tensor.reshape((1,) * (3 - tensor.dim()) + tuple(tensor.shape))


def _varies(index: Tensor, axis: int) -> bool:
    return index.shape[axis] > 1 and bool((index.narrow(axis, 0, 1) != index).any())


def constant(value: Value) -> float | None:
    """The one number a tensor holds, if it is a constant of one element that is neither trained nor data."""
    if value.tensor.numel() == 1 and not value.trained and not value.sources:
        return float(value.tensor.item())
    return None


def _factor(op: Op, along: Value) -> float | None:
    """The constant that a mul/div multiplies one operand by; None where it is no constant."""
    name = op.name.rstrip("_")
    if name not in {"mul", "div"}:
        return None
    others = [v for v in op.inputs if v is not along]
    if others:
        number = constant(others[0])
        if op.inputs[0] is not along and name == "div":
            return None
    else:
        numbers = op.numbers()
        number = numbers[-1] if numbers else None
    if number is None or number == 0:
        return None
    return number if name == "mul" else 1 / number


def _constant_factor(path: tuple[Op, ...], product: Op) -> float:
    factor = 1.0
    if product.name in {"baddbmm", "addmm"}:
        factor = float(product.kwargs.get("alpha", 1))
    current = product.out
    for op in path:
        factor *= _factor(op, current) or 1.0
        current = next((o for o in op.outputs if leads(o, path, op)), op.outputs[0])
    return factor


def factor_before(value: Value) -> tuple[float, bool]:
    """The constant factor an operand was multiplied by since its projection, and was a learned one too?"""
    factor, learned = 1.0, False
    for _ in range(REACH):
        op = value.op
        if op is None:
            break
        if op.name == "update" or (op.moves and op.name not in {"cat", "stack", "index"}):
            value = op.inputs[0]
            continue
        if op.name.rstrip("_") in {"mul", "div"}:
            main = max(op.inputs, key=lambda v: v.tensor.numel())
            number = _factor(op, main)
            if number is not None:
                factor *= number
                value = main
                continue
            others = [v for v in op.inputs if v is not main]
            if others and others[0].trained and others[0].tensor.numel() < main.tensor.numel():
                learned = True
                value = main
                continue
        break
    return factor, learned


def _masks(site: Site) -> Iterator[tuple[Op, Value]]:
    current = site.product.out
    if site.product.name == "baddbmm" and float(site.product.kwargs.get("beta", 1)) != 0:
        yield site.product, site.product.inputs[0]
    for op in site.path:
        name = op.name.rstrip("_")
        if name in {"add", "sub", "where", "masked_fill", "minimum", "index_put"} or op.name == "update":
            for other in op.inputs:
                if other is not current and other.tensor.numel() > 1:
                    yield op, other
        current = next((o for o in op.outputs if leads(o, site.path, op)), op.outputs[0])
