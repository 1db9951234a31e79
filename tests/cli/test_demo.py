"""The whole of the demo, made small: it ends with the exact match of each language."""

from __future__ import annotations

from importlib import util
from pathlib import Path

import pytest

from headwise.cli import main

DEMO = [
    "--model.d_model=16 --model.num_heads=2 --model.d_ff=32",
    "--data.dates.train_size=64 --data.dates.validation_size=8 --data.dates.test_size=20",
    "--train.max_steps=2 --train.validate_every=2 --train.warmup_steps=1 --train.samples=0 --train.threads=1",
]


def demo_of(folder: Path) -> list[str]:
    return ["demo", "--run", str(folder), *" ".join(DEMO).split()]


@pytest.mark.slow
def test_demo_ends_with_the_exact_match_of_each_language(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(demo_of(tmp_path)) == 0
    output, error = capsys.readouterr()
    lines = output.splitlines()
    assert [line.split()[0] for line in lines[-2:]] == ["German", "Chinese"]
    assert all(line.endswith("exact match 0.0 %") and "0 of 10 unseen right" in line for line in lines[-2:])
    assert output.count("wrong: ") == 12
    for name in ("attention.png", "positions.png"):
        assert str(tmp_path / name) in output
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
    assert "Translating 20 test sentences" in error

    weights = (tmp_path / "model.safetensors").stat().st_mtime_ns
    assert main(demo_of(tmp_path)) == 0
    assert capsys.readouterr().out == output
    assert (tmp_path / "model.safetensors").stat().st_mtime_ns == weights, "a finished run was trained again"


@pytest.mark.slow
def test_demo_without_matplotlib_says_so_and_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    find_spec = util.find_spec
    monkeypatch.setattr(util, "find_spec", lambda name: None if name == "matplotlib" else find_spec(name))
    assert main(demo_of(tmp_path)) == 0
    output = capsys.readouterr().out
    assert "no pictures: drawing attention needs matplotlib, which is not installed: pip install" in output
    assert output.splitlines()[-1].endswith("exact match 0.0 %")
    assert not list(tmp_path.glob("*.png"))


@pytest.mark.slow
def test_a_language_without_a_test_sentence_is_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*demo_of(tmp_path), "--data.dates.test_size=1"]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert "of 1 unseen right" in last
