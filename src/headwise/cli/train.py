"""headwise train RECIPE: train, or go on where a run stopped."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from headwise.cli.arguments import CommandParser
from headwise.cli.recipe import read_recipe, write_recipe
from headwise.cli.settings import build, sections
from headwise.cli.using import warn
from headwise.config import DataConfig, ModelConfig, RunConfig
from headwise.config.data import KINDS


def train(arguments: Sequence[str]) -> int:
    """Run the command."""
    parser = CommandParser(
        "train",
        "RECIPE [--SETTING VALUE ...] [--print_config] [--no-preflight]",
        "Train a model as a recipe says. The same command goes on where a stopped run was.",
        "Before the first step the quick checks of headwise doctor examine the model on a few rows of the "
        "first batch; an error stops the command.",
    )
    parser.add_place(
        "RECIPE", "YAML file of settings, such as recipes/dates.yaml; those left out have defaults"
    )
    parser.add_flag("print_config", "print the whole recipe that would be trained, and do nothing")
    parser.add_flag("no-preflight", "do not examine the model before the first step")
    parser.add_settings(sections())
    if parser.answers_help(arguments):
        return 0
    given = parser.parse(arguments)
    config = configure(parser, Path(given.pop("recipe")), given)
    if given["print_config"]:
        sys.stdout.write(write_recipe(config))
        return 0
    from headwise.cli.preflight import preflight
    from headwise.train.loop import train as run_training

    run_training(config, before=None if given["no-preflight"] else preflight)
    return 0


def configure(parser: CommandParser, recipe: Path, given: dict[str, Any]) -> RunConfig:
    """The recipe's settings, with those of the command line over them; warns of those that do nothing.

    Errors: ConfigError naming the recipe, the key or the option that is wrong.
    """
    known = sections()
    values = parser.check(read_recipe(recipe, known), str(recipe))
    paths = {setting.path for section in known for setting in section.settings}
    values |= {path: value for path, value in given.items() if path in paths}
    config: RunConfig = build(values)
    for line in without_effect(config, values):
        warn(line)
    return config


def config_of(recipe: Path) -> RunConfig:
    """A recipe as it stands. Errors: ConfigError as configure."""
    parser = CommandParser("train", "RECIPE", "")
    parser.add_settings(sections())
    return configure(parser, recipe, {})


def without_effect(config: RunConfig, values: Mapping[str, Any]) -> list[str]:
    """One line for each reason why some of the values, by path, do nothing.

    A value that equals the default is not told of: whole recipes, as --print_config writes them, hold all.
    """
    defaults = {setting.path: setting.default for section in sections() for setting in section.settings}
    asked = sorted(path for path, value in values.items() if value != defaults[path])
    lines: list[str] = []
    for starts, is_ignored, why in _reasons(config):
        paths = [path for path in asked if is_ignored and path.startswith(starts)]
        asked = [path for path in asked if path not in paths]  # one reason is enough
        if paths:
            have, them = ("has", "it") if len(paths) == 1 else ("have", "them")
            lines.append(f"{', '.join(paths)} {have} no effect {why} leave {them} out")
    return lines


def _reasons(config: RunConfig) -> Iterator[tuple[tuple[str, ...], bool, str]]:
    """How the paths begin that may do nothing, whether they do, and why."""
    kind, model, data = config.data.kind, config.model, config.data
    with_kind = f"with data.kind {kind};"
    for other in KINDS:
        yield (f"data.{other}.",), kind != other, f"{with_kind} set data.kind to {other} or"
    yield ("model.pad_id",), True, "beside the tokenizer's;"
    yield from _reasons_of_data(data, with_kind, is_filled_in=model.num_encoder_layers > 0)
    yield from _reasons_of_positions(model)
    is_encoder, names_classes = model.num_decoder_layers == 0, kind in ("labelled", "images")
    is_image = kind == "images"
    yield ("model.window",), is_encoder, "without decoder layers, since nothing is causal;"
    yield ("model.num_segments",), config.is_translation or is_image, with_kind
    yield ("model.num_classes", "model.pooling"), not names_classes, with_kind
    yield ("model.pooling_activation", "model.vocab_size", "model.scale_embedding"), is_image, with_kind
    yield ("model.output_bias", "model.tie_embeddings", "model.tie_output"), names_classes, with_kind
    yield ("model.scale_output",), is_encoder, "without decoder layers;"
    yield ("model.patches.",), not is_image, f"{with_kind} set data.kind to images or"
    yield ("train.samples",), is_encoder, "without decoder layers, since nothing is written;"
    schedule = config.train.schedule
    why = f"with train.schedule {schedule}; set train.schedule to cosine or"
    yield ("train.final_rate",), schedule != "cosine", why


def _reasons_of_data(
    data: DataConfig, with_kind: str, *, is_filled_in: bool
) -> Iterator[tuple[tuple[str, ...], bool, str]]:
    tokens = {"text": data.text.tokens, "labelled": data.labelled.tokens}.get(data.kind)
    yield ("data.vocab_size",), data.kind == "images", with_kind
    why = f"with data.{data.kind}.tokens characters; set data.{data.kind}.tokens to bpe or"
    yield ("data.vocab_size",), tokens == "characters", why
    why = "without encoder layers, since nothing is hidden;"
    yield ("data.text.masked_share",), not is_filled_in, why
    why = "beside data.text.validation_files;"
    yield ("data.text.validation_share",), len(data.text.validation_files) > 0, why
    drawn = ("data.labelled.validation_share", "data.labelled.seed")
    yield drawn, data.labelled.validation is not None, "beside data.labelled.validation;"


def _reasons_of_positions(model: ModelConfig) -> Iterator[tuple[tuple[str, ...], bool, str]]:
    positions, scaling = model.positions, model.rotary.scaling
    for starts, other in ((("model.rotary.",), "rotary"), (("model.relative_",), "relative")):
        why = f"with model.positions {positions}; set model.positions to {other} or"
        yield starts, positions != other, why
    with_scaling = f"with model.rotary.scaling {scaling};"
    yield ("model.rotary.factor",), scaling == "none", with_scaling
    yield ("model.rotary.original_length",), scaling in ("none", "linear", "ntk"), with_scaling
    turns = ("model.rotary.fast_turns", "model.rotary.slow_turns")
    yield turns, scaling not in ("yarn", "llama3"), with_scaling
    yield ("model.rotary.attention_factor",), scaling != "yarn", with_scaling
