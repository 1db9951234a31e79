"""What an author gives is checked field by field, before anything runs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from headwise.doctor.given import are_tensors, check_subject, listed, size_of, subject_from
from headwise.doctor.subject import Subject
from headwise.errors import DataError

MODEL, IDS = nn.Linear(2, 2), torch.zeros(2, 3)


def test_every_form_makes_a_subject() -> None:
    whole = Subject(MODEL, (IDS,))
    assert subject_from(whole, "subject()", "f.py") is whole
    assert subject_from(MODEL, "build()", "f.py") == Subject(MODEL, None)
    made = subject_from({"model": MODEL, "inputs": (IDS,), "pad_id": 0}, "subject()", "f.py")
    assert made.model is MODEL and made.inputs == (IDS,) and made.pad_id == 0
    assert subject_from({"model": MODEL}, "subject()", "f.py").inputs is None
    assert subject_from((MODEL, (IDS, IDS)), "build()", "f.py").inputs == (IDS, IDS)
    assert subject_from((MODEL, IDS, IDS), "build()", "f.py").inputs == (IDS, IDS)
    assert subject_from((MODEL, "tokenizer"), "build()", "f.py").inputs is None


@pytest.mark.parametrize(
    ("made", "said"),
    [
        ({"model": MODEL, "input": IDS}, "f.py: subject.. has the unknown key 'input'; did you mean inputs"),
        ({"model": MODEL, "xyz": IDS}, "unknown key 'xyz'; there are model, inputs, call, kind"),
        ({"model": MODEL, "name": "x"}, "unknown key 'name'"),
        ({"model": MODEL, 3: IDS}, "unknown key 3"),
        ({"inputs": IDS}, "must have a model: got the keys inputs"),
        ({"model": None}, "must have a model"),
        (3, "must give a model, or a dict with one: got int; write: def subject"),
        (None, "got NoneType"),
        ((IDS, MODEL), "got tuple"),
    ],
)
def test_what_is_no_subject_is_refused(made: object, said: str) -> None:
    with pytest.raises(DataError, match=said):
        subject_from(made, "subject()", "f.py")


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("model", 3, "model must be an nn.Module or a callable that holds modules: got int '3'"),
        ("inputs", "ids", "inputs must be a tensor, a tuple of them"),
        ("inputs", (), "inputs must be a tensor"),
        ("kind", "gpt", "kind must be one of decoder, encoder, encoder-decoder: got str 'gpt'"),
        ("layout", "tb", "layout must be batch-first or time-major"),
        ("pad_id", 1.0, "pad_id must be a whole number or None"),
        ("pad_id", torch.tensor(0), "pad_id must be a whole number or None"),
        ("loss", 3, "loss must be a function"),
        ("call", 3, "call must be a function"),
        ("generate", 3, "generate must be a function"),
        ("train_step", 3, "train_step must be a function"),
        ("optimizer", "adam", "optimizer must be a torch optimizer"),
    ],
)
def test_a_field_of_the_wrong_type_is_named(field: str, value: Any, said: str) -> None:
    subject = Subject(MODEL, (IDS,))
    object.__setattr__(subject, field, value)  # past the type checker, which users do not have
    with pytest.raises(DataError, match=said):
        check_subject(subject, "f.py")


def test_right_fields_pass() -> None:
    optimizer = torch.optim.SGD(MODEL.parameters(), lr=1.0)
    check_subject(Subject(MODEL, {"x": IDS, "flag": None}, len, "decoder", 0, IDS, len, optimizer), "f.py")
    check_subject(Subject(MODEL, None), "f.py")


def test_small_helpers() -> None:
    assert are_tensors([IDS, 3]) and are_tensors({"a": IDS}) and not are_tensors({3: IDS})
    assert not are_tensors("x") and not are_tensors([]) and not are_tensors({"a": 1})
    assert size_of(MODEL) == 6 and listed("abcdefgh") == "a, b, c, d, e, f and 2 more" and listed("a") == "a"
