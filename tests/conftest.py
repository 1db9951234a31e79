"""What every test gets: seeds, one thread, golden text, the shared folder."""

from __future__ import annotations

import gc
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import settings

TESTS = Path(__file__).resolve().parent

# The machine decides how long an example takes, and nothing random may decide whether CI passes.
settings.register_profile("headwise", deadline=None, derandomize=True, database=None)
settings.load_profile("headwise")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--accept", action="store_true", help="rewrite golden text to what came; then read the diff"
    )


def pytest_collection_finish() -> None:
    """What was imported stays: the garbage collector need not look through it again in every test."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def seeded() -> Iterator[int]:
    """Every test starts from the same seeds on one thread, and leaves no trace of its own."""
    number = 1
    states = random.getstate(), np.random.get_state()
    dtype = torch.get_default_dtype()
    with torch.random.fork_rng(devices=[]):
        random.seed(number)
        np.random.seed(number)
        torch.manual_seed(number)
        torch.set_num_threads(1)  # two workers on two cores: more threads only wait for each other
        yield number
    random.setstate(states[0])
    np.random.set_state(states[1])
    torch.set_default_dtype(dtype)


@dataclass(frozen=True)
class Golden:
    """golden(name, text): text must equal FOLDER/NAME.txt; `pytest --accept` rewrites that file."""

    folder: Path
    accept: bool

    def __call__(self, name: str, text: str) -> None:
        path = self.folder / f"{name}.txt"
        if self.accept:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8", newline="\n")
            return
        assert path.exists(), f"no golden text {path}: run pytest --accept, then read it\n{text}"
        assert text == path.read_text(encoding="utf-8"), f"differs from {path}; pytest --accept takes it"


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """Compare with tests/golden/NAME.txt."""
    return Golden(TESTS / "golden", accept=bool(request.config.getoption("--accept")))


@pytest.fixture
def shared() -> Callable[[str], Path]:
    """shared("data/multi30k"): that path of the folder beside the checkout, or a skip that says why."""

    def find(name: str) -> Path:
        path = TESTS.parent.parent / "shared" / name
        if not path.exists():
            pytest.skip(f"../shared/{name} is not beside this checkout")
        return path

    return find
