"""Compare the parameters that get a gradient with those that the optimizer holds, by identity."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor

from headwise.doctor.backward import training_pass
from headwise.doctor.blame import constructed, related
from headwise.doctor.check import Found, NotApplicable, Tried, check
from headwise.doctor.probe import Probe
from headwise.doctor.rehearsal import optimizer_line
from headwise.doctor.weights import class_of, parents


@check(
    id="HW604",
    title="The optimizer does not hold all the parameters that are trained",
    why="These weights get gradients and never move: a part of the model stays as it was drawn.",
    fix="Make the optimizer from model.parameters(), after the last change to the model's layers.",
    needs={"run", "optimizer"},
    explains={"cannot-memorise"},
    quick=True,
)
def parameters_not_in_optimizer(probe: Probe) -> Iterator[Found | Tried]:
    held = {id(p) for group in _groups(probe.subject.optimizer) for p in group["params"]}
    own = {name: p for name, p in probe.user_model.named_parameters() if p.requires_grad}
    states = training_pass(probe).states
    missing = [name for name, p in own.items() if id(p) not in held and states.get(name) == "finite"]
    if not missing:
        yield Tried(f"found each of {len(own)} trainable parameters that get a gradient in the optimizer")
        return
    place = optimizer_line(probe)
    modules = list(dict.fromkeys(parents(name) for name in missing))
    lines = [constructed(probe, path) for path in modules[:3] if path]
    numbers = sum(own[name].numel() for name in missing)
    strangers = len(held - {id(p) for p in probe.user_model.parameters()})
    stale = f"; it holds {strangers} tensors that are no longer the model's" if strangers else ""
    is_library = all(class_of(type(probe.module_at(path))) == "library" for path in modules)
    yield Found(
        f"{len(missing)} of {len(own)} parameters get a gradient and are in no group of the optimizer, "
        f"{numbers:,} weights: {', '.join(missing[:3])}{' ...' if len(missing) > 3 else ''}{stale}",
        at=place or (lines[0] if lines else None),
        module=_common(modules),
        related=tuple(related(lines, "these weights are left out", place)),
        severity="warning" if is_library else None,
    )


def _groups(optimizer: Any) -> list[dict[str, list[Tensor]]]:
    """The groups of an optimizer, also of one inside a wrapper (a schedule), or of several."""
    if isinstance(optimizer, (list, tuple)):
        return [group for each in optimizer for group in _groups(each)]  # pyright: ignore
    groups = getattr(optimizer, "param_groups", None)
    if groups is None:
        groups = getattr(getattr(optimizer, "optimizer", None), "param_groups", None)
    if groups is None:
        raise NotApplicable(f"the optimizer, a {type(optimizer).__name__}, has no param_groups")
    return groups


def _common(paths: list[str]) -> str:
    """The longest path that all of these lie beneath."""
    parts = [path.split(".") for path in paths]
    shared: list[str] = []
    for level in zip(*parts, strict=False):
        if len(set(level)) > 1:
            break
        shared.append(level[0])
    return ".".join(shared)
