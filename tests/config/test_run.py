"""What a whole recipe demands of its parts, and where it is kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from config_cases import refusal
from headwise.config import DataConfig, ModelConfig, RunConfig, TrainConfig

WRITER, READER = {"num_encoder_layers": 0}, {"num_decoder_layers": 0}


def complete(settings: dict[str, Any]) -> dict[str, Any]:
    """The model's own settings as a configuration."""
    model = settings.get("model", ModelConfig())
    return {**settings, "model": ModelConfig(**model) if isinstance(model, dict) else model}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"run": " "}, "run must name a directory: got an empty name; runs/NAME is usual"),
        (
            {"model": ModelConfig(max_length=64), "data": DataConfig(kind="parallel")},
            "data.parallel.max_length must not pass model.max_length: got 128 and 64; raise model.max_length",
        ),
        (
            {"model": WRITER | {"max_length": 32}, "data": DataConfig(kind="text")},
            "data.text.window must not pass model.max_length: got 64 and 32; raise model.max_length",
        ),
        (
            {"model": WRITER, "data": DataConfig(kind="text"), "train": TrainConfig(batch_tokens=63)},
            "train.batch_tokens must hold at least one data.text.window: got 63 and 64; "
            "raise train.batch_tokens",
        ),
        (
            {"model": READER | {"max_length": 64}, "data": DataConfig(kind="labelled")},
            "data.labelled.max_length must not pass model.max_length: got 128 and 64; raise model.max_length",
        ),
        (
            {"model": READER | {"max_length": 196}, "data": DataConfig(kind="images")},
            "the number of patches and the class token must not pass model.max_length: got 197 and 196; "
            "raise model.max_length",
        ),
        (
            {"model": READER | {"max_length": 195, "pooling": "mean"}, "data": DataConfig(kind="images")},
            "the number of patches must not pass model.max_length: got 196 and 195; raise model.max_length",
        ),
        (
            {"model": {"parallel_blocks": True, "norm": "pre"}},
            "model.parallel_blocks is for models of one stack: got true with data.kind dates; leave it out",
        ),
        (
            {"model": WRITER, "data": DataConfig(kind="dates")},
            "data.kind dates is translated by an encoder and a decoder: got model.num_encoder_layers=0, "
            "model.num_decoder_layers=6; set both to 1 or more",
        ),
        (
            {"data": DataConfig(kind="text")},
            "data.kind text is continued by decoder layers alone or filled in by encoder layers alone: got "
            "model.num_encoder_layers=6, model.num_decoder_layers=6; set one of them to 0",
        ),
        (
            {"data": DataConfig(kind="images")},
            "data.kind images is classified by encoder layers alone: got model.num_encoder_layers=6, "
            "model.num_decoder_layers=6; set model.num_decoder_layers to 0",
        ),
        (
            {"model": WRITER, "data": DataConfig(kind="text"), "train": TrainConfig(watch="bleu")},
            "train.watch must be one of loss with data.kind text: got 'bleu'",
        ),
        (
            {"model": READER, "data": DataConfig(kind="labelled"), "train": TrainConfig(watch="bleu")},
            "train.watch must be one of accuracy, loss with data.kind labelled: got 'bleu'",
        ),
    ],
)
def test_bad_runs_are_refused(settings: dict[str, Any], message: str) -> None:
    assert refusal(RunConfig, complete(settings)) == message


@pytest.mark.parametrize(
    "settings",
    [
        {"model": ModelConfig(max_length=64)},  # of dates, whatever data.parallel says
        {"model": ModelConfig(max_length=128), "data": DataConfig(kind="parallel")},
        {"model": WRITER | {"max_length": 64}, "data": DataConfig(kind="text")},
        {"model": READER, "data": DataConfig(kind="text"), "train": TrainConfig(batch_tokens=64)},
        {"model": READER, "data": DataConfig(kind="labelled"), "train": TrainConfig(watch="accuracy")},
        {"model": READER | {"max_length": 197}, "data": DataConfig(kind="images")},
        {"model": READER | {"max_length": 196, "pooling": "mean"}, "data": DataConfig(kind="images")},
        {"model": WRITER | {"parallel_blocks": True, "norm": "pre"}, "data": DataConfig(kind="text")},
        {"train": TrainConfig(watch="bleu")},
    ],
)
def test_the_nearest_good_ones_are_not(settings: dict[str, Any]) -> None:
    RunConfig(**complete(settings))


def test_a_tilde_is_the_home_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    assert RunConfig(run="~/runs/x").folder == Path("/home/somebody/runs/x")
    assert RunConfig(run="~no-such-user/x").folder == Path("~no-such-user/x")
