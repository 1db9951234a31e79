"""Compare the stream's size, and the gradients of like weights, from the first block to the last."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import torch

from headwise.doctor.blame import callers, related
from headwise.doctor.blocks import Blocks, blocks
from headwise.doctor.check import Found, NotApplicable, Picture, Tried, check
from headwise.doctor.flow import weight_name
from headwise.doctor.graph import Value
from headwise.doctor.norms import like_noise, rms
from headwise.doctor.probe import Probe
from headwise.doctor.sub_layers import SubLayer
from headwise.doctor.untouched import default_dtype, seed_everything

LEAST_DEPTH = 4
MOST_GROWTH = 50.0  # sums of a fresh stack grow with the root of the depth: 24 layers make it 5 to 10
MOST_GRADIENT = 1000.0


@check(
    id="HW412",
    title="Activations or gradients grow or vanish with depth",
    why="Layers at one end learn nothing while those at the other end diverge.",
    fix="Let x + f(norm(x)) be all that happens to the stream: scale nothing else, and start branches small.",
    severity="warning",
    needs={"sites"},
    explains={"cannot-memorise", "initial-loss-wrong"},
)
def depth_unstable(probe: Probe) -> Iterator[Found | Tried]:
    found = blocks(probe)
    deep = [stream for stream in found.streams if found.depth(stream) >= LEAST_DEPTH]
    if not deep:
        raise NotApplicable(f"no stack of {LEAST_DEPTH} or more blocks was recognised")
    for stream in deep:
        layers = [s for s in found.layers if s.stream == stream and s.sum is not None]
        sizes = [rms(s.sum.out.tensor) for s in layers if s.sum is not None]
        if len(sizes) < LEAST_DEPTH or min(sizes) <= 0 or not all(math.isfinite(size) for size in sizes):
            continue
        kept = _kept(found, layers)
        if not 1 / MOST_GRADIENT < kept < MOST_GRADIENT and not 0.65 < kept ** (1 / len(layers)) < 1.5:
            words = (
                f"of a change in the stream {kept:.1g} times as much arrives after {len(layers)} sub-layers"
            )
            is_lost = not 1e-4 < kept < 1e4
            yield _found(found, f"{words}, their branches held still", layers, sizes, is_lost)
            return
        if not 1 / MOST_GROWTH < sizes[-1] / sizes[0] < MOST_GROWTH:
            words = f"the stream's size goes from {sizes[0]:.2g} after the first sub-layer to {sizes[-1]:.2g}"
            yield _found(found, f"{words} after the last of {len(sizes)}", layers, sizes)
            return
        slopes = _gradients(found, layers)
        if len(slopes) >= LEAST_DEPTH and not 1 / MOST_GRADIENT < slopes[-1] / slopes[0] < MOST_GRADIENT:
            words = f"the gradient of like weights goes from {slopes[0]:.1g} in the first block"
            yield _found(found, f"{words} to {slopes[-1]:.1g} in the last of {len(slopes)}", layers, sizes)
            return
    yield Tried(f"compared sizes and gradients over the blocks of {len(deep)} stacks")


def _found(
    found: Blocks, evidence: str, layers: list[SubLayer], sizes: list[float], is_lost: bool = False
) -> Found:
    steps = [abs(math.log(after / before)) for before, after in itertools.pairwise(sizes)]
    step = 1 + steps.index(max(steps))
    before, layer = layers[step - 1].sum, layers[step]
    assert before is not None and layer.sum is not None and layer.skip is not None
    # What else happens to the stream from one sum to the next; else the sum is what it is.
    meant = [op for op in found.probe.base.record.between([before.out], [layer.skip]) if not op.moves]
    op = meant[-1] if meant and not any(op in found.norm_ops for op in meant) else layer.sum
    logs = tuple(math.log10(size) for size in sizes)
    caption = "a sound stack grows slowly, by the root of its depth"
    return Found(
        evidence,
        at=op.place,
        module=layer.module,
        severity="error" if is_lost else "warning",
        related=tuple(related([layer.sum.place, *callers(layer.sum)], "the sum is made here", op.place)),
        picture=Picture(
            "curve", "Size of the stream", (logs,), "sub-layer", "log10 of the size", (), caption
        ),
    )


def _kept(found: Blocks, layers: list[SubLayer]) -> float:
    """How much of a small change in the stream arrives at the last sum if every branch stays as it is.

    1 where norms lie on the way (post-norm): there a change's size says nothing.
    """
    first, last = layers[0], layers[-1]
    if (
        first.skip is None
        or last.sum is None
        or any(s.skip and found.norm_behind(s.skip) for s in layers[1:])
    ):
        return 1.0
    held: dict[Value, torch.Tensor] = {}
    for layer in layers:
        others = layer.sum.inputs if layer.sum is not None else ()
        held |= {v: v.tensor for v in others if v is not layer.skip and v.sources}
    if last.sum.out not in found.probe.base.record.descendants([first.skip]):
        return 1.0  # two stacks side by side (two towers)
    change = like_noise(first.skip) * 1e-3 * rms(first.skip.tensor)
    with torch.no_grad():
        after = found.probe.base.record.replay(
            {**held, first.skip: first.skip.tensor + change}, [last.sum.out]
        )[0]
    return rms(after - last.sum.out.tensor) / max(rms(change), 1e-30)


def _gradients(found: Blocks, layers: list[SubLayer]) -> list[float]:
    """The size of the gradient of each feed-forward layer's last matrix, first block first."""
    names = [weight_name(layer.down) for layer in layers if layer.down is not None]
    if len(set(names)) != len(names) or len(names) < LEAST_DEPTH or found.probe.is_large:
        return []  # a large model's gradients would be held for this question alone
    sizes = found.probe.memo("gradient sizes", lambda: _gradient_sizes(found.probe))
    return [sizes[name] for name in names if sizes.get(name, 0.0) > 0]


def _gradient_sizes(probe: Probe) -> dict[str, float]:
    """By parameter: the size of its gradient, from the user's loss or from a fixed mixture of the outputs."""
    if probe.lacks(frozenset({"loss"})) is None:
        try:
            given = probe.gradients().by_parameter
            return {name: rms(grad) for name, grad in given.items() if grad is not None}
        except (RuntimeError, ValueError):
            pass
    model = probe.model.eval()
    seed_everything()
    with torch.enable_grad(), default_dtype(probe.dtype):
        output = probe._logits(probe.adapted.call(model, probe._leaves(probe.batch)))  # pyright: ignore[reportPrivateUsage]
        weights = torch.randn(output.shape, generator=torch.Generator().manual_seed(0)).to(output)
        torch.autograd.backward((output * weights).sum())
    sizes = {name: rms(p.grad) for name, p in model.named_parameters() if p.grad is not None}
    for p in model.parameters():
        p.grad = None
    return sizes
