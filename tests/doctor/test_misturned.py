"""A wrong turning is blamed on the line that holds it: the tables, the pairing, the product, or the call."""

from __future__ import annotations

import linecache

import pytest
import torch
from torch import Tensor, nn

from doctor.turning_model import (
    HEAD,
    VOCAB,
    Turn,
    by_halves,
    half,
    mismatched,
    probe_of,
    two_cosines,
    without_minus,
)
from headwise.doctor.adapt import adapt
from headwise.doctor.check import Place
from headwise.doctor.misturned import blamed
from headwise.doctor.probe import Probe
from headwise.doctor.subject import Subject
from headwise.doctor.turning import rotations, with_same_token


def blame(probe: Probe) -> tuple[str, Place, list[Place | None]]:
    (site,) = probe.sites
    queries, keys, _ = rotations(probe, site)
    same = with_same_token(probe, site)
    assert same is not None
    what, place, others = blamed(probe, site, queries, keys, same[0] @ same[1].mT)
    assert place is not None
    return what, place, others


def code(place: Place) -> str:
    return linecache.getline(place.file, place.line).strip()


@pytest.mark.parametrize(
    ("turn", "line"),
    [
        (mismatched, "angle = angle.repeat_interleave(2, -1)"),
        (without_minus, "return x * angle.cos() + torch.cat((b, a), -1) * angle.sin()"),
        (two_cosines, "return x * angle.cos() + half(x) * angle.cos()"),
    ],
)
def test_each_mistake_of_a_turn_is_blamed_on_its_own_line(turn: Turn, line: str) -> None:
    _, place, others = blame(probe_of(turn))
    assert place.function == turn.__name__ and code(place) == line
    assert any(other is not None and other.function == turn.__name__ for other in others)


class Sides(nn.Module):
    """Turns queries and keys by functions of their own, where each is turned at all."""

    def __init__(self, side: str) -> None:
        super().__init__()
        self.side = side
        self.words, self.qkv = nn.Embedding(VOCAB, 2 * HEAD), nn.Linear(2 * HEAD, 6 * HEAD)
        self.out = nn.Linear(2 * HEAD, VOCAB)

    def forward(self, ids: Tensor) -> Tensor:
        q, k, v = self.qkv(self.words(ids)).unflatten(-1, (3, 2, HEAD)).permute(2, 0, 3, 1, 4)
        angle = torch.arange(ids.size(1))[:, None] * 100.0 ** (-torch.arange(0, HEAD, 2) / HEAD)
        if self.side == "pair":
            q, k = pair(q, k, angle)
        if self.side in {"queries", "opposite", "faster"}:
            q = by_halves(q, angle)
        if self.side in {"keys", "opposite", "faster"}:
            k = by_halves(k, {"opposite": -angle, "faster": 2 * angle}.get(self.side, angle))
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(mixed.transpose(1, 2).flatten(2))


def pair(q: Tensor, k: Tensor, angle: Tensor) -> tuple[Tensor, Tensor]:
    wide = torch.cat((angle, angle), -1)
    return q * wide.cos() + half(q) * wide.sin(), k


def side_of(side: str) -> Probe:
    torch.manual_seed(0)
    return Probe(adapt(Subject(Sides(side), (torch.randint(0, VOCAB, (5, 14)),), kind="decoder")))


@pytest.mark.parametrize("side", ["queries", "keys"])
def test_one_side_alone_is_blamed_on_the_attention_that_turned_it(side: str) -> None:
    what, place, _ = blame(side_of(side))
    assert what == f"only the {side} are turned" and place.function == "Sides.forward"


@pytest.mark.parametrize(
    ("side", "said"), [("opposite", "in opposite directions"), ("faster", "by different angles")]
)
def test_directions_are_told_from_angles(side: str, said: str) -> None:
    what, _, _ = blame(side_of(side))
    assert what == f"queries and keys are turned {said}"


def test_a_helper_that_got_both_and_turned_one_is_at_fault_itself() -> None:
    what, place, _ = blame(side_of("pair"))
    assert what == "only the queries are turned" and place.function == "pair"
