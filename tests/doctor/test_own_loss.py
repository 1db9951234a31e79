"""Labels are told from a second sequence by what the cross-entropy picks and no logit reads."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from doctor.flat_model import VOCAB, WIDTH, Flat, text
from headwise.doctor.adapt import Adapted, adapt
from headwise.doctor.own_loss import OwnLoss, with_own_loss
from headwise.doctor.probe import Probe
from headwise.doctor.subject import Subject


def told(model: Any, inputs: Any, **more: Any) -> Adapted:
    return with_own_loss(adapt(Subject(model, inputs, **more)))


class Named(nn.Module):
    """Flat, with names for its inputs that say nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Flat()

    def forward(self, a: Tensor, b: Tensor) -> Any:
        return self.inner(a, b)


class Translator(nn.Module):
    """Reads both its inputs; `picks` adds a loss of the labels."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(VOCAB, WIDTH), nn.Linear(WIDTH, VOCAB)

    def forward(self, first: Tensor, second: Tensor, labels: Tensor | None = None) -> Any:
        logits = self.head(self.words(second) + self.words(first).mean(1, keepdim=True))
        if labels is None:
            return logits, logits.square().mean()
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten()), logits


@pytest.mark.parametrize("form", ["tuple", "dict"])
@pytest.mark.parametrize("shift", [0, 1], ids=["not shifted", "shifted"])
@pytest.mark.parametrize("model", [Flat(), Flat("cube"), Named()], ids=["flat", "cube", "unnamed"])
def test_labels_are_no_second_sequence(model: nn.Module, shift: int, form: str) -> None:
    ids, following = text()
    labels = following if shift else ids.clone()
    names = ("a", "b") if isinstance(model, Named) else ("idx", "targets")
    inputs = (ids, labels) if form == "tuple" else dict(zip(names, (ids, labels), strict=True))
    adapted = told(model, inputs)
    assert [leaf.role for leaf in adapted.leaves] == ["ids", "labels"] and adapted.labels == 1
    assert [stream.name for stream in adapted.streams] == ["tokens"]
    assert adapted.kind == ("decoder" if shift else None)
    assert adapted.subject.targets is labels and isinstance(adapted.subject.loss, OwnLoss)
    assert adapted.handed.targets is labels


def test_the_loss_is_the_models_own() -> None:
    ids, following = text()
    model = Flat()
    probe = Probe(told(model, (ids, following)))
    _, value, logits = probe.recorded_loss()
    assert float(value.tensor) == pytest.approx(float(model(ids, following)[1].detach()), rel=1e-5)
    assert logits is not None and probe.gradients().by_logit is not None


def test_two_sequences_that_are_both_read_stay_source_and_target() -> None:
    ids, following = text()
    for second in (ids.clone(), following):
        adapted = told(Translator(), (ids, second))
        assert [stream.name for stream in adapted.streams] == ["source", "target"]
        assert adapted.labels is None and adapted.subject.loss is None


def test_labels_beside_source_and_target() -> None:
    ids, following = text()
    adapted = told(Translator(), (ids, ids.clone(), following))
    assert [leaf.role for leaf in adapted.leaves] == ["ids", "ids", "labels"]
    assert adapted.kind == "encoder-decoder" and isinstance(adapted.subject.loss, OwnLoss)


def test_what_the_user_gave_stands() -> None:
    ids, following = text()

    def loss(out: Any, goal: Tensor) -> Tensor:
        return F.cross_entropy(out[0], goal.flatten())

    adapted = told(Flat(), (ids, following), loss=loss, targets=following)
    assert adapted.labels == 1 and adapted.subject.loss is loss and adapted.subject.targets is following


def test_of_several_losses_the_total_is_taken_and_of_equals_none() -> None:
    class Parts(Flat):
        def forward(self, idx: Tensor, targets: Tensor | None = None) -> Any:
            logits, loss = super().forward(idx, targets)
            extra = logits.square().mean()
            return logits, loss, loss + extra, extra

    class Equals(Flat):
        def forward(self, idx: Tensor, targets: Tensor | None = None) -> Any:
            logits, loss = super().forward(idx, targets)
            return logits, loss * 2, loss * 3

    assert told(Parts(), text()).subject.loss == OwnLoss(1)
    adapted = told(Equals(), text())
    assert adapted.labels == 1 and adapted.subject.loss is None


def test_labels_of_whole_rows() -> None:
    class Classifier(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.head = nn.Embedding(VOCAB, WIDTH), nn.Linear(WIDTH, 3)

        def forward(self, ids: Tensor, y: Tensor) -> Any:
            logits = self.head(self.words(ids).mean(1))
            return logits, F.cross_entropy(logits, y)

    adapted = told(Classifier(), (text()[0], torch.tensor([0, 2, 1, 1, 0])))
    assert adapted.labels == 1 and isinstance(adapted.subject.loss, OwnLoss)
    rows = Probe(adapted).batch.leaves
    assert len(rows[0]) == len(rows[1])


def test_a_decoder_fed_with_its_labels_reads_them() -> None:
    """As transformers' do: without decoder_input_ids they are the labels, shifted."""

    class Shifts(Translator):
        def forward(self, input_ids: Tensor, labels: Tensor) -> Any:  # type: ignore[override]
            start = torch.zeros_like(labels[:, :1])
            return super().forward(input_ids, torch.cat([start, labels.clamp(min=0)[:, :-1]], 1), labels)

    model = Shifts()
    model.config = type("Config", (), {"is_encoder_decoder": True})()
    adapted = told(model, {"input_ids": text()[0], "labels": text()[1]})
    assert [(s.name, s.leaf) for s in adapted.streams] == [("source", 0), ("target", 1)]
    alone = adapt(Subject(model, {"input_ids": text()[0]}))  # no one knows what its decoder reads then
    assert alone.main is None and alone.source is None


def test_of_a_model_that_does_not_run_the_next_tokens_are_labels() -> None:
    class Broken(Flat):
        def forward(self, idx: Tensor, targets: Tensor | None = None) -> Any:
            raise ValueError("no")

    assert told(Broken(), text()).labels == 1
    assert told(Broken(), (text()[0], text()[0].clone())).labels is None
    assert told(Broken(), text(), kind="encoder-decoder").labels is None
