"""Recipes: what is printed is read back, options go over the file, and every fault names its line."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwise.cli import main
from headwise.cli.arguments import CommandParser
from headwise.cli.recipe import find_recipe, read_recipe, write_recipe
from headwise.cli.settings import sections
from headwise.cli.train import config_of, configure
from headwise.config import DataConfig, DatesConfig, ModelConfig, ParallelConfig, RunConfig, TrainConfig
from headwise.errors import ConfigError

ROOT = Path(__file__).resolve().parents[2]
PARSER = CommandParser("train", "RECIPE", "")
PARSER.add_settings(sections())


def read(path: Path, text: str | bytes) -> RunConfig:
    path.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8"))
    return configure(PARSER, path, {})


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["train", *arguments, "--print_config"]) == 0
    return capsys.readouterr().out


def test_what_is_printed_is_a_recipe_for_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = printed(capsys, str(ROOT / "recipes/dates.yaml"), "--train.adam_eps", "1e-9", "--model.d_ff", "7")
    again = tmp_path / "again.yaml"
    again.write_text(first, encoding="utf-8")
    assert printed(capsys, str(again)) == first


def test_options_go_over_the_recipe_wherever_they_stand(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("model: {d_model: 32, num_heads: 4}\ndata: {dates: {languages: [fr]}}\n")
    options = ["--model.d_model", "64", "--data.dates.languages", "[de,zh]", "--train.learning_rate=1e-3"]
    wanted = RunConfig(
        model=ModelConfig(d_model=64, num_heads=4),
        data=DataConfig(dates=DatesConfig(languages=("de", "zh"))),
        train=TrainConfig(learning_rate=1e-3),
    )
    for arguments in ([str(recipe), *options], [*options, str(recipe)]):
        assert printed(capsys, *arguments) == write_recipe(wanted)


def test_null_takes_a_recipes_value_away(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("model: {d_ff: 9}\n")
    assert "d_ff: null" in printed(capsys, str(recipe), "--model.d_ff", "null")


@settings(max_examples=60)
@given(
    run=st.text(st.characters(codec="utf-8", exclude_characters="\r\x85\u2028\u2029"), min_size=1).filter(
        lambda text: text.isprintable() and text.strip() != ""
    )
    | st.sampled_from(
        ["1e-4", "no", "null", "Null", "~", "1:30", "0x1F", "010", "2021-01-01", "*a", "- b", "<<", "1_0"]
    ),
    rate=st.floats(min_value=1e-300, max_value=1e300),
)
def test_law_reading_what_was_written_gives_the_same(
    run: str, rate: float, tmp_path_factory: pytest.TempPathFactory
) -> None:
    config = replace(
        RunConfig(run=run, train=TrainConfig(learning_rate=rate)),
        data=DataConfig(kind="parallel", parallel=ParallelConfig(folder=run, test_source=run)),
    )
    assert read(tmp_path_factory.getbasetemp() / "law.yaml", write_recipe(config)) == config


@pytest.mark.parametrize(
    "text", ["", "# nothing\n", "model:\ndata:\n", "\ufeffmodel: {}\n", "---\ntrain:\n...\n"]
)
def test_what_is_left_out_has_its_default(text: str, tmp_path: Path) -> None:
    assert read(tmp_path / "recipe.yaml", text) == RunConfig()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("model: [", "line 1, column 9"),
        ("run: a\nmodel: {d_model: 3\ntrain: {}\n", "line 3"),
        ("run: a\n\trun: b\n", "line 2"),
        ("run: a\nrun: b\n", "line 2, column 1: the key run comes twice"),
        ("run: &a x\nmodel: *a\n", "aliases"),
        ("run: \x07\n", "line 1 holds the character U+0007"),
        (b"run: a\nrun: \xff\n", "must be YAML in UTF-8: line 2 holds the byte 0xff"),
        ("run: !!python/object:os.system x\n", "line 1"),
        ("model: {d_model: !!int x}\n", "is not valid YAML"),
        ("model: {d_model: !!timestamp x}\n", "is not valid YAML"),
        ("a: " + "[" * 5000, "is not valid YAML"),
        ("run: a\n---\nrun: b\n", "line 2"),
        ("7\n", "expected a recipe, lines of 'name: value': got 7"),
        ("[a, b]\n", "expected a recipe"),
        ("model: 7\n", "model must be a section, lines of 'name: value': got 7"),
        ("model: {d_mode: 7}\n", "unknown key model.d_mode; did you mean model.d_model?"),
        ("d_model: 7\n", "unknown key d_model; did you mean model.d_model?"),
        (
            "data: {dates: {language: [de]}}\n",
            "unknown key data.dates.language; did you mean data.dates.languages?",
        ),
        ("1: 2\n", "unknown key 1"),
        ("? [a, b]\n: c\n", "is not valid YAML"),
    ],
)
def test_a_fault_in_a_recipe_is_named(text: str | bytes, said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path / "recipe.yaml", text)
    assert said in str(caught.value) and "recipe.yaml" in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("model: {d_model: big}\n", "recipe.yaml: model.d_model must be a whole number: got 'big'"),
        ("model: {d_model: 1.5}\n", "model.d_model must be a whole number: got 1.5"),
        ("model: {norm: none}\n", "model.norm must be one of post, pre: got 'none'"),
        ("model: {tie_embeddings: [a]}\n", "model.tie_embeddings must be true or false: got ['a']"),
        ("run: [a]\n", "run must be text: got ['a']"),
        ("run: 7\n", "run must be text: got 7"),
        ("run:\n", "run must be text: got null"),
        (
            "data: {dates: {languages: de}}\n",
            "data.dates.languages must be a list such as [a, b]: got 'de'",
        ),
        ("train: {beta1: .nan}\n", "beta1 must be"),
        ("train: {max_steps: {a: b}}\n", "train.max_steps must be a whole number: got {'a': 'b'}"),
    ],
)
def test_a_wrong_type_in_a_recipe_is_named(
    text: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(text)
    assert main(["train", str(recipe), "--print_config"]) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1


def test_numbers_are_read_as_people_write_them(tmp_path: Path) -> None:
    config = read(
        tmp_path / "r.yaml", "train: {learning_rate: 1e-4, max_steps: 12_000, adam_eps: .5, clip_norm: 2}\n"
    )
    assert config.train == TrainConfig(learning_rate=1e-4, max_steps=12_000, adam_eps=0.5, clip_norm=2)


def test_a_runs_own_directory_is_no_recipe_but_its_config_is(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(write_recipe(RunConfig(run=str(tmp_path))))
    with pytest.raises(
        ConfigError, match=r"is a run, not a recipe: to go on with it, headwise train .*config.yaml"
    ):
        read_recipe(tmp_path, sections())
    assert configure(PARSER, tmp_path / "config.yaml", {}) == RunConfig(run=str(tmp_path))


def test_a_file_too_large_for_a_recipe_is_not_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="at most 1,000,000 bytes"):
        read(tmp_path / "r.yaml", "#" * 1_000_001)


@pytest.mark.parametrize("name", sorted(path.name for path in (ROOT / "recipes").glob("*.yaml")))
def test_the_recipes_that_come_along_are_sound(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    config = printed(capsys, str(ROOT / "recipes" / name))
    assert config.startswith(f"run: runs/{name[:-5]}\n")
    assert find_recipe(name).read_bytes() == (ROOT / "recipes" / name).read_bytes()


def test_the_multi30k_recipe_has_the_published_size(capsys: pytest.CaptureFixture[str]) -> None:
    config = config_of(ROOT / "recipes/multi30k.yaml")
    model = config.model
    assert (model.num_encoder_layers, model.num_decoder_layers, model.d_model) == (4, 4, 128)
    assert (model.num_heads, model.d_ff, model.dropout) == (4, 256, 0.3)
    assert config.data.kind == "parallel"
    folder = printed(capsys, str(ROOT / "recipes/multi30k.yaml"), "--data.parallel.folder", "some/where")
    assert "folder: some/where" in folder


def test_a_recipe_that_is_gone_is_named() -> None:
    with pytest.raises(ConfigError, match=r"the recipe none.yaml came with headwise and is gone"):
        find_recipe("none.yaml")
