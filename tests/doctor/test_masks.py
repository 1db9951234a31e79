"""Laws of the forms of masks: what is told of a mask does not depend on how it is written."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from headwise.doctor.adapt import adapt
from headwise.doctor.masks import causal_form, causal_forms, cut_after, hidden, later, prefixes, weak_fill
from headwise.doctor.probe import Probe
from headwise.doctor.sites import Site
from headwise.doctor.subject import Subject

HEADS, WIDTH = 2, 8


class Attention(nn.Module):
    """One layer; `visible` [T, T] and how it is put on are given from outside."""

    def __init__(self, visible: Any, way: str) -> None:
        super().__init__()
        self.visible, self.way = visible, way
        self.embed = nn.Embedding(19, WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, 19)

    def forward(self, ids: Tensor) -> Tensor:
        rows, length = ids.shape
        q, k, v = (
            t.view(rows, length, HEADS, WIDTH // HEADS).transpose(1, 2)
            for t in self.qkv(self.embed(ids)).chunk(3, -1)
        )
        keep = self.visible(length)
        scores = q @ k.mT / (WIDTH // HEADS) ** 0.5
        if self.way == "fill":
            weights = scores.masked_fill(~keep, -1e9).softmax(-1)
        elif self.way == "add":
            weights = (scores + torch.zeros(keep.shape).masked_fill(~keep, float("-inf"))).softmax(-1)
        elif self.way == "where":
            weights = torch.where(keep, scores, torch.full_like(scores, -1e4)).softmax(-1)
        elif self.way == "weak":
            weights = scores.masked_fill(~keep, 1e-9).softmax(-1)
        elif self.way == "shifted":
            weak = scores + torch.where(keep, 0.0, -3.0)
            weights = (weak - weak.amax(-1, keepdim=True)).softmax(-1)
        elif self.way == "times":
            weights = (scores * keep).softmax(-1)
        elif self.way == "after":
            weights = scores.softmax(-1) * keep
        elif self.way == "renormalised":
            weights = scores.softmax(-1) * keep
            weights = weights / weights.sum(-1, keepdim=True)
        else:
            weights = scores.softmax(-1)
        return self.out((weights @ v).transpose(1, 2).reshape(rows, length, WIDTH))


def probe_of(visible: Any, way: str = "fill") -> Probe:
    torch.manual_seed(0)
    ids = torch.randint(0, 19, (3, 12))
    return Probe(adapt(Subject(Attention(visible, way), (ids,), kind="decoder")))


def site_of(visible: Any, way: str = "fill") -> tuple[Probe, Site]:
    probe = probe_of(visible, way)
    (site,) = probe.sites
    return probe, site


def square(length: int) -> Tensor:
    return torch.ones(length, length, dtype=torch.bool)


def causal(length: int) -> Tensor:
    return square(length).tril()


FORMS = {
    "causal": causal,
    "off-by-one": lambda n: square(n).tril(1),
    "excludes-self": lambda n: square(n).tril(-1),
    "inverted": lambda n: square(n).triu(1),
    "open": square,
    "prefix": lambda n: square(n).tril() | (torch.arange(n) < 4),
    "part": lambda n: square(n).tril(2) & square(n).triu(-2),
}


@pytest.mark.parametrize("way", ["fill", "add", "where"])
@pytest.mark.parametrize("form", FORMS)
def test_the_form_is_told_however_the_mask_is_put_on(form: str, way: str) -> None:
    probe, site = site_of(FORMS[form], way)
    assert causal_form(probe, site) == form


def test_a_transposed_mask_is_inverted_and_a_window_is_right() -> None:
    assert causal_form(*site_of(lambda n: square(n).triu())) == "inverted"
    assert causal_form(*site_of(lambda n: square(n).tril() & square(n).triu(-3))) == "causal"


@pytest.mark.parametrize("way", ["weak", "shifted", "times"])
def test_a_mask_that_leaves_weight_is_weak_and_hides_nothing(way: str) -> None:
    probe, site = site_of(causal, way)
    assert causal_form(probe, site) == "weak"
    assert not hidden(site).any()


def test_the_constant_of_a_weak_mask_is_named_and_a_strong_or_missing_one_has_none() -> None:
    _, weak = site_of(causal, "shifted")
    future = later(*weak.shape[1:])
    assert weak_fill(weak, future) == pytest.approx(-3.0)
    for way in ("fill", "none"):
        assert weak_fill(site_of(causal, way)[1], future) is None


def test_only_a_mask_after_the_softmax_that_makes_rows_fall_short_is_a_cut() -> None:
    probe, site = site_of(causal, "after")
    future = later(*site.shape[1:])
    op = cut_after(site, future)
    assert op is not None and op.name == "mul"
    assert causal_form(probe, site) == "after"
    assert cut_after(site_of(causal, "renormalised")[1], future) is None
    assert cut_after(site_of(causal, "fill")[1], future) is None


@pytest.mark.parametrize("length", [0, 3])
def test_the_length_of_a_prefix_is_measured_in_every_slice(length: int) -> None:
    _, site = site_of(lambda n: square(n).tril() | (torch.arange(n) < length))
    assert prefixes(site).tolist() == [length] * site.shape[0]


def test_every_attention_that_must_be_causal_has_a_form_and_an_encoder_has_none() -> None:
    probe = probe_of(causal)
    assert [form for _, form in causal_forms(probe)] == ["causal"]
    ids = torch.randint(0, 19, (3, 12))
    encoder = Probe(adapt(Subject(Attention(square, "none"), (ids,), kind="encoder")))
    assert causal_forms(encoder) == []
