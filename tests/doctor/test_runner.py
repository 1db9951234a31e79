"""A copy is run and recorded, the same each time; two runs differ by more than rounding or not."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from doctor.probe_model import Model, bits, probe_of
from headwise.doctor.check import NotApplicable
from headwise.doctor.runner import Moved, Run, differs, gap, is_finite, ordinary


def test_every_value_can_be_compared() -> None:
    probe = probe_of(Model())
    moved = probe.compare(probe.change_after(3))
    embedded = next(op.out for op in probe.base.record.ops if op.name == "embedding")
    assert moved(embedded)[:, 4:].all() and not moved(embedded)[:, :4].any()
    assert moved.by(embedded) > 0
    table = embedded.op.inputs[0] if embedded.op else embedded
    assert not moved(table).any() and moved.by(table) == 0


def test_runs_that_part_are_compared_up_to_there() -> None:
    class Branches(Model):
        def mix(self, x: Tensor) -> Tensor:
            return x.sin() if bool(x.sum() > x.sum() + 1) or self.turned else x.cos()

        turned = False

    model = Branches()
    probe = probe_of(model)
    before = probe.base
    probe.model.turned = True
    moved = Moved(before, probe.run(probe.batch), probe.eps)
    values = before.record.values
    assert moved.aligned < len(values) and not moved(values[-1]).any() and moved.by(values[-1]) == 0


def test_the_same_twice_is_noise_and_dropout_is_seen_in_train_only() -> None:
    class Drops(Model):
        def __init__(self) -> None:
            super().__init__()
            self.drop = nn.Dropout(0.5)

        def mix(self, x: Tensor) -> Tensor:
            return self.drop(super().mix(x))

    probe = probe_of(Drops())
    one, two = (probe.run(probe.batch, train=True, seed=seed) for seed in (0, 0))
    assert torch.equal(one.logits, two.logits)  # the same random numbers
    assert not torch.equal(one.logits, probe.run(probe.batch, train=True, seed=1).logits)
    assert torch.equal(probe.run(probe.batch).logits, probe.base.logits)
    assert not probe.model.training or probe.run(probe.batch).logits is not None
    bare = probe.run(probe.batch, record=False)
    assert torch.equal(bare.logits, probe.base.logits) and not bare.record.ops


def test_infinities_and_nan_at_the_same_place_are_no_difference() -> None:
    inf, nan = float("inf"), float("nan")
    a = torch.tensor([1.0, inf, nan, -inf, 2.0])
    assert differs(a, a.clone(), 1e-7).tolist() == [False] * 5
    assert differs(a, torch.tensor([1.0, -inf, 0.0, nan, 2.1]), 1e-7).tolist() == [
        False,
        True,
        True,
        True,
        True,
    ]
    assert differs(torch.tensor([1.0]), torch.tensor([1.0 + 1e-6]), 1e-7).tolist() == [False]
    assert differs(torch.ones(2), torch.ones(3), 1e-7).all()
    assert differs(torch.tensor([1, 2]), torch.tensor([1, 3]), 1e-7).tolist() == [False, True]


def test_a_copy_that_was_let_go_is_made_again() -> None:
    probe = probe_of(Model())
    was = probe.model
    probe.release()
    assert probe.model is not was
    assert torch.equal(probe.run(probe.batch).logits, probe.base.logits)


def test_an_output_without_scores_is_said_so() -> None:
    class Nothing(Model):
        def forward(self, ids: Tensor) -> Any:
            return {"text": "no"}

    probe = probe_of(Nothing())
    assert isinstance(probe.failure, NotApplicable) and "a dict" in str(probe.failure)


def test_a_run_knows_its_logits_also_when_they_were_written_through_a_view() -> None:
    class Masks(Model):
        def forward(self, ids: Tensor) -> Tensor:
            logits = super().forward(ids)
            logits[..., 0] = float("-inf")
            return logits

    probe = probe_of(Masks())
    assert isinstance(probe.base, Run) and probe.base.logits_value.op is not None
    assert torch.isneginf(probe.base.logits_value.tensor[..., 0]).all()
    seen, own = bits(probe, probe.rows_seen), torch.tensor([1 << row for row in range(probe.batch.rows)])
    assert (seen[..., 1:] == own[:, None, None]).all() and (seen[..., 0] == 0).all()


def test_an_id_forbidden_everywhere_is_no_missing_number() -> None:
    scores = torch.randn(2, 3, 5)
    assert is_finite(scores)
    scores[..., 1] = -torch.inf
    assert is_finite(scores) and ordinary(scores).sum() == 24
    assert gap(scores, scores + 1)[..., 1].eq(0).all() and gap(scores, scores + 1)[..., 0].gt(0).all()
    for spoilt in (torch.nan, torch.inf, -torch.inf):
        other = scores.clone()
        other[0, 0, 0] = spoilt
        assert not is_finite(other)
    assert not is_finite(torch.full((2, 5), -torch.inf)) and not is_finite(torch.tensor(-torch.inf))
    assert not ordinary(torch.tensor([-1e9, torch.nan])).any()


def test_a_model_that_counts_its_calls_is_run_from_the_same_count() -> None:
    class Counts(Model):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("steps", torch.zeros(()))

        def mix(self, x: Tensor) -> Tensor:
            self.steps += 1
            return super().mix(x) * self.steps

    probe = probe_of(Counts())
    assert torch.equal(probe.run(probe.batch).logits, probe.base.logits)
    assert not probe.model.get_buffer("steps").any() and probe.noise < 1e-9


def test_what_a_model_gives_back_is_said_in_plain_words() -> None:
    def words(given: Any) -> str:
        class Gives(Model):
            def forward(self, ids: Tensor) -> Any:
                return given

        return str(probe_of(Gives()).failure)

    assert "a generator: forward holds a yield" in words(n for n in range(3))
    assert "which is None" in words(None) and "a dict with the keys 'a', 'b'" in words({"a": 1, "b": "c"})
    assert words("text").endswith("a str")
