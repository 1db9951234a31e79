"""What carries a value on is told from what reads it, whichever way it is written."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from headwise.doctor.adapt import adapt
from headwise.doctor.flow import Flow, data_of, is_scaled, is_sum, stream_of, weight_name, weight_of
from headwise.doctor.probe import Probe
from headwise.doctor.subject import Subject
from headwise.doctor.trace import Op

VOCAB, WIDTH = 23, 8
Step = Callable[["Net", Tensor], Tensor]


class Net(nn.Module):
    def __init__(self, step: Step) -> None:
        super().__init__()
        self.step = step
        self.words, self.norm = nn.Embedding(VOCAB, WIDTH), nn.LayerNorm(WIDTH)
        self.layer, self.filter = nn.Linear(WIDTH, WIDTH), nn.Conv1d(WIDTH, WIDTH, 1)
        self.weight, self.other = (nn.Parameter(torch.randn(WIDTH, WIDTH)) for _ in range(2))
        self.gain = nn.Parameter(torch.full((WIDTH,), 2.0))
        self.out = nn.Linear(WIDTH, VOCAB)

    def forward(self, ids: Tensor) -> Tensor:
        return self.out(self.step(self, self.words(ids)))


def probe_of(step: Step) -> Probe:
    return Probe(adapt(Subject(Net(step), (torch.randint(0, VOCAB, (5, 14)),), kind="encoder")))


def ops_of(probe: Probe, *names: str) -> list[Op]:
    return [op for op in probe.base.record.ops if op.name in names]


PRODUCTS: list[tuple[Step, str]] = [
    (lambda net, x: net.layer(x), "layer.weight"),
    (lambda net, x: x @ net.weight, "weight"),
    (lambda net, x: torch.einsum("btd,de->bte", x, net.weight), "weight"),
    (lambda net, x: (net.weight @ x.mT).mT, "weight"),
    (lambda net, x: net.filter(x.mT).mT, "filter.weight"),
    (lambda net, x: x @ (net.weight + net.other), ""),
]


@pytest.mark.parametrize(("step", "name"), PRODUCTS)
def test_a_product_with_weights_is_known_by_its_parameter_and_by_what_it_reads(step: Step, name: str) -> None:
    probe = probe_of(step)
    op = next(op for op in probe.base.record.ops if op.outputs and weight_of(op) is not None)
    assert weight_name(op) == name
    embedded = ops_of(probe, "embedding")[0].out
    assert Flow(probe).entrance(data_of(op)) is embedded


def test_a_product_of_two_computed_values_has_no_weights() -> None:
    probe = probe_of(lambda net, x: (x @ x.mT).softmax(-1) @ x)
    weighty = [op for op in probe.base.record.ops if op.outputs and weight_of(op) is not None]
    assert [weight_name(op) for op in weighty] == ["out.weight"]


def test_a_norm_is_behind_its_moved_and_scaled_result_and_not_behind_a_layer() -> None:
    def step(net: Net, x: Tensor) -> Tensor:
        normed = (net.norm(x) * net.gain).transpose(0, 1).contiguous().transpose(0, 1)
        return net.layer(normed)

    probe = probe_of(step)
    flow = Flow(probe)
    (norm,) = flow.by_out.values()
    products = [op for op in probe.base.record.ops if op.outputs and weight_of(op) is not None]
    assert flow.norm_behind(data_of(products[0])) is norm and flow.entrance(data_of(products[0])) is norm.out
    assert flow.norm_behind(products[-1].out) is None
    assert norm.op in flow.norm_ops and flow.by_entered[norm.entered] is norm


def test_those_that_read_a_value_are_met_through_what_carries_it() -> None:
    probe = probe_of(
        lambda net, x: net.layer((x + 1).reshape(-1, WIDTH)).view(x.shape) + F.dropout(x, 0.5) * 2
    )
    embedded = ops_of(probe, "embedding")[0].out
    met = Flow(probe).meets(embedded)
    assert {weight_name(op) for op, _ in met if weight_of(op) is not None} == {"layer.weight"}
    assert [op.name for op, _ in met if weight_of(op) is None] == ["add"]


@pytest.mark.parametrize(
    ("step", "scaled", "summed"),
    [
        (lambda net, x: x.sin() + x, False, True),
        (lambda net, x: torch.add(x.sin(), x, alpha=0.5), True, True),
        (lambda net, x: x.sin().lerp(x, 0.5), True, True),
        (lambda net, x: x + net.gain, False, False),
        (lambda net, x: x + 1, False, False),
        (lambda net, x: x * net.gain, True, False),
        (lambda net, x: x / 3, True, False),
        (lambda net, x: x * 1, False, False),
        (lambda net, x: x * x.sin(), False, False),
    ],
)
def test_sums_and_scales_are_told_by_what_meets(step: Step, scaled: bool, summed: bool) -> None:
    op = ops_of(probe_of(step), "add", "lerp", "mul", "div")[-1]
    assert (is_scaled(op), is_sum(op.out)) == (scaled, summed)


def test_only_what_the_source_alone_makes_is_of_the_encoder() -> None:
    class Pair(Net):
        def forward(self, source: Tensor, target: Tensor) -> Tensor:  # pyright: ignore
            memory = self.layer(self.words(source)).mean(1, keepdim=True)
            return self.out(self.words(target) + memory)

    ids = torch.randint(0, VOCAB, (5, 14))
    probe = Probe(adapt(Subject(Pair(lambda net, x: x), (ids, ids.flip(1)), kind="encoder-decoder")))
    (mean,) = ops_of(probe, "mean")
    assert stream_of(probe, mean.out) == "encoder"
    assert stream_of(probe, probe.base.logits_value) == "main"
