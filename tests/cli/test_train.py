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


LANGUAGE: dict[str, Any] = {"data.kind": "text", "model.num_encoder_layers": 0}
MASKED: dict[str, Any] = {"data.kind": "text", "model.num_decoder_layers": 0}
LABELLED: dict[str, Any] = {"data.kind": "labelled", "model.num_decoder_layers": 0}
IMAGES: dict[str, Any] = {"data.kind": "images", "model.num_decoder_layers": 0}


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
        *(
            (
                {path: value},
                f"{path} has no effect with data.kind dates; set data.kind to {kind} or leave it out",
            )
            for path, value, kind in (
                ("data.text.masked_share", 0.2, "text"),
                ("data.labelled.seed", 2, "labelled"),
                ("data.images.shift", 2, "images"),
                ("model.patches.size", 8, "images"),
            )
        ),
        (
            {"model.rotary.base": 500.0, "model.rotary.factor": 2.0},
            "model.rotary.base, model.rotary.factor have no effect with model.positions sinusoidal; "
            "set model.positions to rotary or leave them out",
        ),
        (
            {"model.positions": "rotary", "model.relative_buckets": 8},
            "model.relative_buckets has no effect with model.positions rotary; "
            "set model.positions to relative or leave it out",
        ),
        (
            {"model.positions": "rotary", "model.rotary.factor": 2.0},
            "model.rotary.factor has no effect with model.rotary.scaling none; leave it out",
        ),
        (
            {
                "model.positions": "rotary",
                "model.rotary.scaling": "linear",
                "model.rotary.original_length": 64,
            },
            "model.rotary.original_length has no effect with model.rotary.scaling linear; leave it out",
        ),
        (
            {"model.positions": "rotary", "model.rotary.scaling": "ntk", "model.rotary.slow_turns": 2.0},
            "model.rotary.slow_turns has no effect with model.rotary.scaling ntk; leave it out",
        ),
        (
            {
                "model.positions": "rotary",
                "model.rotary.scaling": "llama3",
                "model.rotary.attention_factor": 2.0,
            },
            "model.rotary.attention_factor has no effect with model.rotary.scaling llama3; leave it out",
        ),
        ({"model.num_segments": 2}, "model.num_segments has no effect with data.kind dates; leave it out"),
        (
            {"model.num_classes": 3, "model.pooling": "mean"},
            "model.num_classes, model.pooling have no effect with data.kind dates; leave them out",
        ),
        (
            LANGUAGE | {"data.text.masked_share": 0.2},
            "data.text.masked_share has no effect without encoder layers, since nothing is hidden; "
            "leave it out",
        ),
        (
            LANGUAGE | {"data.vocab_size": 999},
            "data.vocab_size has no effect with data.text.tokens characters; "
            "set data.text.tokens to bpe or leave it out",
        ),
        (
            LANGUAGE | {"data.text.validation_share": 0.2, "data.text.validation_files": ("v.txt",)},
            "data.text.validation_share has no effect beside data.text.validation_files; leave it out",
        ),
        (
            MASKED | {"model.window": 3},
            "model.window has no effect without decoder layers, since nothing is causal; leave it out",
        ),
        (
            MASKED | {"train.samples": 1},
            "train.samples has no effect without decoder layers, since nothing is written; leave it out",
        ),
        (
            MASKED | {"model.scale_output": True},
            "model.scale_output has no effect without decoder layers; leave it out",
        ),
        (
            LABELLED | {"data.labelled.tokens": "characters", "data.vocab_size": 999},
            "data.vocab_size has no effect with data.labelled.tokens characters; "
            "set data.labelled.tokens to bpe or leave it out",
        ),
        (
            LABELLED | {"data.labelled.seed": 2, "data.labelled.validation": "v.csv"},
            "data.labelled.seed has no effect beside data.labelled.validation; leave it out",
        ),
        (
            LABELLED | {"model.output_bias": True, "model.tie_output": False},
            "model.output_bias, model.tie_output have no effect with data.kind labelled; leave them out",
        ),
        (
            IMAGES | {"data.vocab_size": 999, "model.vocab_size": 9, "model.scale_embedding": False},
            "data.vocab_size has no effect with data.kind images; leave it out",
        ),
    ],
)
def test_a_setting_that_does_nothing_is_told_of(values: dict[str, Any], said: str) -> None:
    assert said in without_effect(build(values), values)
    told = [line.partition(" ha")[0] for line in without_effect(build(values), values)]
    assert len(told) == 1 or values.keys() >= IMAGES.keys()


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"data.parallel.folder": ".", "data.dates.seed": 1, "train.final_rate": 0.0},
        {"data.kind": "parallel", "data.parallel.folder": "text"},
        {"data.dates.seed": 7},
        {"train.schedule": "cosine", "train.final_rate": 0.5},
        {"model.window": 9, "model.scale_output": True, "train.samples": 1, "train.label_smoothing": 0.2},
        {"model.output_bias": True, "model.tie_output": False, "data.vocab_size": 999},
        {"model.positions": "relative", "model.relative_buckets": 8},
        {
            "model.positions": "rotary",
            "model.rotary.base": 500.0,
            "model.rotary.scaling": "yarn",
            "model.rotary.factor": 2.0,
            "model.rotary.original_length": 64,
            "model.rotary.slow_turns": 2.0,
            "model.rotary.attention_factor": 2.0,
        },
        LANGUAGE
        | {"data.text.tokens": "bpe", "data.vocab_size": 999, "data.text.window": 9, "model.window": 3},
        LANGUAGE | {"data.text.validation_share": 0.2, "train.samples": 1, "model.num_segments": 2},
        MASKED | {"data.text.masked_share": 0.2, "model.num_segments": 2, "train.label_smoothing": 0.2},
        LABELLED | {"data.labelled.seed": 2, "data.vocab_size": 999, "model.pooling": "mean"},
        LABELLED | {"model.pooling_activation": "relu", "model.num_classes": 3, "model.vocab_size": 999},
        IMAGES
        | {"data.images.shift": 1, "model.patches.size": 32, "model.pooling": "mean", "model.num_classes": 3},
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
