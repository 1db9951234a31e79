"""Compare the cross-entropy before the first step with ln V, what a model that knows nothing would have."""

from __future__ import annotations

from collections.abc import Iterator

from headwise.doctor.blame import callers, related
from headwise.doctor.check import Found, NotApplicable, Tried, check
from headwise.doctor.losses import mean_cross_entropy, uniform_loss
from headwise.doctor.probe import Probe
from headwise.doctor.rehearsal import drawn_at
from headwise.doctor.runner import ordinary
from headwise.doctor.sites import is_product, upstream
from headwise.doctor.trace import Op, Value

# Healthy starts, measured: ln V + 0.0 to 0.5 (heads drawn as nn.Linear does, or std 0.02). The excess is
# about half the logits' variance: 0.5 + ln(V) / 2 is a standard deviation of 2 (V = 40) or 3 (V = 50,000).
SLACK, SHARE = 0.5, 0.5
LOUD = 2.5  # rms of the head's weights times sqrt(d_model); 0.6 as nn.Linear draws them, 1 for unit logits


@check(
    id="HW508",
    title="The loss starts far above ln V",
    why="The first steps are spent on taking back confident nonsense; with a high rate they do lasting harm.",
    fix="Draw the output layer (and a table tied to it) small: std 0.02 or 1/sqrt(d_model), no larger.",
    severity="warning",
    needs={"loss", "finite"},
)
def initial_loss_wrong(probe: Probe) -> Iterator[Found | Tried]:
    loss, rows = mean_cross_entropy(probe)
    _, _, logits = probe.recorded_loss()
    assert logits is not None
    head = _head(logits)
    if head is not None and _compares(head):
        raise NotApplicable("the scores compare vectors with one another: a temperature sets their size")
    classes = logits.tensor.shape[-1]
    expected = uniform_loss(classes)
    if loss - expected <= SLACK + SHARE * expected:
        yield Tried(f"the loss starts at {loss:.2f}; ln V is {expected:.2f} ({rows} labels)")
        return
    line = callers(head)[0] if head is not None and callers(head) else None
    drawn, weight = drawn_at(probe, logits)
    loud = weight is not None and float(weight.square().mean().sqrt()) * min(weight.shape) ** 0.5 > LOUD
    place = drawn if loud and drawn is not None else line
    std = float(logits.tensor[ordinary(logits.tensor)].std())
    yield Found(
        f"the cross-entropy of {rows} labels is {loss:.2f} before the first step, and ln {classes} is "
        f"{expected:.2f}; the logits have a standard deviation of {std:.1f}",
        at=place,
        module=head.module if head is not None else "",
        related=tuple(related([line], "the logits are made here", place)),
    )


def _head(value: Value) -> Op | None:
    """The product that made the logits, behind moves and element-wise steps."""
    return next((op for op in upstream(value) if is_product(op)), None)


def _compares(head: Op) -> bool:
    """Are the scores no sums over a drawn layer, but products of computed vectors, or cosines?

    A contrastive loss lets the rows of a batch stand for the classes; cosines of features and prototypes are
    multiplied by a temperature that is meant.
    """
    first, second = head.inputs[-2:]
    return bool(first.sources and second.sources) or (_is_unit(first) and _is_unit(second))


def _is_unit(value: Value) -> bool:
    """Is it made of vectors that were divided by their length, and then all multiplied by one number?"""
    for _ in range(12):
        op = value.op
        if op is None:
            return False  # drawn so, or stored so
        if not op.moves and sum(v.tensor.numel() > 1 for v in op.inputs) != 1:
            break
        value = max(op.inputs, key=lambda v: v.tensor.numel())
    held = value.tensor.detach()
    lengths = [held.square().sum(axis).sqrt() for axis in range(max(0, held.dim() - 2), held.dim())]
    return any(bool(((length - 1).abs() < 1e-3).all()) for length in lengths)
