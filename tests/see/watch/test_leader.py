"""Whose steps count, and when something is said of what no optimizer holds."""

from __future__ import annotations

import torch
from torch import nn

from headwise.see.watch.leader import CERTAIN, Leader


def sgd(model: nn.Module | None = None) -> torch.optim.Optimizer:
    return torch.optim.SGD((model or nn.Linear(2, 2)).parameters(), lr=0.1)


def counted(*order: torch.optim.Optimizer) -> list[bool]:
    leader = Leader()
    return [leader.leads(each) for each in order]


def test_of_two_that_take_turns_one_counts() -> None:
    a, b = sgd(), sgd()
    assert counted(*[a, b] * 3) == [True, False] * 3


def test_the_one_that_steps_more_often_counts_in_the_end() -> None:
    generator, critic = sgd(), sgd()
    order = [generator, *[critic] * 5, generator, *[critic] * 5]
    assert counted(*order) == [True, False, *[True] * 4, False, *[True] * 5]


def test_one_that_is_made_anew_counts_at_once() -> None:
    model = nn.Linear(2, 2)
    assert counted(sgd(model), sgd(model)) == [True, True]


def test_what_it_is_given_later_is_held() -> None:
    leader, optimizer, late = Leader(), sgd(), nn.Parameter(torch.zeros(1))
    leader.leads(optimizer)
    assert id(late) not in leader.held()
    optimizer.add_param_group({"params": [late]})
    assert id(late) in leader.held()
    other = sgd()
    leader.saw(other)
    assert id(other.param_groups[0]["params"][0]) in leader.held(by_all=True) - leader.held()


def test_nothing_is_certain_before_twenty_of_the_longest_waits() -> None:
    leader, often, seldom = Leader(), sgd(), sgd()
    for _ in range(9):
        leader.saw(often)
    leader.saw(seldom)
    for _ in range(CERTAIN - 11):
        leader.saw(often)
    assert not leader.is_certain
    for _ in range(4):
        for _ in range(30):
            leader.saw(often)
        leader.saw(seldom)
    assert not leader.is_certain
    alone = Leader()
    for step in range(CERTAIN):
        assert not alone.is_certain, step
        alone.saw(often)
    assert alone.is_certain


def test_a_search_along_a_line_is_known() -> None:
    leader = Leader()
    leader.leads(torch.optim.LBFGS(nn.Linear(2, 2).parameters()))
    assert leader.searches
    leader.leads(None)
    other = Leader()
    other.leads(sgd())
    assert not other.searches
