"""Sizes of operations: what a pass allocates, the most it holds at once, and two passes laid side by side."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from headwise.doctor.trace import Recording, plain_kernels, recording
from headwise.see.walk.sizes import Call, Sizes, Sizing, aligned
from headwise.see.walk.walk import trace
from see.walk.odd_models import Folded, Heads, Language
from see.walk.walk_models import Block, Llama, ids, numbers

KIB = 256  # floats


def recorded(run: object, *inputs: Tensor) -> Recording:
    with recording(nn.Module(), inputs) as record:
        run(*inputs)  # pyright: ignore
    return record


def noted(run: object, *inputs: Tensor) -> list[Call]:
    with plain_kernels(), Sizing() as sizing:
        run(*inputs)  # pyright: ignore
    return sizing.calls


def chain(x: Tensor) -> Tensor:
    a = x + 1
    b = a.view(-1)
    c = torch.cat([b, b])
    return c.exp().sum()


def test_a_view_takes_no_memory_and_a_copy_takes_all() -> None:
    sizes = Sizes(recorded(chain, numbers(4, KIB // 4)))
    assert [call.allocated for call in sizes.of.values()] == [1024, 0, 2048, 2048, 4]


def test_the_peak_is_what_must_be_held_at_once() -> None:
    most, where = Sizes(recorded(chain, numbers(4, KIB // 4))).peak()
    assert (most, where.name if where else "") == (4096, "exp")  # what was concatenated is free by then

    def wide(x: Tensor) -> Tensor:
        kept = x + 1
        return (x.exp() + 1).exp() + kept

    assert Sizes(recorded(wide, numbers(KIB))).peak()[0] == 3 * 1024


def test_writes_in_place_take_nothing() -> None:
    sizes = Sizes(recorded(lambda x: (x + 1).mul_(2).add_(1), numbers(KIB)))
    assert [call.allocated for call in sizes.of.values()] == [1024, 0, 0]


def test_a_pass_of_which_nothing_is_kept_has_the_same_sizes() -> None:
    for model, given in ((Block(causal=True), numbers(2, 10, 16)), (Llama(), ids())):
        with torch.no_grad():
            record = recorded(model, given)
            calls = noted(model, given)
        pairs = aligned(record, calls)
        assert pairs is not None and all(op is not None for op, _ in pairs)
        one, other = Sizes(record), Sizes(record, pairs)
        assert [one.of[op].allocated for op in other.of] == [c.allocated for c in other.of.values()]
        assert one.allocated(record.ops) == other.allocated(record.ops)
        assert one.peak()[0] == other.peak()[0]


def test_another_length_aligns_and_another_model_does_not() -> None:
    with torch.no_grad():
        record = recorded(Block(causal=True), numbers(2, 5, 16))
        longer = noted(Block(causal=True), numbers(4, 9, 16))
        other = noted(Block(), numbers(2, 5, 16))
    pairs = aligned(record, longer)
    assert pairs is not None
    sizes = Sizes(record, pairs)
    softmax = next(op for op in sizes.of if op.name == "_softmax")
    assert sizes.of[softmax].outputs[0].shape == (4, 4, 9, 9)
    assert aligned(record, other) is None


def test_a_copy_that_one_pass_alone_makes_counts_for_what_follows() -> None:
    record = recorded(lambda x: x.view(-1).exp(), numbers(2, 4))
    calls = noted(lambda x: x.transpose(0, 1).contiguous().view(-1).exp(), numbers(2, 4))
    pairs = aligned(record, calls)
    assert pairs is not None and sum(op is None for op, _ in pairs) == 2
    sizes = Sizes(record, pairs)
    assert sizes.allocated(record.ops) == sum(call.allocated for call in calls) == 64


@pytest.mark.parametrize("attention", [Folded, Heads])
def test_of_one_row_every_shape_told_is_one_that_ran(attention: type[nn.Module]) -> None:
    model = Language(attention()).eval()
    walk = trace(model, ids(1, 7))
    with torch.no_grad():
        ran = {form.shape for call in noted(model, ids(1, 7)) for form in call.outputs}
    assert {part.shape for each in walk.steps for part in each.parts} <= ran
