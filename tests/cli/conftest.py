"""A run that takes a second to train, and somebody who types."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable

import pytest

from headwise.train.loop import train
from tiny_run import silent, tiny, tiny_kind


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A trained run, bad at everything."""
    folder = tmp_path_factory.mktemp("runs") / "tiny"
    train(tiny(folder), silent())
    return str(folder)


@pytest.fixture(scope="session")
def run_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """run_of("masked"): a trained run of another kind than translation."""
    made: dict[str, str] = {}

    def of(kind: str) -> str:
        if kind not in made:
            folder = tmp_path_factory.mktemp("kinds") / kind
            train(tiny_kind(kind, folder), silent())
            made[kind] = str(folder)
        return made[kind]

    return of


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> Callable[[str | bytes], None]:
    """Put text on standard input."""

    def put(text: str | bytes) -> None:
        content = text if isinstance(text, bytes) else text.encode("utf-8")
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))

    return put
