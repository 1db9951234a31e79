"""Go back from the loss: a parameter that it is computed from must get a gradient, unless it is frozen."""

from __future__ import annotations

from collections.abc import Iterator

from headwise.doctor.backward import training_pass
from headwise.doctor.blame import constructed, related
from headwise.doctor.check import Found, NotApplicable, Tried, check
from headwise.doctor.probe import Probe
from headwise.doctor.weights import parents


@check(
    id="HW606",
    title="The gradient is cut off on its way to some weights",
    why="The output depends on these weights, but training cannot change them.",
    fix="Remove the detach(), .data, no_grad() or rounding from the path; freeze on purpose with "
    "requires_grad_(False).",
    needs={"run"},
    explains={"cannot-memorise", "unused-parameters"},
    quick=True,
)
def gradient_cut(probe: Probe) -> Iterator[Found | Tried]:
    passed = training_pass(probe)
    if passed.error is not None:
        raise NotApplicable(f"no training pass could be run: {type(passed.error).__name__}: {passed.error}")
    if not passed.states:
        raise NotApplicable("no parameter is trainable")
    if not passed.cuts:
        yield Tried(f"took the gradient of {len(passed.states)} parameters in train mode")
        return
    cut = passed.cuts[0]
    names = list(dict.fromkeys(name for each in passed.cuts for name in each.parameters))
    if probe.subject.optimizer is not None and not _wanted(probe, names):
        yield Tried(
            f"{len(names)} parameters get no gradient, and the optimizer does not hold them either: "
            "left as frozen"
        )
        return
    lines = [cut.shows, *(each.place for each in passed.cuts[1:])]
    made = [constructed(probe, parents(name)) for name in names[:1] if parents(name)]
    yield Found(
        f"{len(names)} parameters that the loss is computed from get no gradient, {names[0]} first: "
        f"{cut.how}",
        at=cut.place,
        module=cut.module,
        related=(
            *related(lines, "the gradient is lost here", cut.place),
            *related(made, "these weights get none", cut.place),
        ),
    )


def _wanted(probe: Probe, names: list[str]) -> bool:
    """Does the optimizer hold any of the parameters that get nothing?"""
    groups = getattr(probe.subject.optimizer, "param_groups", None)
    if groups is None:
        return True
    held = {id(p) for group in groups for p in group["params"]}
    return any(id(probe.parameter_tensor(name)) in held for name in names)
