"""What tells order, from whatever is given."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from headwise import EncoderDecoder, LanguageModel, ModelConfig
from headwise.errors import ConfigError
from headwise.model.positions import sinusoidal_table
from headwise.see.order import order_of

CONFIG = ModelConfig(
    vocab_size=20, d_model=16, num_heads=2, d_ff=16, num_encoder_layers=0, num_decoder_layers=1, max_length=12
)


def test_sinusoids_come_from_the_configuration() -> None:
    order = order_of(CONFIG, 10)
    assert order.table is not None and torch.equal(order.table, sinusoidal_table(10, 16))
    assert torch.equal(order_of(LanguageModel(CONFIG), 10).table, order.table)  # type: ignore[arg-type]


def test_rotary_is_the_angle_of_each_pair() -> None:
    table = order_of(replace(CONFIG, positions="rotary"), 5).table
    assert table is not None and table.shape == (5, 8)
    cosine, sine = table[:, :4], table[:, 4:]
    assert torch.allclose(cosine**2 + sine**2, torch.ones(5, 4))
    assert torch.allclose(cosine[:, 0], torch.arange(5).float().cos(), atol=1e-6)  # the fastest


def test_alibi_falls_with_distance_on_both_sides() -> None:
    bias = order_of(replace(CONFIG, positions="alibi"), 4).bias
    assert bias is not None
    steps = torch.arange(-3, 4).abs()
    assert torch.allclose(bias, -torch.tensor([[2.0**-4], [2.0**-8]]) * steps)


def test_learned_tables_are_the_models_own() -> None:
    model = LanguageModel(replace(CONFIG, positions="learned"))
    table = order_of(model).table
    assert table is not None and table.shape == (12, 16) and not table.requires_grad
    assert torch.equal(table, next(p for n, p in model.named_parameters() if n.endswith("positions.table")))
    assert order_of(nn.Embedding(7, 3)).table is not None
    assert torch.equal(order_of(np.ones((4, 2), dtype=np.float32)).table, torch.ones(4, 2))  # type: ignore[arg-type]
    relative = LanguageModel(replace(CONFIG, positions="relative"))
    bias = order_of(relative, 6).bias
    assert bias is not None and bias.shape == (2, 11)
    learned = next(p for n, p in relative.named_parameters() if n.endswith("bias.table"))
    assert torch.equal(bias[:, 5], learned[0])  # distance 0 has the first class


@pytest.mark.parametrize(
    ("given", "length", "message"),
    [
        (CONFIG, 1, "length must be a whole number of at least 2 positions: got 1"),
        (CONFIG, "3", "length must be a whole number of at least 2 positions: got '3'"),
        (None, None, "no positions in NoneType: give a table"),
        (torch.zeros(4, 0), None, "must be numbers"),
        (torch.tensor([[1.0], [float("nan")]]), None, "must hold finite numbers"),
        (replace(CONFIG, positions="none"), None, "positions is none: nothing tells order"),
        (replace(CONFIG, positions="learned"), None, "learned positions are learned, .*give the model"),
        (torch.zeros(4), None, r"must be numbers \[T, D\] with T >= 2: got torch.float32 \[4\]"),
        (torch.zeros(4, 3, dtype=torch.long), None, "must be numbers"),
        (torch.zeros(4, 3), 9, "the table has 4 positions: got length 9"),
        (nn.Linear(3, 3), None, r"no positions found in Linear: give their table \[T, D\]"),
    ],
)
def test_what_has_no_order_is_refused(given: object, length: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        order_of(given, length)  # type: ignore[arg-type]


def test_several_tables_are_named() -> None:
    model = EncoderDecoder(replace(CONFIG, positions="learned", num_encoder_layers=1))
    with pytest.raises(
        ConfigError, match="several position tables, source_positions, target_positions: give one"
    ):
        order_of(model)
    assert order_of(model.target_positions).table is not None
