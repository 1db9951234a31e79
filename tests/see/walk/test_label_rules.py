"""Each kind of operation moves, merges, makes or drops axes rightly; all sizes are equal: none can help."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from headwise.doctor.trace import recording
from headwise.see.walk.labels import Label, Labels

SIZE = 4


def before_and_after(run: Callable[[Tensor], Tensor]) -> tuple[Label, Label]:
    x = torch.randn(SIZE, SIZE, SIZE)
    with recording(nn.Module(), [x]) as record:
        out = run(x)
        record.settle(out)
    labels = Labels(record)
    given = next(value for value in record.values if value.name == "input 0")
    made = record.value_of(out)
    assert made is not None
    return labels[given], labels[made]


@pytest.mark.parametrize(
    ("run", "kept"),
    [
        (lambda x: x.permute(2, 0, 1), (2, 0, 1)),
        (lambda x: x.mT, (0, 2, 1)),
        (lambda x: x.unsqueeze(1).squeeze(1), (0, 1, 2)),
        (lambda x: x.sum(1), (0, 2)),
        (lambda x: x.softmax(1) * 2 + x, (0, 1, 2)),
        (lambda x: x[:, 1], (0, 2)),
        (lambda x: x.flatten(0, 1).view(SIZE, SIZE, SIZE), (0, 1, 2)),
        (lambda x: x.cumsum(1).clone().contiguous(), (0, 1, 2)),
        (lambda x: torch.stack([x, x], 1).unbind(1)[1], (0, 1, 2)),
    ],
)
def test_an_axis_that_is_moved_or_left_alone_stays_itself(
    run: Callable[[Tensor], Tensor], kept: tuple[int, ...]
) -> None:
    before, after = before_and_after(run)
    assert after == tuple(before[axis] for axis in kept)


@pytest.mark.parametrize(
    "run",
    [
        lambda x: x @ torch.randn(SIZE, SIZE),
        lambda x: torch.einsum("bij,jk->bik", x, torch.randn(SIZE, SIZE)),
    ],
)
def test_a_product_makes_an_axis_of_its_own(run: Callable[[Tensor], Tensor]) -> None:
    before, after = before_and_after(run)
    assert after[:2] == before[:2] and after[2] not in before


def test_a_view_that_tears_axes_leaves_none_of_them() -> None:
    before, after = before_and_after(lambda x: x.reshape(2, SIZE, 2 * SIZE))
    assert not {*after[1:]} & {*before}  # four of eight rows are no axis that was there
