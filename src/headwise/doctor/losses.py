"""What the loss teaches: which label meets which row of logits, and where in the user's code they meet."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from headwise.doctor.adapt import flatten
from headwise.doctor.batch import Batch
from headwise.doctor.blame import callers, made_places
from headwise.doctor.check import NotApplicable, Place
from headwise.doctor.follow import follow, indices
from headwise.doctor.probe import Probe
from headwise.doctor.trace import Op, Recording, Value

NLL = {"nll_loss_forward", "nll_loss2d_forward", "nll_loss", "nll_loss2d"}
CUTS = ("slice", "narrow", "split", "chunk")
HAND_OVER = "subject"  # the function that hands things to the doctor: no one's mistake is written there first


@dataclass(frozen=True)
class Pairs:
    """Row r of a cross-entropy: logits of (row, time), a label of (label_row, label_time) and its value."""

    row: Tensor
    time: Tensor
    label_row: Tensor
    label_time: Tensor
    label: Tensor
    op: Op


def pairs(probe: Probe) -> Pairs:
    """Which label the loss puts beside which row of logits, exactly, for [B, T, V] logits and [B, T] targets.

    Indices are sent from the logits and from the targets to the cross-entropy. Raises NotApplicable where the
    loss is no cross-entropy of token labels.
    """
    return probe.memo("pairs", lambda: _pairs(probe))


def _pairs(probe: Probe) -> Pairs:
    record, _, logits = probe.recorded_loss()
    targets = probe.subject.targets
    cube = None if logits is None else _in_rows(probe, logits.tensor)
    if not isinstance(targets, Tensor) or targets.dim() != 2 or logits is None or cube is None:
        raise NotApplicable("targets are no [B, T] labels of [B, T, V] logits")
    nll = next((op for op in record.ops if op.name in NLL), None)
    goal = _goal(probe, record)
    if nll is None or goal is None:
        raise NotApplicable("the loss is no cross-entropy of the targets")
    scores = _carried(record, logits, nll.inputs[0])
    labels = _carried(record, goal, nll.inputs[1])
    if scores is None or labels is None:
        raise NotApplicable("the way from logits and targets to the cross-entropy could not be followed")
    scores = scores.movedim(1, -1).flatten(0, -2) if scores.dim() > 1 else scores[None]  # shaped [R, V]
    labels = labels.flatten()
    first, second = _sequence_axes(cube, targets)
    place = _in_cube(probe, logits.tensor, (scores - 1).clamp(min=0))
    at = torch.stack(torch.unravel_index(place, cube.shape))  # shaped [3, R, V]
    firm = (
        (at[first] == at[first][:, :1]).all(1)
        & (at[second] == at[second][:, :1]).all(1)
        & (scores > 0).all(1)
    )
    label_columns = targets.shape[1]
    return Pairs(
        torch.where(firm, at[first][:, 0], -1),
        torch.where(firm, at[second][:, 0], -1),
        torch.where(labels > 0, (labels - 1) // label_columns, -1),
        torch.where(labels > 0, (labels - 1) % label_columns, -1),
        targets.flatten()[(labels - 1).clamp(min=0)],
        nll,
    )


def _goal(probe: Probe, record: Recording) -> Value | None:
    """The labels in a recording of the loss: the targets it was given, or the input that is labels."""
    names = {"targets", f"input {probe.adapted.labels}"}
    return next((v for v in record.values if v.op is None and v.name in names), None)


def _in_rows(probe: Probe, logits: Tensor) -> Tensor | None:
    """The logits of the user's batch as three axes, None where there are not so many."""
    cube = probe.in_rows(logits, Batch.given(probe.adapted))
    return cube if cube.dim() == 3 else None


def _in_cube(probe: Probe, logits: Tensor, place: Tensor) -> Tensor:
    """Places among the logits as the loss reads them, as places among the same logits as three axes."""
    if logits.dim() == 3 or probe.order == probe.adapted.layout:
        return place  # nothing is turned
    moved = probe.in_rows(
        torch.arange(logits.numel(), device=logits.device).view(logits.shape), Batch.given(probe.adapted)
    )
    return moved.flatten().argsort()[place]


def _sequence_axes(logits: Tensor, targets: Tensor) -> tuple[int, int]:
    """The two axes of the logits that are those of the targets; the third holds the classes."""
    shape, wanted = tuple(logits.shape), tuple(targets.shape)
    for axes in ((0, 1), (0, 2), (1, 2)):
        if (shape[axes[0]], shape[axes[1]]) == wanted:
            return axes
    return 0, 1


def _carried(record: Recording, start: Value, end: Value) -> Tensor | None:
    """Indices (from 1) of a value's elements where they arrive at another value."""
    at: dict[Value, Tensor] = {start: indices(start)}
    if start is end:
        return at[start]
    for op in record.between([start], [end]):
        entered = next((v for v in op.inputs if v in at), None)
        if entered is None:
            continue
        for out in op.outputs:
            if op.name == "_log_softmax":
                moved: Tensor | None = at[entered]
            else:
                moved = follow(op, entered, at[entered], out)
            if moved is not None and moved.shape == out.tensor.shape:
                at[out] = moved
    return at.get(end)


def time_axis(probe: Probe) -> int:
    """The axis of the logits that is time: told by which rows move which outputs; 1 where nothing tells."""
    taint = probe.rows_seen.get(probe.base.logits_value.index)
    if taint is None or taint.dim() != 3:
        return 1
    for axis in (0, 1):
        if taint.shape[axis] != probe.batch.rows:
            continue
        rows = taint.movedim(axis, 0).flatten(1)
        if all(bool((rows[r] & ~(1 << r) == 0).all()) for r in range(len(rows))):
            return 1 - axis
    return 1


def learned(probe: Probe) -> tuple[Tensor, Tensor]:
    """The label each row of logits learns (its most negative gradient; -1 for none), and the input ids.

    Both [B, T]. Raises NotApplicable where the output has no row for each input token.
    """
    grads = probe.gradients()
    main = probe.main
    if grads.by_logit is None or main is None or not main.is_ids:
        raise NotApplicable("the loss gives the logits no gradient")
    ids = Batch.given(probe.adapted).read(main)
    by = grads.by_logit
    if by.dim() == 3 and time_axis(probe) == 0:
        by = by.transpose(0, 1)
    if by.dim() != 3 or by.shape[:2] != ids.shape:
        raise NotApplicable("the output has no row of logits for each input token")
    size = by.abs().amax(-1)
    label = by.argmin(-1)
    return torch.where(size > 1e-12, label, -1), ids


def share(label: Tensor, ids: Tensor, shift: int, pad: int | None = None) -> float:
    """The share of rows that learn the input token `shift` places on, among those that learn anything.

    Rows that have a pad there are left out: the input may end where the label does not.
    """
    length = ids.shape[1]
    if length <= shift:
        return 0.0
    part, token = label[:, : length - shift], ids[:, shift:].to(label.device)
    counted = (part >= 0) & (token != (-1 if pad is None else pad))
    return float((part == token)[counted].float().mean()) if bool(counted.any()) else 0.0


def loss_lines(probe: Probe) -> list[Place]:
    """The user's lines that compute the loss from the output, in order."""
    record, value, logits = probe.recorded_loss()
    if logits is None:
        return []
    found: list[Place] = []
    for op in record.between([logits], [value]):
        for place in callers(op)[:1]:
            if place not in found:
                found.append(place)
    return found


def target_lines(probe: Probe) -> list[Place]:
    """The user's lines that made the targets, the last first."""
    record, _, _ = probe.recorded_loss()
    leaf = _goal(probe, record)
    return made_places(probe, leaf) if leaf is not None else []


def cut_line(probe: Probe, tensor: object, *, first: bool = False) -> Place | None:
    """The line that cut a tensor out of a longer one (ids[:, 1:]), if that is how it was made.

    first: of several cuts that gave the very same tensor the earliest (inputs are cut before targets).
    """
    if probe.making is None or not isinstance(tensor, Tensor):
        return None
    cuts = [place for place, op in probe.making.views(tensor) if any(name in op for name in CUTS)]
    return cuts[-1 if first else 0] if cuts else None


def cuts_targets(probe: Probe) -> Place | None:
    """The line inside the loss that cuts the targets along time, if one does: a shift made there."""
    record, value, _ = probe.recorded_loss()
    leaf = _goal(probe, record)
    if leaf is None:
        return None
    for op in record.between([leaf], [value]):
        if (
            op.name in {"slice", "narrow"}
            and op.out.tensor.numel() < op.inputs[0].tensor.numel()
            and callers(op)
        ):
            return callers(op)[0]
    return None


def input_lines(probe: Probe, place: int) -> list[Place]:
    """The user's lines that made an input, the last first."""
    if probe.making is None:
        return []
    return [where for where, _ in probe.making.tensor(flatten(probe.adapted.handed.inputs)[place])]


def first_of(candidates: Iterable[Place | None]) -> tuple[Place | None, list[Place]]:
    """The first line outside the function that hands things to the doctor, and the others.

    `subject()` exists for the doctor's sake; a mistake of the training code is looked for elsewhere first.
    """
    places = [place for place in candidates if place is not None]
    own = [place for place in places if place.function.split(".")[0] != HAND_OVER]
    chosen = (own or places or [None])[0]
    return chosen, [place for place in places if place is not chosen]


def mean_cross_entropy(probe: Probe) -> tuple[float, int]:
    """The cross-entropy of the logits with their labels, a mean in nats, and how many rows count."""
    record, _, logits = probe.recorded_loss()
    targets = probe.subject.targets
    if logits is None or not isinstance(targets, Tensor) or targets.is_floating_point():
        raise NotApplicable("targets are no class labels")
    tensor = logits.tensor
    if targets.dim() == 1 and tensor.dim() == 2:
        scores, label = tensor, targets
    else:
        met = pairs(probe)
        good = (met.row >= 0) & (met.label_row >= 0)
        cube = probe.in_rows(tensor, Batch.given(probe.adapted))
        first, second = _sequence_axes(cube, targets)
        by_place = cube.movedim(({0, 1, 2} - {first, second}).pop(), -1)
        read = met.op.inputs[
            1
        ].tensor.flatten()  # as they are by then: padding may have become -100 on the way
        scores, label = by_place[met.row[good], met.time[good]], read[good]
    counted = label >= 0
    ignored = _ignored(record)
    if ignored is not None:
        counted &= label != ignored
    scores, label = scores[counted], label[counted]
    if not len(label) or int(label.max()) >= scores.shape[-1]:
        raise NotApplicable("no label counts")
    return float(torch.nn.functional.cross_entropy(scores, label)), len(label)


def _ignored(record: Recording) -> int | None:
    """The label that the cross-entropy leaves out."""
    for op in record.ops:
        if op.name in NLL:
            numbers = [a for a in op.args if isinstance(a, int) and not isinstance(a, bool)]
            return numbers[-1] if numbers else None
    return None


def uniform_loss(classes: int) -> float:
    """The cross-entropy of a model that knows nothing: ln V nats."""
    return math.log(classes)


def copies_itself(probe: Probe) -> bool:
    """Are the targets the very tokens of the input, in a model of which nobody said that it is a decoder?

    Where a later token moves no earlier output though it moves its own, the model is one, and its targets
    were not shifted: nothing else can be meant.
    """
    if (
        probe.failure is not None
        or probe.kind is not None
        or probe.lacks(frozenset({"sequence", "tokens"})) is not None
    ):
        return False
    assert probe.main is not None
    subject = probe.adapted.subject
    ids, targets = flatten(subject.inputs)[probe.main.leaf], subject.targets
    if not isinstance(targets, Tensor) or targets.shape != ids.shape or not torch.equal(targets, ids):
        return False
    if not probe.sites or probe.length < 3:
        return False
    for t in (0, probe.length // 2):
        moved = probe.rows_first(probe.compare(probe.change_after(t)).logits)
        if bool(moved[:, : t + 1].any()) or not bool(moved[:, t + 1 :].any()):
            return False
    return True


def sees_itself(probe: Probe) -> bool:
    """Does any position's output move with the token read there? What it cannot see it cannot repeat."""
    main = probe.main
    if main is None or not probe.is_sequence:
        return True
    seen = probe.positions_seen(main).get(probe.base.logits_value.index)
    if seen is None:
        return False
    bits = probe.rows_first(seen)
    return any(bool((bits[:, t] >> min(t, 62) & 1).any()) for t in probe.positions(main))
