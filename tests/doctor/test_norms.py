"""Norms are recognised however they are written, and softmax and gates are not; what they do is measured."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from headwise.doctor.norms import Norm, ask, find_norms, like_noise, rms, vectors
from headwise.doctor.trace import Recording, recording

WIDTH = 24


class Between(nn.Module):
    """Some function of the features between two linear layers, times a gain."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 7)
        self.gain = nn.Parameter(torch.ones(WIDTH))
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.function(self.first(x)) * self.gain)


def recorded(function: Callable[[Tensor], Tensor]) -> tuple[Recording, list[Norm]]:
    torch.manual_seed(0)
    model = Between(function).double()
    x = torch.randn(3, 5, WIDTH, dtype=torch.float64)
    with torch.no_grad(), recording(model, [x]) as record:
        model(x)
    return record, find_norms(record)


def mean(x: Tensor) -> Tensor:
    return x.mean(-1, keepdim=True)


def square(x: Tensor) -> Tensor:
    return x.pow(2).mean(-1, keepdim=True)


def variance(x: Tensor) -> Tensor:
    return x.var(-1, keepdim=True, correction=0)


def by_var_mean(x: Tensor) -> Tensor:
    var, middle = torch.var_mean(x, dim=-1, keepdim=True, correction=0)
    return (x - middle) * torch.rsqrt(var + 1e-6)


def by_steps(x: Tensor) -> Tensor:
    centred = x - mean(x)
    return centred / (centred * centred).mean(-1, keepdim=True).add(1e-6).sqrt()


RIGHT: dict[str, Callable[[Tensor], Tensor]] = {
    "layer_norm": lambda x: F.layer_norm(x, (WIDTH,)),
    "rms_norm": lambda x: F.rms_norm(x, (WIDTH,)),
    "annotated": lambda x: (x - mean(x)) / (x.std(-1, keepdim=True) + 1e-6),
    "llama": lambda x: x * torch.rsqrt(square(x) + 1e-6),
    "t5": lambda x: x.float() * torch.rsqrt(square(x.float()) + 1e-6),
    "var_mean": by_var_mean,
    "steps": by_steps,
    "length": lambda x: F.normalize(x, dim=-1) * WIDTH**0.5,
}
WRONG: dict[str, Callable[[Tensor], Tensor]] = {
    "variance for its root": lambda x: (x - mean(x)) / (variance(x) + 1e-6),
    "mean forgotten": lambda x: x / (variance(x) + 1e-6).sqrt(),
    "brackets forgotten": lambda x: x - mean(x) / (variance(x) + 1e-6).sqrt(),
    "multiplied": lambda x: (x - mean(x)) * (variance(x) + 1e-6).sqrt(),
}
NONE: dict[str, Callable[[Tensor], Tensor]] = {
    "softmax by hand": lambda x: x.exp() / x.exp().sum(-1, keepdim=True),
    "shares": lambda x: x.sigmoid() / x.sigmoid().sum(-1, keepdim=True),
    "gate": lambda x: x * x.mean(-1, keepdim=True).sigmoid(),
    "centred": lambda x: x - mean(x),
    "gelu": F.gelu,
}


@pytest.mark.parametrize("name", [*RIGHT, *WRONG])
def test_a_norm_is_found_with_what_enters_it_and_its_gain(name: str) -> None:
    record, found = recorded({**RIGHT, **WRONG}[name])
    assert len(found) == 1
    assert found[0].gains == ("gain",)
    first = next(op for op in record.ops if op.name in {"addmm", "mm"})
    below = record.descendants([first.out])
    assert found[0].entered in below and found[0].entered.shape == (3, 5, WIDTH)


@pytest.mark.parametrize("name", NONE)
def test_what_does_not_normalise_is_no_norm(name: str) -> None:
    assert recorded(NONE[name])[1] == []


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_norm_keeps_its_size(name: str) -> None:
    record, (norm,) = recorded(RIGHT[name])
    noise = like_noise(norm.entered)
    sizes = [rms(ask(record, norm, x)) for x in (noise, 10 * noise, noise + 3)]
    assert max(sizes) < 1.05 * min(sizes)


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_norm_does_not(name: str) -> None:
    record, (norm,) = recorded(WRONG[name])
    noise = like_noise(norm.entered)
    sizes = [rms(ask(record, norm, x)) for x in (noise, 10 * noise, noise + 3)]
    assert max(sizes) > 2 * min(sizes)


@pytest.mark.parametrize("axis", [0, 1])
def test_the_vectors_of_positions_are_told_from_the_axis_of_the_statistics(axis: int) -> None:
    record, (norm,) = recorded(lambda x: x * torch.rsqrt(x.pow(2).mean(axis, keepdim=True) + 1e-6))
    at = vectors(norm)
    assert at is not None and at.shape == (15, WIDTH)
    noise = like_noise(norm.entered)
    changed = noise.clone()
    changed[0, 0] += 1
    gap = (ask(record, norm, noise) - ask(record, norm, changed)).abs().flatten()[at - 1].amax(1)
    moved = (gap > 1e-6).view(3, 5)
    assert moved[0, 0] and moved.sum() == (3 if axis == 0 else 5)


def test_an_instance_norm_is_told_from_a_batch_norm() -> None:
    for layer, kind in ((nn.InstanceNorm1d(WIDTH), "instance"), (nn.BatchNorm1d(WIDTH), "batch")):
        layer = layer.double()
        _, found = recorded(lambda x, layer=layer: layer(x.mT).mT)
        assert [norm.kind for norm in found] == [kind]
