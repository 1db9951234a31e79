"""A model on another device than the CPU is examined where it is: nothing of ours meets it from here."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from doctor.pretend_device import AWAY, PretendDevice
from headwise.doctor.adapt import flatten
from headwise.doctor.examine import examine_subject
from headwise.doctor.report import Report
from headwise.doctor.subject import Subject

VOCAB, WIDTH, HEADS, PAD = 23, 24, 3, 0


class Attention(nn.Module):
    def __init__(self, is_rotary: bool = False) -> None:
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.is_rotary = is_rotary

    def forward(self, x: Tensor, memory: Tensor, keep: Tensor) -> Tensor:
        q, k, v = (
            layer(y).unflatten(-1, (HEADS, -1)).transpose(1, 2)
            for layer, y in ((self.q, x), (self.k, memory), (self.v, memory))
        )
        if self.is_rotary:
            q, k = turned(q), turned(k)
        scores = q @ k.mT / math.sqrt(WIDTH // HEADS)
        weights = scores.masked_fill(~keep, -math.inf).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).flatten(2))


def turned(x: Tensor) -> Tensor:
    """Each pair of features turned by an angle that grows with the position."""
    half = x.size(-1) // 2
    rates = 10_000.0 ** (-torch.arange(half, device=x.device, dtype=x.dtype) / half)
    angles = torch.arange(x.size(-2), device=x.device, dtype=x.dtype)[:, None] * rates
    a, b = x.chunk(2, -1)
    return torch.cat([a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()], -1)


class Block(nn.Module):
    def __init__(self, is_crossed: bool = False, is_rotary: bool = False) -> None:
        super().__init__()
        self.own, self.one = Attention(is_rotary), nn.LayerNorm(WIDTH)
        self.cross, self.two = (Attention(), nn.LayerNorm(WIDTH)) if is_crossed else (None, None)
        self.feed = nn.Sequential(nn.Linear(WIDTH, 48), nn.GELU(), nn.Linear(48, WIDTH))
        self.three = nn.LayerNorm(WIDTH)

    def forward(
        self, x: Tensor, keep: Tensor, memory: Tensor | None = None, cross: Tensor | None = None
    ) -> Tensor:
        y = self.one(x)
        x = x + self.own(y, y, keep)
        if self.cross is not None and self.two is not None and memory is not None and cross is not None:
            x = x + self.cross(self.two(x), memory, cross)
        return x + self.feed(self.three(x))


class Stack(nn.Module):
    """Words, learned positions (or rotations) and two blocks; what it makes, it makes where it is."""

    def __init__(self, is_causal: bool, is_crossed: bool = False, is_rotary: bool = False) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(VOCAB, WIDTH), nn.Embedding(32, WIDTH)
        self.blocks = nn.ModuleList([Block(is_crossed, is_rotary) for _ in range(2)])
        self.norm = nn.LayerNorm(WIDTH)
        self.is_causal, self.is_rotary = is_causal, is_rotary

    def forward(
        self, ids: Tensor, memory: Tensor | None = None, cross: Tensor | None = None, is_open: bool = False
    ) -> Tensor:
        length = ids.size(1)
        keep = (ids != PAD)[:, None, None, :]
        if self.is_causal and not is_open:
            keep = keep & torch.ones(length, length, dtype=torch.bool, device=ids.device).tril()
            keep = keep | torch.eye(length, dtype=torch.bool, device=ids.device)
        x = self.words(ids)
        if not self.is_rotary:
            x = x + self.places(torch.arange(length, device=ids.device))
        for block in self.blocks:
            x = block(x, keep, memory, cross)
        return self.norm(x)


class Decoder(nn.Module):
    def __init__(self, is_open: bool = False, is_rotary: bool = False) -> None:
        super().__init__()
        self.stack, self.head = Stack(True, is_rotary=is_rotary), nn.Linear(WIDTH, VOCAB)
        self.is_open = is_open

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.stack(ids, is_open=self.is_open))


class Pair(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.decoder = Stack(False), Stack(True, is_crossed=True)
        self.head = nn.Linear(WIDTH, VOCAB)

    def forward(self, src: Tensor, tgt: Tensor) -> Tensor:
        memory = self.encoder(src)
        return self.head(self.decoder(tgt, memory, (src != PAD)[:, None, None, :]))


def loss(logits: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=PAD)


def generate(model: nn.Module, ids: Tensor, n_new: int) -> Tensor:
    for _ in range(n_new):
        ids = torch.cat([ids, model(ids)[:, -1:].argmax(-1)], 1)
    return ids


def padded(rows: int, length: int) -> Tensor:
    ids = torch.randint(1, VOCAB, (rows, length))
    for row in range(rows):
        ids[row, length - 2 * (row % 3) :] = PAD
    return ids


def decoder(device: str, **how: bool) -> Subject:
    torch.manual_seed(0)
    model, ids = Decoder(**how).to(device), padded(4, 12).to(device)
    return Subject(
        model, (ids[:, :-1],), kind="decoder", pad_id=PAD, targets=ids[:, 1:], loss=loss, generate=generate,
        optimizer=torch.optim.AdamW(model.parameters(), lr=1e-3),
    )  # fmt: skip


def pair(device: str) -> Subject:
    torch.manual_seed(0)
    model, src, tgt = Pair().to(device), padded(4, 9).to(device), padded(4, 8).to(device)
    return Subject(
        model, (src, tgt[:, :-1]), kind="encoder-decoder", pad_id=PAD, targets=tgt[:, 1:], loss=loss,
        optimizer=torch.optim.AdamW(model.parameters(), lr=1e-3),
    )  # fmt: skip


MADE: dict[str, Callable[[str], Subject]] = {
    "decoder": decoder,
    "decoder that sees the future": lambda device: decoder(device, is_open=True),
    "rotary decoder": lambda device: decoder(device, is_rotary=True),
    "encoder-decoder": pair,
}


def told(report: Report) -> tuple[list[str], list[str]]:
    """The names of errors and warnings, and the checks that broke off, with what stopped them."""
    broken = [f"{id} {v.tried}" for id, v in report.verdicts.items() if v.verdict == "could-not-run"]
    return [finding.name for finding in report.findings if finding.severity != "note"], broken


def expected(name: str) -> list[str]:
    return ["causal-leak"] if "future" in name else []


SLOWLY = [pytest.param(name, marks=pytest.mark.slow) for name in MADE]


@pytest.mark.parametrize("name", ["decoder", *SLOWLY[1:]])
def test_no_tensor_of_ours_is_made_on_the_cpu_and_meets_the_models(name: str) -> None:
    subject = MADE[name]("cpu")
    with PretendDevice(subject.model, *flatten(subject.inputs), *flatten(subject.targets)) as away:
        report = examine_subject(subject)
    assert away.met == []
    assert told(report) == (expected(name), [])


@pytest.mark.parametrize("name", SLOWLY)
def test_nor_where_the_model_is_sent_to_the_device_and_its_batch_is_here(name: str) -> None:
    with PretendDevice() as away:
        report = examine_subject(MADE[name]("cpu"), device=str(AWAY))
    assert away.met == []
    assert told(report) == (expected(name), [])


def test_the_pretended_device_notices_a_meeting() -> None:
    model = nn.Linear(3, 3)
    x = torch.randn(2, 3)
    with PretendDevice(model, x) as away:
        assert model(x).device == x.device != torch.randn(2, 3).device
        assert away.met == []
        _ = x * torch.ones(3, device=x.device) + torch.randn(2, 3).to(x) + torch.tensor(2.0)
        assert x.cpu().device == torch.randn(2, 3).device and away.met == []
        _ = x + torch.ones(3)
        _ = model(torch.randn(2, 3))
    assert [met.partition(" ")[0] for met in away.met] == ["add", "addmm"]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("name", MADE)
def test_a_model_on_a_cuda_device_gets_the_report_that_it_gets_on_the_cpu(name: str) -> None:
    there = examine_subject(MADE[name]("cuda"))
    assert told(there) == (expected(name), [])
    sent = examine_subject(MADE[name]("cpu"), device="cuda")
    assert told(sent) == (expected(name), [])
