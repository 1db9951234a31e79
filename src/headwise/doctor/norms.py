"""Normalisations of a recording: those of torch, and those written by hand, a value divided by its size.

A norm written by hand is a product or quotient of a value with something computed from that value alone by
a reduction, which does not ask for the value's sign (so no softmax) and falls as the value grows. What a norm
does is measured: other numbers are put in through `Recording.replay`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from headwise.doctor.blame import constructed
from headwise.doctor.check import Place
from headwise.doctor.follow import follow, indices
from headwise.doctor.graph import Op, Recording, Value
from headwise.doctor.probe import Probe
from headwise.doctor.sites import is_product, matrices

NormKind = Literal["layer", "rms", "group", "batch", "instance", "written"]

TORCHS: dict[str, NormKind] = {
    "native_layer_norm": "layer", "_fused_rms_norm": "rms", "native_group_norm": "group",
    "native_batch_norm": "batch", "_native_batch_norm_legit": "batch", "cudnn_batch_norm": "batch",
    "_native_batch_norm_legit_no_training": "batch", "_batch_norm_with_update": "batch",
    "_batch_norm_no_update": "batch", "_native_batch_norm_legit_functional": "batch",
}  # fmt: skip
REDUCTIONS = {"mean", "sum", "var", "std", "var_mean", "std_mean", "linalg_vector_norm", "norm"}
REACH = 16  # steps from a quotient back to what it normalises; RMSNorm with casts takes 7


@dataclass(eq=False)
class Norm:
    """One normalisation: `out` is the normalised value, before or after the learned gain as the code has it.

    gains: names of the parameters that multiply it. statistics: the reductions of one written by hand.
    """

    op: Op
    entered: Value
    out: Value
    kind: NormKind
    gains: tuple[str, ...] = ()
    statistics: tuple[Op, ...] = ()

    @property
    def module(self) -> str:
        return self.op.module

    @property
    def place(self) -> Place | None:
        return self.op.place


def carried(op: Op) -> Value | None:
    """The one computed operand that an operation carries on, element by element (a move, a bias, a scale)."""
    if not (op.moves or op.pointwise or op.name == "update"):
        return None
    computed = {v for v in op.inputs if v.sources and v.tensor.is_floating_point()}
    return next(iter(computed)) if len(computed) == 1 else None


def norms(probe: Probe) -> list[Norm]:
    """Every norm of the base run, in order."""
    return probe.memo("norms", lambda: find_norms(probe.base.record))


@torch.no_grad()
def find_norms(record: Recording) -> list[Norm]:
    """Every norm of a recording, in order."""
    found: list[Norm] = []
    for op in record.ops:
        if not op.outputs:
            continue
        if op.name in TORCHS:
            if op.inputs and op.inputs[0].sources:
                found.append(Norm(op, op.inputs[0], op.out, _torch_kind(op), _torch_gains(op)))
        elif op.name.rstrip("_") in {"mul", "div", "sub"} and len(op.inputs) == 2:
            found.extend(_written(record, op))
    return found


def _torch_kind(op: Op) -> NormKind:
    """An instance norm runs as a batch norm over a view of [1, B * C, ...]."""
    kind, view = TORCHS[op.name], op.inputs[0].op
    if kind == "batch" and op.inputs[0].shape[0] == 1 and view is not None and view.moves:
        return "batch" if view.inputs[0].shape[0] == 1 else "instance"
    return kind


def _torch_gains(op: Op) -> tuple[str, ...]:
    """Its own gain; where it has none, the parameter that its result is multiplied with."""
    own = op.inputs[1] if len(op.inputs) > 1 and op.inputs[1].trained else None
    return tuple(dict.fromkeys(_leaves([own]) if own is not None else _gains_after(op.out)))


def _written(record: Recording, op: Op) -> Iterator[Norm]:
    a, b = op.inputs
    for whole, size in ((a, b), (b, a)) if op.name.startswith("mul") else ((a, b),):
        statistics = _reductions(size, whole.tensor.numel())
        if not statistics:
            continue
        entered = _common(whole, statistics)
        if entered is None or entered.shape != op.out.shape:
            continue
        norm = Norm(op, entered, op.out, "written", (), tuple(statistics))
        if _normalises(record, norm, size):
            norm.gains = _gains(norm)
            yield norm
            return


def _reductions(value: Value, whole: int) -> list[Op]:
    """The reductions that a small value comes from by element-wise steps; none where others take part."""
    found: list[Op] = []
    todo, seen = [value], set[Value]()
    while todo:
        current = todo.pop()
        op = current.op
        if current in seen or op is None or not current.sources:
            continue
        seen.add(current)
        if len(seen) > REACH:
            return []
        if op.name in REDUCTIONS:
            if op not in found:
                found.append(op)
            continue
        is_small = current.tensor.numel() < whole or op.name == "expand"
        if not is_small or not (op.moves or op.pointwise):
            return []
        todo.extend(v for v in op.inputs if v.tensor.is_floating_point())
    return found


def _chain(value: Value) -> list[Value]:
    """A value and what it is computed from, as long as one operand of its size takes part: latest first."""
    chain = [value]
    for _ in range(REACH):
        op = chain[-1].op
        if op is None or not (op.moves or op.pointwise):
            break
        size = chain[-1].tensor.numel()
        whole = {
            v for v in op.inputs if v.sources and v.tensor.numel() == size and v.tensor.is_floating_point()
        }
        if len(whole) != 1:
            break
        chain.append(whole.pop())
    return chain


def _common(whole: Value, statistics: list[Op]) -> Value | None:
    """What both the normalised value and its statistics come from; before its mean was taken off."""
    chain = _chain(whole)
    below = [set(_chain(op.inputs[0])) for op in statistics]
    found = next((v for v in chain if any(v in each for each in below)), None)
    if found is None:
        return None
    centred = found.op
    if centred is not None and centred.name.rstrip("_") == "sub" and len(centred.inputs) == 2:
        first, second = centred.inputs
        if any(op.inputs[0] in _chain(first) for op in _reductions(second, first.tensor.numel())):
            return first
    return found


def _normalises(record: Recording, norm: Norm, size: Value) -> bool:
    """Is the divisor blind to the sign, and does the result not simply grow with what comes in?

    What is subtracted (and is no mean) must not grow: 'x - mean / std' meant '(x - mean) / std'.
    """
    noise = like_noise(norm.entered)
    try:
        there, far, back = (
            record.replay({norm.entered: x}, [size, norm.out]) for x in (noise, 100 * noise, -noise)
        )
    except RuntimeError:
        return False
    if norm.op.name.startswith("sub"):
        return len(norm.statistics) > 1 and torch.allclose(there[0], far[0], rtol=0.05)
    if not torch.allclose(there[0], back[0], rtol=1e-3, atol=1e-6):
        return False
    growth = rms(far[1]) / max(rms(there[1]), 1e-30)
    return growth < 10 or growth > 1000


def _gains(norm: Norm) -> tuple[str, ...]:
    """The parameters that multiply the normalised value, in the quotient's own line or right after it."""
    names: list[str] = []
    for value in _chain(norm.op.inputs[0])[:4]:
        if value is norm.entered or value.op is None:
            break
        names.extend(_factors(value.op))
    return tuple(dict.fromkeys([*names, *_gains_after(norm.out)]))


def _gains_after(value: Value) -> list[str]:
    return [name for op in factors_after(value) for name in _factors(op)]


def factors_after(value: Value) -> list[Op]:
    """The operations right after a value that multiply it (a gain, a constant), and the moves between."""
    found: list[Op] = []
    for _ in range(4):
        users = [op for op in value.users if carried(op) is value and op.outputs]
        if len(users) != 1 or not (users[0].moves or users[0].name.rstrip("_") in {"mul", "div"}):
            break
        found.append(users[0])
        value = users[0].out
    return found


def _factors(op: Op) -> Iterator[str]:
    """The parameters that an operation multiplies with."""
    if op.name.rstrip("_") == "mul":
        yield from _leaves([v for v in op.inputs if v.trained and not v.sources])


def _leaves(todo: list[Value]) -> Iterator[str]:
    while todo:
        value = todo.pop()
        if value.op is not None:
            todo.extend(v for v in value.op.inputs if v.trained and not v.sources)
        elif value.name.startswith("parameter"):
            yield value.name.removeprefix("parameter ")


# What a norm does, measured


def like_noise(value: Value) -> Tensor:
    """Random numbers of unit size in a value's shape and type, the same each time."""
    generator = torch.Generator().manual_seed(0)
    return torch.randn(value.shape, generator=generator, dtype=torch.float64).to(value.tensor)


def rms(tensor: Tensor) -> float:
    return float(tensor.detach().double().square().mean().sqrt())


@torch.no_grad()
def ask(record: Recording, norm: Norm, entered: Tensor) -> Tensor:
    """The norm's result if this had entered."""
    return record.replay({norm.entered: entered.to(norm.entered.tensor)}, [norm.out])[0]


def vectors(norm: Norm) -> Tensor | None:
    """Which elements of the norm's result are one position's vector: [positions, width] of indices into it.

    Told by the next product with weights, which reads them together; None where there is none.
    """
    todo: list[tuple[Value, Tensor]] = [(norm.out, indices(norm.out))]
    seen = {norm.out}
    while todo:
        value, at = todo.pop(0)
        for op in value.users:
            if is_product(op):
                a, b = matrices(op)
                other = b if value is a else a
                if other.trained and not other.sources:
                    rows = at if value is a else at.mT
                    return rows.reshape(-1, rows.shape[-1])
            elif (op.moves or op.pointwise) and op.outputs and len(seen) < 200:
                for out in op.outputs:
                    moved = follow(op, value, at, out) if out not in seen else None
                    if moved is not None:
                        seen.add(out)
                        todo.append((out, moved))
    return None


def conv_before(norm: Norm) -> bool:
    """Does it normalise what a convolution gives (stems, conformers), where other rules hold?"""
    value = norm.entered
    for _ in range(REACH):
        op = value.op
        if op is None:
            return False
        if op.name == "convolution":
            return True
        before = carried(op)
        if before is None and op.name.rstrip("_") in {"mul", "glu"} and len(op.inputs) == 2:
            before = op.inputs[0]  # a gated unit after the convolution
        if before is None or (op.name == "add" and len(op.inputs) == 2):
            return False
        value = before
    return False


def written_at(probe: Probe, op: Op) -> Place | None:
    """The line that chose an operation: where a container was given its module, else where it is called."""
    path = op.module
    if is_torchs(probe, path) and is_torchs(probe, path.rpartition(".")[0]):
        return constructed(probe, path) or op.place
    return op.place


def is_torchs(probe: Probe, path: str) -> bool:
    """Is the module at this path of a class of torch's own?"""
    try:
        module: nn.Module = probe.module_at(path)
    except AttributeError:
        return False
    return bool(path) and type(module).__module__.startswith("torch.nn")
