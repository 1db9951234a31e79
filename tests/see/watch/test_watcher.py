"""What a watch hears and holds besides what test_watch.py trains: scalars, scaled gradients, mishaps."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn

from headwise.errors import ConfigError
from headwise.see.watch.watch import watch
from see.watch.loops import MODELS, Fused, batch, loss_of, trained


def test_what_the_loop_logs_belongs_to_the_step_it_is_of() -> None:
    torch.manual_seed(0)
    model = MODELS["by hand"]()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(1)
    with watch(model, optimizer, 1, live=False, budget=None) as watched:
        for step in range(1, 5):
            loss = loss_of(model, batch(generator))
            loss.backward()
            if step % 2:
                watched.log(number=step)  # before the optimizer's step, and after it
            optimizer.step()
            if not step % 2:
                watched.log(number=step)
    assert [sample.logged["number"] for sample in watched.history] == [1, 2, 3, 4]


def test_a_loop_without_an_optimizer_tells_its_steps() -> None:
    model = MODELS["by hand"]()
    generator = torch.Generator().manual_seed(1)
    with watch(model, every=2, live=False, budget=None) as watched:
        for _ in range(4):
            loss_of(model, batch(generator)).backward()
            watched.step_taken()
    assert [sample.step for sample in watched.history] == [1, 2, 4]
    assert all(layer.update is None and layer.gradient for layer in watched.history[0].layers.values())


def test_a_training_that_is_never_heard_of_is_said() -> None:
    with watch(MODELS["by hand"](), live=False) as watched:
        pass
    assert any("step_taken" in note for note in watched.notes)
    assert watched.summary().startswith("0 steps, 0 measured: nothing unusual")


def test_what_goes_wrong_here_does_not_end_the_training(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ValueError("ours")

    monkeypatch.setattr("headwise.see.watch.layers.Sizes.gradients", broken)
    _, _, watched = trained(Fused, 4, every=2)
    assert watched is not None and watched.step == 4
    assert watched.notes == ["watching failed, and nothing more is measured: ValueError: ours"]


def test_a_model_that_cannot_run_on_fewer_rows_is_said_and_trains_on() -> None:
    class Picky(Fused):
        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            if not self.training:
                raise RuntimeError("only in training")
            return super().forward(ids)

    _, _, watched = trained(Picky, 4, every=2)
    assert watched is not None and len(watched.history) == 3
    assert all(layer.gradient for layer in watched.history[-1].layers.values())
    assert any("only in training" in note for note in watched.notes)


def test_a_training_that_goes_on_counts_on() -> None:
    _, _, first = trained(Fused, 4, every=2)
    assert first is not None
    _, _, second = trained(Fused, 4, every=2, step=4, history=first.history)
    assert second is not None
    assert [sample.step for sample in second.history] == [1, 2, 4, 5, 6, 8]


def test_gradients_that_an_optimizer_will_unscale_are_told_unscaled() -> None:
    torch.manual_seed(0)
    model = MODELS["by hand"]()
    ids = batch(torch.Generator().manual_seed(1))
    lengths: list[float | None] = []
    for scale in (1.0, 1024.0):
        model.zero_grad()
        watched = watch(model, every=1, live=False, budget=None)
        (loss_of(model, ids) * scale).backward()
        held = SimpleNamespace(
            param_groups=[{"params": list(model.parameters()), "lr": 0.1}], grad_scale=torch.tensor(scale)
        )
        watched._prepare()
        watched._before(held, None)
        assert watched._pending is not None
        lengths.append(watched._pending.gradient)
    assert lengths[0] == pytest.approx(lengths[1], rel=1e-5)


def test_a_step_that_a_scaler_skips_is_no_alarm() -> None:
    model = MODELS["by hand"]()
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, float("inf"))
    watched = watch(model, every=1, live=False, budget=None, say=lambda _: None)
    held = SimpleNamespace(param_groups=[{"params": list(model.parameters())}], found_inf=torch.tensor(1.0))
    watched._before(held, None)
    assert watched.not_finite is None
    held.found_inf = torch.tensor(0.0)
    watched._before(held, None)
    assert watched.not_finite is not None


def test_an_optimizer_that_takes_the_place_of_the_first_counts_on() -> None:
    model = MODELS["by hand"]()
    with watch(model, every=1000, live=False) as watched:
        for steps in (2, 60):
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for _ in range(steps):
                optimizer.step()
    assert watched.step == 62


def test_a_second_optimizer_is_no_step_of_its_own() -> None:
    model = Fused()
    first = torch.optim.SGD(model.blocks.parameters(), lr=0.1)
    rest = [p for name, p in model.named_parameters() if not name.startswith("blocks")]
    second = torch.optim.SGD(rest, lr=0.1)
    generator = torch.Generator().manual_seed(1)
    with watch(model, every=1, live=False, budget=None, say=lambda _: None) as watched:
        for _ in range(4):
            loss_of(model, batch(generator)).backward()
            first.step()
            second.step()
    assert watched.step == 4
    assert [f for f in watched.findings if f.check == "HW604"] == []


def stepped(model: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor) -> Tensor:
    loss = model(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss


@pytest.mark.parametrize("broken", ["say", "board"])
def test_what_fails_outside_ends_no_training_and_the_report_is_written(broken: str, tmp_path) -> None:
    class Board:
        def add_scalar(self, *_: object) -> None:
            raise OSError("disk full")

        flush = add_scalar

    def say(_: str) -> None:
        raise RuntimeError("closed")

    model = nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2, eps=100.0))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    settings = {"say": say} if broken == "say" else {"board": Board(), "say": lambda _: None}
    report = tmp_path / "r.html"
    with watch(model, optimizer, 1, live=False, budget=None, report=report, **settings) as watched:
        for _ in range(4):
            stepped(model, optimizer, torch.rand(3, 2))
    assert watched.step == 4 and report.exists()
    assert any("closed" in note or "disk full" in note for note in watched.notes)


def test_what_is_no_number_is_refused_in_every_step() -> None:
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with watch(model, optimizer, 50, live=False, say=lambda _: None) as watched:
        for _ in range(3):
            stepped(model, optimizer, torch.rand(3, 2))
            with pytest.raises(ConfigError, match=r"watch\.log takes numbers: got str for accuracy"):
                watched.log(accuracy="high")


def test_a_loss_logged_after_the_step_is_judged() -> None:
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    with watch(model, optimizer, 1, live=False, budget=None, say=lambda _: None) as watched:
        for step in range(8):
            stepped(model, optimizer, torch.rand(3, 2))
            watched.log(loss=2.0 + 8 * step)
    assert any("58" in f.what or "loss" in f.what for f in watched.findings)


def test_lazy_modules_have_sizes_after_their_first_pass() -> None:
    model = nn.Sequential(nn.LazyLinear(4), nn.LayerNorm(4))
    watched = watch(model, None, 1, live=False, budget=None, say=lambda _: None)
    watched.start()
    model(torch.rand(3, 2)).sum()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(4):
        stepped(model, optimizer, torch.rand(3, 2))
    watched.stop()
    assert set(watched.history[-1].layers) == {"0", "1"} and watched.history[-1].norms


def test_weights_that_are_trained_later_are_measured_then() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[0].requires_grad_(False)
    optimizer = torch.optim.SGD(model[1].parameters(), lr=0.1)
    with watch(model, optimizer, 1, live=False, budget=None, say=lambda _: None) as watched:
        for step in range(60):
            if step == 3:
                model[0].requires_grad_(True)
                optimizer.add_param_group({"params": model[0].parameters()})
            stepped(model, optimizer, torch.rand(3, 2))
    assert set(watched.history[0].layers) == {"1"} and set(watched.history[-1].layers) == {"0", "1"}
    assert watched.history[-1].layers["0"].update
    assert [f for f in watched.findings if f.check == "HW604"] == []


def test_a_model_of_float64_is_looked_at() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2)).double()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with watch(model, optimizer, 1, live=False, budget=None) as watched:
        stepped(model, optimizer, torch.rand(3, 2, dtype=torch.float64))
    assert watched.history[0].layers["0"].activation and watched.history[0].norms


def test_it_is_entered_once_at_a_time() -> None:
    with watch(nn.Linear(2, 2), live=False) as watched, pytest.raises(ConfigError, match="once at a time"):
        watched.start()
