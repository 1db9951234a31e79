"""Compare each weight of a product with 1/sqrt(fan_in), and see what it does to the numbers it meets.

Weights of zero are a design where training moves them apart: they are looked at again after three steps.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from headwise.doctor.batch import Batch
from headwise.doctor.blame import constructed, related
from headwise.doctor.check import Found, Place, Tried, check
from headwise.doctor.probe import Probe
from headwise.doctor.trace import Value
from headwise.doctor.weights import (
    InProduct,
    behind_moves,
    drawn,
    factors,
    heads_of,
    in_products,
    parents,
    written_at,
)

# rms * sqrt(fan_in), measured: nn.Linear 0.58, xavier 0.6 to 1.4, kaiming 1.4, public models 0.1 to 1.7
LARGE = 3.0
GREW = 3.0  # a product's numbers over unit size, after any factor behind it
STEPS = 3
MOST_ZERO = 0.6  # zero-initialised designs have a third of their weights at zero
PLACED = (
    "normal_", "uniform_", "fill_", "zero_", "copy_", "clone", "mul_", "mul", "random_", "zeros", "ones",
    "full", "randn", "rand", "trunc_normal_", "erfinv_", "clamp_", "add_", "exponential_",
)  # fmt: skip


@check(
    id="HW607",
    title="Weights are drawn from a distribution that training cannot start from",
    why="Too large, activations and gradients explode with depth; all alike, the units of a layer never "
        "differ.",
    fix="Draw linear weights with a standard deviation of about 1/sqrt(fan_in): nn.Linear's own, "
        "xavier, or 0.02.",
    severity="warning",
    needs={"run", "finite"},
    explains={
        "initial-loss-wrong", "attention-collapsed", "depth-unstable", "cannot-memorise",
        "no-warmup-post-norm", "learning-rate-too-high", "same-initialisation", "heads-identical",
    },
)  # fmt: skip
def bad_init(probe: Probe) -> Iterator[Found | Tried]:
    record = probe.base.record
    heads = heads_of(probe.base.logits_value)
    uses = {use.name: use for use in reversed(in_products(record)) if use.op not in heads}
    scoring = _scoring(
        probe
    )  # if these alone are at fault it shows in the attention: see attention-collapsed
    tensors = {name: probe.parameter_tensor(name) for name in uses}
    distributions = {name: drawn(tensors[name]) for name in uses}
    large = [
        n
        for n, d in distributions.items()
        if d.is_random and _ratio(d.rms, uses[n]) > LARGE and _grew(uses[n])
    ]
    if set(large) - scoring:
        worst = max(large, key=lambda n: _ratio(distributions[n].rms, uses[n]))
        ratio = _ratio(distributions[worst].rms, uses[worst])
        place = _line(probe, worst)
        yield Found(
            f"{len(large)} of {len(uses)} weights that multiply the data are drawn too large: {worst} "
            "has a root mean square of "
            f"{distributions[worst].rms:.2g}, {ratio:.1f} times 1/sqrt(fan_in = {uses[worst].fan_in}), "
            "and its product reaches "
            f"{_size(uses[worst].op.out.tensor):.2g}",
            at=place,
            module=parents(worst),
            related=tuple(
                related([_line(probe, name) for name in large], "these are drawn too large too", place)
            ),
        )
        return
    alike = [
        n
        for n, d in distributions.items()
        if d.is_constant and tensors[n].requires_grad and tensors[n].numel() > 1
    ]
    stuck = _stuck(probe, alike) if alike and set(alike) - scoring else []
    # zero is a design as long as it moves; another constant in a whole matrix never is
    equal = [n for n in alike if distributions[n].rms > 0 and min(tensors[n].flatten(1).shape) >= 4]
    if len(alike) > MOST_ZERO * len(uses):  # a zero in each branch is a design, zeros all over are none
        equal = equal or alike
    told = stuck or equal
    if set(told) - scoring:
        name = told[0]
        place = _line(probe, name)
        value = float(tensors[name].flatten()[0])
        what = (
            f"passes nothing{', and no gradient reaches it' if stuck else ''}"
            if value == 0
            else "sums what it reads, alike in all its units"
        )
        still = f", and it is still so after {STEPS} steps" if stuck else ""
        yield Found(
            f"{len(told)} of {len(uses)} weights that multiply the data hold one number only, {name} "
            f"{value:g}: it {what}{still}",
            at=place,
            module=parents(name),
            related=tuple(
                related([_line(probe, other) for other in told], "these are drawn alike too", place)
            ),
            severity="error" if stuck else None,
        )
        return
    sizes = sorted(_ratio(d.rms, uses[n]) for n, d in distributions.items())
    span = f", {sizes[0]:.2g} to {sizes[-1]:.2g} times 1/sqrt(fan_in)" if sizes else ""
    yield Tried(f"measured {len(uses)} weights that multiply the data{span}")


def _scoring(probe: Probe) -> set[str]:
    """Weights that make queries or keys and nothing else."""
    asked, read = set[str](), set[str]()
    for site in probe.sites:
        asked |= _makers(site.q_value) | _makers(site.k_value)
        read |= _makers(site.v_value)
    return asked - read


def _makers(value: Value) -> set[str]:
    """The weights in the products that a value comes from by moves and element-wise steps."""
    leaves = [behind_moves(v) for op in heads_of(value) for v in factors(op) or ()]
    return {leaf.name.removeprefix("parameter ") for leaf in leaves if leaf.name.startswith("parameter ")}


def _ratio(rms: float, use: InProduct) -> float:
    return rms * math.sqrt(use.fan_in)


def _grew(use: InProduct) -> bool:
    """Is the product large as it is used: also after a constant factor behind it (muP, NTK)?"""
    out = use.op.out
    factor = 1.0
    value = out
    while len(value.users) == 1:
        op = value.users[0]
        if op.moves:
            value = op.out
            continue
        other = next(
            (v for v in op.inputs if v is not value and not v.trained and v.tensor.numel() == 1), None
        )
        number = op.numbers()[0] if op.numbers() else float(other.tensor) if other is not None else None
        name = op.name.rstrip("_")
        if number is None or name not in {"mul", "div"}:
            break
        factor = factor * number if name == "mul" else factor / number
        value = op.out
    return _size(out.tensor) * abs(factor) > GREW


def _size(tensor: Tensor) -> float:
    held = tensor[torch.isfinite(tensor)]
    return float(held.double().square().mean().sqrt()) if held.numel() else math.inf


def _stuck(probe: Probe, names: list[str]) -> list[str]:
    """Which of these weights have rows that are still all alike after some steps on a copy."""
    if probe.subject.loss is None or probe.subject.targets is None:
        return []
    leaves = Batch.given(probe.adapted).leaves
    with probe.training_copy() as (model, _):
        held = {name: p for name, p in model.named_parameters() if p.requires_grad}
        steps = torch.optim.AdamW(held.values(), lr=1e-3, weight_decay=0.0)
        with torch.enable_grad():
            for _ in range(STEPS):
                steps.zero_grad()
                loss = probe.loss(probe.adapted.call(model, leaves))
                if not loss.requires_grad:
                    return []
                loss.backward()  # pyright: ignore[reportUnknownMemberType]
                steps.step()  # pyright: ignore[reportUnknownMemberType]
        return [name for name in names if name in held and _rows_alike(held[name])]


def _rows_alike(weight: Tensor) -> bool:
    table = weight.detach().flatten(1)
    size = float(table.abs().max())
    return table.shape[0] > 1 and float((table - table[:1]).abs().max()) <= 1e-6 * max(size, 1e-30)


def _line(probe: Probe, name: str) -> Place | None:
    written = written_at(probe, probe.parameter_tensor(name), ops=PLACED)
    return (written[0] if written else None) or (constructed(probe, parents(name)) if parents(name) else None)
