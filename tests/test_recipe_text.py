"""Whatever is written is read back, by our rules and by YAML 1.1's, and every fault names its line."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import asdict, replace
from typing import Any

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headwise.config import DataConfig, DatesConfig, ParallelConfig, RunConfig, TrainConfig
from headwise.errors import ConfigError
from headwise.recipe_text import parse_recipe, write_recipe


def plain(config: RunConfig) -> dict[str, Any]:
    """The values as YAML has them: lists for tuples."""

    def listed(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: listed(inner) for name, inner in value.items()}
        return [listed(inner) for inner in value] if isinstance(value, tuple) else value

    values: dict[str, Any] = listed(asdict(config))
    return values


@settings(max_examples=60)
@given(
    text=st.text(st.characters(codec="utf-8"), min_size=1).filter(lambda text: text.strip() != "")
    | st.from_regex(r"[-+.0-9eE_:]{1,8}", fullmatch=True),
    rate=st.floats(min_value=1e-300, max_value=1e300),
)
@example("1e5", 1e-05)
@example("1.5e5", 1e16)
@example("no", 1.0)
@example("1:30", 0.1)
@example("2021-01-01", 0.1)
@example("*a", 0.1)
@example("a\nb: c", 0.1)
def test_law_what_was_written_is_read_back_by_either_version(text: str, rate: float) -> None:
    config = replace(
        RunConfig(run=text, train=TrainConfig(learning_rate=rate)),
        data=DataConfig(
            kind="parallel",
            dates=DatesConfig(languages=("fr", "ja")),
            parallel=ParallelConfig(folder=text, test_source=text),
        ),
    )
    written = write_recipe(config)
    assert parse_recipe(written) == plain(config)
    assert yaml.safe_load(written) == plain(config)


def test_lists_stand_on_one_line_and_sections_in_the_block_form() -> None:
    lines = write_recipe(RunConfig()).splitlines()
    assert lines[:2] == ["run: runs/dates", "model:"]
    assert any(line.startswith("    languages: [") for line in lines)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-4", 1e-4), ("12e3", 12e3), (".5", 0.5), ("1_000", 1000), ("-.inf", float("-inf")),
        ("no", "no"), ("on", "on"), ("1:30", "1:30"), ("0x1F", "0x1F"), ("010", "010"),
        ("2021-01-01", "2021-01-01"), ("True", True), ("~", None), ("", None), ("'1e5'", "1e5"),
    ],
)  # fmt: skip
def test_scalars_are_what_they_look_like(text: str, value: object) -> None:
    found = parse_recipe(f"run: {text}\n")["run"]
    assert found == value and type(found) is type(value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("model: [", "line 1, column 9: "),
        ("run: a\nrun: b\n", "line 2, column 1: the key run comes twice"),
        ("run: &a x\nmodel: *a\n", "line 2, column 8: aliases (*name) are not for recipes"),
        ("run: a\nrun: \x07\n", "line 2 holds the character U+0007"),
        ("run: !!python/object:os.system x\n", "line 1, column 6: could not determine a constructor"),
        ("model: !!int x\n", "ValueError: invalid literal for int()"),
        ("model: !!timestamp x\n", "AttributeError: "),
        ("a: " + "[" * 5000, "RecursionError: "),
    ],
)
def test_a_fault_names_its_line(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse_recipe(text)
    assert str(raised.value).startswith(said)
    assert "\n" not in str(raised.value) and len(str(raised.value)) < 150


def test_torch_is_not_loaded_for_it() -> None:
    program = "import sys, headwise.recipe_text, headwise.checkpoint.settings; print('torch' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout == "False\n"
