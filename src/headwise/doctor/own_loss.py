"""Labels among the inputs, and the loss that a model computes of them: `logits, loss = model(ids, targets)`.

A second input of token ids may be the decoder's, or the labels. Its name does not tell, nor do its numbers: a
copying encoder-decoder may get one sequence twice, and labels that were not shifted look the same. The
graph of one pass tells: labels are what a cross-entropy picks its scores by, and no logit descends from them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from headwise.doctor.adapt import Adapted, adapt, flatten, shift_share
from headwise.doctor.graph import Recording, Value
from headwise.doctor.losses import NLL
from headwise.doctor.outputs import scalars
from headwise.doctor.runner import Run, is_large, run_as_it_is
from headwise.doctor.shrink import shrink

PICKS = {*NLL, "gather", "index"}


@dataclass(frozen=True)
class OwnLoss:
    """As a subject's loss: the scalar of the model's output that it computed itself."""

    place: int

    def __call__(self, output: Any, targets: Any) -> Tensor:
        return scalars(output)[self.place]


def with_own_loss(adapted: Adapted, device: str | None = None) -> Adapted:
    """Tell labels among the inputs from sequences that are read, and take the model's own loss if it has one.

    What the user gave stands: a loss, and targets with it.
    """
    subject = adapted.subject
    if not _candidates(adapted):
        return adapted
    try:
        part = shrink(adapted, is_large(adapted.model))
        run = run_as_it_is(part, device)
    except Exception:
        leaf = _shifted(adapted)
        return adapted if leaf is None else adapt(subject, known={leaf: "labels"})
    found = labels_of(adapted, run)
    if found is None:
        read = _decoded(adapted, run)
        return adapted if read is None else adapt(subject, known={read: "ids"})
    leaf, place = found
    goal = flatten(subject.inputs)[leaf]
    if subject.loss is None and place is not None:
        subject = replace(subject, loss=OwnLoss(place), targets=goal)
    elif subject.targets is None:
        subject = replace(subject, targets=goal)
    return adapt(subject, known={leaf: "labels"})


def _candidates(adapted: Adapted) -> list[int]:
    """Inputs of whole numbers beside the first sequence."""
    leaves = flatten(adapted.subject.inputs)
    whole = [
        place
        for place, leaf in enumerate(leaves)
        if not (leaf.is_floating_point() or leaf.is_complex()) and adapted.leaves[place].role != "mask"
    ]
    first = next((place for place in whole if adapted.leaves[place].role == "ids"), None)
    return [place for place in whole if place != first] if adapted.streams else []


def labels_of(adapted: Adapted, run: Run) -> tuple[int, int | None] | None:
    """The input that is labels, and which scalar is the loss of them (None where not exactly one is)."""
    record = run.record
    read = run.logits_value.sources
    for place in _candidates(adapted):
        bit = 1 << place
        if read & bit or not any(_picks(op.name, op.inputs, bit) for op in record.ops):
            continue
        held = [record.value_of(scalar) for scalar in scalars(run.output)]
        lost = [v if v is not None and v.sources & bit and v.sources & read else None for v in held]
        return place, _last(record, lost)
    return None


def _picks(name: str, inputs: tuple[Value, ...], bit: int) -> bool:
    """Does this operation choose, by the labels, among numbers that were computed from another input?"""
    if name not in PICKS or len(inputs) < 2:
        return False
    scores = inputs[0]
    if not scores.tensor.is_floating_point() or not scores.sources or scores.sources & bit:
        return False
    return any(each.sources & bit for each in inputs[1 : 2 if name in NLL else None])


def _last(record: Recording, losses: list[Value | None]) -> int | None:
    """The one loss from which no other is computed: of a total and its parts, the total."""
    there = [(place, value) for place, value in enumerate(losses) if value is not None]
    whole = [
        place
        for place, value in there
        if not any(value in record.ancestors([other]) for _, other in there if other is not value)
    ]
    return whole[0] if len(whole) == 1 else None


def _decoded(adapted: Adapted, run: Run) -> int | None:
    """Labels that are read after all: of an encoder-decoder that makes its decoder's input of them."""
    if adapted.kind != "encoder-decoder" or len(adapted.streams) != 1:
        return None
    read = run.logits_value.sources
    named = [place for place in _candidates(adapted) if adapted.leaves[place].role == "labels"]
    return next((place for place in named if read >> place & 1), None)


def _shifted(adapted: Adapted) -> int | None:
    """Of a model that does not run: a second input that holds the next tokens of the first."""
    if adapted.subject.kind == "encoder-decoder" or len(adapted.streams) != 2:
        return None
    leaves = flatten(adapted.subject.inputs)
    first, second = sorted(stream.leaf for stream in adapted.streams)
    ids, labels = leaves[first], leaves[second]
    same = ids.shape == labels.shape and ids.dim() == 2 and not labels.is_floating_point()
    axis = adapted.batch_axis
    return second if same and shift_share(ids, labels, 1, 1 - axis) > 0.9 else None
