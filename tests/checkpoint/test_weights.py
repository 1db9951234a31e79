"""Safetensors in and out: the bits, the permissions, and every way a file can be wrong."""

from __future__ import annotations

import os
import pickle
import stat
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from headwise.checkpoint.weights import fill_model, load_tensors, model_tensors, save_tensors
from headwise.errors import RunError
from headwise.files import write_text_atomically

TENSORS = {
    "weight": torch.arange(6.0).view(2, 3),
    "turned": torch.arange(6.0).view(2, 3).T,
    "half": torch.ones(3, dtype=torch.bfloat16),
    "number": torch.tensor(7),
    "bytes": torch.arange(5, dtype=torch.uint8),
    "empty": torch.zeros(0, 3),
}


@pytest.fixture(name="path")
def a_file(tmp_path: Path) -> Path:
    path = tmp_path / "model.safetensors"
    save_tensors(path, TENSORS, {"kind": "model", "step": 3, "number": 0.1, "name": "süß"})
    return path


def test_bits_and_description_come_back(path: Path) -> None:
    tensors, about = load_tensors(path)
    assert about == {"kind": "model", "step": 3, "number": 0.1, "name": "süß"}
    assert set(tensors) == set(TENSORS)
    for name, tensor in TENSORS.items():
        assert tensors[name].dtype == tensor.dtype
        assert torch.equal(tensors[name], tensor)


def test_equal_content_is_an_equal_file_and_nothing_lies_beside(path: Path) -> None:
    before = path.read_bytes()
    save_tensors(
        path, dict(reversed(TENSORS.items())), {"kind": "model", "step": 3, "number": 0.1, "name": "süß"}
    )
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]


@pytest.mark.parametrize("mask", [0o022, 0o077, 0o002])
def test_others_may_read_what_umask_allows(mask: int, tmp_path: Path) -> None:
    (tmp_path / ".b.writing").touch(0o600)  # of a killed process
    before = os.umask(mask)
    try:
        save_tensors(tmp_path / "a", TENSORS, {})
        write_text_atomically(tmp_path / "b", "text")
    finally:
        os.umask(before)
    for name in "ab":
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o666 & ~mask


def test_loaded_tensors_do_not_change_with_the_file(path: Path) -> None:
    tensors, _ = load_tensors(path)
    with path.open("r+b") as file:
        file.write(b"\xff" * path.stat().st_size)
    assert torch.equal(tensors["weight"], TENSORS["weight"])


def test_a_flipped_bit_anywhere_is_found(path: Path) -> None:
    content = path.read_bytes()
    for place in range(0, len(content), 7):
        path.write_bytes(content[:place] + bytes([content[place] ^ 4]) + content[place + 1 :])
        try:
            tensors, about = load_tensors(path)
        except RunError as error:
            assert str(path) in str(error)
        else:  # a bit of padding or of an unused part of the header: nothing else may have changed
            assert about["step"] == 3
            assert all(torch.equal(tensors[name], TENSORS[name]) for name in TENSORS)


@pytest.mark.parametrize("length", [0, 1, 8, 9, 100, -1, -4])
def test_a_truncated_file_is_named(length: int, path: Path) -> None:
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(RunError, match=r"model\.safetensors is damaged or no safetensors file"):
        load_tensors(path)


@pytest.mark.parametrize("content", [b"hello", b"\xff" * 100, b"\x80\x04" + b"." * 50, b"{}" * 20])
def test_garbage_is_named(content: bytes, path: Path) -> None:
    path.write_bytes(content)
    with pytest.raises(RunError, match=r"model\.safetensors is damaged or no safetensors file"):
        load_tensors(path)


class Trap:
    """Its pickle makes a file when it is loaded."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self._path,)


@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
def test_a_pickle_is_not_executed(protocol: int, path: Path) -> None:
    trap = path.parent / "sprung"
    path.write_bytes(pickle.dumps(Trap(trap), protocol))
    with pytest.raises(RunError, match="no safetensors file"):
        load_tensors(path)
    assert not trap.exists()
    pickle.loads(path.read_bytes())
    assert trap.exists()  # it would have been


def test_a_torch_file_is_not_executed(path: Path) -> None:
    trap = path.parent / "sprung"
    torch.save({"x": Trap(trap)}, path)
    with pytest.raises(RunError, match="no safetensors file"):
        load_tensors(path)
    assert not trap.exists()


def test_missing_and_unreadable_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="x is missing"):
        load_tensors(tmp_path / "x")
    (tmp_path / "folder").mkdir()
    with pytest.raises(RunError, match="folder is damaged or no safetensors file"):
        load_tensors(tmp_path / "folder")


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        (None, "was not written by headwise"),
        ({"format": "pt"}, "was not written by headwise"),
        ({"headwise": "{"}, "'headwise' is not JSON"),
        ({"headwise": "[" * 100_000}, "'headwise' is not JSON"),
        ({"headwise": "[1]"}, "expected an object"),
        ({"headwise": '{"crc32": 1}'}, "is damaged: its checksum is"),
        ({"headwise": '{"crc32": "x"}'}, "is damaged: its checksum is"),
    ],
)
def test_a_foreign_header_is_named(metadata: dict[str, str] | None, message: str, tmp_path: Path) -> None:
    save_file({"a": torch.zeros(3)}, tmp_path / "x.safetensors", metadata)
    with pytest.raises(RunError, match=rf"x\.safetensors .*{message}"):
        load_tensors(tmp_path / "x.safetensors")


def test_a_file_from_before_checksums_is_read(tmp_path: Path) -> None:
    save_file({"a": torch.zeros(3)}, tmp_path / "x", {"headwise": '{"kind": "model"}'})
    assert load_tensors(tmp_path / "x")[1] == {"kind": "model"}


def test_every_misfit_is_listed_and_nothing_is_filled() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 4))
    before = [p.detach().clone() for p in model.parameters()]
    tensors = {"0.weight": torch.zeros(3, 2), "0.bias": torch.zeros(4), "1.weight": torch.zeros(4, 3)}
    with pytest.raises(RunError) as raised:
        fill_model(model, tensors | {"2.bias": torch.zeros(1)}, Path("x"))
    assert str(raised.value) == (
        "x does not fit the model: 1.bias: missing; 2.bias: unexpected; 0.bias: file [4], model [3]"
    )
    for old, new in zip(before, model.parameters(), strict=True):
        assert torch.equal(old, new)


def test_tied_parameters_are_written_once(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    model[1].weight = model[0].weight
    save_tensors(tmp_path / "x", model_tensors(model), {})
    tensors, _ = load_tensors(tmp_path / "x")
    assert set(tensors) == {"0.weight", "0.bias", "1.bias"}
    fill_model(model, {name: torch.ones_like(t) for name, t in tensors.items()}, tmp_path / "x")
    assert torch.equal(model[1].weight, torch.ones(3, 3))


def test_many_misfits_are_named_in_part_and_counted() -> None:
    model = nn.Sequential(*(nn.Linear(2, 2) for _ in range(5)))
    with pytest.raises(RunError, match=r"0\.weight: missing; .*1\.bias: missing; and 6 more$"):
        fill_model(model, {}, Path("x"))
