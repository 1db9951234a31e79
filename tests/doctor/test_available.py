"""A device that is not there is refused in one line, wherever it is named."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from headwise.doctor.available import check_device
from headwise.doctor.examine import examine
from headwise.errors import ConfigError
from headwise.see.attention import attention
from headwise.see.walk.walk import trace

ABSENT = ["foo", "meta", "cuda:99", "xla", "hpu"]


def test_the_processor_is_there() -> None:
    check_device("cpu")
    layer = nn.TransformerEncoderLayer(8, 2, 8, batch_first=True)
    assert attention(layer, torch.randn(1, 3, 8), device="cpu").stacks


@pytest.mark.parametrize("name", ABSENT)
def test_what_is_not_there_is_named_beside_what_is(name: str) -> None:
    with pytest.raises(ConfigError, match=rf"^--device must be one that is there, cpu.*: got {name} \(.*\)$"):
        check_device(name, "--device")
    layer = nn.TransformerEncoderLayer(8, 2, 8, batch_first=True)
    for ask in (attention, examine, trace):
        with pytest.raises(ConfigError, match=rf"^device must be one that is there, cpu.*: got {name} "):
            ask(layer, torch.randn(1, 3, 8), device=name)
