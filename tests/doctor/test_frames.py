"""The frames of an operation are the user's: not torch's, not the doctor's, not those beyond its call."""

from __future__ import annotations

import sys
import types
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from headwise.doctor.adapt import adapt
from headwise.doctor.frames import owner_of, place_in, user_frames
from headwise.doctor.probe import Probe
from headwise.doctor.subject import Subject
from headwise.doctor.trace import recording


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(9, 4)
        self.layer = nn.Sequential(nn.Linear(4, 4), nn.ReLU())

    def forward(self, ids: Tensor) -> Tensor:
        return helper(self.layer, self.words(ids))


def helper(layer: nn.Module, x: Tensor) -> Tensor:
    return layer(x)


def test_frames_go_from_the_operation_outwards_to_the_call_of_the_model() -> None:
    probe = Probe(adapt(Subject(Model(), torch.randint(0, 9, (2, 5)))))
    op = next(op for op in probe.base.record.ops if op.name == "addmm")
    assert [frame.place.function for frame in op.frames] == [
        "helper",
        "Model.forward",
    ]  # and no test function
    assert all(frame.place.file == __file__ and not frame.library for frame in op.frames)
    # the two layers ran in the same call of the function
    other = next(op for op in probe.base.record.ops if op.name == "relu")
    assert [frame.call for frame in other.frames] == [frame.call for frame in op.frames]


def test_what_the_doctor_computes_itself_has_no_frames() -> None:
    """A loss that is no scalar is averaged by the doctor: that line is not the caller's."""

    def loss(output: Tensor, targets: Tensor) -> Tensor:
        return nn.functional.cross_entropy(output.mT, targets, reduction="none")

    ids = torch.randint(0, 4, (2, 5))
    record, value, _ = Probe(adapt(Subject(Model(), ids, targets=ids, loss=loss))).recorded_loss()
    assert value.op is not None and value.op.name == "mean" and value.op.frames == ()
    nll = next(op for op in record.ops if op.name.startswith("nll_loss"))
    assert nll.place is not None and nll.place.function.endswith("loss")


def test_no_more_frames_than_asked_for() -> None:
    def deep(left: int) -> int:
        return deep(left - 1) if left else len(user_frames(5))

    assert deep(20) == 5


def code_in(file: str) -> types.CodeType:
    return compile("1", file, "eval")


@pytest.mark.parametrize(
    ("file", "owner"),
    [
        (__file__, "user"),
        (nn.Linear.forward.__code__.co_filename, "torch"),
        (np.__file__, "torch"),  # it works for whoever calls it
        (pytest.__file__, "library"),
        (types.__file__, "torch"),
        (sys.modules[Probe.__module__].__file__, "doctor"),
        ("<frozen importlib._bootstrap>", "torch"),
        ("<@beartype(headwise.errors.join) at 0x7f>", "torch"),
        ("<stdin>", "user"),
        ("<ipython-input-1-0123>", "user"),
    ],
)
def test_whose_code_it_is(file: str, owner: str) -> None:
    assert owner_of(code_in(file)) == owner


def test_the_same_function_in_another_file_is_another_place() -> None:
    one, two = (
        compile("def f():\n    pass\n", f"/somewhere/{name}.py", "exec").co_consts[0] for name in "ab"
    )
    assert one == two  # which is what makes this a trap
    assert [place_in(code, 2).file for code in (one, two)] == ["/somewhere/a.py", "/somewhere/b.py"]


def test_our_own_models_are_a_subject_like_any_other() -> None:
    import headwise.model

    assert owner_of(code_in(headwise.model.__file__)) in {"user", "library"}


def test_a_place_names_file_line_and_function() -> None:
    place = place_in(helper.__code__, 7)
    assert (place.file, place.line, place.function) == (__file__, 7, "helper")
    assert place_in(helper.__code__, 7) is place


def test_a_library_is_named_where_no_file_of_the_users_takes_part(tmp_path: Path) -> None:
    folder = tmp_path / "site-packages" / "somebodys"
    folder.mkdir(parents=True)
    source = "def twice(x):\n    return x * 2\n"
    (folder / "__init__.py").write_text(source)
    scope: dict[str, object] = {}
    exec(compile(source, str(folder / "__init__.py"), "exec"), scope)
    twice = scope["twice"]
    assert callable(twice)
    with recording(None) as record:
        twice(torch.ones(2))
    op = next(op for op in record.ops if op.name == "mul")
    assert [frame.library for frame in op.frames[:2]] == [True, False]
    assert op.place is not None and op.place.file == __file__
    probe = Probe(adapt(Subject(Holds(twice), torch.randn(3, 5, 4))))
    assert next(op.place for op in probe.base.record.ops if op.name == "mul").file.endswith(
        "somebodys/__init__.py"
    )


class Holds(nn.Module):
    def __init__(self, function: object) -> None:
        super().__init__()
        self.forward = function
