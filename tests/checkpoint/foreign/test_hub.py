"""Names on the hub: what is asked for, what is said when nobody answers. Nothing here touches the network."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
from huggingface_hub.errors import LocalEntryNotFoundError

import headwise
from checkpoint.foreign.edited import original
from headwise.checkpoint.foreign.hub import is_hub_name
from headwise.errors import MissingExtra, RunError


@pytest.mark.parametrize(
    ("name", "could_be"),
    [
        *[("gpt2", True), ("org/name", True), ("sentence-transformers/all-MiniLM-L6-v2", True)],
        *[
            ("./gpt2", False),
            ("/gpt2", False),
            ("a/b/c", False),
            ("../x", False),
            ("", False),
            ("a b", False),
        ],
        *[("a..b", False), ("org/", False), ("~/x", False), ("gpt2\n", False)],
    ],
)
def test_what_could_be_a_name(name: str, could_be: bool) -> None:
    assert is_hub_name(name) is could_be


def test_only_what_is_read_is_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, list[str]]] = []

    def fetch(name: str, allow_patterns: list[str]) -> str:
        asked.append((name, allow_patterns))
        return str(original("GPT2LMHeadModel"))

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fetch)
    assert headwise.load("org/name").layout == "gpt2"
    ((name, patterns),) = asked
    assert name == "org/name"
    assert not any(pattern.endswith((".bin", ".py", "*")) for pattern in patterns)
    assert {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json"} < set(patterns)


@pytest.mark.parametrize(
    "error",
    [LocalEntryNotFoundError("no\nnetwork"), OSError("no\nnetwork"), RuntimeError("no\nnetwork")],
    ids=lambda error: type(error).__name__,
)
def test_a_hub_that_does_not_answer_is_one_line(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> str:
        raise error

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)
    with pytest.raises(RunError) as refused:
        headwise.load("gpt2")
    assert str(refused.value) == (
        f"gpt2 is no directory here and could not be fetched from the hub: {type(error).__name__}: "
        "no network; check the name and the network, or give a directory"
    )


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(MissingExtra) as refused:
        headwise.load("gpt2")
    assert str(refused.value) == (
        "gpt2 is no directory here, and its download needs huggingface_hub, which is not installed: "
        "pip install 'headwise[hub]'"
    )


def test_a_directory_goes_before_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gpt2").symlink_to(original("BertModel"))
    monkeypatch.chdir(tmp_path)
    assert headwise.load("gpt2").layout == "bert"
