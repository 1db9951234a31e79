"""What is learnt from one recording holds for other sizes of batches: axes, heads, norms."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from headwise.doctor.trace import recording
from headwise.see.watch.plan import Axes, Tap, learn, with_heads
from see.watch.loops import MODELS, batch


def plan_of(model: nn.Module, ids: Tensor):
    with torch.no_grad(), recording(model.eval(), [ids]) as record:
        model(ids)
    return learn(record, model, [])


def test_attention_written_by_hand_and_a_norm_written_by_hand_are_found() -> None:
    plan = plan_of(MODELS["by hand"](), batch(torch.Generator().manual_seed(1)))
    (site,) = plan.sites
    assert (site.axes.queries, site.axes.keys) == (1, 2)
    assert site.projected is not None
    (norm,) = plan.norms
    assert norm.gains == ("gain",) and norm.is_even and norm.eps == 0  # 1e-5 is too little to be measured
    assert plan.taps() >= {site.q, site.weights, norm.out}


def test_the_factor_on_queries_is_no_part_of_their_size() -> None:
    plan = plan_of(MODELS["fused"](), batch(torch.Generator().manual_seed(1)))
    factor = 8**-0.25  # torch's own kernel gives half of the scale to each side
    assert [[round(abs(f) / factor, 6) for f in site.factors] for site in plan.sites] == [[1, 1], [1, 1]]


def test_a_vector_of_length_one_is_no_norm() -> None:
    class Cosine(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.line = nn.Linear(8, 8)

        def forward(self, x: Tensor) -> Tensor:
            x = self.line(x)
            return x / (x.pow(2).sum(-1, keepdim=True) + 1e-12).sqrt()

    assert plan_of(Cosine(), torch.randn(2, 5, 8)).norms == ()


def test_heads_are_told_from_rows_however_they_are_folded() -> None:
    rows, heads = 2, 3
    weights = torch.rand(3, heads, 4, 5)
    weights[2] = weights[0]
    one = weights[:rows]
    plain = Axes(1, 2)
    apart = with_heads(Axes(2, 3), one, weights, rows)
    assert (apart.heads, apart.folded) == (1, "")
    by_rows = with_heads(plain, one.flatten(0, 1), weights.flatten(0, 1), rows)
    assert (by_rows.heads, by_rows.folded, by_rows.num_heads) == (0, "rows", heads)
    turned = with_heads(plain, one.transpose(0, 1).flatten(0, 1), weights.transpose(0, 1).flatten(0, 1), rows)
    assert (turned.heads, turned.folded, turned.num_heads) == (0, "heads", heads)
    assert with_heads(plain, one[:, 0], weights[:, 0], rows) == plain
    assert Tap(1, 0, True) != Tap(1, 0, False)


def test_the_eps_of_a_norm_is_read_or_measured() -> None:
    class Norms(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.rms = nn.LayerNorm(8, eps=0.25), nn.RMSNorm(8, eps=0.125)
            self.gain = nn.Parameter(torch.ones(8))

        def forward(self, x: Tensor) -> Tensor:
            x = self.rms(self.layer(x) + x)
            return self.gain * x / (x.pow(2).mean(-1, keepdim=True) + 4.0).sqrt()

    plan = plan_of(Norms(), torch.randn(2, 50, 8))
    assert [norm.has_mean for norm in plan.norms] == [True, False, False]
    assert plan.norms[0].eps == 0.25
    assert [norm.eps for norm in plan.norms[1:]] == pytest.approx([0.125, 4.0], rel=0.2)
