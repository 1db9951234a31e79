"""One call: what it looked up, and that nothing of it remains."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from headwise.doctor.trial import tensors_of, try_call


class Model(nn.Module):
    def __init__(self, batch_first: bool = True) -> None:
        super().__init__()
        self.tokens, self.kinds, self.places = nn.Embedding(9, 8), nn.Embedding(5, 8), nn.Embedding(50, 8)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=batch_first)
        self.drop = nn.Dropout(0.5)

    def forward(self, ids: Tensor, other: Tensor) -> Tensor:
        places = (ids != 0).cumsum(1)
        x = self.tokens(ids) + self.kinds(other) + self.places(places)
        return self.drop(self.attention(x, x, x)[0])


def test_the_tables_that_inputs_index_are_known_those_of_positions_are_not() -> None:
    ids = torch.ones(3, 4, dtype=torch.long)
    trial = try_call(Model(), (ids, ids.clone()))
    assert trial.error is None and trial.vocabularies == {0: 9, 1: 5}
    assert not trial.is_batch_second


def test_attention_that_takes_the_batch_for_time_is_seen() -> None:
    ids = torch.ones(3, 4, dtype=torch.long)
    assert try_call(Model(batch_first=False), (ids, ids.clone())).is_batch_second
    assert not try_call(Model(batch_first=False).attention, (torch.randn(4, 8),)).is_batch_second


def test_an_error_is_kept_and_the_model_comes_back() -> None:
    model = Model().train()
    model.drop.eval()
    state = torch.random.get_rng_state()
    trial = try_call(model, {"ids": torch.full((2, 2), 99), "other": torch.zeros(2, 2, dtype=torch.long)})
    assert isinstance(trial.error, IndexError)
    assert model.training and not model.drop.training and model.attention.training
    assert not model.attention._forward_pre_hooks
    assert torch.equal(state, torch.random.get_rng_state()) and torch.is_grad_enabled()


def test_the_tensors_of_both_forms() -> None:
    one, two = torch.zeros(1), torch.zeros(2)
    assert tensors_of((one, two)) == tensors_of({"a": one, "b": two}) == [one, two]
