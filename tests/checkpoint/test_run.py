"""Opening a run's directory, and loading a run to use it."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import headwise
from headwise.checkpoint.run import (
    ImageRun,
    Run,
    RunFiles,
    TextRun,
    load_run,
    load_translator,
    open_run,
    read_classes,
    save_model,
    write_classes,
)
from headwise.checkpoint.weights import load_tensors, save_tensors
from headwise.config import ModelConfig, RunConfig
from headwise.data.tokenizer import Tokenizer
from headwise.errors import RunError, StorageError
from headwise.model.encoder_decoder import EncoderDecoder
from headwise.train.loop import train
from tiny_run import OTHER_KINDS, silent, tiny, tiny_kind


def make(folder: Path, text: str = "one two three") -> RunConfig:
    """A run as training leaves it, of random weights."""
    config = tiny(folder)
    with open_run(config) as files:
        tokenizer = Tokenizer.train([text], 64)
        tokenizer.save(files.tokenizer)
        model = EncoderDecoder(config.model.with_vocabulary(tokenizer.vocab_size, tokenizer.pad_id))
        save_model(files, model, 3)
    return config


@pytest.fixture(name="folder")
def a_run(tmp_path: Path) -> Path:
    make(tmp_path / "run")
    return tmp_path / "run"


def test_a_run_is_loaded_ready_for_use(folder: Path) -> None:
    run = load_translator(folder)
    assert run.config == tiny(folder)
    assert not run.model.training
    tensors, about = load_tensors(RunFiles(folder).model)
    assert about["step"] == 3
    assert all(torch.equal(p, tensors[name]) for name, p in run.model.named_parameters())


def test_a_run_from_before_fingerprints_is_loaded(folder: Path) -> None:
    path = RunFiles(folder).model
    save_tensors(path, load_tensors(path)[0], {"kind": "model", "step": 3})
    load_translator(folder)


@pytest.mark.parametrize("name", ["config.yaml", "tokenizer.json", "model.safetensors"])
def test_what_is_missing_or_damaged_is_named(name: str, folder: Path) -> None:
    path = folder / name
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(RunError, match=name):
        load_translator(folder)
    path.unlink()
    with pytest.raises(RunError, match=name):
        load_translator(folder)


def test_another_tokenizer_of_the_same_size_is_refused(folder: Path, tmp_path: Path) -> None:
    make(tmp_path / "other", "eno owt eerht")
    shutil.copy(tmp_path / "other" / "tokenizer.json", folder / "tokenizer.json")
    with pytest.raises(RunError, match=r"tokenizer\.json is not the one that .* was trained with"):
        load_translator(folder)


def test_what_is_no_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"no run .*nowhere"):
        load_translator(tmp_path / "nowhere")
    with pytest.raises(RunError, match="is not a run: it has no config"):
        load_translator(tmp_path)


def test_another_configuration_is_refused_with_every_difference(folder: Path) -> None:
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    config = tiny(folder, max_steps=99)
    config = replace(config, model=replace(config.model, d_model=32))
    with pytest.raises(RunError) as raised, open_run(config):
        pass
    for part in (
        "model.d_model: the run has 16, asked for 32",
        "train.max_steps: the run has 6, asked for 99",
    ):
        assert part in str(raised.value)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_somebodys_directory_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("x")
    with (
        pytest.raises(RunError, match=r"not empty and not a run \(it holds thesis\.tex\)"),
        open_run(tiny(tmp_path)),
    ):
        pass
    assert os.listdir(tmp_path) == ["thesis.tex"]


def test_an_empty_directory_or_one_of_a_killed_start_is_taken(tmp_path: Path) -> None:
    (tmp_path / ".config.yaml.writing").write_text("ha")
    with open_run(tiny(tmp_path)) as files:
        assert files.config.exists()
    assert sorted(os.listdir(tmp_path)) == [".lock", "config.yaml"]


@pytest.mark.parametrize("below", ["", "run", "run/deep"])
def test_a_file_is_no_directory(below: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with (
        pytest.raises((RunError, StorageError), match="choose another --run"),
        open_run(tiny(tmp_path / "file" / below)),
    ):
        pass
    assert (tmp_path / "file").read_text() == "x"


@pytest.mark.parametrize("name", ["x" * 300, "a\0b"])
def test_an_impossible_name_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="choose another --run"), open_run(tiny(tmp_path / name)):
        pass


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_directory_without_permission_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(StorageError, match="Permission denied"), open_run(tiny(tmp_path / "run")):
        pass


def test_a_run_is_open_once_and_free_afterwards(folder: Path) -> None:
    with open_run(tiny(folder)):
        with pytest.raises(RunError, match="is being trained by another process"), open_run(tiny(folder)):
            pass
        load_translator(folder)  # to use it is always allowed
    with open_run(tiny(folder)):
        pass


def test_a_new_runs_configuration_is_the_lock_holders(tmp_path: Path) -> None:
    """The loser of a race for a new directory must not have written its own configuration there."""
    with open_run(tiny(tmp_path / "run")) as files:
        with pytest.raises(RunError), open_run(tiny(tmp_path / "run", max_steps=99)):
            pass
        assert "max_steps: 6" in files.config.read_text()


def test_a_vocabulary_that_does_not_fit_is_the_runs_fault(folder: Path) -> None:
    path = RunFiles(folder).config
    path.write_text(path.read_text().replace("vocab_size: null", "vocab_size: 17", 1))
    assert ModelConfig().vocab_size is None
    with pytest.raises(RunError, match=r"config\.yaml does not fit .*tokenizer\.json"):
        load_translator(folder)


def test_a_mistake_before_the_first_save_may_be_corrected(tmp_path: Path) -> None:
    with open_run(tiny(tmp_path / "run")) as files:
        files.tokenizer.write_text("of the mistake", encoding="utf-8")
    with open_run(tiny(tmp_path / "run", max_steps=99)) as files:
        assert not files.tokenizer.exists()
    files.training.write_bytes(b"x")
    with pytest.raises(RunError, match="max_steps"), open_run(tiny(tmp_path / "run")):
        pass


def test_an_edited_configuration_that_the_shapes_cannot_tell_is_named(tmp_path: Path) -> None:
    train(tiny(tmp_path / "run"), silent())
    files = RunFiles(tmp_path / "run")
    text = files.config.read_text(encoding="utf-8")
    assert "num_heads: 2" in text
    files.config.write_text(text.replace("num_heads: 2", "num_heads: 4"), encoding="utf-8")
    with pytest.raises(RunError, match=r"config\.yaml is not the one"):
        load_translator(tmp_path / "run")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of every kind, each in a directory of its name."""
    folder = tmp_path_factory.mktemp("kinds")
    for kind in OTHER_KINDS:
        train(tiny_kind(kind, folder / kind), silent())
    return folder


@pytest.fixture
def copies(trained: Path, tmp_path: Path) -> Path:
    """Copies to be damaged."""
    for kind in OTHER_KINDS:
        shutil.copytree(trained / kind, tmp_path / kind)
    return tmp_path


@pytest.mark.parametrize("kind", OTHER_KINDS)
def test_a_run_of_any_kind_is_loaded_ready_for_use(kind: str, trained: Path) -> None:
    run = load_run(trained / kind)
    assert not run.model.training and run.config == tiny_kind(kind, trained / kind)
    tensors, about = load_tensors(RunFiles(trained / kind).model)
    assert all(torch.equal(p, tensors[name]) for name, p in run.model.named_parameters())
    assert type(run) is (ImageRun if kind == "images" else TextRun)
    expected = {"labelled": ("even", "odd"), "images": ("0", "1", "2")}.get(kind, ())
    assert not isinstance(run, Run) and run.classes == expected
    assert about["classes"] == (list(expected) or None)
    assert (about["tokenizer"] is None) == (kind == "images")


def test_a_translator_is_a_run_of_any_kind_too(folder: Path) -> None:
    assert isinstance(load_run(folder), Run)
    assert headwise.load_run is load_run
    assert isinstance(headwise.load_run(str(folder)), Run)
    assert isinstance(load_translator(str(folder)), Run)


@pytest.mark.parametrize("kind", OTHER_KINDS)
def test_only_a_translator_translates(kind: str, trained: Path) -> None:
    with pytest.raises(RunError, match=r"does not translate: it was trained on data\.kind"):
        load_translator(trained / kind)


@pytest.mark.parametrize("kind", ["labelled", "images"])
@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, r"cannot read the classes .*classes\.json: No such file or directory; restore it"),
        (b"{", r"cannot read the classes .*classes\.json: .*; restore it"),
        (b"\xff", r"cannot read the classes .*classes\.json: .*; restore it"),
        (b"{}", r"classes\.json is damaged: expected a list of two names or more"),
        (b'["a"]', r"classes\.json is damaged"),
        (b'["a", 2]', r"classes\.json is damaged"),
        (b'["a", "b", "c", "d"]', r"classes\.json is not the one that .*model\.safetensors was trained with"),
        (b'["odd", "even"]', r"classes\.json is not the one"),
    ],
)
def test_classes_that_are_not_the_models_are_named(
    kind: str, content: bytes | None, said: str, copies: Path
) -> None:
    path = RunFiles(copies / kind).classes
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(RunError, match=said):
        load_run(copies / kind)


@pytest.mark.parametrize("kind", ["language", "masked", "labelled"])
def test_a_damaged_or_other_tokenizer_of_any_kind_is_named(kind: str, copies: Path) -> None:
    path = RunFiles(copies / kind).tokenizer
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(RunError, match=r"tokenizer\.json is damaged"):
        load_run(copies / kind)
    path.write_bytes(content + b" ")
    with pytest.raises(RunError, match=r"tokenizer\.json is not the one"):
        load_run(copies / kind)
    path.unlink()
    with pytest.raises(RunError, match=r"cannot read the tokenizer .*tokenizer\.json"):
        load_run(copies / kind)


@pytest.mark.parametrize("kind", ["labelled", "images"])
def test_a_number_of_classes_that_does_not_fit_is_the_runs_fault(kind: str, copies: Path) -> None:
    path = RunFiles(copies / kind).config
    path.write_text(path.read_text().replace("num_classes: null", "num_classes: 7", 1))
    with pytest.raises(RunError, match=r"config\.yaml does not fit .*: model\.num_classes must equal"):
        load_run(copies / kind)


def test_classes_are_written_as_they_are_and_never_over_those_of_a_model(tmp_path: Path) -> None:
    files = RunFiles(tmp_path)
    names = ("a b", "\u732b", "\n", "")
    write_classes(files, ("x", "y"))
    write_classes(files, names)
    assert read_classes(files) == names
    files.training.touch()
    write_classes(files, names)
    with pytest.raises(
        RunError, match=r"(?s)got x, y, the run has a b, .*; restore the data or choose another"
    ):
        write_classes(files, ("x", "y"))
    assert read_classes(files) == names
    with pytest.raises(RunError, match="got 0, 1, 2, 3, 4, 5, 6, 7 and 92 more, the run"):
        write_classes(files, tuple(map(str, range(100))))


def test_the_classes_of_a_mistake_before_the_first_save_go_with_it(tmp_path: Path) -> None:
    with open_run(tiny_kind("labelled", tmp_path / "run")) as files:
        write_classes(files, ("of", "the mistake"))
    with open_run(tiny_kind("labelled", tmp_path / "run", max_steps=99)) as files:
        assert not files.classes.exists()
