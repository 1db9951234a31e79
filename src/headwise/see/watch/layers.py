"""The parameters of a model by layer: sizes of weights and gradients, and how far a step moves them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch import Tensor, nn

LARGE = 20_000_000  # parameters from which only a part of each large tensor is kept aside for a comparison
NOTHING = 1e-6
PART = 65_536  # elements of such a part


@dataclass
class Layer:
    """Some parameters under one name: a block of a stack, or what lies beside the stacks."""

    name: str
    parameters: list[tuple[str, nn.Parameter]] = field(default_factory=list[tuple[str, nn.Parameter]])


def layers_of(model: nn.Module) -> list[Layer]:
    """The layers of a model: the members of its lists of modules, and every other part by itself.

    A parameter that is shared belongs to the layer that has it first.
    """
    paths = _paths(model, "")
    if len(paths) == 1 and paths[0]:
        paths = [f"{paths[0]}.{name}" for name, _ in model.get_submodule(paths[0]).named_children()] or paths
    found = {path: Layer(path) for path in paths}
    rest = Layer("")
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        parts = name.split(".")
        starts = (".".join(parts[:length]) for length in range(len(parts) - 1, 0, -1))
        path = next((start for start in starts if start in found), None)
        (found[path] if path is not None else rest).parameters.append((name, parameter))
    rest.name = "itself"
    return [layer for layer in (*found.values(), rest) if layer.parameters]


def _paths(module: nn.Module, path: str) -> list[str]:
    """Paths of the parts that are one layer each: members of stacks, and what has no stack within."""
    found: list[str] = []
    for name, child in module.named_children():
        inner = f"{path}.{name}" if path else name
        if _is_stack(child):
            found += [f"{inner}.{member}" for member, _ in child.named_children()]
        elif any(_is_stack(below) for below in child.modules()):
            found += _paths(child, inner)
        else:
            found.append(inner)
    return found


def _is_stack(module: nn.Module) -> bool:
    """A list of modules that have modules within."""
    if not isinstance(module, (nn.ModuleList, nn.Sequential)) or len(module) == 0:
        return False
    return all(any(True for _ in child.children()) for child in module)


class Sizes:
    """Sizes by layer, as tensors on their device: `numbers` reads all of them at once."""

    def __init__(self, layers: Sequence[Layer]) -> None:
        self.layers = layers
        self.is_large = sum(p.numel() for layer in layers for _, p in layer.parameters) > LARGE
        with torch.no_grad():  # such weights (of an adapter, a last layer) move by any share of their length
            every = [(name, p) for layer in layers for name, p in layer.parameters if p.dim() > 1]
            self._from_zero = {name for name, p in every if not bool(p.any())}
        self._before: dict[str, list[tuple[str, nn.Parameter, Tensor]]] = {}

    def gradients(self, scale: float = 1.0) -> dict[str, float | None]:
        """The length of each layer's gradient, over `scale`; None where no parameter has one."""
        held = {
            layer.name: [g for _, p in layer.parameters if (g := dense(p)) is not None]
            for layer in self.layers
        }
        sizes = _lengths([grads for grads in held.values()])
        named = zip(held.items(), sizes, strict=True)
        return {name: size / scale if grads else None for (name, grads), size in named}

    def without(self) -> list[str]:
        """The parameters that have no gradient."""
        return [name for layer in self.layers for name, p in layer.parameters if p.grad is None]

    def keep(self, ids: set[int] | None = None) -> None:
        """Keep the weights aside (of a large model: parts); ids: only of these parameters."""
        self._before = {}
        with torch.no_grad():
            for layer in self.layers:
                chosen = [(n, p) for n, p in layer.parameters if ids is None or id(p) in ids]
                self._before[layer.name] = [(n, p, self._part(p).clone()) for n, p in chosen]

    def moved(self, gradient: float = 0.0) -> tuple[dict[str, float | None], list[str], list[str]]:
        """By layer: how far the step moved its matrices, as a share of their length (None: nothing to say).

        Also the parameters with a gradient that did not move at all, and those that did; a gradient below a
        millionth of all, whose length is `gradient`, is rounding (a bias of keys has no other).
        """
        every = [(layer, *one) for layer, kept in self._before.items() for one in kept]
        self._before = {}
        with torch.no_grad():
            steps = _lengths([[self._part(p) - was] for _, _, p, was in every])
            olds = _lengths([[was] for _, _, _, was in every])
        shares: dict[str, float | None] = {}
        still, moving = list[str](), list[str]()
        sums: dict[str, list[float]] = {}
        for (layer, name, p, _), step, old in zip(every, steps, olds, strict=True):
            if step > 0:
                moving.append(name)
            elif p.dtype in {torch.float16, torch.bfloat16}:
                continue  # a step below what half precision tells apart is rounding
            elif p.grad is not None and self._length(p.grad) > NOTHING * gradient:
                still.append(name)
            if p.dim() > 1 and name not in self._from_zero:
                total = sums.setdefault(layer, [0.0, 0.0])
                total[0] += step**2
                total[1] += old**2
        for layer in self.layers:
            step, old = sums.get(layer.name, [0.0, 0.0])
            shares[layer.name] = (step / old) ** 0.5 if old > 0 else None
        return shares, still, moving

    def _length(self, grad: Tensor) -> float:
        return 0.0 if grad.is_sparse else _lengths([[self._part(grad)]])[0]

    def _part(self, tensor: Tensor) -> Tensor:
        held = tensor.detach()
        if not self.is_large or held.numel() <= PART or held.dim() == 0:
            return held
        return held[:: -(-held.numel() // PART)]


def dense(parameter: nn.Parameter) -> Tensor | None:
    """The gradient, of a sparse one its values; None where there is none."""
    grad = parameter.grad
    if grad is None:
        return None
    return grad.coalesce().values() if grad.is_sparse else grad


def _lengths(groups: Sequence[Sequence[Tensor]]) -> list[float]:
    """The euclidean length of each group of tensors, in one transfer; 0 for an empty one."""
    every = [tensor.detach() for group in groups for tensor in group]
    if not every:
        return [0.0] * len(groups)
    norms = cast("list[Tensor]", cast("Any", torch)._foreach_norm(every))
    device = norms[0].device
    values: list[float] = torch.stack([n.float().to(device) for n in norms]).tolist()  # pyright: ignore
    found: list[float] = []
    start = 0
    for group in groups:
        found.append(sum(v * v for v in values[start : start + len(group)]) ** 0.5)
        start += len(group)
    return found
