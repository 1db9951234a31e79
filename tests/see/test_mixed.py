"""What a mask hides, and what is really mixed with the values."""

from __future__ import annotations

import linecache
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from headwise.see.attention import Attention, attention
from headwise.see.stacks import Layer

T = 6
UP = torch.ones(T, T, dtype=torch.bool).triu(1)
ROW = torch.arange(T)[:, None] == 2
FACTOR = nn.Parameter(torch.tensor(3.0))
Change = Callable[[Tensor], Tensor]


def same(tensor: Tensor) -> Tensor:
    return tensor


class Written(nn.Module):
    """Two heads; `before` and `after` change scores and weights, and what was mixed is kept."""

    def __init__(self, before: Change = same, after: Change = same, size: float = 1.0) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.table = nn.Parameter(torch.randn(30, 16, generator=generator))
        self.project = nn.Parameter(torch.randn(3, 16, 16, generator=generator) / 4)
        self.before, self.after, self.size = before, after, size
        self.factor = FACTOR  # as a parameter of the model

    def forward(self, ids: Tensor) -> Tensor:
        x = self.table[ids]
        q, k, v = ((x @ each).unflatten(-1, (2, 8)).transpose(1, 2) for each in self.project)
        self.mixed = self.after(self.before(self.size * q @ k.mT / 8**0.5).softmax(-1))
        return (self.mixed @ v).transpose(1, 2).flatten(2)


def shown(model: Written, length: int = T) -> tuple[Layer, Tensor, Attention]:
    """The layer, what the model itself mixed, and everything that was found."""
    ids = torch.arange(length)[None] * 7 % 30
    with torch.no_grad():
        model.eval()(ids)
    mixed = model.mixed[0].float()  # examining takes back what a module keeps
    found = attention(model, ids)
    return found.stacks[0].layers[0], mixed, found


SOFT: dict[str, Change] = {
    "largest subtracted": lambda a: a - a.amax(-1, keepdim=True),
    "soft cap": lambda a: 50 * torch.tanh(a / 50),
    "clamp": lambda a: a.clamp(-50, 50),
    "learnt factor": lambda a: a * FACTOR,
    "no negative": lambda a: a.relu(),
    "steep bias": lambda a: a - 50.0 * (torch.arange(T) - torch.arange(T)[:, None]).abs(),
}


@pytest.mark.parametrize("size", [1, 900, 1600])
@pytest.mark.parametrize("name", SOFT)
def test_no_gradual_change_of_large_scores_is_a_mask(name: str, size: int) -> None:
    layer, mixed, _ = shown(Written(SOFT[name], size=size))
    assert bool(layer.keep.all())
    torch.testing.assert_close(layer.weights, mixed)


@pytest.mark.parametrize("fill", [-torch.inf, -1e4])
def test_a_bias_by_distance_hides_nothing_in_a_long_text(fill: float) -> None:
    away = torch.arange(300) - torch.arange(300)[:, None]
    slopes = torch.tensor([0.5, 0.25])[:, None, None]
    later = torch.where(away > 0, fill, 0.0)
    layer, mixed, _ = shown(Written(lambda a: a - slopes * away.abs() + later), 300)
    assert torch.equal(layer.keep[0], away <= 0)
    assert torch.equal(layer.weights, mixed)


MASKS: dict[str, Change] = {
    "-inf": lambda a: a.masked_fill(UP, -torch.inf),
    "least number": lambda a: a + UP * torch.finfo(a.dtype).min,
    "-1e9": lambda a: a.masked_fill(UP, -1e9),
    "-1e4": lambda a: a + UP * -1e4,
    "-100": lambda a: a + UP * -100.0,
    "factor": lambda a: a * ~UP - 1e4 * UP,
    "where": lambda a: torch.where(UP, torch.tensor(-torch.inf), a),
    "after a soft cap": lambda a: (50 * torch.tanh(a / 50)).masked_fill(UP, -1e9),
}


@pytest.mark.parametrize("name", MASKS)
def test_every_way_of_masking_is_seen(name: str) -> None:
    layer, mixed, found = shown(Written(MASKS[name], size=3))
    assert torch.equal(layer.keep, ~UP[None]) and torch.equal(layer.weights, mixed) and found.notes == ()


def test_masks_of_each_head_of_a_row_and_of_the_scores_themselves_are_seen() -> None:
    both = torch.stack([UP, UP.T])
    assert torch.equal(shown(Written(lambda a: a.masked_fill(both, -torch.inf)))[0].keep, ~both)
    layer, _, found = shown(Written(lambda a: a.masked_fill(ROW, -torch.inf)))
    assert torch.equal(layer.keep[0], ~ROW.expand(T, T)) and not layer.weights[:, 2].any()
    assert found.notes[0].startswith("1 query of the first layers may look nowhere")
    kept = Written(lambda a: a.masked_fill(a < a.topk(2, -1).values[..., -1:], -1e9))
    assert torch.equal(shown(kept)[0].keep, shown(kept)[1] > 0)
    # a row that is filled alike has weights: they are the model's
    layer, mixed, _ = shown(Written(lambda a: a.masked_fill(ROW, -1e9)))
    assert bool(layer.keep.all()) and torch.equal(layer.weights, mixed)


def test_a_weight_that_is_left_is_not_hidden() -> None:
    """Scores so large that -100 does not keep a query away."""
    layer, mixed, _ = shown(Written(lambda a: a + UP * -100.0, size=900))
    assert bool((mixed[:, UP] > 0.5).any())
    assert torch.equal(layer.weights, mixed) and bool(layer.keep.expand(mixed.shape)[mixed > 1e-6].all())


def test_not_a_number_is_not_masked() -> None:
    layer, _, _ = shown(Written(lambda a: a * torch.nan))
    assert bool(layer.keep.all()) and bool(layer.weights.isnan().all())
    layer, _, _ = shown(Written(lambda a: a.masked_fill(ROW, torch.nan)))
    assert bool(layer.keep.all()) and torch.equal(layer.weights.isnan()[0], ROW.expand(T, T))


def emptied(weights: Tensor) -> Tensor:
    weights = weights.clone()
    weights[..., 0] = 0
    return weights


CHANGES: dict[str, Change] = {
    "mask": lambda w: w * ~UP,
    "mask, again to 1": lambda w: (w * ~UP) / (w * ~UP).sum(-1, keepdim=True),
    "largest two": lambda w: w.masked_fill(w < w.topk(2, -1).values[..., -1:], 0),
    "factor": lambda w: w * 0.5,
    "in place": emptied,
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_is_changed_after_the_softmax_is_shown_as_it_is_mixed(name: str) -> None:
    layer, mixed, found = shown(Written(after=CHANGES[name]))
    torch.testing.assert_close(layer.weights, mixed, atol=1e-7, rtol=0)
    (note,) = found.notes
    assert note.startswith("the weights are changed after the softmax, at ") and "test_mixed.py:" in note
    line = int(note.partition("test_mixed.py:")[2].partition(":")[0])
    text = linecache.getline(__file__, line)
    assert ("weights[..., 0] = 0" if name == "in place" else f'"{name}": lambda w') in text


def test_casts_and_dropout_are_no_change() -> None:
    plain = shown(Written())[0].weights
    unchanged: dict[str, Change] = {
        "cast": lambda w: w.half().float(),
        "dropout, off": lambda w: F.dropout(w, 0.5, False),
        "dropout, on": lambda w: F.dropout(w, 0.5, True),
        "no NaN": torch.nan_to_num,
    }
    for name, change in unchanged.items():
        layer, _, found = shown(Written(after=change))
        torch.testing.assert_close(layer.weights, plain, atol=1e-3 if name == "cast" else 0, rtol=0)
        assert found.notes == (), name
    layer, _, found = shown(Written(after=lambda w: 0.5 * F.dropout(w, 0.5, True)))
    torch.testing.assert_close(layer.weights, 0.5 * plain)
    assert "changed after the softmax" in found.notes[0]
