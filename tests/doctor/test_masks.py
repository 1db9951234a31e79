"""Laws of the forms of masks: what is told of a mask does not depend on how it is written."""

from __future__ import annotations

import pytest
import torch

from doctor.mask_model import Attention, causal, probe_of, site_of, square
from headwise.doctor.adapt import adapt
from headwise.doctor.masks import causal_form, causal_forms, cut_after, hidden, later, prefixes, weak_fill
from headwise.doctor.probe import Probe
from headwise.doctor.subject import Subject

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
