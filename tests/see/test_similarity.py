"""Similarity by distance: what the formula says of sinusoids, what noise and a bias look like."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import torch

from headwise import ModelConfig
from headwise.see.order import Order, order_of
from headwise.see.similarity import draw_similarity, similarity_by_distance

CONFIG = ModelConfig(vocab_size=20, d_model=16, num_heads=2, d_ff=16)


def test_law_of_sinusoids_the_distance_alone_decides() -> None:
    mean, least, most = similarity_by_distance(order_of(CONFIG, 40))
    frequencies = [10_000 ** (-2 * i / 16) for i in range(8)]
    expected = torch.tensor([sum(math.cos(w * k) for w in frequencies) / 8 for k in range(40)]).double()
    torch.testing.assert_close(mean, expected, atol=1e-6, rtol=0)
    torch.testing.assert_close(least, most, atol=1e-6, rtol=0)


def test_a_random_table_is_the_wrong_twin() -> None:
    mean, least, most = similarity_by_distance(Order("noise", table=torch.randn(40, 16)))
    assert float((most - least).max()) > 0.5 and abs(float(mean[1])) < 0.3


def test_the_caption_says_which_it_is() -> None:
    assert "The band has no width" in draw_similarity(CONFIG).caption
    noise = draw_similarity(torch.randn(60, 32)).caption
    assert "the same distance looks different" in noise and "No position resembles any other" in noise


def test_no_claim_is_made_of_tables_that_do_not_bear_it() -> None:
    turns = draw_similarity(torch.tensor([[1.0, 0.0], [-1.0, 0.0]]).repeat(8, 1)).caption
    assert "No position resembles" not in turns and "From 1.00 at distance 0" in turns
    nothing = draw_similarity(torch.zeros(4, 4)).caption
    assert "From 0.00 at distance 0" in nothing and "all zero" in nothing


def test_the_line_and_the_axes_are_those_numbers() -> None:
    [axes] = draw_similarity(CONFIG, 20).figure.axes
    mean, _, _ = similarity_by_distance(order_of(CONFIG, 20))
    np.testing.assert_allclose(axes.lines[0].get_ydata(), mean.numpy())
    assert axes.get_xlabel() == "distance (tokens)" and axes.get_ylabel().startswith("cosine")


def test_biases_have_a_line_for_each_head() -> None:
    alibi = replace(CONFIG, positions="alibi", num_heads=8)
    drawn = draw_similarity(alibi, 10)
    [axes] = drawn.figure.axes
    assert len(axes.lines) == 6 and "The first 6 of 8 heads." in drawn.caption
    np.testing.assert_allclose(axes.lines[2].get_ydata(), -(2.0**-3) * np.abs(np.arange(-9, 10)))
    assert len({str(line.get_linestyle()) + line.get_color() for line in axes.lines}) == 6
