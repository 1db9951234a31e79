"""A watch that begins and ends with a training; the real trainers are in test_lightning and test_trainer."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from headwise.see.watch.callback import WatchedTraining


def train(model: nn.Module, steps: int) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(4, 3)).square().mean().backward()
        optimizer.step()


def test_it_counts_on_from_the_step_it_is_given_and_stops_at_the_end() -> None:
    model, watched = nn.Linear(3, 2), WatchedTraining(every=1, say=lambda line: None)
    watched.begin(model, 7, is_first_process=True)
    train(model, 2)
    watched.end()
    train(model, 3)
    assert watched.watch is not None and watched.watch.step == 9


def test_an_earlier_training_that_failed_is_let_go() -> None:
    model, watched = nn.Linear(3, 2), WatchedTraining(every=1, say=lambda line: None)
    watched.begin(model, 0, is_first_process=True)
    first = watched.watch
    watched.begin(model, 0, is_first_process=True)
    train(model, 2)
    watched.end()
    assert first is not None and first.step == 0
    assert watched.watch is not first and watched.watch is not None and watched.watch.step == 2


def test_of_many_processes_the_others_do_not_watch() -> None:
    watched = WatchedTraining()
    watched.begin(nn.Linear(3, 2), 0, is_first_process=False)
    watched.end()
    assert watched.watch is None


def test_that_nothing_was_unusual_is_said_where_there_is_a_report_to_read(tmp_path: Path) -> None:
    for report, told in (
        (tmp_path / "r.html", [f"nothing unusual in 2 steps; {tmp_path / 'r.html'}"]),
        (None, []),
    ):
        said: list[str] = []
        watched = WatchedTraining(every=1, report=report, say=said.append)
        model = nn.Linear(3, 2)
        watched.begin(model, 0, is_first_process=True)
        train(model, 2)
        watched.end()
        assert said == told
