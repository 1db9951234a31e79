"""The state comes back bit by bit, or is refused by name."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from headwise.checkpoint.weights import load_tensors, save_tensors
from headwise.config import TrainConfig
from headwise.errors import RunError
from headwise.train.optim import make_optimizer, set_learning_rate
from headwise.train.state import Progress, load_state, save_state

PROGRESS = Progress(
    step=3, epoch=1, batch=2, loss_sum=0.1 + 0.2, tokens=7, total_tokens=99, metrics_bytes=55,
    validated=[2, 3], best=-1 / 3, best_step=2, waited=1, has_stopped=True,
)  # fmt: skip


def make() -> tuple[nn.Module, torch.optim.Adam]:
    model = nn.Linear(3, 2)
    return model, make_optimizer(model, TrainConfig())


@pytest.fixture(name="path")
def a_saved_state(tmp_path: Path) -> Path:
    model, optimizer = make()
    set_learning_rate(optimizer, 0.1)
    for p in model.parameters():
        p.grad = torch.randn_like(p)
    optimizer.step()
    path = tmp_path / "training.safetensors"
    save_state(path, model, optimizer, PROGRESS, "text")
    return path


def changed(path: Path, tensors: dict[str, Any] | None = None, **about: Any) -> Path:
    """The same file, honestly written, with other content; None takes a tensor out."""
    old, description = load_tensors(path)
    new = old | (tensors or {})
    save_tensors(path, {n: t for n, t in new.items() if t is not None}, description | about)
    return path


def test_everything_comes_back(path: Path) -> None:
    random = torch.get_rng_state()
    torch.rand(5)
    model, optimizer = make()
    assert load_state(path, model, optimizer, "text") == PROGRESS
    assert torch.equal(torch.get_rng_state(), random)
    again = path.with_name("again")
    save_state(again, model, optimizer, PROGRESS, "text")
    assert again.read_bytes() == path.read_bytes()


def test_before_the_first_step_there_is_a_state_too(tmp_path: Path) -> None:
    model, optimizer = make()
    save_state(tmp_path / "state", model, optimizer, Progress(), "text")
    assert load_state(tmp_path / "state", *make(), "text") == Progress()


def test_another_text_is_refused(path: Path) -> None:
    with pytest.raises(RunError, match="fingerprint was text, is other"):
        load_state(path, *make(), "other")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("step", "x"), ("step", True), ("step", -1), ("step", 1.5), ("validated", [1, "2"]), ("validated", 3),
        ("loss_sum", None), ("loss_sum", float("nan")), ("best", "0"), ("has_stopped", 1), ("color", "red"),
    ],
)  # fmt: skip
def test_a_header_of_wrong_types_is_named(field: str, value: object, path: Path) -> None:
    changed(path, progress=dataclasses.asdict(PROGRESS) | {field: value})
    with pytest.raises(RunError, match=rf"training\.safetensors has a damaged header: {field}: "):
        load_state(path, *make(), "text")


@pytest.mark.parametrize("progress", [None, 3, [], {}, {"step": 3}])
def test_a_header_without_its_fields_is_named(progress: object, path: Path) -> None:
    changed(path, progress=progress)
    with pytest.raises(RunError, match=r"damaged header: .*epoch: missing; .*has_stopped: missing; restore"):
        load_state(path, *make(), "text")


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({"model.weight": None}, "weight: missing"),
        ({"model.weight": torch.zeros(4)}, r"weight: file \[4\], model \[2, 3\]"),
        ({"model.extra": torch.zeros(4)}, "extra: unexpected"),
        ({"stranger.x": torch.zeros(4)}, "stranger.x: unexpected"),
        ({"optimizer.bias.exp_avg": None}, "bias.exp_avg: missing"),
        ({"optimizer.bias.step": torch.zeros(2)}, r"bias.step: file \[2\], model \[\]"),
        ({"random": None}, "holds no training state"),
        ({"random": torch.zeros(3)}, "training.safetensors is damaged"),
        ({"random": torch.zeros(3, dtype=torch.uint8)}, "training.safetensors is damaged"),
        ({"random": torch.full((5056,), 255, dtype=torch.uint8)}, "training.safetensors is damaged"),
        (
            {
                f"optimizer.{p}.{m}": None
                for p in ("weight", "bias")
                for m in ("step", "exp_avg", "exp_avg_sq")
            },
            "it has no optimizer moments",
        ),
    ],
)
def test_wrong_tensors_are_named(tensors: dict[str, Any], message: str, path: Path) -> None:
    with pytest.raises(RunError, match=message):
        load_state(changed(path, tensors), *make(), "text")


def test_weights_alone_are_no_state(path: Path) -> None:
    with pytest.raises(RunError, match="holds no training state"):
        load_state(changed(path, kind="model"), *make(), "text")
