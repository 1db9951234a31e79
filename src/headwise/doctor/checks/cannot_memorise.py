"""Train a copy on the one batch: any model that can learn at all takes that loss down."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from headwise.doctor.batch import Batch
from headwise.doctor.blame import callers, constructed, related
from headwise.doctor.check import Found, NotApplicable, Place, Tried, check
from headwise.doctor.checks.learning_rate_too_high import curves
from headwise.doctor.losses import loss_lines
from headwise.doctor.probe import Probe
from headwise.doctor.rehearsal import Course, long, own, still, tame
from headwise.doctor.sites import is_product, upstream
from headwise.doctor.weights import named

# Healthy models lose 20 to 90 % of the first loss in the short rehearsal. What lost less than half is given
# a long one, without dropout: there they end below 0.2 of it (0.45 leaves room for label smoothing to 0.3).
QUICK, LEAST, FLOOR = 0.5, 0.08, 0.45
NEAR = 0.9  # of the way from scores that know nothing to the best


@check(
    id="HW701",
    title="The model cannot learn even one batch by heart",
    why="What cannot be overfitted cannot be learned: something between inputs and loss is cut or squeezed.",
    fix="Take parts away (dropout, masks, layers) until one batch is learned: the last one is at fault.",
    needs={"loss", "finite"},
    last_resort=True,
)
def cannot_memorise(probe: Probe) -> Iterator[Found | Tried]:
    if probe.is_large:
        raise NotApplicable("the model is too large to rehearse for long")
    refused = probe.stop is not None and probe.stop.phase == "step"
    course = own(probe) if probe.subject.optimizer is not None and not refused else tame(probe)
    if course.fell > QUICK or course.start < 0.05:
        yield Tried(f"{len(course.losses) - 1} steps on one batch took {course.fell:.0%} off the loss")
        return
    patient = long(probe)
    stuck = patient.end > FLOOR * patient.start and _is_flat(patient)
    slow = max(course.fell, tame(probe).fell)
    noisy = not stuck and slow < LEAST and patient.fell > QUICK and still(probe).fell > 2 * slow
    if not stuck and not noisy:
        yield Tried(f"{len(patient.losses) - 1} steps on one batch took {patient.fell:.0%} off the loss")
        return
    if stuck and _knows(probe, patient.end):
        yield Tried(f"the loss ends at {patient.end:.2f}, near the lowest that any scores come to")
        return
    if _contradicts_itself(probe):
        raise NotApplicable("rows of the batch that are the same have different targets")
    place, words = _dropout(probe) if noisy else (_squeeze(probe), "")
    lines = loss_lines(probe)
    place = place or (lines[0] if lines else None)
    steps = len(course.losses) - 1
    given = f"in {steps} steps on one batch the loss went from {course.start:.2f} to {course.end:.2f}"
    more = f"; without dropout, in {len(patient.losses) - 1} steps at 3e-3, to {patient.end:.2f}"
    yield Found(
        given + more + words,
        at=place,
        related=tuple(related(lines[:1], "the loss is taken here", place)),
        picture=curves("Loss on one batch", {"as given": course, "without dropout, longer": patient}),
    )


def _is_flat(course: Course) -> bool:
    """Has it stopped falling: the last quarter against the one before?"""
    quarter = len(course.losses) // 4
    if quarter < 2:  # it broke off: the loss is not finite
        return False
    late = sum(course.losses[-quarter:]) / quarter
    before = sum(course.losses[-2 * quarter : -quarter]) / quarter
    return late > 0.97 * before


def _knows(probe: Probe, loss: float) -> bool:
    """Is it near the lowest that free scores reach, seen from scores that know nothing?

    Labels smoothed by 0.1 leave 0.5 of ten classes: a model that has learnt them begins and stays there.
    """
    nothing, lowest = probe.loss_range()
    return nothing - loss > NEAR * (nothing - lowest) > 0


def _contradicts_itself(probe: Probe) -> bool:
    """Are there two rows that differ in their targets alone? No model can learn both."""
    given, targets = Batch.given(probe.adapted), probe.subject.targets
    axis = probe.adapted.batch_axis
    if not isinstance(targets, Tensor) or targets.dim() <= axis or targets.shape[axis] != given.rows:
        return False
    axes = [(leaf, axis if leaf.dim() > 1 else 0) for leaf in given.leaves]
    rows = [leaf.movedim(at, 0) for leaf, at in axes if leaf.dim() and leaf.shape[at] == given.rows]
    goals = targets.movedim(axis, 0)
    return any(
        all(torch.equal(leaf[a], leaf[b]) for leaf in rows) and not torch.equal(goals[a], goals[b])
        for a, b in itertools.combinations(range(given.rows), 2)
    )


def _dropout(probe: Probe) -> tuple[Place | None, str]:
    """Where the strongest dropout was made."""
    found = [
        (module.p, path)
        for path, module in named(probe.user_model)
        if isinstance(module, nn.modules.dropout._DropoutNd)  # pyright: ignore[reportPrivateUsage]
    ]
    if not found:
        return None, ""
    rate, path = max(found, key=lambda pair: pair[0])
    return constructed(probe, path), f" (the strongest dropout takes {rate:.0%})"


def _squeeze(probe: Probe) -> Place | None:
    """The line of what stands between the last product and the logits, if anything does."""
    _, _, value = probe.recorded_loss()
    between = itertools.takewhile(lambda op: not is_product(op), upstream(value) if value else ())
    return next((callers(op)[0] for op in between if op.pointwise and callers(op)), None)
