"""Training tests do without TensorBoard unless they ask for it: its import takes seconds."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from importlib.machinery import ModuleSpec

import pytest

from headwise.config import DataConfig
from headwise.data.corpus import Corpus, load_corpus
from headwise.train import prepare

_corpora: dict[DataConfig, Corpus] = {}


def _load_once(config: DataConfig) -> Corpus:
    if config.kind != "dates":
        return load_corpus(config)
    if config not in _corpora:
        _corpora[config] = load_corpus(config)
    return _corpora[config]


@pytest.fixture(autouse=True)
def light(monkeypatch: pytest.MonkeyPatch) -> None:
    """No TensorBoard, and the dates of a configuration are made once."""
    find: Callable[..., ModuleSpec | None] = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "tensorboard" else find(name, *rest)
    )
    monkeypatch.setattr(prepare, "load_corpus", _load_once)
