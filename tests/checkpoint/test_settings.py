"""config.yaml: there and back, compared, and refused by name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from headwise.checkpoint.run import open_run
from headwise.checkpoint.settings import differences, read_config, write_config
from headwise.cli.arguments import CommandParser
from headwise.cli.settings import sections
from headwise.cli.train import configure
from headwise.config import DataConfig, DatesConfig, ModelConfig, ParallelConfig, RunConfig, TrainConfig
from headwise.errors import RunError

CONFIG = RunConfig(
    run="läufe/日本",
    model=ModelConfig(d_model=64, d_ff=None, norm="pre"),
    data=DataConfig(dates=DatesConfig(languages=("fr", "ja"))),
    train=TrainConfig(adam_eps=1e-9, learning_rate=1e-5, clip_norm=0, save_every=7, compile=True),
)


@pytest.fixture(name="path")
def a_file(tmp_path: Path) -> Path:
    path = tmp_path / "config.yaml"
    write_config(path, CONFIG)
    return path


def test_every_setting_comes_back(path: Path) -> None:
    assert read_config(path) == CONFIG
    assert list(differences(read_config(path), CONFIG)) == []


@pytest.mark.parametrize(
    "name", ["1e5", "12e3", "1.5e5", "null", "no", "7", "1:30", "0x1F", "2021-01-01", "~x"]
)
def test_a_runs_config_is_the_recipe_to_go_on_with_it_whatever_it_is_called(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config = replace(CONFIG, run=name, data=DataConfig(parallel=ParallelConfig(folder=name)))
    parser = CommandParser("train", "RECIPE", "")
    parser.add_settings(sections())
    with open_run(config) as files:
        assert files.config == Path(name, "config.yaml")
        assert read_config(files.config) == config
        assert configure(parser, files.config, {}) == config
    with open_run(configure(parser, Path(name, "config.yaml"), {})):
        pass


OLD = """\
run: 1e5
model:
  norm_eps: 1.0e-05
data:
  dates:
    languages:
    - fr
    - ja
  parallel:
    folder: 12e3
    train_source: 1.5e5
    validation_source: 'no'
train:
  adam_eps: 1.0e-09
"""


def test_what_the_first_runs_wrote_is_read(path: Path) -> None:
    """By YAML 1.1's rules, which do not quote 1e5."""
    path.write_text(OLD)
    config = read_config(path)
    assert (config.run, config.model.norm_eps, config.train.adam_eps) == ("1e5", 1e-5, 1e-9)
    assert config.data.dates.languages == ("fr", "ja")
    parallel = config.data.parallel
    assert (parallel.folder, parallel.train_source, parallel.validation_source) == ("12e3", "1.5e5", "no")


def test_differences_are_named_with_both_values_but_a_run_may_be_moved() -> None:
    other = replace(
        CONFIG,
        run="elsewhere",
        model=replace(CONFIG.model, d_model=128),
        data=replace(CONFIG.data, dates=DatesConfig(languages=("fr",))),
    )
    assert list(differences(CONFIG, other)) == [
        "model.d_model: the run has 64, asked for 128",
        "data.dates.languages: the run has ('fr', 'ja'), asked for ('fr',)",
    ]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("d_model: 64", "d_model: 64.0"),
        ("d_model: 64", "d_model: '64'"),
        ("d_model: 64", "d_model: true"),
        ("d_model: 64", "d_model: null"),
        ("d_model: 64", "d_model: 65"),
        ("d_model: 64", "d_modell: 64"),
        ("norm: pre", "norm: middle"),
        ("norm: pre", "norm: [pre]"),
        ("compile: true", "compile: 1"),
        ("ja]", "3]"),
        ("ja]", "fr]"),
        ("model:", "model: 3\nother:"),
        ("run:", "? [a]\n:"),
        ("run:", "run: !!python/object/apply:os.system ['false'] #"),
        ("run:", "run: &a [*a] #"),
        ("run:", "run: 'open #"),
        ("run:", "run: twice\nrun:"),
        ("d_model: 64", "d_model: !!timestamp x"),
    ],
)
def test_a_damaged_file_is_named(old: str, new: str, path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(
        RunError, match=r"config\.yaml is damaged or no configuration of headwise: .*; restore it"
    ):
        read_config(path)


@pytest.mark.parametrize("content", [b"", b"3", b"[]", b"\xff\xfe\x00", b"\x00", b"[" * 2_000, b"null"])
def test_garbage_is_named(content: bytes, path: Path) -> None:
    path.write_bytes(content)
    with pytest.raises(RunError, match=r"config\.yaml is damaged or no configuration of headwise"):
        read_config(path)


@pytest.mark.parametrize("section", ["run", "model", "data", "train"])
def test_a_file_without_a_section_was_cut(section: str, path: Path) -> None:
    whole = path.read_text(encoding="utf-8")
    path.write_text(whole[: whole.index(f"{section}:")], encoding="utf-8")
    with pytest.raises(RunError, match=rf"config\.yaml is damaged .*expected .*{section}"):
        read_config(path)
