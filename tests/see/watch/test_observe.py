"""A look at a model: along which axis, what is learnt again, what is said where nothing can be seen."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from headwise.see.watch.observe import MOST_PLANS, Observer
from see.watch.loops import MODELS, Fused, batch


def test_rows_are_found_on_the_second_axis() -> None:
    model = MODELS["time first"]()
    observer = Observer(model, [])
    ids = batch(torch.Generator().manual_seed(1)).t()
    seen = observer.look(model, ((ids,), {}))
    assert seen is not None and observer.notes == []
    assert [len(each.heads) for each in seen.attentions.values()] == [2, 2]
    (known,) = observer._known.values()
    assert known.axis == 1


def test_long_rows_are_looked_at_in_part() -> None:
    class Long(Fused):
        def __init__(self) -> None:
            super().__init__()
            self.places = nn.Embedding(400, 16)

    observer = Observer(Long(), ["blocks.0"])
    seen = observer.look(observer.model, ((torch.randint(4, 20, (2, 300)),), {}))
    assert seen is not None and set(seen.activations) == {"blocks.0"}
    assert observer.notes == ["only the first 256 positions of each row are looked at"]


def test_a_model_that_runs_another_way_is_learnt_again_and_at_last_given_up() -> None:
    class Restless(Fused):
        def forward(self, ids: Tensor) -> Tensor:
            out = super().forward(ids)
            for _ in turns:
                out = out + 1
            turns.append(1)
            return out

    turns: list[int] = []

    observer = Observer(Restless(), [])
    looks = [observer.look(observer.model, ((torch.randint(4, 20, (2, 5)),), {})) for _ in range(MOST_PLANS)]
    assert looks[-1] is None
    assert any("other operations" in note for note in observer.notes)


def test_the_whole_batch_is_looked_at_where_rows_cannot_be_cut() -> None:
    class Whole(Fused):
        def forward(self, ids: Tensor) -> Tensor:
            return super().forward(ids.view(4, 9))

    observer = Observer(Whole(), [])
    seen = observer.look(observer.model, ((torch.randint(4, 20, (4, 9)),), {}))
    assert seen is not None and len(seen.norms) == 5
    assert any("could not be told apart" in note for note in observer.notes)


def test_what_the_model_raises_is_a_note() -> None:
    observer = Observer(Fused(), [])
    assert observer.look(observer.model, ((torch.full((2, 5), 99),), {})) is None
    assert "IndexError" in observer.notes[0]
