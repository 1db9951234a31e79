"""What the commands that look at a model share: its options, the time to load it, where the report goes."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from headwise.cli.arguments import CommandParser
from headwise.cli.targets import SECONDS, add_running, add_target, check_seconds, write_report
from headwise.errors import ConfigError


def test_a_target_is_told_the_same_way_everywhere() -> None:
    parser = CommandParser("look", "TARGET", "Look at a model.")
    add_target(parser)
    add_running(parser)
    words = ["m.py", "--kind", "decoder", "--pad-id", "3", "--layout", "time-major"]
    assert parser.parse([*words, "--device", "cpu", "--load-timeout", "2"]) == {
        "target": "m.py", "kind": "decoder", "pad-id": 3, "layout": "time-major", "device": "cpu",
        "load-timeout": 2.0,
    }  # fmt: skip


@pytest.mark.parametrize("seconds", [0.0, -1.0, math.inf, math.nan])
def test_the_time_to_load_must_be_a_time(seconds: float) -> None:
    with pytest.raises(ConfigError, match="--load-timeout must be above 0 seconds"):
        check_seconds({"load-timeout": seconds})
    assert check_seconds({}) == SECONDS and check_seconds({"load-timeout": 0.5}) == 0.5


def test_a_report_goes_where_it_was_asked_for(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    seen: list[tuple[bool, int]] = []

    def form(color: bool, width: int) -> str:
        seen.append((color, width))
        return "half \ud800, whole \u4e2d"

    write_report(form, None)
    assert capfd.readouterr().out == "half \\ud800, whole \u4e2d\n"
    write_report(lambda color, width: "told\n", str(tmp_path / "deep" / "r.txt"))
    assert (tmp_path / "deep" / "r.txt").read_text() == "told\n" and capfd.readouterr().out == ""
    assert seen == [(False, 100)]
