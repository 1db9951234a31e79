"""Steps as written: lines, notes, where a failure is, and how it is told in one line."""

from __future__ import annotations

from typing import Any

import pytest
from torch import Tensor, nn

from headwise.errors import ConfigError
from headwise.see.walk.walk import Failed, trace
from headwise.see.walk.writing import one_line
from see.walk.walk_models import Block, Einsum, Llama, ids, numbers, step


def test_a_step_is_told_with_the_line_that_wrote_it() -> None:
    walk = trace(Block(causal=True), numbers(2, 10, 16))
    assert step(walk, "mask").code == 'scores = scores.masked_fill(~keep, float("-inf"))'
    assert step(walk, "softmax").code == "mixed = scores.softmax(-1) @ v"
    assert all(s.file.endswith("walk_models.py") and s.line for s in walk.steps if s.kind != "input")


def test_torchs_own_modules_have_no_line_and_are_told_in_the_order_about_them() -> None:
    layer = nn.TransformerEncoderLayer(16, 4, 64, batch_first=True)
    walk = trace(layer, numbers(2, 10, 16))
    assert {(s.file, s.line) for s in walk.steps} == {("", 0)}
    held = {s.name: s.held for s in walk.steps if s.held}
    assert held == {"Q, K, V": (10, 2, 16), "merge heads": (20, 16), "output projection": (10, 2, 16)}
    assert any("fast path" in note for note in walk.notes)
    assert not trace(Einsum(), ids()).notes and len(trace(Llama(), ids()).notes) == 1


def test_where_most_is_held_is_named() -> None:
    walk = trace(Block(), numbers(2, 10, 16))
    assert 0 < walk.peak < walk.bytes and walk.peak_at == "activation in inner.1"


def test_a_failure_in_one_line() -> None:
    class Fails(Block):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) @ x

    walk = trace(Fails(), numbers(2, 10, 16))
    assert walk.failed is not None
    line = one_line(walk.failed)
    assert line.count("\n") == 0 and "test_writing.py" in line and "RuntimeError" in line
    assert [each.split(" is ")[0] for each in walk.failed.operands] == ["x"] or len(walk.failed.operands) == 2
    assert one_line(Failed("", 0, "", "", "ValueError: no", ())) == "the pass fails at ValueError: no"


def test_an_error_of_the_users_own_is_told_with_its_own_line() -> None:
    class Raises(Block):
        def forward(self, x: Tensor) -> Tensor:
            x = super().forward(x)
            x = x + 1
            raise ValueError("not this")

    walk = trace(Raises(), numbers(2, 10, 16))
    assert walk.failed is not None and walk.failed.code == 'raise ValueError("not this")'
    before = next(s for s in walk.steps if s.code == "x = x + 1")
    assert walk.failed.line == before.line + 1 and f":{before.line + 1}:" in one_line(walk.failed)


@pytest.mark.parametrize("error", [GeneratorExit, SystemExit, type("Own", (BaseException,), {})])
def test_any_exception_is_told_in_one_line_and_an_interrupt_passes(error: type[BaseException]) -> None:
    class Raises(Block):
        kind: type[BaseException] = error

        def forward(self, x: Tensor) -> Tensor:
            super().forward(x)
            raise self.kind

    with pytest.raises(ConfigError, match=error.__name__) as told:
        trace(Raises(), numbers(2, 10, 16))
    assert "\n" not in str(told.value)
    Raises.kind = KeyboardInterrupt
    with pytest.raises(KeyboardInterrupt):
        trace(Raises(), numbers(2, 10, 16))


def test_an_output_without_scores_is_a_note_where_something_ran_and_an_error_where_nothing_did() -> None:
    class Says(Block):
        def forward(self, x: Tensor) -> str:  # pyright: ignore
            super().forward(x)
            return "done"

    class Yields(Block):
        def forward(self, x: Tensor) -> Any:
            yield super().forward(x)

    walk = trace(Says(), numbers(2, 10, 16))
    assert len(walk.steps) == len(trace(Block(), numbers(2, 10, 16)).steps)
    assert walk.notes == ("no tensor of scores in the output, a str",)
    with pytest.raises(ConfigError, match="a generator"):
        trace(Yields(), numbers(2, 10, 16))
