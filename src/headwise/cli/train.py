"""headwise train RECIPE: train, or go on where a run stopped."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from headwise.cli.arguments import CommandParser
from headwise.cli.recipe import read_recipe, write_recipe
from headwise.cli.settings import build, sections
from headwise.cli.using import warn
from headwise.config import RunConfig


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


def without_effect(config: RunConfig, values: Mapping[str, Any]) -> list[str]:
    """One line for each reason why some of the values, by path, do nothing.

    A value that equals the default is not told of: whole recipes, as --print_config writes them, hold all.
    """
    kind, schedule = config.data.kind, config.train.schedule
    reasons = (
        ("data.dates.", kind != "dates", f"with data.kind {kind}; set data.kind to dates or"),
        ("data.parallel.", kind != "parallel", f"with data.kind {kind}; set data.kind to parallel or"),
        (
            "train.final_rate",
            schedule != "cosine",
            f"with train.schedule {schedule}; set train.schedule to cosine or",
        ),
        ("model.pad_id", True, "beside the tokenizer's;"),
    )
    defaults = {setting.path: setting.default for section in sections() for setting in section.settings}
    asked = sorted(path for path, value in values.items() if value != defaults[path])
    lines: list[str] = []
    for start, is_ignored, why in reasons:
        paths = [path for path in asked if is_ignored and path.startswith(start)]
        if paths:
            have, them = ("has", "it") if len(paths) == 1 else ("have", "them")
            lines.append(f"{', '.join(paths)} {have} no effect {why} leave {them} out")
    return lines
