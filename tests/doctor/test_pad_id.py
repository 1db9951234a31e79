"""A pad id that the model has no row for is refused; one that it takes, or that its batch holds, is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from headwise.doctor.adapt import adapt
from headwise.doctor.pad_id import check_pad_id
from headwise.doctor.probe import Probe
from headwise.doctor.subject import Subject
from headwise.errors import ConfigError

V = 19


class Net(nn.Module):
    def __init__(self, read: Callable[[Tensor], Tensor] = lambda ids: ids) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.words, self.head = nn.Embedding(V, 8), nn.Linear(8, V)
        self.read = read

    def forward(self, *streams: Tensor) -> Tensor:
        return self.head(sum(self.words(self.read(ids)).mean(1, keepdim=True) for ids in streams))


def probe(pad: int | None, net: nn.Module | None = None, **more: Any) -> Probe:
    ids = more.pop("ids", torch.arange(44).view(4, 11) % V)
    inputs = more.pop("inputs", (ids,))
    return Probe(adapt(Subject(net or Net(), inputs, pad_id=pad, **more)))


@pytest.mark.parametrize("pad", [None, 0, V - 1])
def test_a_token_id_is_taken(pad: int | None) -> None:
    check_pad_id(probe(pad))


@pytest.mark.parametrize("layout", ["batch-first", "time-major"])
@pytest.mark.parametrize("pad", [V, 99999, -5])
def test_what_the_model_has_no_row_for_is_refused(pad: int, layout: Any) -> None:
    with pytest.raises(ConfigError, match=f"token ids, 0 to {V - 1}: got {pad}; .*--pad-id"):
        check_pad_id(probe(pad, layout=layout))


def test_a_model_that_reads_ids_in_its_own_way_may_have_any() -> None:
    check_pad_id(probe(-1, Net(lambda ids: ids.clamp(min=0))))
    held = torch.arange(44).view(4, 11) % V
    held[1, 8:] = -1
    check_pad_id(probe(-1, Net(lambda ids: ids.clamp(min=0)), ids=held))


def test_a_model_that_does_not_run_is_told_of_elsewhere() -> None:
    held = torch.full((2, 5), V)
    given = probe(V, ids=held)
    assert given.failure is not None
    check_pad_id(given)


def test_vectors_have_no_pad_id() -> None:
    check_pad_id(probe(99, nn.Linear(8, 8), inputs=(torch.zeros(2, 5, 8),)))


def test_it_is_enough_that_one_of_two_sequences_takes_it() -> None:
    class Two(Net):
        def forward(self, src: Tensor, tgt: Tensor) -> Tensor:
            return super().forward(src.clamp(max=V - 1), tgt)

    ids = torch.arange(44).view(4, 11) % V
    check_pad_id(probe(V, Two(), inputs=(ids, ids), kind="encoder-decoder"))
    with pytest.raises(ConfigError, match="got 20"):
        check_pad_id(probe(20, Net(), inputs=(ids, ids), kind="encoder-decoder"))
