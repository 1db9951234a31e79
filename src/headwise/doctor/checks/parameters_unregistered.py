"""Look for weights that the pass reads and model.parameters() does not give: lists, closures, tensors."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor, nn

from headwise.doctor.blame import related
from headwise.doctor.check import Found, Place, Tried, check
from headwise.doctor.made import assigned_at
from headwise.doctor.probe import Probe
from headwise.doctor.trace import Value
from headwise.doctor.weights import Unregistered, behind_moves, drawn, factors, named, unregistered


@check(
    id="HW603",
    title="Weights that the model uses are not among its parameters",
    why="The optimizer never sees them, checkpoints leave them out, and .to(device) leaves them behind.",
    fix="Hold layers in nn.ModuleList or nn.ModuleDict, and matrices as nn.Parameter (or as a buffer, "
    "if fixed).",
    needs={"run"},
    explains={"parameters-not-in-optimizer", "gradient-cut", "cannot-memorise"},
    quick=True,
)
def parameters_unregistered(probe: Probe) -> Iterator[Found | Tried]:
    record = probe.base.record
    loose = [
        v for v in record.values if v.op is None and not v.name and v.users and v.tensor.is_floating_point()
    ]
    trained = [v for v in loose if v.tensor.requires_grad]
    held = [
        each
        for each in unregistered(probe.user_model)
        if any(_is(v, t) for v in trained for t in each.tensors)
    ]
    if held:
        first = held[0]
        same = [h for h in held if h.attribute == first.attribute]
        place = assigned_at(probe.module_at(first.owner), first.attribute)
        count = len([t for h in held for t in h.tensors])
        numbers = sum(t.numel() for h in held for t in h.tensors)
        what = ", ".join(h.where for h in same[:3]) + (" ..." if len(same) > 3 else "")
        owner = first.owner or type(probe.user_model).__name__
        yield Found(
            f"{what} of {owner} {'is' if len(same) == 1 else 'are'} read by the pass, but no part of "
            "model.parameters(): "
            f"{count} tensors, {numbers:,} weights",
            at=place or _made(probe, first.tensors[0]),
            module=first.owner,
            related=tuple(related(_used(trained, first), "and used here", place)),
            severity="warning" if _in_optimizer(probe, [t for h in held for t in h.tensors]) else None,
        )
        return
    elsewhere = [v for v in trained if not _in_optimizer(probe, [v.tensor])]
    if elsewhere and not any(v.tensor.grad_fn is not None for v in elsewhere):
        value = elsewhere[0]
        used = value.users[0].place
        place = _made(probe, value.tensor) or used
        yield Found(
            f"{len(elsewhere)} trainable tensors that the pass reads belong to no module of the model, "
            "the first "
            f"{list(value.shape)} in {value.users[0].name}",
            at=place,
            module=value.users[0].module,
            related=tuple(related([used], "used here", place)),
        )
        return
    yield from _bare(probe, loose)
    yield Tried(f"looked at {len(record.values)} tensors of the pass for weights without an owner")


def _bare(probe: Probe, loose: list[Value]) -> Iterator[Found]:
    """Random matrices without gradient that data are multiplied with, neither parameters nor buffers."""
    for op in probe.base.record.ops:
        for mine, other in (pair := factors(op) or ()) and (pair, pair[::-1]):
            leaf = behind_moves(mine)
            if leaf not in loose or leaf.tensor.requires_grad or leaf.tensor.dim() != 2 or not other.sources:
                continue
            is_own = isinstance(leaf.tensor, nn.Parameter)  # frozen, and hidden on purpose
            if is_own or leaf.tensor.numel() < 64 or not drawn(leaf.tensor).is_random:
                continue
            owner, name, held = _attribute(probe, leaf.tensor)
            if not _was_drawn(probe, held):
                continue
            place = assigned_at(probe.module_at(owner), name) if name else None
            yield Found(
                f"{name or 'a matrix'} {list(leaf.shape)} looks drawn at random and multiplies the "
                "data, but is neither a "
                "parameter nor a buffer: it will never be trained or saved",
                at=place or op.place,
                module=owner or op.module,
                related=tuple(related([op.place], "used here", place)),
                severity="warning",
            )


def _was_drawn(probe: Probe, tensor: Tensor) -> bool:
    """Do the lines that made it draw random numbers, and leave them as they are but for their size?"""
    if probe.making is None:
        return False
    ops = [op for _, op in (*probe.making.tensor(tensor), *probe.making.ancestry(tensor))]
    names = {op.split(".")[1] if "." in op else op for op in ops}
    return any(n.startswith(("rand", "normal", "uniform")) for n in names) and not any(
        "linalg" in n for n in names
    )


def _attribute(probe: Probe, tensor: Tensor) -> tuple[str, str, Tensor]:
    """The plain attribute of the user's model that holds these numbers: owner, name, tensor."""
    for path, module in named(probe.user_model):
        for name, value in vars(module).items():
            if (
                isinstance(value, Tensor)
                and value.shape == tensor.shape
                and bool((value.to(tensor) == tensor).all())
            ):
                return path, name, value
    return "", "", tensor


def _is(value: Value, tensor: Tensor) -> bool:
    """The copy's tensor stands for the user's: same shape, same numbers."""
    mine = value.tensor.detach()
    return mine.shape == tensor.shape and bool((mine == tensor.detach().to(mine)).all())


def _used(trained: list[Value], held: Unregistered) -> list[Place | None]:
    return [v.users[0].place for v in trained if any(_is(v, t) for t in held.tensors)][:1]


def _made(probe: Probe, tensor: Tensor) -> Place | None:
    lines = probe.making.tensor(tensor) if probe.making is not None else ()
    return lines[0][0] if lines else None


def _in_optimizer(probe: Probe, tensors: list[Tensor]) -> bool:
    groups = getattr(probe.subject.optimizer, "param_groups", ())
    held = {id(p) for group in groups for p in group["params"]}
    return bool(held) and all(id(t) in held for t in tensors)
