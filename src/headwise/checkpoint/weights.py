"""Tensors in and out of safetensors files: named, checked, never unpickled."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from headwise.errors import RunError
from headwise.files import write_atomically

_SHOWN = 4  # misfits that one line of error names; they mostly have one cause


def save_tensors(path: Path, tensors: Mapping[str, Tensor], about: Mapping[str, object]) -> None:
    """Write tensors and a JSON-able description into one file, atomically.

    One file, so that a crash cannot leave tensors of one moment beside a description of another. With
    a checksum, since the format has none: a flipped bit in a weight would otherwise pass unseen.
    """
    contiguous = {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
    header = json.dumps({**about, "crc32": _checksum(contiguous, about)})
    # The library's save_file writes to a file with a name of its own, which a kill would leave behind.
    write_atomically(path, lambda beside: beside.write_bytes(save(contiguous, {"headwise": header})))


def load_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read what `save_tensors` wrote: the tensors and the description.

    Errors: RunError naming the file when it is missing, damaged, or not of headwise.
    """
    tensors, metadata = read_tensors(path, "restore it or train again")
    if "headwise" not in metadata:
        raise RunError(
            f"{path} was not written by headwise (its header has no 'headwise' entry); it is left alone"
        )
    try:
        about = json.loads(metadata["headwise"])
    except (ValueError, RecursionError):
        raise RunError(
            f"{path} has a damaged header: 'headwise' is not JSON; restore it or train again"
        ) from None
    if not isinstance(about, dict):
        raise RunError(f"{path} has a damaged header: expected an object; restore it or train again")
    about = cast("dict[str, Any]", about)
    expected = about.pop("crc32", None)
    if expected is not None and expected != (got := _checksum(tensors, about)):
        raise RunError(
            f"{path} is damaged: its checksum is {got}, expected {expected}; restore it or train again"
        )
    return tensors, about


def read_tensors(path: Path, remedy: str) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Read any safetensors file: the tensors, and the entries of its header.

    Errors: RunError naming the file when it is missing or damaged, with the remedy.
    """
    try:
        # straight into memory of our own: a mapped file that is replaced later must not change under us
        opened: Any = safe_open(path, framework="pt")
        with opened as file:
            metadata: dict[str, str] = file.metadata() or {}
            names: list[str] = list(file.keys())
            return {name: file.get_tensor(name).clone() for name in names}, metadata
    except FileNotFoundError:
        raise RunError(f"{path} is missing: expected a safetensors file; {remedy}") from None
    except (SafetensorError, OSError, ValueError, TypeError, AttributeError) as error:
        # the last two: a torch type that the library does not know
        reason = getattr(error, "strerror", None) or error
        raise RunError(f"{path} is damaged or no safetensors file: {reason}; {remedy}") from None


def model_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Every parameter once: tied ones under their first name."""
    return dict(model.named_parameters())


def check_fit(tensors: Mapping[str, Tensor], wanted: Mapping[str, Tensor], path: Path) -> None:
    """Refuse tensors of a file that are not the wanted ones.

    Errors: RunError listing the missing, unexpected and misshapen tensors, and how many more there are.
    """
    problems = [f"{name}: missing" for name in wanted if name not in tensors]
    problems += [f"{name}: unexpected" for name in tensors if name not in wanted]
    problems += [
        f"{name}: file {list(tensors[name].shape)}, model {list(wanted[name].shape)}"
        for name in wanted
        if name in tensors and tensors[name].shape != wanted[name].shape
    ]
    if problems:
        more = f"; and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
        raise RunError(f"{path} does not fit the model: {'; '.join(problems[:_SHOWN])}{more}")


@torch.no_grad()
def fill_model(model: nn.Module, tensors: Mapping[str, Tensor], path: Path) -> None:
    """Copy tensors into the model's parameters.

    Errors: RunError as check_fit; nothing is filled half.
    """
    wanted = model_tensors(model)
    check_fit(tensors, wanted, path)
    for name, parameter in wanted.items():
        parameter.copy_(tensors[name])


def _checksum(tensors: Mapping[str, Tensor], about: Mapping[str, object]) -> int:
    """Of the description and of every tensor's name and bytes; types and shapes the format guards."""
    total = zlib.crc32(json.dumps(about, sort_keys=True).encode())
    for name in sorted(tensors):
        total = zlib.crc32(name.encode(), total)
        total = zlib.crc32(tensors[name].flatten().view(torch.uint8).numpy().data, total)
    return total
