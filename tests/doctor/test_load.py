"""From a name on the command line to a subject, with the stranger's code kept at bay."""

from __future__ import annotations

import inspect
import os
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from doctor import subject_files
from doctor.subject_files import MODEL, SUBJECT
from headwise.doctor.load import load
from headwise.errors import DataError, RunError


def write(folder: Path, *parts: str, name: str = "my_model.py") -> str:
    return subject_files.write(folder, *parts, name=name)


def test_a_subject_with_the_record_of_its_making(tmp_path: Path) -> None:
    path = write(tmp_path, MODEL, SUBJECT)
    loaded = load(path)
    subject = loaded.subject
    assert (subject.kind, subject.name, loaded.assumed, loaded.notes) == ("encoder", path, {}, ())
    place = loaded.making.module(subject.model)
    assert place is not None and (place.file, place.function) == (path, "subject")
    assert subject.optimizer is not None and loaded.making.optimizer(subject.optimizer) is not None
    chain = loaded.making.tensor(subject.targets)
    assert chain[0][0].function == "subject" and chain[0][1] == "aten.slice.Tensor"
    lines = inspect.getsourcelines(type(subject.model).forward)[0]
    assert lines[0].strip() == "def forward(self, ids):"


def test_a_class_alone_gets_inputs_and_says_so(tmp_path: Path) -> None:
    loaded = load(write(tmp_path, MODEL))
    assert loaded.assumed == {
        "model": "Model()",
        "inputs_from": "token ids [3, 11] below 21, made up",
    }
    assert loaded.subject.model(*loaded.subject.inputs).shape == (3, 11, 21)


def test_the_padding_index_of_the_embedding_is_assumed_to_be_padding(tmp_path: Path) -> None:
    path = write(tmp_path, MODEL.replace("(vocab, width)", "(vocab, width, padding_idx=2)"))
    loaded = load(path)
    assert loaded.subject.pad_id == 2 and loaded.assumed["pad_id_from"] == "padding_idx of its embedding"
    told = load(path, pad_id=0)
    assert told.subject.pad_id == 0 and "pad_id_from" not in told.assumed


def test_what_the_user_says_stands_above_what_the_subject_says(tmp_path: Path) -> None:
    subject = load(write(tmp_path, MODEL, SUBJECT), kind="decoder", pad_id=0, layout="time-major").subject
    assert (subject.kind, subject.pad_id, subject.layout) == ("decoder", 0, "time-major")


def test_a_name_a_module_and_a_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, MODEL, "\ndef make():\n    return Model(33)\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert load("my_model.py:make").subject.model.head.out_features == 33
    assert load("my_model:make").subject.name == "my_model:make"
    write(tmp_path, "from .parts import Model\ndef build():\n    return Model(44)\n", name="pack_of/net.py")
    write(tmp_path, MODEL, name="pack_of/parts.py")
    (tmp_path / "pack_of" / "__init__.py").touch()
    assert load("pack_of/net.py").subject.model.head.out_features == 44
    assert load("pack_of.net:build").subject.model.head.out_features == 44
    for name in [name for name in sys.modules if name.split(".")[0] in ("my_model", "pack_of")]:
        del sys.modules[name]


def test_the_file_runs_as_a_script_would_but_not_as_main(tmp_path: Path) -> None:
    (tmp_path / "beside_it.py").write_text("NUMBER = 27\n")
    late = """
import sys, beside_it
assert __name__ != "__main__" and sys.argv == [__file__] or sys.argv[0].endswith("my_model.py")
assert len(sys.argv) == 1
class Lazy(Model):
    def forward(self, ids):
        import later_on
        return super().forward(ids) + later_on.ZERO
def build():
    return Lazy(beside_it.NUMBER)
if __name__ == "__main__":
    raise SystemExit("ran as main")
"""
    (tmp_path / "later_on.py").write_text("ZERO = 0\n")
    search, arguments = list(sys.path), list(sys.argv)
    loaded = load(write(tmp_path, MODEL, late))
    assert (sys.path, sys.argv) == (search, arguments)
    with loaded.running():
        assert sys.path[0] == str(tmp_path)
        assert loaded.subject.model(*loaded.subject.inputs).shape == (3, 11, 27)
    assert (sys.path, sys.argv) == (search, arguments)
    assert not list(tmp_path.rglob("__pycache__"))


def test_two_folders_may_each_have_their_helpers(tmp_path: Path) -> None:
    for number in (31, 32):
        folder = tmp_path / str(number)
        text = "from helper_of_mine import SIZE\ndef build():\n    return Model(SIZE)\n"
        path = write(folder, MODEL, text)
        (folder / "helper_of_mine.py").write_text(f"SIZE = {number}\n")
        assert load(path).subject.model.head.out_features == number


def test_a_file_named_like_pythons_hides_nothing(tmp_path: Path) -> None:
    import random

    loaded = load(write(tmp_path, MODEL, SUBJECT, name="random.py"))
    assert sys.modules["random"] is random and loaded.subject.kind == "encoder"
    assert inspect.getsource(type(loaded.subject.model)).startswith("class Model")


def test_a_changed_file_is_read_anew(tmp_path: Path) -> None:
    path = write(tmp_path, MODEL)
    load(path)
    write(tmp_path, "\n\n", MODEL.replace("vocab=21", "vocab=25"))
    loaded = load(path)
    assert loaded.subject.model.head.out_features == 25
    lines, first = inspect.getsourcelines(type(loaded.subject.model))
    assert (
        lines[0].startswith("class Model") and Path(path).read_text().splitlines()[first - 1] == lines[0][:-1]
    )


def test_the_same_model_and_batch_every_time(tmp_path: Path) -> None:
    path = write(tmp_path, MODEL, SUBJECT)
    first, second = load(path).subject, load(path).subject
    assert torch.equal(first.inputs[0], second.inputs[0])
    states = [model.state_dict() for model in (first.model, second.model)]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


def test_defaults_that_a_file_sets_hold_while_it_runs_and_no_longer(tmp_path: Path) -> None:
    loaded = load(write(tmp_path, "torch.set_default_dtype(torch.float64)\n", MODEL))
    assert torch.get_default_dtype() == torch.float32
    with loaded.running():
        assert torch.get_default_dtype() == torch.float64
    assert torch.get_default_dtype() == torch.float32
    assert loaded.subject.model.head.weight.dtype == torch.float64


def test_nothing_of_it_reaches_standard_output(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    talk = "\nimport os\nprint('import')\nos.system('echo child')\n"
    talk += "def build():\n    print('build')\n    return Model()\n"
    loaded = load(write(tmp_path, MODEL.replace("x = self", "print('run'); x = self"), talk))
    with loaded.running():
        loaded.subject.model(*loaded.subject.inputs)
    output, error = capfd.readouterr()
    assert output == "" and {"import", "child", "build", "run"} <= set(error.split())


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("x = (\n", r"my_model.py cannot be loaded: SyntaxError: .*, at .*my_model.py:3$"),
        ("import nothing_like_it\n", r"ModuleNotFoundError: No module named 'nothing_like_it', at .*:3$"),
        ("def f():\n    1 / 0\nf()\n", r"ZeroDivisionError: division by zero, at .*my_model.py:4 in f$"),
        ("import sys\nsys.exit('bye')\n", r"it calls sys.exit\('bye'\), at .*my_model.py:4; put that under"),
        ("def subject():\n    raise KeyError('x')\n", r"KeyError: 'x', at .*my_model.py:4 in subject$"),
        ("def subject():\n    return {'modle': 1}\n", "unknown key 'modle'; did you mean model"),
        ("while True: pass\n", r"stopped after 0.3 s, at .*my_model.py:3; .*--load-timeout"),
    ],
)
def test_a_broken_file_is_told_in_one_line(source: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=said) as error:
        load(write(tmp_path, source), seconds=0.3 if "while" in source else 30)
    assert "\n" not in str(error.value)
    assert nn.Module.__init__.__qualname__ == "Module.__init__" and not hasattr(
        nn.Module.__init__, "__wrapped__"
    )


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("my_modle.py", r"no file my_modle.py; did you mean my_model.py\?"),
        ("nowhere/x.py", "no file nowhere/x.py; name a file such as"),
        ("notes.ipynb", r"is a notebook: call headwise.examine"),
        ("weights.pt", "holds weights, not a model"),
        ("no_such_module_here", "no_such_module_here cannot be loaded: ModuleNotFoundError"),
        ("my_model.py:biuld", "my_model.py has no biuld"),
    ],
)
def test_a_target_that_is_none_is_refused(
    target: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, MODEL)
    (tmp_path / "notes.ipynb").touch()
    (tmp_path / "weights.pt").touch()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=said):
        load(target)


def test_a_directory_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"is not a run: it has no config\.yaml"):
        load(str(tmp_path))
    (tmp_path / "config.json").touch()
    (tmp_path / "model.safetensors").touch()
    with pytest.raises(RunError, match=r"is a public checkpoint: .* headwise.load, .* headwise.examine"):
        load(str(tmp_path))


def test_a_bug_of_ours_is_not_told_as_the_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwise.doctor.load.discover", lambda *_: os.path.join(3))  # pyright: ignore
    with pytest.raises((TypeError, DataError)):
        load(write(tmp_path, MODEL))
