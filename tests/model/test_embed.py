"""Looking ids up, and the factor sqrt(d_model)."""

from __future__ import annotations

import pytest
import torch

from headwise.errors import ConfigError
from headwise.model.embed import TokenEmbedding
from torch_layers import small_config


def test_each_id_becomes_its_row_times_sqrt_d_model() -> None:
    embedding = TokenEmbedding(small_config(d_model=9, positions="none"))
    ids = torch.tensor([[3, 0, 28], [3, 3, 1]])
    vectors = embedding(ids)
    assert vectors.shape == (2, 3, 9)
    for b in range(2):
        for t in range(3):
            assert torch.equal(vectors[b, t], embedding.table.weight[ids[b, t]] * 3)


def test_the_factor_can_be_left_out() -> None:
    embedding = TokenEmbedding(small_config(scale_embedding=False))
    assert torch.equal(embedding(torch.tensor([[7]]))[0, 0], embedding.table.weight[7])


def test_a_model_without_vocabulary_is_refused() -> None:
    with pytest.raises(ConfigError) as refused:
        TokenEmbedding(small_config(vocab_size=None))
    assert str(refused.value) == (
        "vocab_size must be set to build a model: got None; use the tokenizer's vocab_size"
    )
