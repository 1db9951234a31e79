"""A mask that no output depends on is known, with the function that let it fall."""

from __future__ import annotations

from torch import Tensor, nn

from doctor.padding_model import PAD, Reader, keys, probe_of
from headwise.doctor.padded import padded
from headwise.doctor.unused_masks import marks, watch


def test_a_mask_that_nothing_reads_is_unused_and_one_that_is_read_is_not() -> None:
    def fallen(ids: Tensor) -> None:
        (ids == PAD).unsqueeze(1)

    for visible, unused in ((fallen, True), (keys, False)):
        probe = probe_of(Reader(visible))
        pass_ = padded(probe)
        seen = watch(probe, pass_.run.batch)
        assert bool(seen.unused(marks(pass_.pads["tokens"]))) == unused


def test_the_line_that_let_a_mask_fall_is_in_the_function_that_was_given_it() -> None:
    class Holder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.reader = Reader(lambda ids: None)

        def inner(self, ids: Tensor, mask: Tensor) -> Tensor:
            return self.reader(ids)

        def forward(self, ids: Tensor) -> Tensor:
            return self.inner(ids, ids != PAD)

    probe = probe_of(Holder())
    pass_ = padded(probe)
    seen = watch(probe, pass_.run.batch)
    masks = seen.unused(marks(pass_.pads["tokens"]))
    place, made = seen.dropped_at(probe, masks, pass_.sites[0])
    assert place is not None and place.function.endswith("Holder.inner")
    assert [each.function.rpartition(".")[2] for each in made] == ["forward"]
