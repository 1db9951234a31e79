"""Which label meets which row of logits, in whatever way the cross-entropy is written."""

from __future__ import annotations

import linecache
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from headwise.doctor.adapt import adapt
from headwise.doctor.check import NotApplicable, Place
from headwise.doctor.load import load
from headwise.doctor.losses import (
    copies_itself,
    cut_line,
    cuts_targets,
    first_of,
    input_lines,
    learned,
    loss_lines,
    mean_cross_entropy,
    pairs,
    share,
    target_lines,
    time_axis,
    uniform_loss,
)
from headwise.doctor.made import Making
from headwise.doctor.probe import Probe
from headwise.doctor.subject import Subject

B, T, V = 3, 7, 11

Loss = Callable[[Tensor, Tensor], Tensor]


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(V, 8), nn.Linear(8, V)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.words(ids).cumsum(1))


class TimeMajor(Model):
    def forward(self, ids: Tensor) -> Tensor:
        return super().forward(ids).transpose(0, 1)


class ClassesFirst(Model):
    def forward(self, ids: Tensor) -> Tensor:
        return super().forward(ids).mT


def flattened(logits: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(logits.reshape(-1, V), targets.reshape(-1), ignore_index=0)


def classes_second(logits: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(logits.transpose(1, 2), targets, ignore_index=0)


def in_two_steps(logits: Tensor, targets: Tensor) -> Tensor:
    return F.nll_loss(logits.log_softmax(-1).flatten(0, 1), targets.flatten(), ignore_index=0)


def shifted_inside(logits: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(logits[:, :-1].reshape(-1, V), targets[:, 1:].reshape(-1))  # SHIFT


def a_module(logits: Tensor, targets: Tensor) -> Tensor:
    return nn.CrossEntropyLoss(ignore_index=0, reduction="none")(logits.permute(0, 2, 1), targets).mean()


def smoothed(logits: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=0, label_smoothing=0.1)


def by_row(logits: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(logits.mT.contiguous(), targets.masked_fill(targets == 0, -100))


WRITINGS: list[Loss] = [flattened, classes_second, in_two_steps, a_module, smoothed, by_row]


@pytest.fixture
def ids() -> Tensor:
    tokens = torch.randint(1, V, (B, T))
    tokens[0, 5:] = 0
    return tokens


def probe_of(
    loss: Loss, ids: Tensor, targets: Tensor | None = None, model: nn.Module | None = None, **more: Any
) -> Probe:
    making = more.pop("making", None)
    goal = ids.roll(-1, 1) if targets is None else targets
    given = Subject(model or Model(), ids, kind="decoder", targets=goal, loss=loss, pad_id=0, **more)
    return Probe(adapt(given), making)


def grid(axis: int) -> Tensor:
    return torch.meshgrid(torch.arange(B), torch.arange(T), indexing="ij")[axis].flatten()


@pytest.mark.parametrize("loss", WRITINGS)
def test_rows_meet_their_labels(loss: Loss, ids: Tensor) -> None:
    met = pairs(probe_of(loss, ids))
    assert torch.equal(met.row, grid(0)) and torch.equal(met.time, grid(1))
    assert torch.equal(met.label_row, grid(0)) and torch.equal(met.label_time, grid(1))
    assert torch.equal(met.label, ids.roll(-1, 1).flatten())
    assert met.op.name.startswith("nll_loss")


def test_a_shift_inside_the_loss_is_seen(ids: Tensor) -> None:
    probe = probe_of(shifted_inside, ids, ids)
    met = pairs(probe)
    assert (
        len(met.row) == B * (T - 1)
        and (met.label_time - met.time == 1).all()
        and (met.row == met.label_row).all()
    )
    place = cuts_targets(probe)
    assert place is not None and place.line == line_of("SHIFT")
    assert cuts_targets(probe_of(flattened, ids)) is None


def test_time_major_logits_against_batch_first_targets_meet_the_wrong_labels(ids: Tensor) -> None:
    met = pairs(probe_of(flattened, ids, model=TimeMajor()))  # flattened in another order
    assert not torch.equal(met.row, met.label_row)
    right = pairs(probe_of(lambda out, goal: flattened(out.transpose(0, 1), goal), ids, model=TimeMajor()))
    assert torch.equal(right.label_row, right.time) or torch.equal(right.label_row, right.row)


def test_classes_before_positions_are_told_apart(ids: Tensor) -> None:
    met = pairs(probe_of(lambda out, goal: F.cross_entropy(out, goal), ids, model=ClassesFirst()))
    assert torch.equal(met.row, met.label_row) and torch.equal(met.time, met.label_time)


@pytest.mark.parametrize(
    "loss",
    [lambda out, goal: ((out - F.one_hot(goal, V)) ** 2).mean(), lambda out, goal: out.mean(), F.mse_loss],
    ids=["squares", "no labels", "mse"],
)
def test_what_is_no_cross_entropy_of_labels_cannot_be_decided(loss: Any, ids: Tensor) -> None:
    targets = torch.randn(B, T, V) if loss is F.mse_loss else None
    with pytest.raises(NotApplicable):
        pairs(probe_of(loss, ids, targets))


# What is learned


@pytest.mark.parametrize("loss", WRITINGS)
def test_each_row_learns_its_label(loss: Loss, ids: Tensor) -> None:
    targets = ids.roll(-1, 1)
    label, tokens = learned(probe_of(loss, ids))
    assert torch.equal(tokens, ids)
    counted = targets != 0
    if loss is not a_module:  # which averages what is left out as well, but teaches nothing there either
        assert (label[~counted] == -1).all()
    assert torch.equal(label[counted], targets[counted])


def test_what_is_learned_is_told_by_its_shift(ids: Tensor) -> None:
    ids = ids.clamp(min=1)
    for shift in (0, 1, 2):
        label, tokens = learned(probe_of(flattened, ids, ids.roll(-shift, 1)))
        shares = [share(label, tokens, each) for each in (0, 1, 2)]
        assert shares[shift] == 1.0 and max(x for place, x in enumerate(shares) if place != shift) < 0.7
    assert share(torch.full((2, 3), -1), torch.ones(2, 3, dtype=torch.long), 1) == 0.0
    assert share(torch.ones(2, 3), torch.ones(2, 3), 3) == 0.0


def test_time_major_logits_are_turned(ids: Tensor) -> None:
    probe = probe_of(lambda out, goal: flattened(out.transpose(0, 1), goal), ids, model=TimeMajor())
    assert time_axis(probe) == 0 and time_axis(probe_of(flattened, ids)) == 1

    def right(out: Tensor, goal: Tensor) -> Tensor:
        return F.cross_entropy(out.transpose(0, 1).flatten(0, 1), goal.flatten(), ignore_index=0)

    label, _ = learned(probe_of(right, ids, model=TimeMajor()))
    targets = ids.roll(-1, 1)
    assert torch.equal(label[targets != 0], targets[targets != 0])


def test_without_a_gradient_nothing_is_learned(ids: Tensor) -> None:
    with pytest.raises(NotApplicable, match="no gradient"):
        learned(probe_of(lambda out, goal: out.detach().mean(), ids))


# Numbers


@pytest.mark.parametrize("loss", [flattened, classes_second, in_two_steps, by_row])
def test_the_mean_is_over_the_labels_that_count(loss: Loss, ids: Tensor) -> None:
    probe = probe_of(loss, ids)
    mean, count = mean_cross_entropy(probe)
    targets = ids.roll(-1, 1)
    assert count == int((targets != 0).sum())
    assert mean == pytest.approx(float(flattened(probe.model(ids), targets).detach()), rel=1e-9)


def test_a_summed_or_scaled_loss_has_the_same_mean(ids: Tensor) -> None:
    plain, _ = mean_cross_entropy(probe_of(flattened, ids, model=seeded()))
    summed, _ = mean_cross_entropy(
        probe_of(
            lambda out, goal: (
                F.cross_entropy(out.flatten(0, 1), goal.flatten(), ignore_index=0, reduction="sum") / 7
            ),
            ids,
            model=seeded(),
        )
    )
    assert plain == pytest.approx(summed)


def seeded() -> Model:
    torch.manual_seed(4)
    return Model()


def test_classes_of_whole_rows_count_too(ids: Tensor) -> None:
    class Classifier(Model):
        def forward(self, ids: Tensor) -> Tensor:
            return super().forward(ids).mean(1)

    labels = torch.tensor([3, 1, 2])
    probe = Probe(adapt(Subject(Classifier(), ids, kind="encoder", targets=labels, loss=F.cross_entropy)))
    mean, count = mean_cross_entropy(probe)
    assert count == 3 and mean == pytest.approx(float(F.cross_entropy(probe.model(ids), labels).detach()))


def test_labels_that_no_class_has_cannot_be_decided(ids: Tensor) -> None:
    with pytest.raises(NotApplicable):
        mean_cross_entropy(probe_of(flattened, ids, torch.zeros_like(ids)))  # none counts
    with pytest.raises(NotApplicable):
        mean_cross_entropy(probe_of(lambda out, goal: out.sum(), ids, torch.randn(B, T)))


def test_knowing_nothing_costs_the_logarithm_of_the_classes() -> None:
    assert uniform_loss(V) == pytest.approx(float(F.cross_entropy(torch.zeros(1, V), torch.tensor([2]))))
    assert uniform_loss(1) == 0.0 and uniform_loss(2) == math.log(2)


# Lines


def line_of(mark: str) -> int:
    lines = linecache.getlines(__file__)
    return next(n for n, line in enumerate(lines, 1) if line.rstrip().endswith(f"# {mark}"))


def hand_over() -> tuple[Tensor, Tensor]:
    tokens = torch.randint(1, V, (B, T + 1))
    return tokens[:, :-1], tokens[:, 1:]  # CUT


def test_lines_of_loss_targets_and_inputs() -> None:
    with Making() as making:
        inputs, targets = hand_over()
    probe = probe_of(in_two_steps, inputs, targets, making=making)
    assert [place.line for place in loss_lines(probe)] == [in_two_steps.__code__.co_firstlineno + 1]
    assert target_lines(probe)[0].line == line_of("CUT") == input_lines(probe, 0)[0].line
    cut = cut_line(probe, targets)
    assert cut is not None and cut.line == line_of("CUT") and cut_line(probe, "text") is None
    assert cut_line(probe_of(flattened, inputs), inputs) is None  # nobody watched


def test_the_function_that_hands_over_comes_last() -> None:
    subject, other = Place("a.py", 1, "subject"), Place("a.py", 2, "make.<locals>.f")
    assert first_of([subject, None, other]) == (other, [subject])
    assert first_of([subject]) == (subject, []) and first_of([None]) == (None, [])
    nested = Place("a.py", 3, "subject.<locals>.loss")
    assert first_of([nested, other])[0] is other


@pytest.mark.parametrize(
    ("specimen", "copies"),
    [("HW504_kind_not_told", True), ("healthy_autoencoder", False), ("HW504_same_slice_twice", False)],
)
def test_a_decoder_that_copies_its_input_is_told_by_what_it_sees(specimen: str, copies: bool) -> None:
    """The last one has said what it is: nothing is to be found out."""
    loaded = load(str(Path(__file__).parent / "specimens" / f"{specimen}.py"))
    with loaded.running():
        assert copies_itself(Probe(adapt(loaded.subject))) is copies
