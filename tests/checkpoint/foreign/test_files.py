"""Files that are missing, damaged, or point outside: each is one sentence, and no pickle is opened."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from checkpoint.foreign.edited import edited
from headwise.checkpoint.foreign.files import read_object, read_weights
from headwise.checkpoint.foreign.load import load
from headwise.errors import RunError

AGAIN = "; download or copy it again"


def refusal(path: Path, read: Any = read_weights) -> str:
    with pytest.raises(RunError) as refused:
        read(path)
    text = str(refused.value)
    assert "\n" not in text
    return text.replace(str(path.parent), "HERE").replace(str(path), "HERE")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "HERE/config.json is missing: expected a checkpoint's config.json"),
        (b"{", "HERE/config.json is damaged: expected JSON, got Expecting property name"),
        (b"\xff", "HERE/config.json is damaged: expected JSON, got 'utf-8' codec"),
        (b"[" * 100_000, "HERE/config.json is damaged: expected JSON, got "),
        (b"[1]", "HERE/config.json is damaged: expected an object, got list"),
        (b"null", "HERE/config.json is damaged: expected an object, got NoneType"),
    ],
)
def test_what_is_no_object_is_refused(content: bytes | None, said: str, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    if content is not None:
        path.write_bytes(content)
    text = refusal(path, read_object)
    assert text.startswith(said) and text.endswith(AGAIN)


def test_a_file_that_cannot_be_opened_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def deny(*_: object, **__: object) -> str:
        raise PermissionError(13, "Permission denied")

    (tmp_path / "config.json").touch()
    monkeypatch.setattr(Path, "read_text", deny)
    assert (
        refusal(tmp_path / "config.json", read_object)
        == f"cannot read HERE/config.json: Permission denied{AGAIN}"
    )


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo, lambda path: path.symlink_to("gone")])
@pytest.mark.parametrize(
    "name",
    [
        *("config.json", "generation_config.json", "tokenizer.json"),
        *("model.safetensors", "model.safetensors.index.json", "other.safetensors"),
    ],
)
def test_what_is_no_file_is_refused(name: str, make: Callable[[Path], None], tmp_path: Path) -> None:
    """A directory, a pipe that nobody writes into, a link that leads nowhere."""
    folder = edited(tmp_path / "x", "GPT2LMHeadModel")
    if name.endswith((".safetensors", "index.json")):
        (folder / "model.safetensors").unlink()
    (folder / name).unlink(missing_ok=True)
    make(folder / name)
    assert refusal(folder, load) == f"HERE/x/{name} is no file: expected one, or a link to one{AGAIN}"


def test_a_link_to_a_file_is_one(tmp_path: Path) -> None:
    folder = edited(tmp_path / "x", "GPT2LMHeadModel")
    for name in ("config.json", "model.safetensors"):
        (folder / name).rename(tmp_path / name)
        (folder / name).symlink_to(Path("..") / name)
    assert load(folder).layout == "gpt2"


def test_a_truncated_file_is_refused(tmp_path: Path) -> None:
    folder = edited(tmp_path / "whole", "GPT2LMHeadModel")
    path, content = folder / "model.safetensors", (folder / "model.safetensors").read_bytes()
    for length in (0, 7, 100, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:length])
        with pytest.raises(
            RunError, match=r"model\.safetensors is damaged or no safetensors file: .*; download"
        ):
            load(folder)


class Trap:
    """Unpickling it would leave a file behind."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return Path.touch, (self.path,)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "pytorch_model-00001-of-00002.bin", "weights.pt"])
def test_pickled_weights_are_refused_unopened(name: str, tmp_path: Path) -> None:
    folder = edited(tmp_path / "x", "GPT2LMHeadModel")
    (folder / "model.safetensors").unlink()
    (folder / name).write_bytes(pickle.dumps(Trap(tmp_path / "sprung")))
    assert refusal(folder, load).removeprefix("HERE/x") == (
        f" has its weights in {name}, and reading a pickle runs what its author wrote: expected "
        "model.safetensors; convert it where you trust it: "
        "AutoModel.from_pretrained(...).save_pretrained(..., safe_serialization=True)"
    )
    assert not (tmp_path / "sprung").exists()


def parts(folder: Path, weight_map: object, **files: dict[str, torch.Tensor]) -> Path:
    folder.mkdir(exist_ok=True)
    for name, tensors in files.items():
        save_file(tensors, folder / f"{name}.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    return folder


ONE, TWO = {"a": torch.ones(2)}, {"b": torch.ones(3)}


def test_parts_are_put_together(tmp_path: Path) -> None:
    folder = parts(tmp_path / "x", {"a": "p.safetensors", "b": "q.safetensors"}, p=ONE, q=TWO)
    assert sorted(read_weights(folder)) == ["a", "b"]
    save_file(TWO, folder / "model.safetensors")  # as transformers has it: the one file goes first
    assert sorted(read_weights(folder)) == ["b"]


def test_one_file_may_have_any_name(tmp_path: Path) -> None:
    save_file(ONE, tmp_path / "weights.safetensors")
    assert sorted(read_weights(tmp_path)) == ["a"]
    save_file(TWO, tmp_path / "more.safetensors")
    assert refusal(tmp_path).endswith(
        " holds more.safetensors, weights.safetensors: expected model.safetensors, "
        f"or parts with model.safetensors.index.json{AGAIN}"
    )


def test_no_weights_at_all_are_refused(tmp_path: Path) -> None:
    assert " holds no *.safetensors: expected model.safetensors, or parts" in refusal(tmp_path)


@pytest.mark.parametrize(
    ("weight_map", "said"),
    [
        (["a"], "is damaged: expected weight_map, the file of each tensor"),
        ({"a": 1}, "is damaged: expected weight_map, the file of each tensor"),
        ({"a": "p.safetensors", "b": "gone.safetensors"}, "names files that are missing: gone.safetensors"),
        ({"a": "../x.safetensors"}, "names files outside its directory: ../x.safetensors"),
        ({"a": "/etc/passwd", "b": ".."}, "names files outside its directory: .., /etc/passwd"),
        ({"a": "sub/x.safetensors"}, "names files outside its directory: sub/x.safetensors"),
        ({"a": ""}, "names files outside its directory: ''"),
        ({"a": "x\ny"}, "names files that are missing: 'x\\ny'"),
        ({"a": "\ud800"}, "names files that are missing: '\\ud800'"),
        ({"a": "x\0y"}, "names files that are missing: 'x\\x00y'"),
        ({"a": "x" * 5000}, f"names files that are missing: '{'x' * 200}...'"),
        ({"a": "p.safetensors", "c": "q.safetensors"}, "names tensors that no part holds: c"),
    ],
)
def test_an_index_that_leads_astray_is_refused(weight_map: object, said: str, tmp_path: Path) -> None:
    save_file(ONE, tmp_path / "x.safetensors")  # outside
    folder = parts(tmp_path / "x", weight_map, p=ONE, q=TWO)
    assert refusal(folder) == f"HERE/x/model.safetensors.index.json {said}{AGAIN}"


def test_a_tensor_of_two_parts_is_refused(tmp_path: Path) -> None:
    folder = parts(tmp_path / "x", {"a": "p.safetensors", "b": "q.safetensors"}, p=ONE, q={**ONE, **TWO})
    assert refusal(folder) == f"HERE/x/q.safetensors holds tensors of another part: a{AGAIN}"
