"""A mask is told from other tensors by its numbers, a wrong one by the line that right ones do not pass."""

from __future__ import annotations

import linecache

import pytest
import torch
from torch import Tensor, nn

from headwise.doctor.adapt import adapt
from headwise.doctor.check import Place
from headwise.doctor.mask_lines import (
    alike,
    by_place,
    made_at,
    mask_values,
    not_of,
    own_line,
    triangle,
    two_valued,
    wrong_mask,
    wrong_polarity,
)
from headwise.doctor.probe import Probe
from headwise.doctor.sites import Site
from headwise.doctor.subject import Subject

WIDTH, HEADS, VOCAB = 8, 2, 19
INF = float("inf")


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)

    def forward(self, x: Tensor, keep: Tensor) -> Tensor:
        q, k, v = (t.unflatten(-1, (HEADS, -1)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        scores = (q @ k.mT).masked_fill(~keep, -INF)  # APPLIED
        return (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)


class Two(nn.Module):
    """Two layers of one attention; `fault` says what is wrong with the second."""

    def __init__(self, fault: str) -> None:
        super().__init__()
        self.fault = fault
        self.words, self.out = nn.Embedding(VOCAB, WIDTH), nn.Linear(WIDTH, VOCAB)
        self.first, self.second = Attention(), Attention()

    def forward(self, ids: Tensor) -> Tensor:
        x, ones = self.words(ids), torch.ones(ids.size(1), ids.size(1), dtype=torch.bool)
        keep = ones.tril()
        x = x + self.first(x, keep)
        if self.fault == "made":
            wide = ones.tril(2)  # MADE
            return self.out(x + self.second(x, wide))
        if self.fault == "turned":
            return self.out(x + self.second(x, keep.mT))  # TURNED
        flipped = ~keep | keep.mT  # INVERTED
        return self.out(x + self.second(x, flipped))


def sites_of(fault: str) -> tuple[Probe, Site, Site]:
    probe = Probe(adapt(Subject(Two(fault), (torch.randint(0, VOCAB, (3, 12)),), kind="decoder")))
    good, bad = probe.sites
    return probe, good, bad


def marked(place: Place | None) -> str:
    assert place is not None
    return linecache.getline(place.file, place.line).rpartition("# ")[2].strip()


def square(length: int = 6) -> Tensor:
    return torch.ones(length, length)


@pytest.mark.parametrize(
    ("tensor", "told"),
    [
        (square().tril(), "two-valued by-place triangle"),
        (square().triu(1).bool(), "two-valued by-place triangle"),
        (torch.zeros(1, 1, 6, 6).masked_fill(square().triu(1).bool(), -INF), "two-valued by-place triangle"),
        (square().tril(2), "two-valued by-place"),
        (square().tril() * square().triu(-2), "two-valued by-place"),
        ((torch.arange(6) < 4).expand(6, 6), "two-valued"),
        (square().bool(), "alike"),
        (torch.arange(36.0).view(6, 6), ""),
        (torch.tensor(1.0), ""),
    ],
)
def test_masks_are_told_by_their_numbers(tensor: Tensor, told: str) -> None:
    is_alike = tensor.dim() >= 2 and alike(tensor)
    answers = (two_valued(tensor), by_place(tensor), triangle(tensor, 6), is_alike)
    names = ("two-valued", "by-place", "triangle", "alike")
    assert " ".join(name for name, answer in zip(names, answers, strict=True) if answer) == told
    assert not triangle(tensor, 5)


def test_a_mask_of_its_own_is_blamed_where_it_was_made() -> None:
    probe, good, bad = sites_of("made")
    place, others = wrong_mask(probe, probe.base.record, bad, [good], by_place)
    assert marked(place) == "MADE" and "APPLIED" in [marked(each) for each in others]


def test_a_mask_that_serves_another_layer_rightly_is_blamed_where_it_was_handed_over() -> None:
    probe, good, bad = sites_of("turned")
    assert marked(own_line(bad, [good])) == "TURNED"
    assert marked(wrong_mask(probe, probe.base.record, bad, [good], by_place)[0]) == "TURNED"
    assert marked(own_line(bad, [])) != "TURNED"  # the innermost, where nobody else passes


def test_polarity_is_the_makers_where_the_same_line_applies_another_rightly() -> None:
    probe, good, bad = sites_of("inverted")
    record = probe.base.record
    assert marked(wrong_polarity(probe, record, bad, [good], by_place)[0]) == "INVERTED"
    assert marked(wrong_polarity(probe, record, bad, [], by_place)[0]) == "APPLIED"


def test_what_leads_to_right_masks_is_left_out() -> None:
    probe, good, bad = sites_of("made")
    record = probe.base.record
    value, place = made_at(probe, record, mask_values(bad), lambda t: triangle(t, probe.length))
    assert value is None and place is None
    value, place = made_at(probe, record, mask_values(good), lambda t: triangle(t, probe.length))
    assert value is not None and place is not None and place.function == "Two.forward"
    assert made_at(probe, record, mask_values(good), by_place, mask_values(good)) == (None, None)
    assert not_of([good, bad], [bad]) == [good]
