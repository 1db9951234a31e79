"""Taps see the numbers of a later pass, of other sizes, and say when the pass was another one."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from headwise.doctor.trace import plain_kernels
from headwise.see.watch.plan import Plan
from headwise.see.watch.taps import Taps
from see.watch.loops import MODELS, batch
from see.watch.test_plan import plan_of


def tapped(model: nn.Module, plan: Plan, ids: Tensor) -> tuple[dict[str, Tensor], bool]:
    held: dict[str, Tensor] = {}
    see = {plan.sites[0].q: lambda t: held.update(q=t), plan.sites[0].weights: lambda t: held.update(w=t)}
    with torch.no_grad(), plain_kernels(), Taps(plan, see) as taps:
        model(ids)
    return held, taps.is_lost


def test_a_pass_of_other_sizes_is_seen() -> None:
    generator = torch.Generator().manual_seed(1)
    model = MODELS["fused"]()
    plan = plan_of(model, batch(generator))
    held, is_lost = tapped(model, plan, batch(generator, rows=3, length=6))
    assert not is_lost
    assert held["q"].numel() == 3 * 6 * 16
    assert held["w"].shape[-2:] == (6, 6)
    assert torch.allclose(held["w"].sum(-1), torch.ones(()))


def test_another_pass_is_lost() -> None:
    generator = torch.Generator().manual_seed(1)
    model = MODELS["fused"]()
    plan = plan_of(model, batch(generator))
    assert tapped(model.train(), plan, batch(generator))[1]  # dropout is one operation more
    model.eval()
    model.head = nn.Identity()
    assert tapped(model, plan, batch(generator))[1]  # it ends too soon
