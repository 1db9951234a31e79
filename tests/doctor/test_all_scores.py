"""Where only labels bring the scores of all positions, the model is called with some."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from doctor.flat_model import Flat, text
from headwise.doctor.adapt import Adapted, adapt
from headwise.doctor.all_scores import with_all_scores
from headwise.doctor.probe import Probe
from headwise.doctor.subject import Subject


def told(model: Any, inputs: Any, **more: Any) -> Adapted:
    return with_all_scores(adapt(Subject(model, inputs, **more)))


@pytest.mark.parametrize("form", ["tensor", "tuple", "dict"])
def test_a_model_that_keeps_its_scores_to_itself_is_called_with_labels(form: str) -> None:
    ids = text()[0]
    given: Any = {"tensor": ids, "tuple": (ids,), "dict": {"idx": ids}}[form]
    adapted = told(Flat("last"), given, kind="decoder")
    assert adapted.subject.inputs is given and adapted.subject.loss is None
    assert adapted.notes == (
        "without targets the model gives the scores of the last position only: it was called with ids as "
        "targets, to see those of all",
    )
    assert Probe(adapted).is_sequence
    assert not Probe(adapt(Subject(Flat("last"), given, kind="decoder"))).is_sequence


def test_a_model_that_gives_them_all_is_called_as_it_was() -> None:
    for form in ("cube", "rows"):
        before = adapt(Subject(Flat(form), text()[0]))
        assert with_all_scores(before) is before


def test_a_classifier_is_called_as_it_was() -> None:
    """One answer for each row, whatever else it might be given."""

    class Classifier(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(20, 3)

        def forward(self, ids: Tensor, targets: Tensor | None = None, mask: Tensor | None = None) -> Any:
            x = self.words(ids)
            if mask is not None:  # scores of all positions, but they are read, and nothing is compared
                return x * mask[..., None]
            logits = x.mean(1)
            loss = None if targets is None else torch.nn.functional.cross_entropy(logits, targets[:, 0] % 3)
            return logits, loss

    before = adapt(Subject(Classifier(), (text()[0],)))
    assert with_all_scores(before) is before


def test_where_the_user_says_how_to_call_it_nothing_is_added() -> None:
    subject = Subject(Flat("last"), (text()[0],), call=lambda model, idx: model(idx))
    before = adapt(subject)
    assert with_all_scores(before) is before
