"""Compare the user's loss with the mean cross-entropy of the same labels."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from headwise.doctor.adapt import logits_of
from headwise.doctor.blame import related
from headwise.doctor.check import Found, Tried, check
from headwise.doctor.losses import first_of, loss_lines, mean_cross_entropy, uniform_loss
from headwise.doctor.probe import Probe

LOW, HIGH = 0.2, 5.0


@check(
    id="HW705",
    title="The loss is not a mean over the tokens",
    why="Gradients, clipping and weight decay change with the batch's size, and so does what the rate means.",
    fix="Take the mean over the labels that count: reduction='mean', or sum / number of labels, once.",
    severity="warning",
    needs={"loss", "finite"},
)
def loss_scaled_wrong(probe: Probe) -> Iterator[Found | Tried]:
    mean, count = mean_cross_entropy(probe)
    _, value, _ = probe.recorded_loss()
    loss = float(value.tensor.mean())
    ratio = loss / mean if mean > 1e-6 else 1.0
    if LOW <= ratio <= HIGH:
        yield Tried(f"the loss is {loss:.3g}, the mean cross-entropy of its {count} labels {mean:.3g}")
        return
    if _is_mean_of_equal_scores(probe):  # smoothed labels cost most where the model is sure
        yield Tried(
            f"of equal scores the loss is their mean cross-entropy; of these it is {ratio:.3g} times it"
        )
        return
    place, others = first_of(loss_lines(probe)[::-1])
    meaning = {count: "the number of labels", 1 / count: "one over the number of labels"}
    near = next((words for number, words in meaning.items() if abs(ratio / number - 1) < 0.02), "")
    yield Found(
        f"the loss is {loss:.4g}, {ratio:.3g} times the mean cross-entropy of its {count} labels ({mean:.4g})"
        + (f": {near}" if near else ""),
        at=place,
        related=tuple(related(others, "takes part in the loss", place)),
    )


def _is_mean_of_equal_scores(probe: Probe) -> bool:
    scores = logits_of(probe.given.output)
    if scores is None or not scores.is_floating_point():
        return False
    loss = float(probe.loss_with(torch.zeros_like(scores)))
    return LOW <= loss / uniform_loss(scores.shape[-1]) <= HIGH
