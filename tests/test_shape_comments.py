"""The checker of shape comments catches wrong comments; every comment in headwise is held against it."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
import torch

from shape_comments import check_shape_comments

SIZES = {"B": 2, "H": 3, "Dh": 4, "Tq": 5, "Tk": 7, "D": 12}

RIGHT = """
import torch

class Layer:
    def __init__(self):
        self.weight = torch.zeros(4, 12)  # [Dh, H*Dh]

def walk(q, k, mask=None):
    mask = None if mask is None else mask[:, None]  # [B, 1, Tq, Tk]
    scores = q @ k.transpose(-1, -2)  # [B, H, Tq, Tk]
    left, right = scores.split((2, 5), -1)  # [B, H, Tq, 2], [B, H, Tq, Tk-2]
    one, two = q + 1, q + 2  # [B, H, Tq, Dh]
    packed = torch.zeros(
        3, 2
    )  # [N, B]
    packed += 1  # [N, B]
    for _ in range(2):
        total = scores.sum()  # []
    mean: torch.Tensor = scores.mean(-1)  # [..., Tq]
    for each in (q, q[:1]):
        broad = each + 1  # [#B, H, Tq, Dh]
    last: tuple = (q, k)  # [B, H, Tq, Dh], [B, H, Tk, Dh] and prose after it
    steps = [1, 2]  # not a shape: [sic!]
    # [A, B, C]
    if mask is None:
        return scores.softmax(-1), None  # [B, H, Tq, Tk], [B]
    return scores  # [B, H, Tq, Tk]

def early(x):
    try:
        x = x @ torch.zeros(99, 1)  # [B]
    except RuntimeError:
        return x.flatten()  # [B*H]
"""


def load(folder: Path, source: str) -> ModuleType:
    path = folder / "specimen.py"
    path.write_text(source, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("specimen", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(module: ModuleType) -> None:
    q, k = torch.zeros(2, 3, 5, 4), torch.zeros(2, 3, 7, 4)
    module.walk(q, k)
    module.walk(q, k, torch.zeros(2, 5, 7))
    module.Layer()
    module.early(torch.zeros(2, 3))


def test_right_comments_pass_and_each_is_counted(tmp_path: Path) -> None:
    module = load(tmp_path, RIGHT)
    with check_shape_comments(module, SIZES) as seen:
        run(module)
    assert seen.missed == [f"line {RIGHT[: RIGHT.index('x @ torch')].count(chr(10)) + 1}: # [B]"]
    assert len(seen.checked) == 14
    loop = next(line for line in seen.checked if "total" in RIGHT.splitlines()[line - 1])
    assert seen.checked[loop] == 4, "two rounds in each of two calls"


WRONG_TWINS = [
    ("# [B, H, Tq, Tk]", "# [B, H, Tk, Tq]", "got [2, 3, 5, 7]"),
    ("# [B, 1, Tq, Tk]", "# [1, B, Tq, Tk]", "got [2, 1, 5, 7]"),
    ("# [Dh, H*Dh]", "# [Dh, H+Dh]", "H=3: got [4, 12]"),
    ("[B, H, Tq, 2], [B", "[B, H, Tq, 3], [B", "got [2, 3, 5, 2]"),
    ("Tk-2]", "Tk]", "got [2, 3, 5, 5]"),
    ("# [B, H, Tq, Dh]\n", "# [B, H, Dh, Tq]\n", "got [2, 3, 5, 4]"),
    (")  # [N, B]", ")  # [B, N]", "got [3, 2]"),
    ("+= 1  # [N, B]", "+= 1  # [B, B]", "got [3, 2]"),
    ("# []", "# [1]", "got []"),
    ("# [#B, H,", "# [B, H,", "got [1, 3, 5, 4]"),
    ("# [#B, H,", "# [#H, H,", "got [2, 3, 5, 4]"),
    ("# [..., Tq]", "# [..., Tk]", "got [2, 3, 5]"),
    ("[B, H, Tk, Dh] and", "[B, H, Tq, Dh] and", "got [2, 3, 7, 4]"),
    ("return scores  # [B, H, Tq, Tk]", "return scores  # [B, H, Tq]", "got [2, 3, 5, 7]"),
    ("softmax(-1), None  # [B, H, Tq, Tk]", "softmax(-1), None  # [B, Tq, H, Tk]", "got [2, 3, 5, 7]"),
    ("# [B*H]", "# [B+H]", "got [6]"),
    ("q + 2  # [B, H, Tq, Dh]", "q + 2  # [B], [B], [B]", "got 2 values"),
    ("total = scores.sum()", "total = float(scores.sum())", "got a float without a shape"),
]


@pytest.mark.parametrize(("right", "wrong", "message"), WRONG_TWINS, ids=[w for _, w, _ in WRONG_TWINS])
def test_a_wrong_twin_is_named(tmp_path: Path, right: str, wrong: str, message: str) -> None:
    assert right in RIGHT
    module = load(tmp_path, RIGHT.replace(right, wrong, 1))
    with pytest.raises(AssertionError) as caught, check_shape_comments(module, SIZES):
        run(module)
    assert message in str(caught.value)
    assert "specimen.py:" in str(caught.value)


@pytest.mark.parametrize("line", ["print(q)  # [B]", "for x in q:  # [B]\n        pass", "q: int  # [B]"])
def test_a_comment_on_a_line_that_makes_no_value_is_refused(tmp_path: Path, line: str) -> None:
    module = load(tmp_path, f"def walk(q):\n    {line}\n")
    with pytest.raises(AssertionError, match="assigns or returns"), check_shape_comments(module, SIZES):
        pass


def test_an_unknown_axis_in_arithmetic_is_named(tmp_path: Path) -> None:
    module = load(tmp_path, "def walk(q):\n    x = q  # [B, 2*Z]\n")
    with pytest.raises(AssertionError, match="'Z' is not defined"), check_shape_comments(module, SIZES):
        module.walk(torch.zeros(2, 4))


def test_the_tracer_is_taken_off_again(tmp_path: Path) -> None:
    import sys

    module = load(tmp_path, "def walk(q):\n    raise ValueError\n")
    before = sys.gettrace()
    with pytest.raises(ValueError), check_shape_comments(module, SIZES):
        module.walk(0)
    assert sys.gettrace() is before
