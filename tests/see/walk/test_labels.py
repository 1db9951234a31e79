"""Axes keep their identity through views, transposes, products and sums, whatever sizes are equal."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from headwise.doctor.trace import recording
from headwise.see.walk.labels import Labels
from see.walk.walk_models import Block, Einsum, Llama, TimeMajor, ids, numbers, seen


def labelled(run: object, *inputs: Tensor) -> tuple[Labels, object]:
    with recording(nn.Module(), inputs) as record:
        run(*inputs)  # pyright: ignore
    return Labels(record), record


def test_heads_split_and_merged_are_the_same_axes_though_all_sizes_are_four() -> None:
    x = numbers(4, 4, 16)

    def run(x: Tensor) -> Tensor:
        return x.view(4, 4, 4, 4).transpose(1, 2).contiguous().transpose(1, 2).reshape(4, 4, 16)

    labels, record = labelled(run, x)
    values = [op.out for op in record.ops]  # pyright: ignore
    first, split, turned, last = (
        labels[values[0].op.inputs[0]],
        *(labels[v] for v in (*values[:2], values[-1])),
    )
    assert len({*split}) == 4 and turned == (split[0], split[2], split[1], split[3])
    assert last == first


def test_a_view_without_the_transpose_leaves_axes_that_are_not_known() -> None:
    labels, record = labelled(lambda x: x.view(2, 3, 7, 4), numbers(2, 7, 12))
    before, after = (labels[v] for v in (record.ops[0].inputs[0], record.ops[0].out))  # pyright: ignore
    assert after[0] == before[0] and not {*after[1:]} & {*before}


@pytest.mark.parametrize(
    "run",
    [
        lambda x: x.permute(0, 2, 1) @ x,
        lambda x: torch.cat([x, x], 1)[:, 2:],
        lambda x: torch.stack([x, x], 1).flatten(1, 2).mean(1, keepdim=True),
        lambda x: torch.stack(x.chunk(2, -1)).sum((0, 2)),
        lambda x: x[:, :1].expand(-1, 3, -1).squeeze(1).unsqueeze(-1),
        lambda x: torch.nn.functional.pad(x, (1, 1)).softmax(-1).argmax(-1),
        lambda x: x.unbind(1)[0][torch.tensor([1, 0, 1])],
        lambda x: torch.einsum("btd,bsd->bts", x, x).tril().max(-1).values,
    ],
)
def test_the_atoms_of_an_axis_multiply_to_its_size(run: object) -> None:
    labels, record = labelled(run, numbers(2, 5, 6))
    for op in record.ops:  # pyright: ignore
        for value in op.outputs:
            assert [math.prod(labels.size(a) for a in axis) for axis in labels[value]] == list(value.shape)


@pytest.mark.parametrize("model", [Block, Einsum, Llama, TimeMajor])
def test_atoms_multiply_to_sizes_in_whole_models(model: type[nn.Module]) -> None:
    given = numbers(2, 10, 16) if model is Block else ids()
    probe, _, axes, _ = seen(model(), given)
    for value in probe.record.values:
        assert [axes.labels.sizes(axis) for axis in axes.labels[value]] == list(value.shape)
