"""Every field of the configuration is a setting: in recipes, as an option, in the help."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any, Literal, get_type_hints

import pytest

from headwise.cli import main
from headwise.cli.settings import build, expected, sections
from headwise.config import RunConfig
from headwise.errors import ConfigError


def test_help_has_every_setting_with_its_words(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    assert main(["train", "--help"]) == 0
    lines = capsys.readouterr().out.splitlines()

    def walk(cls: type, prefix: str) -> set[str]:
        hints = get_type_hints(cls)
        found: set[str] = set()
        for field in fields(cls):
            hint = hints[field.name]
            found |= walk(hint, f"{prefix}{field.name}.") if is_dataclass(hint) else {prefix + field.name}
        return found

    paths = walk(RunConfig, "")
    settings = [setting for section in sections() for setting in section.settings]
    assert {setting.path for setting in settings} == paths and len(paths) > 50
    for setting in settings:
        at = next(i for i, line in enumerate(lines) if line.strip().startswith(f"{setting.option} "))
        assert setting.help and setting.help[:40] in " ".join(lines[at : at + 2])


def test_law_what_is_built_has_the_values_and_defaults_elsewhere() -> None:
    assert build({}) == RunConfig()
    config = build({"model.d_model": 24, "model.num_heads": 3, "data.dates.languages": ("fr",), "run": "r"})
    assert (config.model.d_model, config.model.num_heads, config.run) == (24, 3, "r")
    assert config.data.dates.languages == ("fr",)
    assert config.train == RunConfig().train and config.data.parallel == RunConfig().data.parallel


def test_what_cannot_work_together_is_refused_by_the_configuration() -> None:
    with pytest.raises(ConfigError, match="num_heads must divide d_model: got d_model=512, num_heads=7"):
        build({"model.num_heads": 7})


@pytest.mark.parametrize(
    ("hint", "words"),
    [
        (int, "a whole number"),
        (float, "a number"),
        (bool, "true or false"),
        (str, "text"),
        (Literal["post", "pre"], "one of post, pre"),
        (tuple[str, ...], "a list such as [a, b]"),
        (int | None, "a whole number or null"),
    ],
)
def test_types_in_words(hint: Any, words: str) -> None:
    assert expected(hint) == words


def test_sections_come_outer_before_inner_with_their_titles() -> None:
    found = {section.path: section for section in sections()}
    assert list(found) == [
        "",
        "model",
        "model.rotary",
        "model.patches",
        "data",
        "data.dates",
        "data.parallel",
        "data.text",
        "data.labelled",
        "data.images",
        "train",
    ]
    assert found["data"].title == "Where the data come from and how they become tokens"
    assert [s.option for s in found[""].settings] == ["--run"]
