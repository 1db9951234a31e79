"""Every thing made leads back to the line that made it, and the watching leaves no trace."""

from __future__ import annotations

import copy
import gc
import inspect
import linecache
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from headwise.doctor.check import Place
from headwise.doctor.made import MOST_OPERATIONS, Making, place_of


class Inner(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.one = nn.Linear(width, width)  # LINEAR


class Outer(nn.Module):
    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.inner = Inner(width)  # INNER
        self.torchs = nn.TransformerEncoderLayer(width, 2, batch_first=True)  # LAYER
        self.stack = nn.TransformerEncoder(  # STACK
            self.torchs, 2, enable_nested_tensor=False
        )
        self.copies = clones(self.inner, 2)


class Heir(Inner):
    def __init__(self) -> None:
        self.grow()

    def grow(self) -> None:
        super().__init__(4)


def clones(module: nn.Module, number: int) -> nn.ModuleList:
    return nn.ModuleList([copy.deepcopy(module) for _ in range(number)])  # CLONES


def line_of(mark: str) -> int:
    """The line of this file that ends with the comment."""
    lines = linecache.getlines(__file__)
    return next(n for n, line in enumerate(lines, 1) if line.rstrip().endswith(f"# {mark}"))


def at(place: Place | None) -> int:
    assert place is not None and place.file == __file__
    return place.line


def test_a_module_leads_to_the_line_that_called_its_class() -> None:
    with Making() as made:
        model = Outer()  # OUTER
        heir = Heir()  # HEIR
    assert at(made.module(model)) == line_of("OUTER")
    assert at(made.module(model.inner)) == line_of("INNER")
    assert at(made.module(model.inner.one)) == line_of("LINEAR")
    assert at(made.module(heir)) == line_of("HEIR")
    place = made.module(model.inner.one)
    assert place is not None and place.function == "Inner.__init__"


def test_what_torch_makes_for_its_own_leads_to_the_user() -> None:
    with Making() as made:
        model = Outer()
    assert at(made.module(model.torchs.self_attn.out_proj)) == line_of("LAYER")
    assert at(made.module(model.stack)) == line_of("STACK")


def test_copies_lead_to_their_template_and_are_known() -> None:
    with Making() as made:
        model = Outer()
    for clone in model.copies:
        assert isinstance(clone, Inner)
        assert at(made.module(clone)) == line_of("INNER") and at(made.copied(clone)) == line_of("CLONES")
        assert at(made.module(clone.one)) == line_of("LINEAR") and made.copied(clone.one)
    for layer in model.stack.layers:
        assert at(made.module(layer)) == line_of("LAYER") and at(made.copied(layer)) == line_of("STACK")
    assert made.copied(model.inner) is None and made.copied(model.torchs.linear1) is None


def test_a_copy_of_what_was_made_before_leads_to_the_copy() -> None:
    old = Inner(4)
    with Making() as made:
        new = copy.copy(old)  # COPY
    assert made.module(old) is None
    assert at(made.module(new)) == at(made.copied(new)) == line_of("COPY")


def test_optimizers_lead_to_their_lines() -> None:
    class Noam(torch.optim.Adam):
        def __init__(self, parameters: Any) -> None:
            super().__init__(parameters, lr=0.0)

    with Making() as made:
        model = Inner(4)
        first, second = torch.optim.SGD(model.parameters(), lr=0.1), Noam(model.parameters())  # OPTIMIZERS
    assert at(made.optimizer(first)) == at(made.optimizer(second)) == line_of("OPTIMIZERS")


def batch() -> tuple[Tensor, Tensor]:
    text = torch.full((3, 6), 7)  # FULL
    text[0, :2] = 1  # WRITE
    return text[:, :-1], text[:, 1:]  # VIEW


def test_a_tensor_leads_to_the_view_that_made_it_then_to_its_storages_writers() -> None:
    with Making() as made:
        inputs, targets = batch()
    for tensor in (inputs, targets):
        chain = made.tensor(tensor)
        assert chain[0][1] == "aten.slice.Tensor"
        lines = list(dict.fromkeys(place.line for place, _ in chain))
        assert lines == [line_of("VIEW"), line_of("WRITE"), line_of("FULL")]
        assert chain[0][0].function == "batch"


def test_a_tensor_that_nobody_saw_has_no_chain() -> None:
    before = torch.zeros(3)
    with Making() as made:
        sparse = torch.eye(3).to_sparse()
    after = torch.zeros(3)
    assert made.tensor(before) == made.tensor(after) == made.tensor(sparse) == ()


def test_the_operands_operations_are_its_ancestry() -> None:
    with Making() as made:
        pad = torch.arange(4) > 2  # PAD
        grid = torch.ones(4, 4).tril() == 0  # GRID
        mask = pad | grid  # MASK
    assert [at(place) for place, _ in made.tensor(mask)] == [line_of("MASK")]
    lines = [at(place) for place, _ in made.ancestry(mask)]
    assert set(lines) == {line_of("PAD"), line_of("GRID")} and line_of("MASK") not in lines


def test_a_storage_that_died_is_not_taken_for_another() -> None:
    with Making() as made:
        for _ in range(50):
            torch.full((1000,), 1.0)
    fresh = [torch.empty(1000) for _ in range(50)]  # some lie where the dead ones lay
    assert all(made.tensor(tensor) == () for tensor in fresh)


def test_nothing_is_kept_alive() -> None:
    with Making() as made:
        tensor, module = torch.zeros(1000), Inner(4)
        sizes = [len(made._storages), len(made._modules)]
    assert all(sizes)
    storage = made._storages[tensor.untyped_storage()._cdata].storage
    assert not storage.expired()
    del tensor, module
    gc.collect()
    assert storage.expired()
    assert all(record.holder() is None for record in made._modules.values())


def test_memory_is_bounded_and_long_histories_can_be_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwise.doctor.made.MOST_OPERATIONS", 9000)
    assert MOST_OPERATIONS == 200_000
    with Making() as made:
        total = torch.zeros(())
        for _ in range(8900):
            total = total + 1  # a chain of operands as long as the loop; each storage dies at once
        assert not made.is_full
        assert len(made._storages) < 5000
        for _ in range(200):
            total = total + 1
        late = torch.zeros(5)
    assert made.is_full and made.tensor(late) == ()
    assert len(made.ancestry(total, 5)) <= 5


def test_everything_patched_is_as_it_was_even_after_an_exception() -> None:
    patched = [
        (nn.Module, "__init__"),
        (nn.Module, "__setstate__"),
        (torch.optim.Optimizer, "__init__"),
        (torch.optim.lr_scheduler.LRScheduler, "__init__"),
        (torch.optim.lr_scheduler.ReduceLROnPlateau, "__init__"),
    ]
    before = [vars(owner)[name] for owner, name in patched]
    signature = inspect.signature(nn.Module.__init__)
    with pytest.raises(ZeroDivisionError), Making():
        assert [vars(owner)[name] for owner, name in patched] != before
        assert inspect.signature(nn.Module.__init__) == signature
        raise ZeroDivisionError
    assert [vars(owner)[name] for owner, name in patched] == before
    with Making() as made:
        kept = Outer()
    assert not [name for m in kept.modules() for name in vars(m) if "headwise" in name or "made" in name]
    assert at(made.module(kept.inner))


def test_watching_changes_no_number() -> None:
    def build() -> Tensor:
        torch.manual_seed(3)
        model = Outer().eval()
        return F.relu(model.stack(torch.randn(2, 3, 8)))

    expected = build()
    with Making():
        assert torch.equal(build(), expected)


def test_a_place_comes_from_the_record_or_else_from_the_source() -> None:
    with Making() as made:
        seen = Outer()
    unseen = Outer()
    assert at(place_of(made, seen, "copies.1.one")) == line_of("LINEAR")
    assert at(place_of(made, unseen, "inner.one")) == line_of("LINEAR")
    assert at(place_of(None, unseen, "stack.layers.0.self_attn")) == line_of("STACK")
    assert place_of(None, unseen, "") is None
