"""Windows and folded heads come back as one map a head, wherever each token stood."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from headwise.doctor.adapt import adapt
from headwise.doctor.subject import Subject
from headwise.see import windows
from headwise.see.one_row import Map, pass_over

H, DH, T = 2, 3, 8
X = torch.randn(1, T, H * DH)


class Windowed(nn.Module):
    """One attention in windows; `cut` makes them of [1, T, D], before or after the projection."""

    def __init__(self, cut: Callable[[Tensor], Tensor], is_before: bool, heads_first: bool = False) -> None:
        super().__init__()
        self.project, self.cut = nn.Linear(H * DH, 3 * H * DH), cut
        self.is_before, self.heads_first = is_before, heads_first

    def forward(self, x: Tensor) -> Tensor:
        x = x * 1.5
        parts = self.project(self.cut(x)) if self.is_before else self.cut(self.project(x))
        q, k, v = parts.unflatten(-1, (3, H, DH)).permute(2, 0, 3, 1, 4)
        if self.heads_first:
            q, k, v = (each.transpose(0, 1).reshape(-1, *each.shape[2:]) for each in (q, k, v))
        return (q @ k.mT).softmax(-1) @ v

    def expected(self, x: Tensor) -> Tensor:
        """As if no window hid anything, scores of every token for every token."""
        q, k, _ = self.project(x * 1.5)[0].unflatten(-1, (3, H, DH)).permute(1, 2, 0, 3)
        return (q @ k.mT).detach()


def neighbours(x: Tensor) -> Tensor:
    return x.view(2, 4, x.size(-1))


def every_second(x: Tensor) -> Tensor:
    return x.view(4, 2, x.size(-1)).transpose(0, 1)


def the_map(model: nn.Module, x: Tensor = X) -> Map:
    (found,) = pass_over(adapt(Subject(model, x)), 0).maps
    return found


def places(cut: Callable[[Tensor], Tensor]) -> list[list[int]]:
    return [[int(n) for n in row] for row in cut(torch.arange(T).view(1, T, 1))[..., 0]]


def check(model: Windowed, groups: list[list[int]]) -> None:
    found = the_map(model)
    keep = torch.zeros(T, T, dtype=torch.bool)
    for group in groups:
        keep[torch.tensor(group)[:, None], torch.tensor(group)] = True
    assert torch.equal(found.keep, keep.expand(H, T, T)) and found.is_whole
    expected = model.expected(X).masked_fill(~keep, -torch.inf).softmax(-1)
    torch.testing.assert_close(found.weights, expected)
    assert not torch.allclose(found.weights.flip(0), expected, atol=1e-3)


def test_law_the_rows_are_those_of_the_windows() -> None:
    for heads_first in (False, True):
        for cut in (neighbours, every_second):
            check(Windowed(cut, is_before=False, heads_first=heads_first), places(cut))
        check(Windowed(neighbours, is_before=True, heads_first=heads_first), places(neighbours))


def test_tokens_that_were_permuted_before_have_no_place_in_the_text() -> None:
    assert the_map(Windowed(neighbours, is_before=True)).is_in_order
    assert the_map(Windowed(every_second, is_before=False)).is_in_order
    assert not the_map(Windowed(every_second, is_before=True)).is_in_order


def test_windows_that_cannot_be_told_apart_stay_apart() -> None:
    class Pooled(nn.Module):
        """A query that is the largest of four tokens' comes from none of them."""

        def __init__(self) -> None:
            super().__init__()
            self.project = nn.Linear(6, 18)

        def forward(self, x: Tensor) -> Tensor:
            q, k, v = neighbours(self.project(x)).chunk(3, -1)
            return (q.amax(1, keepdim=True) @ k.mT).softmax(-1) @ v

    found = the_map(Pooled())
    assert found.weights.shape == (2, 1, 4) and not found.is_whole and not found.is_in_order


def test_large_windows_stay_apart(monkeypatch: object) -> None:
    model, most = Windowed(neighbours, is_before=False), windows.MOST
    try:
        windows.MOST = H * T * T - 1
        assert the_map(model).weights.shape == (2 * H, 4, 4)
        windows.MOST = H * T * T
        assert the_map(model).weights.shape == (H, T, T)
    finally:
        windows.MOST = most


def test_the_last_token_alone_may_ask() -> None:
    class Last(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.project = nn.Linear(6, 18)

        def forward(self, x: Tensor) -> Tensor:
            q, k, v = self.project(x).chunk(3, -1)
            return (q[:, -1:] @ k.mT).softmax(-1) @ v

    found = the_map(Last())
    assert found.weights.shape == (1, T, T)
    assert found.keep.any(-1).tolist() == [[False] * (T - 1) + [True]]
