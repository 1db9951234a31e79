"""`assert_healthy` in a user's own suite: silent on a right model, the report on a wrong one."""

from __future__ import annotations

import inspect

import pytest
import torch
from torch import Tensor, nn

from headwise.doctor.examine import examine
from headwise.errors import ConfigError
from headwise.testing import assert_healthy


class Model(nn.Module):
    def __init__(self, leaks: bool) -> None:
        super().__init__()
        self.tokens, self.places, self.head = nn.Embedding(19, 16), nn.Embedding(32, 16), nn.Linear(16, 19)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, 0.0, batch_first=True, norm_first=True)
        self.norm, self.leaks = nn.LayerNorm(16), leaks

    def forward(self, ids: Tensor) -> Tensor:
        mask = torch.ones(ids.size(1), ids.size(1), dtype=torch.bool).triu(1)
        x = self.tokens(ids) + self.places(torch.arange(ids.size(1)))
        return self.head(self.norm(self.layer(x, None if self.leaks else mask)))


IDS = torch.arange(24).view(3, 8) % 19


def test_a_healthy_model_passes() -> None:
    assert_healthy(Model(leaks=False), IDS, kind="decoder", select=["causal-leak"], fail_on="note")


def test_a_fault_raises_the_report() -> None:
    with pytest.raises(AssertionError, match="HW101 causal-leak") as error:
        assert_healthy(Model(leaks=True), IDS, kind="decoder", select=["causal-leak"])
    assert "test_testing.py" in str(error.value) and "Fix" in str(error.value)


def test_what_is_ignored_does_not_count() -> None:
    assert_healthy(Model(leaks=True), IDS, kind="decoder", select=["HW101"], ignore=["causal-leak"])


def test_a_comment_excuses_a_line() -> None:
    class Excused(Model):
        def forward(self, ids: Tensor) -> Tensor:
            x = self.tokens(ids)
            return self.head(x + x.mean(1, keepdim=True))  # headwise: ignore[causal-leak]

    assert_healthy(Excused(leaks=False), IDS, kind="decoder", select=["causal-leak"])


def test_wrong_options_are_refused() -> None:
    with pytest.raises(ConfigError, match="fail_on must be"):
        assert_healthy(Model(leaks=False), IDS, select=["causal-leak"], fail_on="all")  # pyright: ignore
    with pytest.raises(ConfigError, match="no check is called"):
        assert_healthy(Model(leaks=False), IDS, select=["casual-leak"])


def test_it_takes_what_examine_takes() -> None:
    mine = set(inspect.signature(assert_healthy).parameters)
    assert mine - {"fail_on"} == set(inspect.signature(examine).parameters)
