"""From a recipe and options to a configuration; what would do nothing is told of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headwise.cli import main
from headwise.cli.settings import build
from headwise.cli.train import without_effect
from headwise.config import RunConfig
from headwise.errors import HeadwiseError
from headwise.train import loop

RECIPES = sorted((Path(__file__).resolve().parents[2] / "recipes").glob("*.yaml"))


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.name)
def test_our_own_recipes_hold_nothing_without_effect(
    recipe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", str(recipe), "--print_config"]) == 0
    output, error = capsys.readouterr()
    assert error == ""
    whole = tmp_path / "whole.yaml"
    whole.write_text(output, encoding="utf-8")
    assert main(["train", str(whole), "--print_config"]) == 0
    assert capsys.readouterr() == (output, "")


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (
            {"data.parallel.folder": "text"},
            "data.parallel.folder has no effect with data.kind dates; "
            "set data.kind to parallel or leave it out",
        ),
        (
            {"data.kind": "parallel", "data.dates.seed": 2, "data.dates.languages": ("fr",)},
            "data.dates.languages, data.dates.seed have no effect with data.kind parallel; "
            "set data.kind to dates or leave them out",
        ),
        (
            {"train.final_rate": 0.5},
            "train.final_rate has no effect with train.schedule inverse-sqrt; "
            "set train.schedule to cosine or leave it out",
        ),
        ({"model.pad_id": 3}, "model.pad_id has no effect beside the tokenizer's; leave it out"),
    ],
)
def test_a_setting_that_does_nothing_is_told_of(values: dict[str, Any], said: str) -> None:
    assert without_effect(build(values), values) == [said]


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"data.parallel.folder": ".", "data.dates.seed": 1, "train.final_rate": 0.0},
        {"data.kind": "parallel", "data.parallel.folder": "text"},
        {"data.dates.seed": 7},
        {"train.schedule": "cosine", "train.final_rate": 0.5},
    ],
)
def test_a_setting_that_does_something_or_is_the_default_is_not(values: dict[str, Any]) -> None:
    assert without_effect(build(values), values) == []


def test_options_and_recipe_are_warned_of_in_one_line_each(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("train: {final_rate: 0.5}\n")
    assert main(["train", str(recipe), "--data.parallel.folder", "text", "--print_config"]) == 0
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(" has no effect")[0] for line in lines] == [
        "headwise: warning: data.parallel.folder",
        "headwise: warning: train.final_rate",
    ]


def test_the_training_gets_the_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained: list[RunConfig] = []
    monkeypatch.setattr(loop, "train", lambda config, before: trained.append(config))
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("model: {d_model: 32}\ntrain: {seed: 5}\n")
    assert main(["train", str(recipe), "--train.seed", "6"]) == 0
    assert trained == [build({"model.d_model": 32, "train.seed": 6})]


def test_what_the_training_cannot_do_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object, before: object) -> None:
        raise HeadwiseError("no text; give some")

    monkeypatch.setattr(loop, "train", fail)
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("{}\n")
    assert main(["train", str(recipe)]) == 2
    assert capsys.readouterr().err == "headwise: no text; give some\n"
