"""One pass as it is; of a large one a part is recorded, and the sizes are those of the whole."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from headwise.doctor.adapt import adapt
from headwise.doctor.subject import Subject
from headwise.see.walk import once as module
from headwise.see.walk.once import once
from headwise.see.walk.walk import trace
from see.walk.walk_models import Einsum, Llama, ids, rows


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Any pass counts as large."""
    monkeypatch.setattr(module, "LARGE_BYTES", 1000)
    yield


def test_a_small_pass_is_recorded_whole() -> None:
    probe = once(adapt(Subject(Einsum(), ids())), None)
    assert not probe.is_part and probe.batch.leaves[0].shape == (3, 7) and probe.dtype == torch.float32


@pytest.mark.parametrize("model", [Einsum, Llama])
@pytest.mark.usefixtures("small")
def test_a_part_tells_the_same_walk(model: type[nn.Module], monkeypatch: pytest.MonkeyPatch) -> None:
    made = model()
    part = trace(made, ids(5, 20))
    monkeypatch.setattr(module, "LARGE_BYTES", 2**30)
    whole = trace(made, ids(5, 20))
    assert rows(part) == rows(whole)
    assert (part.flops, part.bytes, part.peak, part.sizes) == (
        whole.flops, whole.bytes, whole.peak, whole.sizes,
    )  # fmt: skip
    assert any("a part of it" in note for note in part.notes) and not any(
        "a part of it" in n for n in whole.notes
    )


class Fixed(Einsum):
    """Runs on one length alone, and does more for more rows."""

    def forward(self, ids: Tensor) -> Tensor:
        assert ids.shape[1] == 20
        return super().forward(ids) + (1 if len(ids) < 3 else torch.ones(1).exp())


@pytest.mark.usefixtures("small")
def test_where_no_part_runs_the_same_the_whole_is_recorded() -> None:
    probe = once(adapt(Subject(Fixed(), ids(5, 20))), None)
    assert not probe.is_part and probe.base.batch.leaves[0].shape == (5, 20)


@pytest.mark.usefixtures("small")
def test_what_is_too_large_to_record_is_told_by_its_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_BYTES", 0)
    walk = trace(Fixed(), ids(5, 20))
    assert any("too large to record" in note and "[2, 20]" in note for note in walk.notes)


def test_a_single_row_is_recorded_twice_and_told_once() -> None:
    probe = once(adapt(Subject(Llama(), ids(1, 6))), None)
    assert probe.is_part and probe.base.batch.leaves[0].shape == (2, 6)
    softmax = next(op for op in probe.record.ops if op.name == "_safe_softmax")
    assert probe.sizes.of[softmax].outputs[0].shape == (1, 4, 6, 6)


def test_a_failure_is_kept_with_what_ran_before() -> None:
    class Fails(Einsum):
        def forward(self, ids: Tensor) -> Tensor:
            raise ValueError(f"no {super().forward(ids).shape}")

    probe = once(adapt(Subject(Fails(), ids())), None)
    assert isinstance(probe.failure, ValueError) and len(probe.sites) == 2


def test_modules_that_run_in_another_thread_are_noted() -> None:
    class Threads(Einsum):
        def forward(self, ids: Tensor) -> Tensor:
            found: list[Tensor] = []
            other = threading.Thread(target=lambda: found.append(self.table(ids)))
            other.start()
            other.join()
            return found[0] + super().forward(ids).mean(-1, keepdim=True)

    assert any("another thread" in note for note in trace(Threads(), ids()).notes)
    assert not trace(Einsum(), ids()).notes
